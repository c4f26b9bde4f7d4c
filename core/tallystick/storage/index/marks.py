"""Derived state: how far what is made from the searchable text of a scope has followed it.

Each change gives its rows of `search_text` the scope's next revision, in its own transaction, and
revisions of one scope are committed in their order. So what is derived needs no list of changes: it
keeps a mark, up to which it has every row, and reads the rows behind it. Erasing text raises the
scope's floor: what was derived before is compared with the rows that are left, or made anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, and_, delete, or_, select

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, upsert

_d, _s = tables.derived, tables.scopes
_ALL = 2**62
"""Greater than the number of any memory."""
_BEHIND = (
    "FROM search_text WHERE scope_id = :scope_id AND revision >= :revision "
    "AND (revision > :revision OR doc > :doc)"
)
_ROWS = Prepared(f"SELECT revision, doc {_BEHIND} ORDER BY revision, doc LIMIT :most")
_COUNT = Prepared(f"SELECT count(*) {_BEHIND}")
_KEEP = Prepared(
    upsert(
        _d,
        ("scope_id", "name", "revision", "doc", "filling"),
        key=("scope_id", "name"),
        replacing=("revision", "doc", "filling"),
    )
)


class Mark(NamedTuple):
    """The place that something derived has reached in the text of a scope: it has the rows of
    earlier revisions, and of `revision` those up to `doc`.
    """

    revision: int = -1
    doc: int = -1
    filling: bool = False
    """True until it has had every row once."""

    @classmethod
    def at(cls, revision: int) -> Mark:
        """Return the mark of what has every row of a revision."""
        return cls(revision, _ALL)

    @property
    def is_whole(self) -> bool:
        """True if it has every row of its revision."""
        return self.doc == _ALL


class Row(NamedTuple):
    """A memory whose words, vectors or state changed."""

    revision: int
    doc: int


class Lag(NamedTuple):
    """A scope that something derived has not followed yet."""

    mark: Mark
    revision: int
    """That of the scope now."""
    is_erased: bool
    """True if text that the mark covers was erased since."""


def rows_behind(
    connection: Connection, scope_id: int, mark: Mark, *, most: int = _ALL
) -> list[Row]:
    """Return the rows of a scope that a mark does not cover, in the order in which they follow."""
    return [Row(*row) for row in _ROWS(connection, _values(scope_id, mark, most=most))]


def count_behind(connection: Connection, scope_id: int, mark: Mark) -> int:
    """Return the number of rows that `rows_behind` returns."""
    return int(_COUNT(connection, _values(scope_id, mark))[0][0])


def _values(scope_id: int, mark: Mark, **others: int) -> dict[str, int]:
    return {"scope_id": scope_id, "revision": mark.revision, "doc": mark.doc, **others}


def marks_of(
    connection: Connection, name: str, scope_ids: Iterable[int] | None = None
) -> dict[int, Mark]:
    """Return the marks of `name`, of some scopes or of all; a scope without one is left out."""
    query = select(_d.c.scope_id, _d.c.revision, _d.c.doc, _d.c.filling).where(_d.c.name == name)
    if scope_ids is not None:
        query = query.where(_d.c.scope_id.in_(list(scope_ids)))
    return {row[0]: Mark(*row[1:]) for row in connection.execute(query)}


def lags_of(
    connection: Connection, name: str, scope_ids: Iterable[int] | None = None
) -> dict[int, Lag]:
    """Return the scopes, of some or of all, that `name` has not followed to their revision: those
    that are being filled last.
    """
    query = (
        select(_s.c.id, _s.c.revision, _s.c.floor, _d.c.revision, _d.c.doc, _d.c.filling)
        .outerjoin(_d, and_(_d.c.scope_id == _s.c.id, _d.c.name == name))
        .where(or_(_d.c.revision.is_(None), _d.c.filling, _d.c.revision < _s.c.revision))
        .order_by(_d.c.filling.is_(True), _s.c.id)
    )
    if scope_ids is not None:
        query = query.where(_s.c.id.in_(list(scope_ids)))
    lags = {}
    for scope_id, revision, floor, *place in connection.execute(query):
        mark = Mark() if place[0] is None else Mark(*place)
        lags[scope_id] = Lag(mark, revision, 0 <= mark.revision < floor)
    return lags


def keep_marks(tx: Connection, name: str, marks: Mapping[int, Mark]) -> None:
    """Record how far `name` follows these scopes."""
    rows = [{"scope_id": each, "name": name, **mark._asdict()} for each, mark in marks.items()]
    if rows:
        _KEEP(tx, rows)


def begin_marks(
    tx: Connection, name: str, scope_ids: Iterable[int | None], *, besides: Iterable[int] = ()
) -> None:
    """Let `name` be filled with these scopes from the beginning; None stands for every other one
    but `besides`.
    """
    chosen = set(scope_ids)
    if None in chosen:
        every = set(tx.execute(select(_s.c.id)).scalars())
        chosen |= every.difference(besides)
    begun = Mark(filling=True)
    keep_marks(tx, name, {each: begun for each in chosen if each is not None})


def forget_marks(tx: Connection, name: str) -> None:
    """Forget how far `name` follows any scope."""
    tx.execute(delete(_d).where(_d.c.name == name))
