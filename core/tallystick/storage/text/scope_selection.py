"""The rows of whole scopes, in every table: for an export and for a search of everything that a
scope contains.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Table, false, func, select
from sqlalchemy.sql.elements import ColumnElement

from tallystick.errors import StorageError
from tallystick.records import Scope
from tallystick.storage.engine import tables, texts
from tallystick.storage.rows import scopes
from tallystick.storage.rows.checkpoints import thread_stream

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
        columns = table.c
        if table.name == "scopes":
            return columns.id.in_(self.ids)
        if table.name == "settings":
            return columns["name"].in_(self.settings)
        if table.name == "access_log":
            return columns.scopes.in_(self.reads)
        if table.name == "spaces":
            return columns.scope.in_(self.names)
        if table in (_t.access_tokens, _t.operation_minutes):
            return false()  # who is let in to the tally, and what it measured, belong to no scope
        if table.name == "edges":
            docs = select(_t.memories.c.doc).where(_t.memories.c.scope_id.in_(self.ids))
            return columns.from_doc.in_(docs) & columns.to_doc.in_(docs)
        if table.name == "streams":
            return columns["name"].in_(self.streams)
        if "stream" in columns:
            return columns.stream.in_(self.streams)
        # Else a row belongs where its scope, or the first row that it refers to, does.
        keys = [(column, key.column) for column in columns for key in column.foreign_keys]
        keys.sort(key=lambda key: key[1].table is not _t.scopes)
        for column, target in keys:
            return column.in_(select(target).where(self.condition(target.table)))
        raise StorageError(f"The table {table.name} has no way to be exported.")


def exported_tables() -> list[Table]:
    """Return the tables of an export, each behind those that it refers to."""
    return texts.tables_that_leave(_t.metadata, "export")


def state_counts(connection: Connection, selection: ScopeSelection) -> dict[str, int]:
    """Return the number of selected memories in each state."""
    state = _t.memories.c.state
    query = select(state, func.count()).where(selection.condition(_t.memories))
    counted = connection.execute(query.group_by(state).order_by(state))
    return {row[0]: int(row[1]) for row in counted}
