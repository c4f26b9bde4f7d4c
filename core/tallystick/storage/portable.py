"""Rows of whole scopes, table by table: the queries of an export, an import and a search of
everything that a scope contains.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    Table,
    delete,
    false,
    func,
    insert,
    select,
    text,
    true,
)
from sqlalchemy.sql.elements import ColumnElement

from tallystick.errors import CorruptTally, StorageError
from tallystick.records import Scope, is_storable
from tallystick.storage import objects, scopes, tables
from tallystick.storage.checkpoints import thread_stream
from tallystick.storage.dialects import is_postgres

DERIVED = frozenset({"outbox"})
"""Tables that are made anew from the others."""
LEFT_OUT = DERIVED | {"approvals", "recall_epochs", "recall_segments"}
"""Tables that no export has: an approval is bound to the keys and the agents of its tally, and
recall makes its segments anew.
"""
_STAYING = {"access_tokens", "recall_epochs", "recall_segments"}
_OWN = "tally"
"""The journal of what concerns a tally as a whole; it stays where it is."""

_t = tables


@dataclass(frozen=True)
class ScopeSelection:
    """The rows that belong to some scopes, in every table."""

    names: tuple[str, ...]
    ids: tuple[int, ...]
    streams: tuple[str, ...]
    reads: tuple[str, ...]
    """The scopes of lines of the access log that are about these alone, as they are stored there.
    """
    settings: tuple[str, ...] = ()
    """Names of the settings that go along."""

    @classmethod
    def of(
        cls, connection: Connection, chosen: Sequence[Scope], *, settings: Iterable[str] = ()
    ) -> ScopeSelection:
        """Select the rows of the scopes `chosen`, and these settings of the tally."""
        rows = scopes.find(connection, chosen)
        ids = tuple(sorted(row.id for row in rows))
        runs = connection.execute(select(_t.runs.c.id).where(_t.runs.c.scope_id.in_(ids))).scalars()
        names = tuple(sorted(str(scope) for scope in chosen))
        threads = connection.execute(
            select(_t.threads.c.id).where(_t.threads.c.scope_id.in_(ids))
        ).scalars()
        streams = [f"scope:{name}" for name in names]
        streams += [f"run:{run}" for run in runs]
        streams += [thread_stream(thread) for thread in threads]
        logged = connection.execute(select(_t.access_log.c.scopes).distinct()).scalars()
        reads = tuple(line for line in logged if set(json.loads(line)) <= set(names))
        return cls(names, ids, tuple(streams), reads, tuple(settings))

    def condition(self, table: Table) -> ColumnElement[bool]:
        """Return the condition for the rows of a table that belong to these scopes."""
        docs = select(_t.memories.c.doc).where(_t.memories.c.scope_id.in_(self.ids))
        columns = table.c
        if table.name == "scopes":
            return columns.id.in_(self.ids)
        if table.name == "settings":
            return columns["name"].in_(self.settings)
        if table.name == "access_log":
            return columns.scopes.in_(self.reads)
        if table.name == "spaces":
            return columns.scope.in_(self.names)
        if table is _t.access_tokens:
            return false()  # it lets somebody in to the tally, and belongs to no scope
        if table.name == "edges":
            return columns.from_doc.in_(docs) & columns.to_doc.in_(docs)
        if table.name == "streams":
            return columns["name"].in_(self.streams)
        if "scope_id" in columns:
            return columns.scope_id.in_(self.ids)
        if "stream" in columns:
            return columns.stream.in_(self.streams)
        if "doc" in columns:
            return columns.doc.in_(docs)
        if table.name == "steps":
            return columns.run_id.in_(select(_t.runs.c.id).where(_t.runs.c.scope_id.in_(self.ids)))
        if "thread_id" in columns:
            return columns.thread_id.in_(
                select(_t.threads.c.id).where(_t.threads.c.scope_id.in_(self.ids))
            )
        raise StorageError(f"The table {table.name} has no way to be exported.")


def table_names() -> list[str]:
    """Return the names of all tables that move, each behind those that it refers to: not that of
    access tokens, which are good for one tally, nor segments of recall, which are made anew.
    """
    return [table.name for table in tables.metadata.sorted_tables if table.name not in _STAYING]


def checked_row(
    table: str, row: Mapping[str, Any], binary: Callable[[Any], bytes]
) -> dict[str, Any]:
    """Return a row of a file as it is stored: columns that this release knows, each with a value of
    its type. `binary` reads the bytes of a column. Raises CorruptTally.

    A file of an earlier release lacks columns that came later: they get their default.
    """
    columns = tables.metadata.tables[table].columns
    unknown = sorted(set(row) - set(columns.keys()))
    if unknown:
        raise CorruptTally(f"A row of {table} has a column that no release writes: {unknown[0]!a}.")
    values = {}
    for column in columns:
        if column.name in row:
            values[column.name] = _checked_value(table, column, row[column.name], binary)
        elif column.server_default is not None:
            values[column.name] = _default_of(column)
        elif column.nullable:
            values[column.name] = None
        elif column.autoincrement is not True:
            raise CorruptTally(f"A row of {table} lacks {column.name}.")
    return values


def _checked_value(
    table: str, column: Column[Any], value: Any, binary: Callable[[Any], bytes]
) -> Any:
    if value is None and column.nullable:
        return None
    kind = column.type.python_type
    if kind is bytes:
        return binary(value)
    if kind is bool:
        fits = isinstance(value, bool)
    elif kind is int:
        fits = type(value) is int and -(2**63) <= value < 2**63
    else:
        fits = isinstance(value, str) and is_storable(value)
    if not fits:
        raise CorruptTally(f"{column.name} of a row of {table} is no value that a release writes.")
    return value


def _default_of(column: Column[Any]) -> Any:
    default = str(getattr(column.server_default, "arg", ""))
    return int(default) if isinstance(column.type, Integer) else default


def rows_of(
    connection: Connection, selection: ScopeSelection, table: str
) -> Iterator[Mapping[Any, Any]]:
    """Yield the selected rows of a table in the order of its key."""
    source = tables.metadata.tables[table]
    query = select(source).where(selection.condition(source)).order_by(*source.primary_key.columns)
    for row in connection.execute(query).mappings():
        yield (
            {**row, "body": objects.resolved(connection, row["body"])}
            if source is _t.parts
            else row
        )


def count_rows(connection: Connection, selection: ScopeSelection, table: str) -> int:
    """Return the number of selected rows of a table."""
    source = tables.metadata.tables[table]
    query = select(func.count()).select_from(source).where(selection.condition(source))
    return int(connection.execute(query).scalar_one())


def binary_values(
    connection: Connection, selection: ScopeSelection, table: str
) -> Iterator[bytes | memoryview]:
    """Yield the binary values of the selected rows of a table."""
    source = tables.metadata.tables[table]
    columns = [column for column in source.columns if column.type.python_type is bytes]
    if not columns:
        return
    for row in connection.execute(select(*columns).where(selection.condition(source))):
        for value in row:
            if value is not None:
                yield objects.resolved(connection, value) if source is _t.parts else value


def add_rows(tx: Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table as they are, their numbers included."""
    if table == _t.parts.name:
        rows = [{**row, "body": objects.stored_form(row["body"])} for row in rows]
    if rows:
        tx.execute(insert(tables.metadata.tables[table]), [dict(row) for row in rows])


def docs_with_vectors(connection: Connection) -> list[int]:
    """Return every memory that has a vector, by number, in order."""
    doc = _t.vectors.c.doc
    return list(connection.execute(select(doc).distinct().order_by(doc)).scalars())


def non_empty_table(connection: Connection) -> str | None:
    """Return the name of a table that contains rows of some scope, or None in an empty tally."""
    for table, condition in (
        (_t.scopes, true()),
        (_t.journal, _t.journal.c.stream != _OWN),
        (_t.spaces, true()),
    ):
        query = select(func.count()).select_from(table).where(condition)
        if connection.execute(query).scalar_one():
            return table.name
    return None


def state_counts(connection: Connection, selection: ScopeSelection) -> dict[str, int]:
    """Return the number of selected memories in each state."""
    state = _t.memories.c.state
    query = select(state, func.count()).where(selection.condition(_t.memories))
    counted = connection.execute(query.group_by(state).order_by(state))
    return {row[0]: int(row[1]) for row in counted}


def set_aside_own_journal(tx: Connection) -> list[dict[str, Any]]:
    """Remove the tally's journal of itself, so that imported entries keep their numbers; return its
    rows for `put_back_own_journal`.
    """
    own = _t.journal.c.stream == _OWN
    rows = tx.execute(select(_t.journal).where(own).order_by(_t.journal.c.sequence)).mappings()
    entries = [{name: value for name, value in row.items() if name != "sequence"} for row in rows]
    tx.execute(delete(_t.journal).where(own))
    return entries


def put_back_own_journal(tx: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows of `set_aside_own_journal` behind those that were imported."""
    add_rows(tx, _t.journal.name, rows)


def move_sequences(tx: Connection) -> None:
    """Let the counters of keys continue behind the numbers that were imported.

    SQLite does so by itself.
    """
    if not is_postgres(tx):
        return
    for table in tables.metadata.sorted_tables:
        key = next(iter(table.primary_key.columns))
        if table.autoincrement_column is None:
            continue
        tx.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence(current_schema() || '.{table.name}', "
                f"'{key.name}'), "
                f"GREATEST((SELECT MAX({key.name}) FROM {table.name}), 1))"
            )
        )
