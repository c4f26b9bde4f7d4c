"""Scopes as rows: the number that every predicate uses, the secret of its part keys, the revision
of its text.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from tallystick.records import Scope
from tallystick.storage.engine import tables
from tallystick.storage.engine.batches import Read
from tallystick.storage.engine.database_errors import readable
from tallystick.storage.engine.prepared import Prepared, in_list, text_list, upsert
from tallystick.storage.engine.writes import require
from tallystick.storage.rows import settings_rows

_t = tables.scopes
_ROWS = select(_t.c.id, _t.c.name, _t.c.secret, _t.c.revision)
_BY_NAMES = Prepared(_ROWS.where(in_list(_t.c.name, "names")))
_BY_ID = Prepared(select(_t.c.id, _t.c.name, _t.c.secret).where(_t.c.id == bindparam("id")))
_INSERT = Prepared(upsert(_t, ("name", "secret"), key=("name",)))
_BY_NAME = Prepared(select(_t.c.id, _t.c.secret).where(_t.c.name == bindparam("name")))
_NEXT_REVISION = Prepared(
    "UPDATE scopes SET revision = revision + 1 WHERE id = :scope_id RETURNING revision"
)
_RAISE_FLOOR = Prepared(
    "UPDATE scopes SET revision = revision + 1, floor = revision + 1 WHERE id = :scope_id"
)
_FLOOR = Prepared(select(_t.c.floor).where(_t.c.id == bindparam("scope_id")))
_CHANGING = Prepared(
    "UPDATE scopes SET revision = revision + 1 WHERE name = :name RETURNING id, secret, revision"
)


FROZEN = "mutations.frozen"
"""Name of the setting by which an operator suspends changes of memory in every scope."""
AUTONOMY_FROZEN = "autonomy.frozen"
"""Name of the setting by which an operator suspends what nobody asked for: learning, reflection."""
_IS_FROZEN = Prepared(
    select(tables.settings.c.value).where(tables.settings.c.name == bindparam("name"))
)


@dataclass(frozen=True)
class ScopeRow:
    """A scope that has been written to."""

    id: int
    scope: Scope
    secret: bytes
    """Key of the HMAC under which this scope's bodies are stored once."""


class KnownScopes:
    """The rows of the scopes that a process has written to lately, by which it can name what it
    will read before it has the lock. A hint: what is read by a row that is not, or no longer, the
    scope's is not used.
    """

    def __init__(self, most: int = 1_000) -> None:
        self._most = most
        self._rows: dict[Scope, ScopeRow] = {}

    def get(self, scope: Scope) -> ScopeRow | None:
        """Return the row of a scope, or None where it is not known."""
        return self._rows.get(scope)

    def keep(self, row: ScopeRow) -> None:
        """Remember a row."""
        if row.scope not in self._rows and len(self._rows) >= self._most:
            self._rows.clear()
        self._rows[row.scope] = row


def ensure(tx: Connection, scope: Scope) -> ScopeRow:
    """Return the row of `scope`, created with a fresh secret where there is none."""
    rows = _BY_NAME(tx, {"name": str(scope)})
    if not rows:
        # Another process may create it at the same time: then this waits for it, and takes its row.
        _INSERT(tx, {"name": str(scope), "secret": os.urandom(32)})
        rows = _BY_NAME(tx, {"name": str(scope)})
    return ScopeRow(rows[0][0], scope, bytes(rows[0][1]))


class ScopeRevision(NamedTuple):
    """A scope and the revision of its text."""

    row: ScopeRow
    revision: int


def changing_ahead(scope: Scope) -> Read:
    """Return what is read ahead of a unit that calls `changing`."""
    return _CHANGING, {"name": str(scope)}


def ensure_ahead(scope: Scope) -> Read:
    """Return what is read ahead of a unit that calls `ensure`."""
    return _BY_NAME, {"name": str(scope)}


def frozen_ahead() -> Read:
    """Return what is read ahead of a unit that asks whether memory is frozen."""
    return _IS_FROZEN, {"name": FROZEN}


def changing(tx: Connection, scope: Scope) -> ScopeRevision:
    """Same as `ensure` and `next_revision` in one statement, for callers that change the text of a
    scope most of the time.
    """
    require(tx, str(scope))
    rows = _CHANGING(tx, {"name": str(scope)})
    if rows:
        number, secret, revision = rows[0]
        return ScopeRevision(ScopeRow(number, scope, bytes(secret)), int(revision))
    row = ensure(tx, scope)
    return ScopeRevision(row, next_revision(tx, row.id))


def find(connection: Connection, scopes: Iterable[Scope]) -> list[ScopeRow]:
    """Return the rows of those scopes that have been written to, in no particular order."""
    return [row for row, _ in revisions(connection, scopes)]


def revisions(connection: Connection, scopes: Iterable[Scope]) -> list[ScopeRevision]:
    """Same as `find`, each row with the revision of the scope's text."""
    names = [str(scope) for scope in scopes]
    if not names:
        return []
    with readable("a scope"):
        return [
            ScopeRevision(ScopeRow(number, Scope.parse(name), bytes(secret)), revision)
            for number, name, secret, revision in _BY_NAMES(
                connection, {"names": text_list(connection, names)}
            )
        ]


def all_scopes(connection: Connection) -> list[Scope]:
    """Return every scope that has been written to, by name."""
    return [
        Scope.parse(name)
        for name in connection.execute(select(_t.c.name).order_by(_t.c.name)).scalars()
    ]


def get_by_id(connection: Connection, scope_id: int) -> ScopeRow:
    """Return the row with this number."""
    ((number, name, secret),) = _BY_ID(connection, {"id": scope_id})
    with readable("a scope"):
        return ScopeRow(number, Scope.parse(name), bytes(secret))


def all_revisions(connection: Connection) -> dict[int, int]:
    """Return the revision of every scope's text, by the scope's number."""
    return {row.id: row.revision for row in connection.execute(select(_t.c.id, _t.c.revision))}


def next_revision(tx: Connection, scope_id: int) -> int:
    """Return a new revision of a scope's text, for the rows that this transaction changes."""
    ((revision,),) = _NEXT_REVISION(tx, {"scope_id": scope_id})
    return int(revision)


def raise_floor(tx: Connection, scope_id: int) -> None:
    """Note that text of a scope is erased: what was derived before is not used again."""
    _RAISE_FLOOR(tx, {"scope_id": scope_id})


def floor_of(connection: Connection, scope_id: int) -> int:
    """Return the revision at which text of a scope was last erased, 0 where none was."""
    rows = _FLOOR(connection, {"scope_id": scope_id})
    return int(rows[0][0]) if rows else 0


def all_floors(connection: Connection) -> dict[int, int]:
    """Return the floors of the scopes of which text was erased, by the scope's number."""
    query = select(_t.c.id, _t.c.floor).where(_t.c.floor > 0)
    return {row.id: row.floor for row in connection.execute(query)}


def is_frozen(connection: Connection, *, name: str = FROZEN) -> bool:
    """Return True while an operator suspends every change of memory, or what `name` says."""
    rows = _IS_FROZEN(connection, {"name": name})
    return bool(rows) and rows[0][0] == "1"


def set_frozen(tx: Connection, frozen: bool, *, name: str = FROZEN) -> None:
    """Suspend every change of memory, or allow them again; `AUTONOMY_FROZEN` names autonomous work
    alone.
    """
    settings_rows.set_setting(tx, name, "1" if frozen else "0")
