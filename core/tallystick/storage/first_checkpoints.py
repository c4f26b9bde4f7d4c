"""Checkpoints of the first schema as rows, for their upgrade; nothing writes them any more."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, delete, select

from tallystick.storage import tables
from tallystick.storage.checkpoint_scan import ThreadName
from tallystick.storage.checkpoints import thread_stream

_c, _v, _w, _t = (
    tables.checkpoints,
    tables.checkpoint_values,
    tables.checkpoint_writes,
    tables.threads,
)
_NAMED = select(_t.c.id, tables.scopes.c.name.label("scope"), _t.c.name, _t.c.stream).join(
    tables.scopes, tables.scopes.c.id == _t.c.scope_id
)


class FirstState(NamedTuple):
    """A checkpoint of the first schema; `metadata` is JSON."""

    namespace: str
    id: str
    parent_id: str | None
    metadata: str
    body_type: str
    body: bytes


class FirstWrite(NamedTuple):
    """A pending write of the first schema."""

    namespace: str
    checkpoint_id: str
    task_id: str
    task_path: str
    position: int
    channel: str
    value_type: str
    value: bytes


def threads(connection: Connection) -> list[ThreadName]:
    """Return the threads that have such rows, oldest first."""
    holding = select(_c.c.thread_id).union(select(_w.c.thread_id))
    rows = connection.execute(_NAMED.where(_t.c.id.in_(holding)).order_by(_t.c.id))
    return [
        ThreadName(row.id, row.scope, row.name, thread_stream(row.id, row.stream)) for row in rows
    ]


def states(connection: Connection, thread: int) -> list[FirstState]:
    """Return the checkpoints of a thread, least id first."""
    query = select(_c).where(_c.c.thread_id == thread).order_by(_c.c.id)
    return [
        FirstState(
            row.namespace, row.id, row.parent_id, row.metadata, row.body_type, bytes(row.body)
        )
        for row in connection.execute(query)
    ]


def values(
    connection: Connection, thread: int, namespace: str, id: str
) -> dict[str, tuple[str, bytes]]:
    """Return the type and the bytes of each channel of a checkpoint."""
    parts = tables.parts
    query = (
        select(_v.c.channel, _v.c.value_type, parts.c.body)
        .join(_t, _t.c.id == _v.c.thread_id)
        .join(
            parts,
            (parts.c.key == _v.c.part_key) & (parts.c.scope_id == _t.c.scope_id),
        )
        .where(
            _v.c.thread_id == thread,
            _v.c.namespace == namespace,
            _v.c.checkpoint_id == id,
        )
    )
    return {row.channel: (row.value_type, bytes(row.body)) for row in connection.execute(query)}


def writes(connection: Connection, thread: int) -> list[FirstWrite]:
    """Return the pending writes of a thread, in no particular order."""
    query = select(_w).where(_w.c.thread_id == thread)
    return [
        FirstWrite(
            row.namespace,
            row.checkpoint_id,
            row.task_id,
            row.task_path,
            row.position,
            row.channel,
            row.value_type,
            bytes(row.value),
        )
        for row in connection.execute(query)
    ]


def remove(tx: Connection, thread: int) -> None:
    """Remove a thread's rows of the first schema, and the parts that nothing else needs."""
    parts = tables.parts
    own_keys = select(_v.c.part_key).where(_v.c.thread_id == thread)
    needed_keys = (
        select(_v.c.part_key).where(_v.c.thread_id != thread),
        select(tables.sources.c.content_hash),
        select(tables.step_entries.c.part_key).where(tables.step_entries.c.part_key.is_not(None)),
    )
    scope_id = select(_t.c.scope_id).where(_t.c.id == thread).scalar_subquery()
    unneeded = (parts.c.key.not_in(keys) for keys in needed_keys)
    tx.execute(
        delete(parts).where(parts.c.scope_id == scope_id, parts.c.key.in_(own_keys), *unneeded)
    )
    for table in (_v, _w, _c):
        tx.execute(delete(table).where(table.c.thread_id == thread))
