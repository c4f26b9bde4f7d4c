"""Runs, steps and what was recorded in them, as rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from tallystick.errors import CorruptTally
from tallystick.records import RunRecord, Scope, StepRecord
from tallystick.storage import tables

__all__ = [
    "EntryRow",
    "add_entry",
    "add_run",
    "add_step",
    "end_run",
    "end_step",
    "entries_of",
    "find_run",
    "find_step",
    "list_runs",
    "matching",
    "steps_of",
    "steps_of_task",
    "unfinished",
]

_r, _s, _e, _sc = tables.runs, tables.steps, tables.step_entries, tables.scopes
EntryRow = Any
"""A row of `step_entries`."""

_INSERT_RUN, _INSERT_STEP, _INSERT_ENTRY = insert(_r), insert(_s), insert(_e)
_RUNS = select(_r, _sc.c.name.label("scope_name")).join(_sc, _sc.c.id == _r.c.scope_id)
_RUN = _RUNS.where(_r.c.id == bindparam("id"))
_STEP = select(_s).where(_s.c.id == bindparam("id"))
_STEPS = select(_s).where(_s.c.run_id == bindparam("run_id")).order_by(_s.c.step_index)
_ENTRIES = select(_e).where(_e.c.step_id == bindparam("step_id")).order_by(_e.c.position)
_END_STEP = (
    update(_s)
    .where(_s.c.id == bindparam("step"))
    .values(status=bindparam("new_status"), ended_at=bindparam("at"), metadata=bindparam("meta"))
)
_END_RUN = (
    update(_r)
    .where(_r.c.id == bindparam("run"))
    .values(status=bindparam("new_status"), ended_at=bindparam("at"), metadata=bindparam("meta"))
)


def add_run(tx: Connection, run: RunRecord, *, scope_id: int, process: str) -> None:
    """Write a run that starts, and the token of the process that records it."""
    tx.execute(
        _INSERT_RUN,
        {
            "id": run.run_id,
            "scope_id": scope_id,
            "agent_name": run.agent_name,
            "domain": run.domain,
            "user_goal": run.user_goal,
            "retention": run.retention,
            "metadata": json.dumps(run.metadata, sort_keys=True),
            "started_at": run.started_at,
            "ended_at": run.ended_at,
            "status": run.status,
            "schema_version": run.schema_version,
            "process": process,
        },
    )


def unfinished(connection: Connection) -> list[tuple[str, str | None]]:
    """(id, token of its process) of each run of any scope that has not ended, oldest first."""
    query = select(_r.c.id, _r.c.process).where(_r.c.ended_at.is_(None)).order_by(_r.c.started_at, _r.c.id)
    return [(row.id, row.process) for row in connection.execute(query)]


def add_step(tx: Connection, step: StepRecord) -> None:
    """Write a step that starts."""
    tx.execute(
        _INSERT_STEP,
        {
            "id": step.step_id,
            "run_id": step.run_id,
            "step_index": step.step_index,
            "step_kind": step.step_kind,
            "name": step.name,
            "parent_step_id": step.parent_step_id,
            "metadata": json.dumps(step.metadata, sort_keys=True),
            "started_at": step.started_at,
            "ended_at": step.ended_at,
            "status": step.status,
            "schema_version": step.schema_version,
        },
    )


def add_entry(tx: Connection, **columns: Any) -> None:
    """Write one entry of a step."""
    tx.execute(_INSERT_ENTRY, columns)


def end_step(tx: Connection, step: StepRecord) -> None:
    """Write how a step ended."""
    tx.execute(
        _END_STEP,
        {
            "step": step.step_id,
            "new_status": step.status,
            "at": step.ended_at,
            "meta": json.dumps(step.metadata, sort_keys=True),
        },
    )


def end_run(tx: Connection, run: RunRecord) -> None:
    """Write how a run ended."""
    tx.execute(
        _END_RUN,
        {
            "run": run.run_id,
            "new_status": run.status,
            "at": run.ended_at,
            "meta": json.dumps(run.metadata, sort_keys=True),
        },
    )


def find_run(connection: Connection, run_id: str) -> tuple[RunRecord, int] | None:
    """A run with the number of its scope, or None."""
    row = connection.execute(_RUN, {"id": run_id}).first()
    return (_run(row), row.scope_id) if row else None


def matching(connection: Connection, fragment: str, *, limit: int = 3) -> list[tuple[str, str]]:
    """Runs and steps whose id begins or ends with `fragment`, as ("run" or "step", id)."""
    found: list[tuple[str, str]] = []
    for what, table in (("run", _r), ("step", _s)):
        size = len(fragment)
        begins = func.substr(table.c.id, 1, size) == fragment
        ends = func.substr(table.c.id, func.length(table.c.id) - size + 1) == fragment
        rows = connection.execute(select(table.c.id).where(begins | ends).order_by(table.c.id).limit(limit))
        found += [(what, row.id) for row in rows]
    return found


def list_runs(
    connection: Connection, scopes: Iterable[Scope], *, limit: int, before: int | None = None
) -> list[RunRecord]:
    """Runs of these scopes, newest first; `before` is the start time of the last one of the page before."""
    query = _RUNS.where(_sc.c.name.in_([str(scope) for scope in scopes]))
    if before is not None:
        query = query.where(_r.c.started_at < before)
    rows = connection.execute(query.order_by(_r.c.started_at.desc(), _r.c.id.desc()).limit(limit))
    return [_run(row) for row in rows]


def find_step(connection: Connection, step_id: str) -> StepRecord | None:
    """A step, or None."""
    row = connection.execute(_STEP, {"id": step_id}).first()
    return _step(row) if row else None


def steps_of(connection: Connection, run_id: str) -> list[StepRecord]:
    """The steps of a run in the order in which they started."""
    return [_step(row) for row in connection.execute(_STEPS, {"run_id": run_id})]


def steps_of_task(connection: Connection, task_id: str) -> list[str]:
    """Ids of the steps that were recorded in a task of a graph, in the order in which they started."""
    # The namespace ends with the task's id, and the metadata are sorted JSON: this is how it reads there.
    noted = func.replace(_s.c.metadata, " ", "")
    query = select(_s.c.id).where(noted.contains(f':{task_id}"', autoescape=True))
    return list(connection.execute(query.order_by(_s.c.started_at, _s.c.id)).scalars())


def entries_of(connection: Connection, step_id: str) -> list[EntryRow]:
    """What was recorded in a step, in order."""
    return list(connection.execute(_ENTRIES, {"step_id": step_id}))


def _run(row: Any) -> RunRecord:
    with _readable(f"run {row.id}"):
        return _as_run(row)


def _step(row: Any) -> StepRecord:
    with _readable(f"step {row.id}"):
        return _as_step(row)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turn what JSON or the records say of a damaged row into CorruptTally."""
    try:
        yield
    except ValueError as error:
        raise CorruptTally(f"The row of {what} is not readable.") from error


def _as_run(row: Any) -> RunRecord:
    return RunRecord(
        run_id=row.id,
        scope=Scope.parse(row.scope_name),
        agent_name=row.agent_name,
        domain=row.domain,
        user_goal=row.user_goal,
        started_at=row.started_at,
        ended_at=row.ended_at,
        status=row.status,
        retention=row.retention,
        metadata=json.loads(row.metadata),
        schema_version=row.schema_version,
    )


def _as_step(row: Any) -> StepRecord:
    return StepRecord(
        step_id=row.id,
        run_id=row.run_id,
        step_index=row.step_index,
        step_kind=row.step_kind,
        name=row.name,
        parent_step_id=row.parent_step_id,
        started_at=row.started_at,
        ended_at=row.ended_at,
        status=row.status,
        metadata=json.loads(row.metadata),
        schema_version=row.schema_version,
    )
