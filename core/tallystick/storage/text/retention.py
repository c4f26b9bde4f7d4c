"""Rows that are past a moment: counted for a preview, removed by a purge. Which moment that is, and
what must go first, is decided above.
"""

from __future__ import annotations

from sqlalchemy import Connection, Table, and_, delete, exists, func, or_, select
from sqlalchemy.sql.elements import ColumnElement

from tallystick.storage.engine import tables
from tallystick.storage.rows import memories, recordings

_m, _j, _i, _log = tables.memories, tables.jobs, tables.idempotency, tables.access_log
_r, _s, _e, _a = tables.runs, tables.steps, tables.step_entries, tables.anchors


def count_jobs(connection: Connection, *, done_before: int, dead_before: int) -> int:
    """Return the number of jobs that were done, or failed or dead, before those moments."""
    return _count(connection, _j, _old_jobs(done_before, dead_before))


def remove_jobs(tx: Connection, *, done_before: int, dead_before: int) -> None:
    """Remove the jobs that were done, or failed or dead, before those moments."""
    tx.execute(delete(_j).where(_old_jobs(done_before, dead_before)))


def count_answers(connection: Connection, before: int) -> int:
    """Return the number of answers of idempotent calls that are older than a moment."""
    return _count(connection, _i, _i.c.created_at < before)


def remove_answers(tx: Connection, before: int) -> None:
    """Remove the answers of idempotent calls that are older than a moment."""
    tx.execute(delete(_i).where(_i.c.created_at < before))


def count_reads(connection: Connection, before: int) -> int:
    """Return the number of lines of the access log that are older than a moment."""
    return _count(connection, _log, _log.c.at < before)


def remove_reads(tx: Connection, before: int) -> None:
    """Remove the lines of the access log that are older than a moment."""
    tx.execute(delete(_log).where(_log.c.at < before))


def expired_docs(connection: Connection, now: int, *, limit: int | None) -> list[int]:
    """Return the findable memories whose time is over, by number, in order."""
    query = select(_m.c.doc).where(_m.c.state.in_(memories.FINDABLE), _m.c.expires_at <= now)
    return list(connection.execute(query.order_by(_m.c.doc).limit(limit)).scalars())


def tombstones(connection: Connection, before: int, *, limit: int | None) -> list[int]:
    """Return the memories that were forgotten before a moment, by number, in order."""
    query = select(_m.c.doc).where(_m.c.state == "deleted", _m.c.forgotten_at < before)
    return list(connection.execute(query.order_by(_m.c.doc).limit(limit)).scalars())


def ended_runs(connection: Connection, before: int, *, stream_prefix: str) -> list[str]:
    """Return the runs that ended before a moment and of whose journal nothing was cut, oldest end
    first.
    """
    cut = exists().where(_a.c.stream == stream_prefix + _r.c.id)
    query = select(_r.c.id).where(_r.c.ended_at < before, ~cut).order_by(_r.c.ended_at, _r.c.id)
    return list(connection.execute(query).scalars())


def remove_run(tx: Connection, run_id: str) -> int:
    """Remove the entries and steps of a run and empty its row; return the number of steps."""
    steps = select(_s.c.id).where(_s.c.run_id == run_id)
    tx.execute(delete(_e).where(_e.c.step_id.in_(steps)))
    count = int(tx.execute(delete(_s).where(_s.c.run_id == run_id)).rowcount)
    recordings.clear_run_texts(tx, run_id)
    return count


def _count(connection: Connection, table: Table, condition: ColumnElement[bool]) -> int:
    query = select(func.count()).select_from(table).where(condition)
    return int(connection.execute(query).scalar_one())


def _old_jobs(done_before: int, dead_before: int) -> ColumnElement[bool]:
    return or_(
        and_(_j.c.state.in_(("done", "empty")), _j.c.updated_at < done_before),
        and_(_j.c.state.in_(("failed", "dead")), _j.c.updated_at < dead_before),
    )
