"""Runs, steps and their entries, as rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from sqlalchemy import Connection, bindparam, exists, func, select, tuple_, update

from tallystick.records import EntryKind, RunRecord, Scope, StepRecord
from tallystick.storage.engine import tables, texts
from tallystick.storage.engine.database_errors import readable
from tallystick.storage.engine.dialects import text_position
from tallystick.storage.engine.prepared import (
    Prepared,
    PreparedUpdate,
    insert_row,
    row_of,
    text_list,
)
from tallystick.storage.rows.payloads import Layout

_r, _s, _e, _sc = tables.runs, tables.steps, tables.step_entries, tables.scopes
_p = tables.parts
_FETCHED = 500
"""Rows that a search has in memory at once."""
_slow_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_FAST_OPTIONS = (
    orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_PASSTHROUGH_DATACLASS
)
_FAST_OPTIONS |= orjson.OPT_PASSTHROUGH_DATETIME
READS = "tallystick_reads"
"""Key of the metadata of a run of learning: the ids of the memories that a model was given."""
EntryRow = Any
"""A row of `step_entries`."""

_INSERT_RUN = Prepared(insert_row(_r))
_INSERT_STEP = Prepared(insert_row(_s))
_INSERT_ENTRY = Prepared(insert_row(_e))
_RUNS = select(_r, _sc.c.name.label("scope_name")).join(_sc, _sc.c.id == _r.c.scope_id)
_RUN = _RUNS.where(_r.c.id == bindparam("id"))
_STEP = select(_s).where(_s.c.id == bindparam("id"))
_STEPS = select(_s).where(_s.c.run_id == bindparam("run_id")).order_by(_s.c.step_index)
_ENTRIES = select(_e).where(_e.c.step_id == bindparam("step_id")).order_by(_e.c.position)
_END_STEP = Prepared(
    update(_s)
    .where(_s.c.id == bindparam("step"))
    .values(status=bindparam("new_status"), ended_at=bindparam("at"), metadata=bindparam("meta"))
)
_END_RUN = Prepared(
    update(_r)
    .where(_r.c.id == bindparam("run"))
    .values(
        status=bindparam("new_status"),
        ended_at=bindparam("at"),
        gaps=bindparam("missing"),
    )
)
_RECORDED = "UPDATE runs SET process = :process, status = 'running', ended_at = NULL "
_RECORD_ON = PreparedUpdate(f"{_RECORDED}WHERE id = :run AND process IS NULL")
_GIVE_UP = PreparedUpdate("UPDATE runs SET process = NULL WHERE id = :run AND ended_at IS NULL")
_RECORDED_BY = Prepared(
    "SELECT id FROM runs WHERE process = :process AND id IN (SELECT value FROM json_each(:runs))",
    postgresql="SELECT id FROM runs WHERE process = :process AND id = ANY(:runs) FOR SHARE",
)


class NewRun(NamedTuple):
    """A run that starts."""

    record: RunRecord
    scope_id: int
    process: str
    """Token of the process that records it."""


class StoredRun(NamedTuple):
    """A run, and the number of its scope."""

    record: RunRecord
    scope_id: int


class UnfinishedRun(NamedTuple):
    """A run that has not ended, and the token of the process that records it."""

    run_id: str
    process: str | None


class StoredPayload(NamedTuple):
    """A payload that is stored: its step, the number of its scope, and its entry."""

    step_id: str
    scope_id: int
    entry_id: str


class StoredSummary(NamedTuple):
    """An entry without its payload; its summary and redactions are JSON."""

    step_id: str
    kind: EntryKind
    summary: str
    redactions: str


def add_runs(tx: Connection, runs: Sequence[NewRun]) -> None:
    """Insert runs that start."""
    rows = [
        row_of(
            _r,
            run,
            scope_id=scope_id,
            process=process,
            metadata=_text(run.metadata),
            user_goal=run.goal,
        )
        for run, scope_id, process in runs
    ]
    if rows:
        _INSERT_RUN(tx, rows)


def unfinished_runs(connection: Connection) -> list[UnfinishedRun]:
    """Return every run that has not ended, oldest first."""
    query = (
        select(_r.c.id, _r.c.process)
        .where(_r.c.ended_at.is_(None))
        .order_by(_r.c.started_at, _r.c.id)
    )
    return [UnfinishedRun(row.id, row.process) for row in connection.execute(query)]


def take_from_dead(tx: Connection, run_id: str) -> bool:
    """Take a run from the process that recorded it, which is dead; False where the run has ended.
    What that one writes is written before, and can be read, or not at all.
    """
    return bool(_GIVE_UP(tx, {"run": run_id}))


def are_recorded_by(tx: Connection, run_ids: Collection[str], process: str) -> bool:
    """Return True if a process still records these runs, and keep it so until the transaction
    ends.
    """
    runs = text_list(tx, list(run_ids))
    return len(_RECORDED_BY(tx, {"process": process, "runs": runs})) == len(run_ids)


def record_on(tx: Connection, run_id: str, process: str) -> bool:
    """Let a process that was taken for dead record its run again; False where nobody took it."""
    return bool(_RECORD_ON(tx, {"run": run_id, "process": process}))


def step_row(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a step, from the fields of its record."""
    return {**fields, "metadata": _text(fields["metadata"])}


def entry_row(
    step_id: str,
    position: int,
    entry_id: str,
    scope_id: int,
    at: int,
    salt: bytes | None,
    receipt_entry: Mapping[str, Any],
    part_key: str | None = None,
    layout: Layout | None = None,
) -> dict[str, Any]:
    """Return the row of an entry, from its entry of the receipt and the place of its payload, if
    one is kept.
    """
    return {
        "step_id": step_id,
        "position": position,
        "id": entry_id,
        "scope_id": scope_id,
        "kind": receipt_entry["kind"],
        "at": at,
        "payload_state": receipt_entry["payload_state"],
        "part_key": part_key,
        "salt": salt,
        "commitment": receipt_entry.get("commitment", ""),
        "redactions": _text(receipt_entry.get("redactions", {})),
        "summary": _text(receipt_entry.get("summary", {})),
        "base_id": None if layout is None else layout.base_id,
        "copied": None if layout is None else layout.copied,
    }


def add_entries(tx: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert entries, made by `entry_row`."""
    if rows:
        _INSERT_ENTRY(tx, rows)


def add_steps(tx: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert steps that start, or that have ended already, made by `step_row`."""
    if rows:
        _INSERT_STEP(tx, rows)


def end_steps(tx: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """Update steps that ended, made by `step_row`."""
    if rows:
        _END_STEP(
            tx,
            [
                {
                    "step": row["id"],
                    "new_status": row["status"],
                    "at": row["ended_at"],
                    "meta": row["metadata"],
                }
                for row in rows
            ],
        )


def end_run(tx: Connection, run: RunRecord) -> None:
    """Update a run that ended."""
    _END_RUN(
        tx,
        {
            "run": run.id,
            "new_status": run.status,
            "at": run.ended_at,
            "missing": run.gaps,
        },
    )


def set_gaps(tx: Connection, run_id: str, stream: str, gaps: int) -> None:
    """Set how much of a run could not be recorded; a run whose stream was purged keeps the number
    of the purge.
    """
    purged = exists().where(tables.anchors.c.stream == stream)
    tx.execute(update(_r).where(_r.c.id == run_id, ~purged).values(gaps=gaps))


def find_run(connection: Connection, run_id: str) -> StoredRun | None:
    """Return a run, or None."""
    row = connection.execute(_RUN, {"id": run_id}).first()
    return StoredRun(_run(row), row.scope_id) if row else None


def list_runs(
    connection: Connection,
    scopes: Iterable[Scope],
    *,
    limit: int,
    before: RunRecord | int | None = None,
) -> list[RunRecord]:
    """Return runs of these scopes, newest first; `before` is the last run of the page before, or a
    time before which they started.
    """
    query = _RUNS.where(_sc.c.name.in_([str(scope) for scope in scopes]))
    if isinstance(before, RunRecord):
        last = tuple_(before.started_at, before.id)
        query = query.where(tuple_(_r.c.started_at, _r.c.id) < last)
    elif before is not None:
        query = query.where(_r.c.started_at < before)
    rows = connection.execute(query.order_by(_r.c.started_at.desc(), _r.c.id.desc()).limit(limit))
    return [_run(row) for row in rows]


def runs_of_thread(
    connection: Connection, scope: Scope, thread: str, *, since: int, limit: int
) -> list[RunRecord]:
    """Return runs of a scope whose metadata names this thread, started at `since` or later, newest
    first.
    """
    named = f'"thread_id":{json.dumps(thread, ensure_ascii=False)}'
    query = _RUNS.where(_sc.c.name == str(scope), _r.c.started_at >= since)
    query = query.where(_r.c.metadata.contains(named, autoescape=True))
    rows = connection.execute(query.order_by(_r.c.started_at.desc(), _r.c.id.desc()).limit(limit))
    runs = [_run(row) for row in rows]
    return [run for run in runs if run.metadata.get("thread_id") == thread]


def find_step(connection: Connection, step_id: str) -> StepRecord | None:
    """Return a step, or None."""
    row = connection.execute(_STEP, {"id": step_id}).first()
    return _step(row) if row else None


def steps_of(
    connection: Connection, run_id: str, *, after: int | None = None, limit: int | None = None
) -> list[StepRecord]:
    """Return the steps of a run in the order in which they started, or `limit` of them after the
    step with index `after`.
    """
    query = _STEPS if after is None else _STEPS.where(_s.c.step_index > after)
    return [_step(row) for row in connection.execute(query.limit(limit), {"run_id": run_id})]


def count_steps(connection: Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Return the number of steps of each run."""
    query = select(_s.c.run_id, func.count()).where(_s.c.run_id.in_(run_ids)).group_by(_s.c.run_id)
    return {row[0]: row[1] for row in connection.execute(query)}


def step_before(connection: Connection, step: StepRecord) -> str | None:
    """Return the id of the last step of this kind in the run that started before this step."""
    query = select(_s.c.id).where(
        _s.c.run_id == step.run_id,
        _s.c.step_kind == step.step_kind,
        _s.c.step_index < step.step_index,
    )
    return connection.execute(query.order_by(_s.c.step_index.desc()).limit(1)).scalar()


def steps_of_task(connection: Connection, task_id: str) -> list[str]:
    """Return the ids of the steps that were recorded in a task of a graph, in the order in which
    they started.
    """
    # The namespace ends with the task's id, so that the id is followed by a quote in the JSON.
    metadata = func.replace(_s.c.metadata, " ", "")
    query = select(_s.c.id).where(metadata.contains(f':{task_id}"', autoescape=True))
    return list(connection.execute(query.order_by(_s.c.started_at, _s.c.id)).scalars())


def summaries_of(
    connection: Connection, run_id: str, *, after: int | None = None, limit: int | None = None
) -> list[StoredSummary]:
    """Return the entries of a run in the order of its steps, or those of `limit` steps after the
    one with index `after`: without payloads.
    """
    steps = select(_s.c.id, _s.c.step_index).where(_s.c.run_id == run_id)
    if after is not None:
        steps = steps.where(_s.c.step_index > after)
    chosen = steps.order_by(_s.c.step_index).limit(limit).subquery()
    query = (
        select(_e.c.step_id, _e.c.kind, _e.c.summary, _e.c.redactions)
        .join(chosen, chosen.c.id == _e.c.step_id)
        .order_by(chosen.c.step_index, _e.c.position)
    )
    return [StoredSummary._make(row) for row in connection.execute(query)]


_UNSEARCHED = ("compile_request", "compiled", "placeholders")
"""Kinds of entries that hold what was not sent, or what is sealed."""


def steps_saying(connection: Connection, run_id: str, text: str) -> list[str]:
    """Return the ids of the steps of a run in whose payloads a text is new, in their order; upper
    and lower case count alike. What a payload shares with an earlier one is stored there only.
    Payloads that were moved to an object storage are not searched.
    """
    wanted = json.dumps(text, ensure_ascii=False)[1:-1].casefold()
    query = (
        select(_e.c.step_id, _p.c.body)
        .join(_s, _s.c.id == _e.c.step_id)
        .join(_p, (_p.c.scope_id == _e.c.scope_id) & (_p.c.key == _e.c.part_key))
        .where(_s.c.run_id == run_id, _e.c.kind.not_in(_UNSEARCHED))
        .order_by(_s.c.step_index, _e.c.position)
    )
    rows = connection.execution_options(yield_per=_FETCHED).execute(query)
    found = (
        row.step_id
        for row in rows
        if row.body is not None
        and wanted in bytes(row.body).decode("utf-8", "surrogatepass").casefold()
    )
    return list(dict.fromkeys(found))


def entries_naming(connection: Connection, identity: str) -> list[EntryRow]:
    """Return rows (step_id, kind, summary) of the entries with this id in their summary, oldest
    first.
    """
    position = text_position(connection)
    query = (
        select(_e.c.step_id, _e.c.kind, _e.c.summary)
        .where(
            _e.c.kind.in_(("memory_read", "memory_write", "compiled")),
            position(_e.c.summary, identity) > 0,
        )
        .order_by(_e.c.id)
    )
    return list(connection.execute(query))


# The texts of runs and steps: their chain commits to them as they are stored, so that the JSON
# among them is compared as text and never written anew.


def run_texts_of(run: RunRecord) -> dict[str, Any]:
    """Return the texts in the row of a run, from its record."""
    return {
        "agent_name": run.agent_name,
        "domain": run.domain,
        "metadata": _text(run.metadata),
        "user_goal": run.goal,
    }


def run_texts(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return the texts in the row of a run, as they are stored."""
    query = select(_r.c.agent_name, _r.c.domain, _r.c.metadata, _r.c.user_goal)
    return dict(connection.execute(query.where(_r.c.id == run_id)).mappings().one())


def step_texts_of(row: Mapping[str, Any], summaries: Sequence[str]) -> dict[str, Any]:
    """Return the texts in the rows of a step, from its row and the summaries of its entries as they
    are stored.
    """
    return {"metadata": row["metadata"], "name": row["name"], "summaries": list(summaries)}


def step_texts(
    connection: Connection, run_id: str, step_id: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the texts in the rows of each step of a run, or of one of them, as they are stored, by
    the id of the step.
    """
    steps = select(_s.c.id, _s.c.name, _s.c.metadata).where(_s.c.run_id == run_id)
    entries = (
        select(_e.c.step_id, _e.c.summary)
        .join(_s, _s.c.id == _e.c.step_id)
        .where(_s.c.run_id == run_id)
        .order_by(_e.c.step_id, _e.c.position)
    )
    if step_id is not None:
        steps, entries = steps.where(_s.c.id == step_id), entries.where(_e.c.step_id == step_id)
    texts = {row.id: step_texts_of(dict(row._mapping), ()) for row in connection.execute(steps)}
    for row in connection.execute(entries):
        texts[row.step_id]["summaries"].append(row.summary)
    return texts


def metadata_of(connection: Connection, run_id: str) -> dict[str, str]:
    """Return the metadata of a run and of its steps as they are stored, by the ids of these."""
    metadata = {
        row.id: row.metadata
        for row in connection.execute(select(_s.c.id, _s.c.metadata).where(_s.c.run_id == run_id))
    }
    rows = connection.execute(select(_r.c.id, _r.c.metadata).where(_r.c.id == run_id))
    return metadata | {row.id: row.metadata for row in rows}


def runs_that_read(connection: Connection, memory_ids: Iterable[str]) -> list[str]:
    """Return the runs whose metadata name one of these memories as read by a model (`READS`)."""
    wanted = list(memory_ids)
    query = select(_r.c.id, _r.c.metadata).where(
        _r.c.metadata.contains(json.dumps(READS), autoescape=True)
    )

    def names_one(metadata: str) -> bool:
        # Anybody may give a run metadata of any form under this key.
        named = json.loads(metadata).get(READS)
        return isinstance(named, list) and any(each in named for each in wanted)

    return [
        row.id for row in connection.execute(query.order_by(_r.c.id)) if names_one(row.metadata)
    ]


def has_run_texts(connection: Connection, run_id: str) -> bool:
    """Return True if the row of a run has a text."""
    emptied = texts.erased_values(_r)
    return any(value != emptied[name] for name, value in run_texts(connection, run_id).items())


def clear_run_texts(tx: Connection, run_id: str) -> None:
    """Remove the texts from the row of a run."""
    tx.execute(update(_r).where(_r.c.id == run_id).values(texts.erased_values(_r)))


def clear_step_texts(tx: Connection, step_ids: Sequence[str]) -> None:
    """Remove the texts from the rows of steps; the counts of a gap are none."""
    tx.execute(update(_s).where(_s.c.id.in_(step_ids)).values(texts.erased_values(_s)))
    entries = _e.c.step_id.in_(step_ids) & (_e.c.kind != "gap")
    tx.execute(update(_e).where(entries).values(texts.erased_values(_e)))


def stored_payloads(
    connection: Connection, run_id: str, step_id: str | None
) -> list[StoredPayload]:
    """Return the stored payloads of a run, or of one of its steps, in order."""
    query = (
        select(_e.c.step_id, _e.c.scope_id, _e.c.id)
        .join(_s, _s.c.id == _e.c.step_id)
        .where(_s.c.run_id == run_id, _e.c.part_key.is_not(None))
    )
    if step_id is not None:
        query = query.where(_s.c.id == step_id)
    rows = connection.execute(query.order_by(_s.c.step_index, _e.c.position))
    return [StoredPayload(row.step_id, row.scope_id, row.id) for row in rows]


def entries_of(connection: Connection, step_id: str) -> list[EntryRow]:
    """Return the entries of a step, in order."""
    return list(connection.execute(_ENTRIES, {"step_id": step_id}))


def _text(value: Mapping[str, Any]) -> str:
    if not value:
        return "{}"
    try:
        text = orjson.dumps(value, option=_FAST_OPTIONS).decode()
    except orjson.JSONEncodeError:
        # Large integers, half characters, subclasses: the slow encoder writes them, or raises.
        return _slow_encode(value)
    # The fast encoder writes NaN and infinity as null.
    return _slow_encode(value) if "null" in text and _contains_float(value) else text


def _contains_float(value: Any) -> bool:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        kind = type(value)
        if kind is str or kind is int or value is None:
            continue
        if isinstance(value, float):
            return True
        if isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, list | tuple):
            waiting += value
    return False


def _run(row: Any) -> RunRecord:
    with readable(f"run {row.id}"):
        return _as_run(row)


def _step(row: Any) -> StepRecord:
    with readable(f"step {row.id}"):
        return _as_step(row)


def _as_run(row: Any) -> RunRecord:
    same = {name for name in RunRecord.model_fields if name not in ("scope", "goal")}
    fields = {name: getattr(row, name) for name in same}
    fields["metadata"] = json.loads(row.metadata)
    return RunRecord(**fields, scope=Scope.parse(row.scope_name), goal=row.user_goal)


def _as_step(row: Any) -> StepRecord:
    return StepRecord(**{**row._mapping, "metadata": json.loads(row.metadata)})
