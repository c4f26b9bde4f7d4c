"""Merging: rows of an export become rows of a tally, one group of scopes at a time.

Numbers that rows refer to (of scopes, memories, relations, entries of journals) are given anew.
Numbers that stand inside of bytes which nothing may change (threads of checkpoints in the names of
their journals, pieces of state in states) stay, and must be free. A scope is there already where it
has the same secret and its journal goes through the head of the export's: then its rows are left
out, but for edges to scopes that come now. Nothing that is there is overwritten, and a row may name
only rows of the export itself. Entries of journals that one import brings keep their order, of all
scopes together.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy.exc
from sqlalchemy import Connection, func, insert, select, text

from tallystick.errors import CorruptTally, StateConflict
from tallystick.storage import integrity, journal, tables
from tallystick.storage.checkpoints import thread_stream
from tallystick.storage.dialects import is_postgres
from tallystick.storage.portable import (
    add_rows,
    non_empty_table,
    put_back_own_journal,
    set_aside_own_journal,
    table_names,
)

_t = tables
_FIRST = ("scopes", "runs", "threads", "sources", "memories", "tree_parts")
"""Tables whose rows others name without a foreign key, in this order."""
_PAGE = 500
NUMBERED = ("threads", "tree_parts")
"""Tables whose numbers stay: they stand inside of states."""
NAMED = {
    "run_id": "runs",
    "step_id": "steps",
    "source_id": "sources",
    "thread_id": "threads",
    "part_id": "tree_parts",
    "community_id": "communities",
}
"""Columns that name a row of another table by what stays."""
NAMING = {
    "steps": ("run_id",),
    "step_entries": ("step_id",),
    "memory_sources": ("source_id",),
    "thread_states": ("thread_id",),
    "thread_writes": ("thread_id",),
    "tree_holds": ("thread_id", "part_id"),
    "community_members": ("community_id",),
}
"""Those of each table."""
DOCS = ("doc", "from_doc", "to_doc")
"""Columns that name a memory by its number."""
_ENDS = DOCS[1:]

Row = Mapping[str, Any]


def merge_order() -> list[str]:
    """Return the names of all tables that move, each behind those that its rows name."""
    return [*_FIRST, *(name for name in table_names() if name not in _FIRST)]


class Merge:
    """A group of scopes on its way into a tally, inside of one transaction."""

    def __init__(
        self,
        tx: Connection,
        heads: Mapping[str, tuple[int, str]],
        *,
        unwritten: Iterable[str] = (),
        needed: Iterable[str] = (),
        behind: int = 0,
    ) -> None:
        """`heads` are the count and the head of each journal of the export, `unwritten` scopes that
        have a journal and no row. `needed` are scopes to which edges lead, and which must be there.
        Journal entries get their number and `behind`, as `reserve_entries` returns it.
        """
        self._tx = tx
        self._heads = heads
        self._needed = frozenset(needed)
        self._behind = behind
        self._scopes: dict[int, int] = {}
        self._left_scopes: dict[int, int] = {}
        """Scopes that were there, with the number that they have here."""
        self._names: set[str] = set()
        self._docs: dict[int, int] = {}
        self._left_docs: dict[int, int | None] = {}
        """Memories of scopes that were there, with the number that they have here."""
        self._relations: dict[int, int] = {}
        self._left_relations: set[int] = set()
        self._added: dict[str, set[Any]] = {table: set() for table in NAMED.values()}
        self._left: dict[str, set[Any]] = {table: set() for table in NAMED.values()}
        self._streams: set[str] = set()
        self._left_streams: set[str] = set()
        self._left_names: set[str] = set()
        for name in unwritten:
            self._place(name, None)

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
            raise _taken(table) from error

    def finish(self) -> list[int]:
        """Verify every chain and every text that was added, and return the memories that were, by
        number. Raises CorruptTally.
        """
        require_verified(self._tx, self._streams, self._heads, self._scopes.values())
        return sorted(self._docs.values())

    def _add_scopes(self, rows: Sequence[Row]) -> None:
        for row in rows:
            name, old = row["name"], row["id"]
            if self._place(name, bytes(row["secret"])):
                query = select(_t.scopes.c.id).where(_t.scopes.c["name"] == name)
                self._left_scopes[old] = int(self._tx.execute(query).scalar_one())
                continue
            added = insert(_t.scopes).values(_without(row, "id")).returning(_t.scopes.c.id)
            self._scopes[old] = int(self._tx.execute(added).scalar_one())

    def _place(self, name: str, secret: bytes | None) -> bool:
        """Note a scope as one that comes, or as one that is here already: then return True."""
        left = is_here(self._tx, name, secret, self._heads)
        if name in self._needed and not left:
            raise StateConflict(
                name,
                state="not here",
                reason="it was removed during the import, and others refer to it",
                what="The scope",
            )
        (self._left_names if left else self._names).add(name)
        (self._left_streams if left else self._streams).add(f"scope:{name}")
        return left

    def _add_memories(self, rows: Sequence[Row]) -> None:
        here = self._docs_of([row["id"] for row in rows])
        new: list[dict[str, Any]] = []
        for row in rows:
            if row["scope_id"] in self._left_scopes:
                self._left_docs[row["doc"]] = here.get(row["id"])
                continue
            new.append({**row, "scope_id": self._scope(row["scope_id"], "memories")})
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
        new = _without(row, "id") if table == "access_log" else dict(row)
        if table == "journal":
            new["sequence"] += self._behind
        if "scope_id" in row:
            new["scope_id"] = self._scope(row["scope_id"], table)
        if table == "jobs":
            # The subject of work on a whole scope begins with its number.
            number, colon, rest = row["subject_id"].partition(":")
            if colon and number == str(row["scope_id"]):
                new["subject_id"] = f"{new['scope_id']}:{rest}"
        for column in DOCS:
            if column in row:
                new[column] = self._doc(table, row[column])
        if "relation_id" in row:
            new["relation_id"] = self._relations[row["relation_id"]]
        if table in self._added:
            self._added[table].add(row["id"])
        if table == "runs":
            self._streams.add(journal.run_stream(row["id"]))
        if table == "threads":
            self._streams.add(stream_of(row))
        return new

    def _is_left(self, table: str, row: Row) -> bool:
        """Return True for a row of a scope that was there already. Raises CorruptTally for one
        that names what the export does not have.
        """
        if table == "access_log":
            first, *_ = json.loads(row["scopes"])
            return self._one_of(first, self._names, self._left_names, table)
        if table == "spaces":
            return self._one_of(row["scope"], self._names, self._left_names, table)
        if table in ("journal", "anchors", "streams"):
            stream = row["name"] if table == "streams" else row["stream"]
            return self._one_of(stream, self._streams, self._left_streams, table)
        if table == "edges":
            ends = [(self._doc(table, row[each]), row[each] in self._left_docs) for each in _ENDS]
            # Both were here, or one was removed here since.
            return all(left for _, left in ends) or any(doc is None for doc, _ in ends)
        if "scope_id" in row and row["scope_id"] in self._left_scopes:
            if table == "runs":
                self._left_streams.add(journal.run_stream(row["id"]))
            if table == "threads":
                self._left_streams.add(stream_of(row))
            return True
        for column in NAMING.get(table, ()):
            named = NAMED[column]
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

    def _scope(self, old: Any, table: str) -> int:
        if table == "edges" and old in self._left_scopes:
            return self._left_scopes[old]
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
    chosen = None if scope_ids is None else list(scope_ids)
    pages = (
        [None]
        if chosen is None
        else [chosen[start : start + _PAGE] for start in range(0, len(chosen), _PAGE)]
    )
    altered = count = 0
    for page in pages:
        found = integrity.altered_versions(tx, page)
        altered, count = altered + found[0], count + found[1]
    if altered:
        raise CorruptTally(
            f"{altered} of {count} texts of the export do not match their commitments."
        )


_ELSEWHERE = "Export other scopes, or import into a new tally."


def is_here(
    connection: Connection,
    name: str,
    secret: bytes | None,
    heads: Mapping[str, tuple[int, str]],
) -> bool:
    """Return True for a scope of an export that is here already, with all that the export has of
    it; `secret` is None for one that nothing was written to. Raises StateConflict where it is
    another one, or has less.
    """
    stream = f"scope:{name}"
    query = select(_t.scopes.c.secret).where(_t.scopes.c["name"] == name)
    found = connection.execute(query).scalar()
    if found is None and not journal.end_of(connection, stream).length:
        return False
    count, head = heads.get(stream, (0, ""))
    reason = "it is another one, of the same name"
    if secret is None or (found is not None and bytes(found) == secret):
        last = select(_t.journal.c.digest).where(
            _t.journal.c.stream == stream, _t.journal.c.position == count - 1
        )
        digest = connection.execute(last).scalar()
        if digest == head or journal.anchor_of(connection, stream).count >= count:
            return True
        if secret is not None:
            reason = "it was imported before, and the export has other entries since"
    raise StateConflict(
        name, state="here already", reason=reason, hint=_ELSEWHERE, what="The scope"
    )


def require_free(connection: Connection, table: str, numbers: Sequence[int]) -> None:
    """Raise StateConflict where rows of a table here have one of these numbers."""
    column = _t.metadata.tables[table].c.id
    for start in range(0, len(numbers), _PAGE):
        page = list(numbers[start : start + _PAGE])
        query = select(column).where(column.in_(page)).limit(1)
        if connection.execute(query).first() is not None:
            raise _taken(table)


def reserve_numbers(tx: Connection, table: str, highest: int) -> None:
    """Let the counter of a table continue behind a number, if it is not there yet. No other writer
    may be under way.
    """
    values = {"name": table, "highest": highest}
    if is_postgres(tx):
        (key,) = _t.metadata.tables[table].primary_key.columns
        tx.execute(text(_RESERVE), {**values, "key": key.name})
    elif not tx.execute(text(_RESERVE_SQLITE), values).rowcount:
        tx.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :highest)"), values)


def reserve_entries(tx: Connection, lowest: int, highest: int) -> int:
    """Same as `reserve_numbers`, for entries of the journal: return by how much their numbers move
    to be behind all that are here, so that their order stays in whatever order they come. In an
    empty tally they stay as they are, and its own entries move.
    """
    own = set_aside_own_journal(tx) if non_empty_table(tx) is None else []
    last = tx.execute(select(func.max(_t.journal.c.sequence))).scalar() or 0
    behind = max(0, int(last) + 1 - lowest)
    reserve_numbers(tx, _t.journal.name, highest + behind)
    put_back_own_journal(tx, own)
    return behind


_COUNTER = "pg_get_serial_sequence(current_schema() || '.' || CAST(:name AS TEXT), :key)"
_RESERVE = f"SELECT setval({_COUNTER}, GREATEST(CAST(:highest AS BIGINT), nextval({_COUNTER})))"
_RESERVE_SQLITE = "UPDATE sqlite_sequence SET seq = MAX(seq, :highest) WHERE name = :name"


def _taken(table: str) -> StateConflict:
    reason = f"rows of {table} are here already, of another scope or another tally"
    if table in NUMBERED:
        reason = "the numbers of its checkpoints, which stand inside of them, are in use"
    return StateConflict(
        "of this import", state="in the way", reason=reason, hint=_ELSEWHERE, what="Something"
    )


def _without(row: Row, name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def stream_of(thread: Row) -> str:
    return thread_stream(thread["id"])
