"""Threads, their checkpoints and their pending writes, as rows. `checkpoints` gives the columns
their meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    bindparam,
    delete,
    func,
    literal_column,
    or_,
    select,
    update,
)

from tallystick.storage.engine import tables
from tallystick.storage.engine.database_errors import readable
from tallystick.storage.engine.dialects import text_position
from tallystick.storage.engine.prepared import Prepared, PreparedInsert, insert_row, upsert
from tallystick.storage.rows import trees

_t, _s, _w = tables.threads, tables.thread_states, tables.thread_writes
_THREAD = (
    _t.c.id,
    _t.c.name,
    _t.c.epoch,
    _t.c.puts,
    _t.c.states,
    _t.c.seal,
    _t.c.writer,
    _t.c.lifetime,
    _t.c.expires_at,
)
_FIND = Prepared(
    select(*_THREAD).where(_t.c.scope_id == bindparam("scope_id"), _t.c.name == bindparam("name"))
)
_ADD_THREAD = PreparedInsert(insert_row(_t, "scope_id", "name", "created_at"), key="id")
_UPDATE_THREAD = Prepared(
    update(_t)
    .where(_t.c.id == bindparam("thread"))
    .values(
        epoch=bindparam("new_epoch"),
        puts=bindparam("new_puts"),
        states=bindparam("new_states"),
        seal=bindparam("new_seal"),
        writer=bindparam("new_writer"),
        lifetime=bindparam("new_lifetime"),
        expires_at=bindparam("new_expiry"),
    )
)
_AT = (_s.c.thread_id == bindparam("thread"), _s.c.namespace == bindparam("ns"))
_ONE = Prepared(select(_s).where(*_AT, _s.c.id == bindparam("id")))
_LATEST = Prepared(
    select(_s)
    .where(*_AT)
    .order_by(_s.c.id.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)
_JOINED = (
    select(*_THREAD, *_s.c)
    .join(_s, _s.c.thread_id == _t.c.id)
    .where(
        _t.c.scope_id == bindparam("scope_id"),
        _t.c.name == bindparam("name"),
        _s.c.namespace == bindparam("ns"),
    )
)
_FIND_ONE = Prepared(_JOINED.where(_s.c.id == bindparam("id")))
_FIND_LATEST = Prepared(
    _JOINED.order_by(_s.c.id.desc()).limit(literal_column("1")).offset(literal_column("0"))
)
_UP_TO = Prepared(
    select(_s)
    .where(*_AT, _s.c.id <= bindparam("id"))
    .order_by(_s.c.id.desc())
    .limit(bindparam("size"))
    .offset(literal_column("0"))
)
_BETWEEN = Prepared(
    select(_w).where(
        _w.c.thread_id == bindparam("thread"),
        _w.c.namespace == bindparam("ns"),
        _w.c.checkpoint_id >= bindparam("first"),
        _w.c.checkpoint_id <= bindparam("last"),
    )
)
_CODE = Prepared(select(_s.c.code).where(*_AT, _s.c.id == bindparam("id")))
_COLUMNS = ("parent_id", "position", "marks", "metadata", "state", "code")

_KEY = ("thread_id", "id", "namespace")
_PUT = Prepared(upsert(_s, (*_KEY, *_COLUMNS), key=_KEY, replacing=_COLUMNS))
_PUT_FIRST = Prepared(f"{upsert(_s, (*_KEY, *_COLUMNS))} RETURNING position")
_WRITE_KEY = ("thread_id", "checkpoint_id", "namespace", "task_id", "position")
_WRITE_COLUMNS = ("task_path", "channel", "value", "code")
_WRITE = Prepared(upsert(_w, (*_WRITE_KEY, *_WRITE_COLUMNS), key=_WRITE_KEY))
_REPLACE = Prepared(
    upsert(_w, (*_WRITE_KEY, *_WRITE_COLUMNS), key=_WRITE_KEY, replacing=_WRITE_COLUMNS)
)
_WRITES = Prepared(
    select(_w).where(
        _w.c.thread_id == bindparam("thread"),
        _w.c.checkpoint_id == bindparam("id"),
        _w.c.namespace == bindparam("ns"),
    )
)


@dataclass(frozen=True)
class ThreadRow:
    """A thread: `puts` counts all checkpoints ever put, `states` those that are stored, and
    `checksum` is the sum of the MACs of those.
    """

    id: int
    name: str
    epoch: int
    puts: int
    states: int
    checksum: str
    writer: str
    lifetime: int | None
    expires_at: int | None

    @property
    def stream(self) -> str:
        """The name of its journal."""
        return thread_stream(self.id)


def thread_stream(number: int) -> str:
    """Return the name of the journal of a thread: it names the thread by its number, because the
    id that a caller gives it is a text that may have to be erased.
    """
    return f"thread:{number}"


@dataclass(frozen=True)
class StateRow:
    """A checkpoint as it is stored: its fields are named as the columns.

    `marks` are the fingerprints of its metadata, `code` is its MAC.
    """

    thread_id: int
    id: str
    namespace: str
    parent_id: str | None
    position: int
    marks: str
    metadata: bytes
    state: bytes
    code: bytes


@dataclass(frozen=True)
class WriteRow:
    """A pending write as it is stored: its fields are named as the columns, `code` is its MAC.

    Special writes have a negative position.
    """

    thread_id: int
    checkpoint_id: str
    namespace: str
    task_id: str
    position: int
    task_path: str
    channel: str
    value: bytes
    code: bytes


@dataclass(frozen=True)
class Fingerprint:
    """A filter on the `marks` of a checkpoint: `text` must be in them, or `absent`, if given, must
    not be.
    """

    text: str
    absent: str | None = None


class ThreadAndState(NamedTuple):
    """A thread, and one of its checkpoints."""

    thread: ThreadRow
    state: StateRow


class CheckpointPlace(NamedTuple):
    """The place of a checkpoint in its thread."""

    namespace: str
    checkpoint_id: str


def find_thread(connection: Connection, scope_id: int, name: str) -> ThreadRow | None:
    """Return the thread of this name, or None."""
    rows = _FIND(connection, {"scope_id": scope_id, "name": name})
    return ThreadRow(*rows[0]) if rows else None


def add_thread(tx: Connection, scope_id: int, name: str, *, at: int) -> ThreadRow:
    """Insert a thread without checkpoints and return it."""
    key = _ADD_THREAD(tx, {"scope_id": scope_id, "name": name, "created_at": at})
    return ThreadRow(key, name, 0, 0, 0, "", "", None, None)


def update_thread(tx: Connection, thread: ThreadRow) -> None:
    """Update the row of a thread."""
    _UPDATE_THREAD(
        tx,
        {
            "thread": thread.id,
            "new_epoch": thread.epoch,
            "new_puts": thread.puts,
            "new_states": thread.states,
            "new_seal": thread.checksum,
            "new_writer": thread.writer,
            "new_lifetime": thread.lifetime,
            "new_expiry": thread.expires_at,
        },
    )


def thread_names(connection: Connection, scope_id: int) -> list[str]:
    """Return the names of the threads of a scope, oldest first."""
    return list(
        connection.execute(
            select(_t.c.name).where(_t.c.scope_id == scope_id).order_by(_t.c.id)
        ).scalars()
    )


def expired_threads(connection: Connection, scope_id: int, at: int, limit: int) -> list[str]:
    """Return the names of threads whose lifetime was over at `at`, the longest over first."""
    query = select(_t.c.name).where(_t.c.scope_id == scope_id, _t.c.expires_at <= at)
    return list(connection.execute(query.order_by(_t.c.expires_at).limit(limit)).scalars())


def stored_mac(connection: Connection, thread: int, namespace: str, id: str) -> bytes | None:
    """Return the MAC of a checkpoint, or None if there is no such checkpoint."""
    rows = _CODE(connection, {"thread": thread, "ns": namespace, "id": id})
    return bytes(rows[0][0]) if rows else None


def add_state(tx: Connection, row: StateRow) -> bytes | None:
    """Insert or replace a checkpoint; return the MAC of the one that it replaced, or None."""
    if _PUT_FIRST(tx, vars(row)):
        return None
    replaced_mac = stored_mac(tx, row.thread_id, row.namespace, row.id)
    _PUT(tx, vars(row))
    return replaced_mac


def find_checkpoint(
    connection: Connection, scope_id: int, name: str, namespace: str, id: str | None
) -> ThreadAndState | None:
    """Return a thread with one of its checkpoints, by default that with the greatest id; None if
    either does not exist.
    """
    values = {"scope_id": scope_id, "name": name, "ns": namespace}
    rows = (
        _FIND_LATEST(connection, values)
        if id is None
        else _FIND_ONE(connection, {**values, "id": id})
    )
    if not rows:
        return None
    thread, state = rows[0][: len(_THREAD)], rows[0][len(_THREAD) :]
    return ThreadAndState(ThreadRow(*thread), _state(state))


def get(connection: Connection, thread: int, namespace: str, id: str | None) -> StateRow | None:
    """Return one checkpoint, by default that with the greatest id; None if there is none."""
    if id is None:
        rows = _LATEST(connection, {"thread": thread, "ns": namespace})
    else:
        rows = _ONE(connection, {"thread": thread, "ns": namespace, "id": id})
    return _state(rows[0]) if rows else None


def page(
    connection: Connection,
    thread: int,
    *,
    namespace: str | None,
    id: str | None,
    before: str | None,
    after: tuple[str, str] | None,
    fingerprints: Sequence[Fingerprint],
    size: int,
) -> list[StateRow]:
    """Return checkpoints, greatest id first, at most `size`; `after` is (id, namespace) of the last
    checkpoint of the page before.

    `fingerprints` leave out checkpoints that cannot match; those that are left in may still not
    match.
    """
    query = select(_s).where(_s.c.thread_id == thread)
    if namespace is not None:
        query = query.where(_s.c.namespace == namespace)
    if id is not None:
        query = query.where(_s.c.id == id)
    if before is not None:
        query = query.where(_s.c.id < before)
    if after is not None:
        last_id, last_namespace = after
        query = query.where(
            (_s.c.id < last_id) | ((_s.c.id == last_id) & (_s.c.namespace < last_namespace))
        )
    for fingerprint in fingerprints:
        matches = _contains(connection, fingerprint.text)
        if fingerprint.absent is not None:
            matches = or_(matches, ~_contains(connection, fingerprint.absent))
        query = query.where(matches)
    query = query.order_by(_s.c.id.desc(), _s.c.namespace.desc()).limit(size)
    return [_state(row) for row in connection.execute(query)]


def states_of(connection: Connection, thread: int) -> list[StateRow]:
    """Return every checkpoint of a thread, least id first."""
    query = select(_s).where(_s.c.thread_id == thread).order_by(_s.c.id, _s.c.namespace)
    return [_state(row) for row in connection.execute(query)]


def last_of_namespaces(connection: Connection, thread: int) -> dict[str, str]:
    """Return the greatest id of each namespace."""
    query = (
        select(_s.c.namespace, func.max(_s.c.id))
        .where(_s.c.thread_id == thread)
        .group_by(_s.c.namespace)
    )
    return {row[0]: row[1] for row in connection.execute(query)}


def remove_states(tx: Connection, thread: int, places: Iterable[tuple[str, str]]) -> None:
    """Remove the checkpoints at these (namespace, id)."""
    rows = [{"thread": thread, "ns": namespace, "one": id} for namespace, id in places]
    if rows:
        where = (_s.c.thread_id == bindparam("thread"), _s.c.namespace == bindparam("ns"))
        tx.execute(delete(_s).where(*where, _s.c.id == bindparam("one")), rows)


def add_writes(tx: Connection, rows: Sequence[WriteRow], *, replace: bool) -> None:
    """Insert pending writes; existing ones stay as they are, unless `replace`."""
    if rows:
        (_REPLACE if replace else _WRITE)(tx, [vars(row) for row in rows])


def writes_of(
    connection: Connection,
    thread: int,
    namespace: str | None = None,
    checkpoint_id: str | None = None,
) -> list[WriteRow]:
    """Return the pending writes at a checkpoint, or of a whole thread, in no particular order."""
    rows: Sequence[Any]
    if checkpoint_id is not None:
        rows = _WRITES(connection, {"thread": thread, "ns": namespace, "id": checkpoint_id})
    else:
        rows = connection.execute(select(_w).where(_w.c.thread_id == thread)).fetchall()
    return [_write(row) for row in rows]


def places_of_task(connection: Connection, thread: int, task_id: str) -> list[CheckpointPlace]:
    """Return the checkpoints at which a task wrote."""
    query = select(_w.c.namespace, _w.c.checkpoint_id).where(
        _w.c.thread_id == thread, _w.c.task_id == task_id
    )
    return [CheckpointPlace(row[0], row[1]) for row in connection.execute(query.distinct())]


def states_up_to(
    connection: Connection, thread: int, namespace: str, id: str, size: int
) -> list[StateRow]:
    """Return a checkpoint and those of lesser id, greatest id first, at most `size`."""
    return [
        _state(row)
        for row in _UP_TO(connection, {"thread": thread, "ns": namespace, "id": id, "size": size})
    ]


def writes_between(
    connection: Connection, thread: int, namespace: str, first: str, last: str
) -> list[WriteRow]:
    """Return the pending writes at the checkpoints from one id to another, in no particular
    order.
    """
    rows = _BETWEEN(connection, {"thread": thread, "ns": namespace, "first": first, "last": last})
    return [_write(row) for row in rows]


def remove_writes(tx: Connection, thread: int, places: Iterable[tuple[str, str]]) -> None:
    """Remove the pending writes at the checkpoints at these (namespace, id)."""
    rows = [{"thread": thread, "ns": namespace, "one": id} for namespace, id in places]
    if rows:
        where = (_w.c.thread_id == bindparam("thread"), _w.c.namespace == bindparam("ns"))
        tx.execute(delete(_w).where(*where, _w.c.checkpoint_id == bindparam("one")), rows)


def delete_thread(tx: Connection, thread: int) -> int:
    """Remove a thread with its checkpoints, writes and unshared pieces; return the number of its
    checkpoints.
    """
    count = int(tx.execute(select(func.count()).where(_s.c.thread_id == thread)).scalar() or 0)
    trees.release_all(tx, thread)
    for table in (_w, _s):
        tx.execute(delete(table).where(table.c.thread_id == thread))
    tx.execute(delete(_t).where(_t.c.id == thread))
    return count


def _contains(connection: Connection, text: str) -> Any:
    # A fingerprint is a semicolon and hexadecimal digits: nothing in it needs escaping, and there
    # is no pattern.
    position = text_position(connection)
    return position(_s.c.marks, text) > 0


def _write(row: Any) -> WriteRow:
    with readable("a pending write"):
        return WriteRow(
            row[0], row[1], row[2], row[3], row[4], row[5], row[6], bytes(row[7]), bytes(row[8])
        )


def _state(row: Any) -> StateRow:
    with readable("a checkpoint"):
        return StateRow(
            row[0],
            row[1],
            row[2],
            row[3],
            row[4],
            row[5],
            bytes(row[6]),
            bytes(row[7]),
            bytes(row[8]),
        )
