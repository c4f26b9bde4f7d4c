"""Merging: rows of an export become rows of a tally that has others.

Numbers that rows refer to (of scopes, memories, relations, entries of journals) are given anew.
Numbers that stand inside of bytes which nothing may change (threads of checkpoints in the names of
their journals, pieces of state in states) stay, and must be free. A scope is there already where it
has the same secret and its journal goes through the head of the export's: then its rows are left
out. Nothing that is there is overwritten, and a row may name only rows of the export itself.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy.exc
from sqlalchemy import Connection, insert, select, text

from tallystick.errors import CorruptTally, StateConflict
from tallystick.storage import integrity, journal, tables
from tallystick.storage.checkpoints import thread_stream
from tallystick.storage.dialects import is_postgres
from tallystick.storage.portable import add_rows, table_names

__all__ = ["Merge", "merge_order", "require_verified"]

_t = tables
_FIRST = ("scopes", "runs", "threads", "sources", "memories", "tree_parts")
"""Tables whose rows others name without a foreign key, in this order."""
_PAGE = 500
_KEPT = ("threads", "tree_parts")
"""Tables whose numbers stay."""
_NAMED = {
    "run_id": "runs",
    "step_id": "steps",
    "source_id": "sources",
    "thread_id": "threads",
    "part_id": "tree_parts",
    "community_id": "communities",
}
"""Columns that name a row of another table by what stays."""
_NAMING = {
    "steps": ("run_id",),
    "step_entries": ("step_id",),
    "memory_sources": ("source_id",),
    "thread_states": ("thread_id",),
    "thread_writes": ("thread_id",),
    "tree_holds": ("thread_id", "part_id"),
    "community_members": ("community_id",),
}
_DOCS = ("doc", "from_doc", "to_doc")
_ANEW = {"journal": "sequence", "access_log": "id"}
"""Tables with a number that nothing refers to."""

Row = Mapping[str, Any]


def merge_order() -> list[str]:
    """Return the names of all tables that move, each behind those that its rows name."""
    return [*_FIRST, *(name for name in table_names() if name not in _FIRST)]


class Merge:
    """One export on its way into a tally with rows of its own, inside of one transaction."""

    def __init__(self, tx: Connection, heads: Mapping[str, tuple[int, str]]) -> None:
        """`heads` are the count and the head of each journal of the export."""
        self._tx = tx
        self._heads = heads
        self._scopes: dict[int, int] = {}
        self._left_scopes: set[int] = set()
        self._names: set[str] = set()
        self._docs: dict[int, int] = {}
        self._left_docs: dict[int, int | None] = {}
        """Memories of scopes that were there, with the number that they have here."""
        self._relations: dict[int, int] = {}
        self._left_relations: set[int] = set()
        self._added: dict[str, set[Any]] = {table: set() for table in _NAMED.values()}
        self._left: dict[str, set[Any]] = {table: set() for table in _NAMED.values()}
        self._streams: set[str] = set()
        self._left_streams: set[str] = set()
        self.present: list[str] = []
        """Scopes that were there already and were left as they are."""

    def add(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows of a table, as `portable.checked_row` returns them. Raises StateConflict,
        CorruptTally.
        """
        try:
            if table == "scopes":
                self._add_scopes(rows)
            elif table == "memories":
                self._add_memories(rows)
            elif table == "relations":
                self._add_relations(rows)
            else:
                translated = [self._translated(table, row) for row in rows]
                add_rows(self._tx, table, [row for row in translated if row is not None])
        except sqlalchemy.exc.IntegrityError as error:
            reason = f"rows of {table} are here already, of another scope or another tally"
            if table in _KEPT:
                reason = "the numbers of its checkpoints, which stand inside of them, are in use"
            raise StateConflict(
                "of this import",
                state="in the way",
                reason=reason,
                hint="Nothing was imported. Import into a new tally, or export other scopes.",
                what="Something",
            ) from error

    def finish(self) -> list[int]:
        """Verify every chain and every text that was added, and return the memories that were, by
        number. Raises CorruptTally.
        """
        require_verified(self._tx, self._streams, self._heads, self._scopes.values())
        if is_postgres(self._tx):
            for table in _KEPT:
                self._tx.execute(text(_MOVE.format(table=table)))
        return sorted(self._docs.values())

    def _add_scopes(self, rows: Sequence[Row]) -> None:
        for row in rows:
            name, old = row["name"], row["id"]
            self._names.add(name)
            here = self._tx.execute(select(_t.scopes).where(_t.scopes.c["name"] == name)).first()
            if here is not None:
                self._require_same(name, bytes(here.secret) == bytes(row["secret"]))
                self._left_scopes.add(old)
                self._left_streams.add(f"scope:{name}")
                self.present.append(name)
                continue
            added = insert(_t.scopes).values(_without(row, "id")).returning(_t.scopes.c.id)
            self._scopes[old] = int(self._tx.execute(added).scalar_one())
            self._streams.add(f"scope:{name}")

    def _require_same(self, name: str, same_secret: bool) -> None:
        """Raise StateConflict unless the scope of this name is the one of the export, and has all
        of it.
        """
        stream = f"scope:{name}"
        count, head = self._heads.get(stream, (0, ""))
        reason = "it is another one, of the same name"
        if same_secret:
            last = select(_t.journal.c.digest).where(
                _t.journal.c.stream == stream, _t.journal.c.position == count - 1
            )
            found = self._tx.execute(last).scalar()
            if found == head or journal.anchor_of(self._tx, stream).count >= count:
                return
            reason = "it was imported before, and the export has other entries since"
        raise StateConflict(
            name,
            state="here already",
            reason=reason,
            hint="Nothing was imported. Export other scopes, or import into a new tally.",
            what="The scope",
        )

    def _add_memories(self, rows: Sequence[Row]) -> None:
        here = self._docs_of([row["id"] for row in rows])
        new: list[dict[str, Any]] = []
        for row in rows:
            if row["scope_id"] in self._left_scopes:
                self._left_docs[row["doc"]] = here.get(row["id"])
                continue
            new.append({**row, "scope_id": self._scope(row["scope_id"])})
        add_rows(self._tx, "memories", [_without(row, "doc") for row in new])
        given = self._docs_of([row["id"] for row in new])
        self._docs |= {row["doc"]: given[row["id"]] for row in new}

    def _docs_of(self, ids: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for start in range(0, len(ids), _PAGE):
            page = list(ids[start : start + _PAGE])
            query = select(_t.memories.c.id, _t.memories.c.doc).where(_t.memories.c.id.in_(page))
            found |= {row.id: row.doc for row in self._tx.execute(query)}
        return found

    def _add_relations(self, rows: Sequence[Row]) -> None:
        for row in rows:
            translated = self._translated("relations", row)
            if translated is None:
                self._left_relations.add(row["id"])
                continue
            values = _without(translated, "id")
            added = insert(_t.relations).values(values).returning(_t.relations.c.id)
            self._relations[row["id"]] = int(self._tx.execute(added).scalar_one())

    def _translated(self, table: str, row: Row) -> dict[str, Any] | None:
        """Return a row with the numbers that it has here; None for one that is left out."""
        if self._is_left(table, row):
            if table in self._left:
                self._left[table].add(row["id"])
            return None
        new = _without(row, _ANEW.get(table, ""))
        if "scope_id" in row:
            new["scope_id"] = self._scope(row["scope_id"])
        if table == "jobs":
            # The subject of work on a whole scope begins with its number.
            number, colon, rest = row["subject_id"].partition(":")
            if colon and number == str(row["scope_id"]):
                new["subject_id"] = f"{new['scope_id']}:{rest}"
        for column in _DOCS:
            if column in row:
                new[column] = self._doc(table, row[column])
        if "relation_id" in row:
            new["relation_id"] = self._relations[row["relation_id"]]
        if table in self._added:
            self._added[table].add(row["id"])
        if table == "runs":
            self._streams.add(journal.run_stream(row["id"]))
        if table == "threads":
            self._streams.add(_stream_of(row))
        return new

    def _is_left(self, table: str, row: Row) -> bool:
        """Return True for a row of a scope that was there already. Raises CorruptTally for one
        that names what the export does not have.
        """
        if table == "access_log":
            here = {name for name in self._names if name in self.present}
            return bool(here & set(json.loads(row["scopes"])))
        if table == "spaces":
            return self._one_of(row["scope"], self._names, self.present, table)
        if table in ("journal", "anchors", "streams"):
            stream = row["name"] if table == "streams" else row["stream"]
            return self._one_of(stream, self._streams, self._left_streams, table)
        if "scope_id" in row and row["scope_id"] in self._left_scopes:
            if table == "runs":
                self._left_streams.add(journal.run_stream(row["id"]))
            if table == "threads":
                self._left_streams.add(_stream_of(row))
            return True
        if table == "edges" and None in (self._doc(table, row[each]) for each in _DOCS[1:]):
            return True  # to a memory that was removed here since
        for column in _NAMING.get(table, ()):
            named = _NAMED[column]
            if self._one_of(row[column], self._added[named], self._left[named], table):
                # A memory may come from a source of a scope that is here already.
                return table != "memory_sources" or row["doc"] in self._left_docs
        if "relation_id" in row:
            return self._one_of(row["relation_id"], self._relations, self._left_relations, table)
        return "scope_id" not in row and "doc" in row and row["doc"] in self._left_docs

    def _one_of(self, value: Any, added: Any, left: Any, table: str) -> bool:
        """Return True for what is left out, False for what is added. Raises CorruptTally."""
        if value in left:
            return True
        if value not in added:
            raise CorruptTally(f"A row of {table} of the export names what it does not have.")
        return False

    def _scope(self, old: int | None) -> int:
        if old not in self._scopes:
            raise CorruptTally("A row of the export names a scope that it does not have.")
        return self._scopes[old]

    def _doc(self, table: str, old: int) -> int | None:
        if old in self._docs:
            return self._docs[old]
        if old not in self._left_docs:
            raise CorruptTally(f"A row of {table} of the export names what it does not have.")
        return self._left_docs[old]


def require_verified(
    tx: Connection,
    streams: Iterable[str],
    heads: Mapping[str, tuple[int, str]],
    scope_ids: Collection[int] | None = None,
) -> None:
    """Verify chains that were imported, each to the head that the export names, and the texts of
    scopes or of all. Raises CorruptTally.
    """
    for stream in sorted(streams):
        end = journal.end_of(tx, stream)
        problems = journal.verify_stream(tx, stream)
        if problems or tuple(end) != heads.get(stream, tuple(end)):
            problem = problems[0].problem if problems else "it ends elsewhere"
            raise CorruptTally(f"The chain {stream} of the export does not verify: {problem}.")
    altered, count = integrity.altered_versions(tx, scope_ids)
    if altered:
        raise CorruptTally(
            f"{altered} of {count} texts of the export do not match their commitments."
        )


_MOVE = (
    "SELECT setval(pg_get_serial_sequence(current_schema() || '.{table}', 'id'), GREATEST("
    "(SELECT MAX(id) FROM {table}), nextval(pg_get_serial_sequence(current_schema() || "
    "'.{table}', 'id'))))"
)
"""Let a counter continue behind the numbers that were imported, and never behind its own."""


def _without(row: Row, name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def _stream_of(thread: Row) -> str:
    stream = thread_stream(thread["id"], thread["stream"])
    if not stream.startswith("thread:"):
        raise CorruptTally("A thread of the export names a journal that no release gives it.")
    return stream
