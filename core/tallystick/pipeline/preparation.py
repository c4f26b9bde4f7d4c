"""Preparation: large scopes are analysed before somebody asks, so that a first recall reads."""

from __future__ import annotations

from tallystick.errors import TallystickError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.memory.recall import prepare_scope
from tallystick.storage import scopes


class Preparation:
    """Looks, when called, at the scopes that were written since the last time, and at those of
    which the segment could not be kept. Used by one thread at a time.
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
            try:
                with database.read() as connection:
                    prepared += prepare_scope(connection, self._context, scope_id)
            except TallystickError as error:
                # It is tried again after the next write; a recall does it by itself meanwhile, and
                # says what is wrong. Jobs and other chores do not wait for it.
                get_logger("pipeline").warning("scope.not_prepared", error=type(error).__name__)
            if not self._context.corpora.is_waiting(scope_id):
                self._seen[scope_id] = revision
        return prepared
