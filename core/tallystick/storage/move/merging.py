"""Merging: the rows of an export become rows of a tally, all in one transaction.

Numbers that rows refer to (of scopes, memories, relations) are given anew. Numbers that stand
inside of bytes which nothing may change (threads of checkpoints in the names of their journals,
pieces of state in states) stay, and must be free. Nothing that is there is overwritten, and a row
may name only rows of the export itself. Entries of journals keep their order, of all scopes
together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy.exc
from sqlalchemy import Connection, Table, insert, select

from tallystick.errors import CorruptTally, StateConflict
from tallystick.records import strict_json
from tallystick.storage.engine import integrity, tables
from tallystick.storage.move.archives import Archive, move_counter
from tallystick.storage.rows import journal
from tallystick.storage.rows.checkpoints import thread_stream
from tallystick.storage.text.scope_selection import exported_tables

_t = tables
_FIRST = (_t.scopes, _t.runs, _t.threads, _t.sources, _t.memories, _t.tree_parts)
"""Tables whose rows others name without a foreign key, in this order."""
_PAGE = 500
_NUMBERED = (_t.threads, _t.tree_parts)
"""Tables whose numbers stay."""
_LARGEST = 2**53
"""Numbers that stay are smaller: the counter of their table continues behind them."""
_NUMBERED_ANEW = (_t.scopes, _t.memories, _t.relations)
_NAMING = {
    table.name: {
        column.name: key.column.table.name
        for column in table.c
        for key in column.foreign_keys
        if key.column.table not in _NUMBERED_ANEW
    }
    for table in exported_tables()
} | {"tree_holds": {"thread_id": "threads", "part_id": "tree_parts"}}
"""For each table the columns that name a row of another one by what stays, and that table."""
_GIVEN_ANEW = {"access_log": "id", "journal": "sequence", "memories": "doc"}
"""Columns that the database fills."""

Row = Mapping[str, Any]


def merge_order() -> list[Table]:
    """Return all tables of an export, each behind those that its rows name."""
    return [*_FIRST, *(table for table in exported_tables() if table not in _FIRST)]


def require_absent(connection: Connection, archive: Archive) -> dict[str, int]:
    """Return the highest number that stays, of each table that has such. Raises StateConflict where
    one of them, or a scope of the export, is here already, and CorruptTally.
    """
    for name in archive.manifest["scopes"]:
        query = select(_t.scopes.c.id).where(_t.scopes.c["name"] == name)
        if connection.execute(query).first() or journal.end_of(connection, f"scope:{name}").length:
            raise StateConflict(
                name,
                state="here already",
                reason="nothing is overwritten",
                hint=_ELSEWHERE,
                what="The scope",
            )
    highest: dict[str, int] = {}
    for table in _NUMBERED:
        for page in archive.pages(table):
            numbers = [row["id"] for row in page]
            if not 0 < min(numbers) <= max(numbers) < _LARGEST:
                raise CorruptTally(
                    f"A row of {table.name} of the export has a number that no release gives."
                )
            query = select(table.c.id).where(table.c.id.in_(numbers)).limit(1)
            if connection.execute(query).first() is not None:
                raise _rows_in_the_way(table)
            highest[table.name] = max(highest.get(table.name, 0), *numbers)
    return highest


def reserve_numbers(tx: Connection, highest: Mapping[str, int]) -> None:
    """Keep numbers that stay from being given to others. No other writer may be under way."""
    for name, number in highest.items():
        move_counter(tx, _t.metadata.tables[name], number)


class Merge:
    """An export on its way into a tally, inside of one transaction."""

    def __init__(self, tx: Connection, names: Sequence[str]) -> None:
        """Begin with the scopes that the manifest names."""
        self._tx = tx
        self._names = frozenset(names)
        self._scopes: dict[int, int] = {}
        self._docs: dict[int, int] = {}
        self._relations: dict[int, int] = {}
        self._added: dict[str, set[Any]] = {
            name: set() for columns in _NAMING.values() for name in columns.values()
        }
        self._streams = {f"scope:{name}" for name in names}
        self.states: Counter[str] = Counter()
        """Memories by state."""

    def add(self, table: Table, rows: Sequence[Row]) -> None:
        """Add rows of a table, as `Archive.pages` yields them. Raises StateConflict,
        CorruptTally.
        """
        try:
            translated = [self._translate(table.name, row) for row in rows]
            if table is _t.scopes:
                self._scopes |= self._insert_each(table, rows)
            elif table is _t.relations:
                self._relations |= self._insert_each(table, translated)
            else:
                self._tx.execute(insert(table), translated)
        except KeyError as error:
            raise CorruptTally(
                f"A row of {table.name} of the export names what it does not have."
            ) from error
        except sqlalchemy.exc.IntegrityError as error:
            raise _rows_in_the_way(table) from error
        if table is _t.memories:
            self.states.update(row["state"] for row in rows)
            docs = self._docs_of([row["id"] for row in rows])
            self._docs |= {row["doc"]: docs[row["id"]] for row in rows}

    def finish(self) -> list[int]:
        """Verify every chain and every text that was added, and return the memories that were, by
        number. Raises CorruptTally.
        """
        for stream in sorted(self._streams):
            problems = journal.verify_stream(self._tx, stream)
            if problems:
                raise CorruptTally(
                    f"The chain {stream} of the export does not verify: {problems[0].problem}."
                )
        altered = count = 0
        scopes = self.scope_ids
        for start in range(0, len(scopes), _PAGE):
            page = integrity.altered_versions(self._tx, scopes[start : start + _PAGE])
            altered, count = altered + page[0], count + page[1]
        if altered:
            raise CorruptTally(
                f"{altered} of {count} texts of the export do not match their commitments."
            )
        return sorted(self._docs.values())

    @property
    def scope_ids(self) -> list[int]:
        """The scopes that were added, by number."""
        return list(self._scopes.values())

    def _insert_each(self, table: Table, rows: Sequence[Row]) -> dict[int, int]:
        """Insert rows one by one, and return the number that each gets by the one that it had."""
        numbers: dict[int, int] = {}
        for row in rows:
            values = {name: value for name, value in row.items() if name != "id"}
            added = insert(table).values(values).returning(table.c.id)
            numbers[row["id"]] = int(self._tx.execute(added).scalar_one())
        return numbers

    def _docs_of(self, ids: Sequence[str]) -> dict[str, int]:
        query = select(_t.memories.c.id, _t.memories.c.doc).where(_t.memories.c.id.in_(ids))
        return {row.id: row.doc for row in self._tx.execute(query)}

    def _translate(self, table: str, row: Row) -> dict[str, Any]:
        """Return a row with the numbers that it has here. Raises KeyError for one that names what
        the export does not have, CorruptTally.
        """
        self._require_named(table, row)
        new = dict(row)
        new.pop(_GIVEN_ANEW.get(table, ""), None)
        if "scope_id" in row:
            new["scope_id"] = self._scopes[row["scope_id"]]
        if table == "jobs":
            # The subject of work on a whole scope begins with its number.
            number, colon, rest = row["subject_id"].partition(":")
            if colon and number == str(row["scope_id"]):
                new["subject_id"] = f"{new['scope_id']}:{rest}"
        for column in ("doc", "from_doc", "to_doc"):
            if column in new:
                new[column] = self._docs[row[column]]
        if "relation_id" in row:
            new["relation_id"] = self._relations[row["relation_id"]]
        if table in self._added:
            self._added[table].add(row["id"])
        if table == "runs":
            self._streams.add(journal.run_stream(row["id"]))
        if table == "threads":
            self._streams.add(thread_stream(row["id"]))
        return new

    def _require_named(self, table: str, row: Row) -> None:
        """Raise KeyError for a row that belongs to no scope of the export, or names by what stays a
        row that the export does not have.
        """
        for column, named in _NAMING[table].items():
            if row[column] not in self._added[named]:
                raise KeyError(column)
        if table in ("journal", "anchors", "streams"):
            if row["name" if table == "streams" else "stream"] not in self._streams:
                raise KeyError("stream")
        elif table in ("scopes", "spaces"):
            if row["name" if table == "scopes" else "scope"] not in self._names:
                raise KeyError("scope")
        elif table == "access_log" and not self._names.issuperset(_scopes_read(row)):
            raise KeyError("scopes")


def _scopes_read(row: Row) -> list[str]:
    try:
        names = strict_json(row["scopes"])
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CorruptTally("A row of access_log of the export names no scopes.")
    return names


_ELSEWHERE = "Export other scopes, or import into a new tally."


def _rows_in_the_way(table: Table) -> StateConflict:
    reason = f"rows of {table.name} are here already, of another scope or another tally"
    if table in _NUMBERED:
        reason = "the numbers of its checkpoints, which stand inside of them, are in use"
    return StateConflict(
        "of this import", state="in the way", reason=reason, hint=_ELSEWHERE, what="Something"
    )
