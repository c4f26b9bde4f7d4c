"""Scopes as rows: the number that every predicate uses, the secret of its part keys, its text statistics."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, insert, select, update

from tallystick.records import Scope
from tallystick.storage import tables
from tallystick.storage.rows import new_key

__all__ = ["ScopeRow", "TextStatistics", "add_text", "all_scopes", "ensure", "find", "named", "statistics"]

_t = tables.scopes
_BY_NAMES = select(_t.c.id, _t.c.name, _t.c.secret).where(_t.c.name.in_(bindparam("names", expanding=True)))
_BY_ID = select(_t.c.id, _t.c.name, _t.c.secret).where(_t.c.id == bindparam("id"))
_INSERT = insert(_t)
_STATISTICS = select(_t.c.documents, _t.c.words).where(_t.c.id.in_(bindparam("ids", expanding=True)))
_ADD_TEXT = (
    update(_t)
    .where(_t.c.id == bindparam("scope_id"))
    .values(documents=_t.c.documents + bindparam("more_documents"), words=_t.c.words + bindparam("more_words"))
)


@dataclass(frozen=True)
class ScopeRow:
    """A scope that has been written to."""

    id: int
    scope: Scope
    secret: bytes
    """Key of the HMAC under which this scope's bodies are stored once."""


@dataclass(frozen=True)
class TextStatistics:
    """Size of the searchable text of some scopes together."""

    documents: int
    words: int

    @property
    def average_length(self) -> float:
        """Words per document; 1.0 when there are none."""
        return self.words / self.documents if self.documents else 1.0


def ensure(tx: Connection, scope: Scope) -> ScopeRow:
    """The row of `scope`, made with a fresh secret when it is new."""
    found = find(tx, [scope])
    if found:
        return found[0]
    secret = os.urandom(32)
    result = tx.execute(_INSERT, {"name": str(scope), "secret": secret})
    return ScopeRow(new_key(result), scope, secret)


def find(connection: Connection, scopes: Iterable[Scope]) -> list[ScopeRow]:
    """The rows of those scopes that have been written to, in no particular order."""
    names = [str(scope) for scope in scopes]
    if not names:
        return []
    return [
        ScopeRow(row.id, Scope.parse(row.name), bytes(row.secret))
        for row in connection.execute(_BY_NAMES, {"names": names})
    ]


def all_scopes(connection: Connection) -> list[Scope]:
    """Every scope that has been written to, by name."""
    return [Scope.parse(name) for name in connection.execute(select(_t.c.name).order_by(_t.c.name)).scalars()]


def named(connection: Connection, scope_id: int) -> ScopeRow:
    """The row with this number."""
    row = connection.execute(_BY_ID, {"id": scope_id}).one()
    return ScopeRow(row.id, Scope.parse(row.name), bytes(row.secret))


def statistics(connection: Connection, scope_ids: Iterable[int]) -> TextStatistics:
    """Text statistics of these scopes together, and of no others."""
    rows = connection.execute(_STATISTICS, {"ids": list(scope_ids)}).all()
    return TextStatistics(sum(row.documents for row in rows), sum(row.words for row in rows))


def add_text(tx: Connection, scope_id: int, *, documents: int, words: int) -> None:
    """Move the statistics of a scope by these differences."""
    tx.execute(_ADD_TEXT, {"scope_id": scope_id, "more_documents": documents, "more_words": words})
