"""Ids by a part of them: the records of a table whose id begins or ends with some characters."""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from sqlalchemy import Connection, func, select

from tallystick.records import Scope
from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import text_position, unpack

IdKind = Literal[
    "memory",
    "source",
    "run",
    "step",
    "approval",
    "job",
    "proposal",
    "import",
    "document",
    "synthesis",
]

_sc = tables.scopes
_TABLES = {
    "memory": tables.memories,
    "source": tables.sources,
    "run": tables.runs,
    "approval": tables.approvals,
    "job": tables.jobs,
    "proposal": tables.proposals,
    "import": tables.source_imports,
    "document": tables.documents,
    "synthesis": tables.synthesis_runs,
}


class IdMatch(NamedTuple):
    """A record that fits, of any scope: the caller decides who may see it."""

    id: str
    scope: Scope


def steps_of_compile(connection: Connection, compiled_id: str) -> list[IdMatch]:
    """Return the steps that recorded a compile of this id, newest first."""
    entries, steps, runs = tables.step_entries, tables.steps, tables.runs
    text = f'"compiled_id":{json.dumps(compiled_id)}'
    query = (
        select(steps.c.id, _sc.c.name)
        .join(entries, entries.c.step_id == steps.c.id)
        .join(runs, runs.c.id == steps.c.run_id)
        .join(_sc, _sc.c.id == runs.c.scope_id)
        .where(entries.c.kind == "compiled", text_position(connection)(entries.c.summary, text) > 0)
        .order_by(entries.c.id.desc())
    )
    return [IdMatch(row.id, Scope.parse(row.name)) for row in connection.execute(query)]


def ids_matching(connection: Connection, kind: IdKind, fragment: str) -> list[IdMatch]:
    """Return the records of a kind whose id begins or ends with `fragment`, by id."""
    if kind == "step":
        table = tables.steps
        query = select(table.c.id, _sc.c.name).join(tables.runs, tables.runs.c.id == table.c.run_id)
        query = query.join(_sc, _sc.c.id == tables.runs.c.scope_id)
    else:
        table = _TABLES[kind]
        query = select(table.c.id, _sc.c.name).join(_sc, _sc.c.id == table.c.scope_id)
    size = len(fragment)
    id_text = unpack(connection, table.c.id)
    begins = func.substr(id_text, 1, size) == fragment
    ends = func.substr(id_text, func.length(id_text) - size + 1) == fragment
    rows = connection.execute(query.where(begins | ends).order_by(table.c.id))
    return [IdMatch(row.id, Scope.parse(row.name)) for row in rows]
