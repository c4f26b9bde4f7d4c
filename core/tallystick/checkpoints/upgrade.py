"""Checkpoints of the first schema become trees, once, when a tally of that time is opened.

The first schema kept each channel value whole, as (type, bytes) under `parts`. Here it becomes a
leaf with the same type and bytes: what reads it sees no difference, and what is put from then on is
shared.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, delete, select

from tallystick.checkpoints.context import CheckpointsContext
from tallystick.checkpoints.stored import PendingWrite
from tallystick.checkpoints.threads import Threads
from tallystick.checkpoints.values import Leaf
from tallystick.records import Actor, Scope
from tallystick.storage import Store, tables

__all__ = ["upgrade"]

_c, _v, _w, _p, _t, _s = (
    tables.checkpoints,
    tables.checkpoint_values,
    tables.checkpoint_writes,
    tables.parts,
    tables.threads,
    tables.scopes,
)


def upgrade(store: Store, context: CheckpointsContext) -> int:
    """Move what stands in the first schema's tables; how many checkpoints. Interrupted, it goes on
    the next time.
    """
    with store.database.read() as connection:
        query = select(_t.c.id, _t.c.name, _s.c.name.label("scope")).join(
            _s, _s.c.id == _t.c.scope_id
        )
        holding = select(_c.c.thread_id).union(select(_w.c.thread_id))
        waiting = connection.execute(query.where(_t.c.id.in_(holding)).order_by(_t.c.id)).all()
    return sum(_moved(store, context, row.id, row.name, Scope.parse(row.scope)) for row in waiting)


def _moved(store: Store, context: CheckpointsContext, number: int, name: str, scope: Scope) -> int:
    threads = Threads(context, Actor(user="tallystick", surface="upgrade"), scope, trusted=True)
    with store.database.read() as connection:
        states = connection.execute(
            select(_c).where(_c.c.thread_id == number).order_by(_c.c.id)
        ).all()
    for state in states:
        with store.database.read() as connection:
            values = _values(connection, state)
        body = Leaf(state.body_type, bytes(state.body))
        threads.put(
            name,
            namespace=state.namespace,
            checkpoint_id=state.id,
            parent_id=state.parent_id,
            metadata=json.loads(state.metadata),
            body=body,
            values=values,
        )
    with store.database.read() as connection:
        writes = connection.execute(select(_w).where(_w.c.thread_id == number)).all()
    for write in writes:
        one = PendingWrite(
            write.task_id,
            write.task_path,
            write.position,
            write.channel,
            Leaf(write.value_type, bytes(write.value)),
        )
        threads.put_writes(
            name, namespace=write.namespace, checkpoint_id=write.checkpoint_id, writes=[one]
        )

    def emptied(tx: Connection) -> None:
        mine = select(_v.c.part_key).where(_v.c.thread_id == number)
        others = (
            select(_v.c.part_key).where(_v.c.thread_id != number),
            select(tables.sources.c.content_hash),
            select(tables.step_entries.c.part_key).where(
                tables.step_entries.c.part_key.is_not(None)
            ),
        )
        owner = select(_t.c.scope_id).where(_t.c.id == number).scalar_subquery()
        unneeded = (_p.c.key.not_in(other) for other in others)
        tx.execute(delete(_p).where(_p.c.scope_id == owner, _p.c.key.in_(mine), *unneeded))
        for table in (_v, _w, _c):
            tx.execute(delete(table).where(table.c.thread_id == number))

    store.database.write(emptied, name="thread.upgrade")
    return len(states)


def _values(connection: Connection, state: Any) -> dict[str, Leaf]:
    query = (
        select(_v.c.channel, _v.c.value_type, _p.c.body)
        .join(_t, _t.c.id == _v.c.thread_id)
        .join(_p, (_p.c.key == _v.c.part_key) & (_p.c.scope_id == _t.c.scope_id))
        .where(
            _v.c.thread_id == state.thread_id,
            _v.c.namespace == state.namespace,
            _v.c.checkpoint_id == state.id,
        )
    )
    return {row.channel: Leaf(row.value_type, bytes(row.body)) for row in connection.execute(query)}
