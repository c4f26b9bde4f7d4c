"""Preparation: large scopes are analysed before somebody asks, so that a first recall reads."""

from __future__ import annotations

from tallystick.memory import MemoryContext
from tallystick.memory.recall import prepare_scope
from tallystick.storage import scopes

__all__ = ["Preparation"]


class Preparation:
    """Looks, when called, at the scopes that were written since the last time. Used by one thread
    at a time.
    """

    def __init__(self, context: MemoryContext) -> None:
        self._context = context
        self._seen: dict[int, int] = {}
        """By scope its revision at the last look."""

    def __call__(self) -> int:
        """Analyse each scope that lacks it, and return their number."""
        database = self._context.store.database
        with database.read() as connection:
            revisions = scopes.all_revisions(connection)
        prepared = 0
        for scope_id, revision in revisions.items():
            if self._seen.get(scope_id) == revision:
                continue
            with database.read() as connection:
                prepared += prepare_scope(connection, self._context, scope_id)
            self._seen[scope_id] = revision
        return prepared
