"""Jobs in the states that tests need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import update

from tallystick.jobs.embedding import EmbeddingHandler
from tallystick.records import Actor
from tallystick.storage import Connection
from tallystick.storage.engine import tables
from tallystick.storage.rows import jobs, memories
from tallystick.tally import Tally
from tallystick.tally.services import services_of


def add_jobs(tally: Tally, memory_ids: Sequence[str], actor: Actor, **columns: Any) -> list[str]:
    """Leave a job of embedding for each memory, and put all jobs into a state; return their ids."""
    services = services_of(tally)

    def unit(tx: Connection) -> list[str]:
        ids = []
        for memory_id in memory_ids:
            stored = memories.get(tx, memory_id)
            assert stored is not None
            ids.append(
                jobs.enqueue(
                    tx,
                    job_id=services.store.ids.new(),
                    kind=EmbeddingHandler.kind,
                    subject_id=memory_id,
                    scope_id=stored.scope_id,
                    actor=actor,
                    at=services.store.clock.now(),
                )
            )
        return ids

    ids = services.store.database.write(unit, name="test")
    if columns:
        set_jobs(tally, **columns)
    return ids


def set_jobs(tally: Tally, *, only: Sequence[str] = (), **columns: Any) -> None:
    """Put all jobs, or those in some states, into a state."""
    database = services_of(tally).store.database
    change = update(tables.jobs).values(**columns)
    if only:
        change = change.where(tables.jobs.c.state.in_(list(only)))
    database.write(lambda tx: tx.execute(change), name="test")
