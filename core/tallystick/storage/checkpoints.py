"""Checkpoints, their channel values and their pending writes, as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from tallystick.storage import parts, tables
from tallystick.storage.rows import new_key
from tallystick.storage.scopes import ScopeRow

__all__ = [
    "CheckpointRow",
    "PendingWrite",
    "add",
    "add_writes",
    "delete_thread",
    "ensure_thread",
    "find_thread",
    "get",
    "page",
    "thread_names",
    "values_of",
    "writes_of",
]

_t, _c, _v, _w, _p = (
    tables.threads, tables.checkpoints, tables.checkpoint_values, tables.checkpoint_writes, tables.parts,
)  # fmt: skip
_FIND = select(_t.c.id).where(_t.c.scope_id == bindparam("scope_id"), _t.c.name == bindparam("name"))
_INSERT_THREAD = insert(_t)
_ONE = select(_c).where(
    _c.c.thread_id == bindparam("thread"), _c.c.namespace == bindparam("ns"), _c.c.id == bindparam("id")
)
_LATEST = (
    select(_c)
    .where(_c.c.thread_id == bindparam("thread"), _c.c.namespace == bindparam("ns"))
    .order_by(_c.c.id.desc())
    .limit(1)
)
_VALUES = (
    select(_v.c.channel, _v.c.value_type, _p.c.body)
    .join(_p, (_p.c.key == _v.c.part_key) & (_p.c.scope_id == bindparam("scope_id")))
    .where(
        _v.c.thread_id == bindparam("thread"),
        _v.c.namespace == bindparam("ns"),
        _v.c.checkpoint_id == bindparam("id"),
    )
)
_WRITES = (
    select(_w)
    .where(
        _w.c.thread_id == bindparam("thread"),
        _w.c.namespace == bindparam("ns"),
        _w.c.checkpoint_id == bindparam("id"),
    )
    .order_by(_w.c.task_path, _w.c.task_id, _w.c.position)
)
_CLEAR_VALUES = delete(_v).where(
    _v.c.thread_id == bindparam("thread"),
    _v.c.namespace == bindparam("ns"),
    _v.c.checkpoint_id == bindparam("id"),
)


@dataclass(frozen=True)
class CheckpointRow:
    """A checkpoint without its channel values."""

    namespace: str
    id: str
    parent_id: str | None
    metadata: Mapping[str, Any]
    body_type: str
    body: bytes
    commitment: str


@dataclass(frozen=True)
class PendingWrite:
    """One write of a task at a checkpoint. Special writes have a negative position."""

    task_id: str
    task_path: str
    position: int
    channel: str
    value_type: str
    value: bytes


def ensure_thread(tx: Connection, scope: ScopeRow, name: str, *, at: int) -> int:
    """The number of a thread of this scope, made when it is new."""
    found = find_thread(tx, scope.id, name)
    if found is not None:
        return found
    result = tx.execute(_INSERT_THREAD, {"scope_id": scope.id, "name": name, "created_at": at})
    return new_key(result)


def find_thread(connection: Connection, scope_id: int, name: str) -> int | None:
    """The number of a thread of this scope, or None."""
    found: int | None = connection.execute(_FIND, {"scope_id": scope_id, "name": name}).scalar()
    return found


def thread_names(connection: Connection, scope_id: int) -> list[tuple[int, str]]:
    """The threads of a scope as (number, name), by number."""
    query = select(_t.c.id, _t.c.name).where(_t.c.scope_id == scope_id).order_by(_t.c.id)
    return [(row.id, row.name) for row in connection.execute(query)]


def add(
    tx: Connection, scope: ScopeRow, thread: int, checkpoint: CheckpointRow,
    values: Mapping[str, tuple[str, bytes]], *, salt: bytes, at: int,
) -> None:  # fmt: skip
    """Write a checkpoint and what its channels hold; one of the same id is replaced."""
    row = {
        "thread_id": thread,
        "namespace": checkpoint.namespace,
        "id": checkpoint.id,
        "parent_id": checkpoint.parent_id,
        "metadata": json.dumps(checkpoint.metadata, ensure_ascii=False, sort_keys=True),
        "body_type": checkpoint.body_type,
        "body": checkpoint.body,
        "salt": salt,
        "commitment": checkpoint.commitment,
        "created_at": at,
    }
    statement = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(_c)
    changing = {name: statement.excluded[name] for name in row if name not in {"thread_id", "namespace", "id"}}
    tx.execute(statement.on_conflict_do_update(index_elements=["thread_id", "namespace", "id"], set_=changing), row)
    where = {"thread": thread, "ns": checkpoint.namespace, "id": checkpoint.id}
    tx.execute(_CLEAR_VALUES, where)
    keys = parts.put_many(tx, scope, [body for _, body in values.values()], at=at)
    rows = [
        {
            "thread_id": thread, "namespace": checkpoint.namespace, "checkpoint_id": checkpoint.id,
            "channel": channel, "value_type": value_type, "part_key": key,
        }
        for (channel, (value_type, _)), key in zip(values.items(), keys, strict=True)
    ]  # fmt: skip
    if rows:
        tx.execute(insert(_v), rows)


def add_writes(
    tx: Connection,
    thread: int,
    namespace: str,
    checkpoint_id: str,
    writes: Sequence[PendingWrite],
    *,
    replace: bool,
) -> None:
    """Write pending writes; those that are there already stay, unless `replace`."""
    if not writes:
        return
    rows = [
        {
            "thread_id": thread, "namespace": namespace, "checkpoint_id": checkpoint_id, "task_id": write.task_id,
            "position": write.position, "task_path": write.task_path, "channel": write.channel,
            "value_type": write.value_type, "value": write.value,
        }
        for write in writes
    ]  # fmt: skip
    statement = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(_w)
    key = ["thread_id", "namespace", "checkpoint_id", "task_id", "position"]
    if replace:
        changing = {name: statement.excluded[name] for name in ("task_path", "channel", "value_type", "value")}
        tx.execute(statement.on_conflict_do_update(index_elements=key, set_=changing), rows)
    else:
        tx.execute(statement.on_conflict_do_nothing(index_elements=key), rows)


def get(connection: Connection, thread: int, namespace: str, checkpoint_id: str | None) -> CheckpointRow | None:
    """One checkpoint, or that with the greatest id when none is named; None when there is none."""
    if checkpoint_id is None:
        row = connection.execute(_LATEST, {"thread": thread, "ns": namespace}).first()
    else:
        row = connection.execute(_ONE, {"thread": thread, "ns": namespace, "id": checkpoint_id}).first()
    return _checkpoint(row) if row else None


def page(
    connection: Connection, thread: int, *, namespace: str | None, checkpoint_id: str | None, before: str | None,
    after: tuple[str, str] | None, size: int,
) -> list[CheckpointRow]:  # fmt: skip
    """Checkpoints of a thread, greatest id first, `size` at a time; `after` is (id, namespace) of the last one."""
    query = select(_c).where(_c.c.thread_id == thread)
    if namespace is not None:
        query = query.where(_c.c.namespace == namespace)
    if checkpoint_id is not None:
        query = query.where(_c.c.id == checkpoint_id)
    if before is not None:
        query = query.where(_c.c.id < before)
    if after is not None:
        last_id, last_namespace = after
        query = query.where((_c.c.id < last_id) | ((_c.c.id == last_id) & (_c.c.namespace > last_namespace)))
    query = query.order_by(_c.c.id.desc(), _c.c.namespace).limit(size)
    return [_checkpoint(row) for row in connection.execute(query)]


def values_of(
    connection: Connection, scope_id: int, thread: int, namespace: str, checkpoint_id: str
) -> dict[str, tuple[str, bytes]]:
    """Channel to (type, bytes) at one checkpoint."""
    where = {"scope_id": scope_id, "thread": thread, "ns": namespace, "id": checkpoint_id}
    return {row.channel: (row.value_type, bytes(row.body)) for row in connection.execute(_VALUES, where)}


def writes_of(connection: Connection, thread: int, namespace: str, checkpoint_id: str) -> Iterator[PendingWrite]:
    """The pending writes at a checkpoint, in the order (task path, task id, position)."""
    for row in connection.execute(_WRITES, {"thread": thread, "ns": namespace, "id": checkpoint_id}):
        yield PendingWrite(row.task_id, row.task_path, row.position, row.channel, row.value_type, bytes(row.value))


def delete_thread(tx: Connection, scope_id: int, thread: int) -> int:
    """Remove a thread, its checkpoints, its writes and the parts that nothing else needs; how many checkpoints."""
    mine = set(tx.execute(select(_v.c.part_key).where(_v.c.thread_id == thread)).scalars())
    count = int(tx.execute(select(func.count()).where(_c.c.thread_id == thread)).scalar() or 0)
    for table in (_w, _v, _c):
        tx.execute(delete(table).where(table.c.thread_id == thread))
    tx.execute(delete(_t).where(_t.c.id == thread))
    keys = sorted(mine)
    for start in range(0, len(keys), 500):
        _collect(tx, scope_id, keys[start : start + 500])
    return count


def _collect(tx: Connection, scope_id: int, keys: list[str]) -> None:
    """Remove those parts of a scope that no checkpoint, source or step entry refers to."""
    threads_here = select(_t.c.id).where(_t.c.scope_id == scope_id)
    wanted = set(
        tx.execute(select(_v.c.part_key).where(_v.c.part_key.in_(keys), _v.c.thread_id.in_(threads_here))).scalars()
    )
    sources, entries = tables.sources, tables.step_entries
    wanted |= set(
        tx.execute(
            select(sources.c.content_hash).where(sources.c.scope_id == scope_id, sources.c.content_hash.in_(keys))
        ).scalars()
    )
    wanted |= set(
        tx.execute(
            select(entries.c.part_key).where(entries.c.scope_id == scope_id, entries.c.part_key.in_(keys))
        ).scalars()
    )
    free = [key for key in keys if key not in wanted]
    if free:
        tx.execute(delete(_p).where(_p.c.scope_id == scope_id, _p.c.key.in_(free)))


def _checkpoint(row: Any) -> CheckpointRow:
    return CheckpointRow(
        row.namespace,
        row.id,
        row.parent_id,
        json.loads(row.metadata),
        row.body_type,
        bytes(row.body),
        row.commitment,
    )
