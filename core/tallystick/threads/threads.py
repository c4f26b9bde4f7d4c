"""The checkpoints of one actor's scope: put, get, list, delete; each put acknowledged after its commit.

Values arrive serialised, as (type, bytes); equal bytes are stored once within the scope. A thread belongs to its
scope: the same name in another scope is another thread.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from tallystick.access import Gate
from tallystick.records import Actor, Operation, Scope, commitment
from tallystick.storage import Store, checkpoints, journal, scopes
from tallystick.storage.checkpoints import CheckpointRow, PendingWrite

__all__ = ["StoredCheckpoint", "Threads"]

_PAGE = 50


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint with everything that belongs to it."""

    thread: str
    row: CheckpointRow
    values: Mapping[str, tuple[str, bytes]]
    """Channel to (type, bytes)."""
    writes: tuple[PendingWrite, ...]


class Threads:
    """The threads of one scope, as one actor. Thread-safe."""

    def __init__(self, store: Store, gate: Gate, actor: Actor, scope: Scope) -> None:
        self._store = store
        self._gate = gate
        self._actor = actor
        self._scope = scope

    def put(
        self, thread: str, *, namespace: str, checkpoint_id: str, parent_id: str | None,
        metadata: Mapping[str, Any], body: tuple[str, bytes], values: Mapping[str, tuple[str, bytes]],
    ) -> None:  # fmt: skip
        """Store a checkpoint; returns after the commit. One of the same id is replaced. Raises Denied."""
        self._require("write")
        salt = os.urandom(16)
        committed = commitment("checkpoint", salt, _covered(checkpoint_id, parent_id, body, values))
        row = CheckpointRow(namespace, checkpoint_id, parent_id, metadata, *body, committed)

        def unit(tx: Connection) -> None:
            at = self._store.clock.now()
            scope = scopes.ensure(tx, self._scope)
            number = checkpoints.ensure_thread(tx, scope, thread, at=at)
            checkpoints.add(tx, scope, number, row, values, salt=salt, at=at)
            self._journal(tx, thread, "checkpoint.put", at, checkpoint_id, {"commitment": committed})

        self._store.database.write(unit, name="checkpoint.put")

    def put_writes(
        self,
        thread: str,
        *,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[PendingWrite],
        replace: bool,
    ) -> None:
        """Store pending writes, also before their checkpoint; returns after the commit. Raises Denied."""
        self._require("write")

        def unit(tx: Connection) -> None:
            scope = scopes.ensure(tx, self._scope)
            number = checkpoints.ensure_thread(tx, scope, thread, at=self._store.clock.now())
            checkpoints.add_writes(tx, number, namespace, checkpoint_id, writes, replace=replace)

        self._store.database.write(unit, name="checkpoint.writes")

    def get(self, thread: str, *, namespace: str, checkpoint_id: str | None = None) -> StoredCheckpoint | None:
        """One checkpoint, or that with the greatest id; None when there is none. Raises Denied."""
        self._require("read")
        with self._store.database.read() as connection:
            found = self._find(connection, thread)
            if found is None:
                return None
            scope_id, number = found
            row = checkpoints.get(connection, number, namespace, checkpoint_id)
            return None if row is None else _loaded(connection, scope_id, thread, number, row)

    def checkpoints(
        self, thread: str | None, *, namespace: str | None = None, checkpoint_id: str | None = None,
        before: str | None = None, limit: int | None = None,
        where: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    ) -> Iterator[StoredCheckpoint]:  # fmt: skip
        """Checkpoints, greatest id first, of one thread or of all of the scope; values are loaded one by one.

        `where` sees the metadata before anything else is loaded. Raises Denied.
        """
        self._require("read")
        left = limit
        for name in [thread] if thread is not None else self._names():
            for stored in self._pages(name, namespace, checkpoint_id, before, where):
                if left is not None and left <= 0:
                    return
                yield stored
                left = None if left is None else left - 1

    def delete(self, thread: str) -> None:
        """Remove a thread and what only it needed. An unknown one is no error. Raises Denied."""
        self._require("delete")

        def unit(tx: Connection) -> None:
            found = self._find(tx, thread)
            if found is None:
                return
            count = checkpoints.delete_thread(tx, *found)
            self._journal(tx, thread, "thread.delete", self._store.clock.now(), thread, {"checkpoints": count})

        self._store.database.write(unit, name="thread.delete")

    def _pages(
        self, thread: str, namespace: str | None, checkpoint_id: str | None, before: str | None,
        where: Callable[[Mapping[str, Any]], bool],
    ) -> Iterator[StoredCheckpoint]:  # fmt: skip
        after: tuple[str, str] | None = None
        while True:
            with self._store.database.read() as connection:
                found = self._find(connection, thread)
                if found is None:
                    return
                scope_id, number = found
                rows = checkpoints.page(
                    connection, number, namespace=namespace, checkpoint_id=checkpoint_id, before=before, after=after,
                    size=_PAGE,
                )  # fmt: skip
                wanted = [row for row in rows if where(row.metadata)]
                loaded = [_loaded(connection, scope_id, thread, number, row) for row in wanted]
            yield from loaded
            if len(rows) < _PAGE:
                return
            after = (rows[-1].id, rows[-1].namespace)

    def _names(self) -> list[str]:
        with self._store.database.read() as connection:
            found = scopes.find(connection, [self._scope])
            return [name for _, name in checkpoints.thread_names(connection, found[0].id)] if found else []

    def _find(self, connection: Connection, thread: str) -> tuple[int, int] | None:
        rows = scopes.find(connection, [self._scope])
        number = checkpoints.find_thread(connection, rows[0].id, thread) if rows else None
        return None if number is None else (rows[0].id, number)

    def _require(self, operation: Operation) -> None:
        self._gate.require(self._actor, operation, self._scope)

    def _journal(
        self, tx: Connection, thread: str, event: str, at: int, subject: str, details: Mapping[str, Any]
    ) -> None:
        journal.append(
            tx,
            journal.Event(
                stream=f"thread:{self._scope}/{thread}", event=event, actor=self._actor, at=at,
                audit_id=self._store.ids.new(), subject_id=subject, details=details,
            ),
        )  # fmt: skip


def _loaded(connection: Connection, scope_id: int, thread: str, number: int, row: CheckpointRow) -> StoredCheckpoint:
    return StoredCheckpoint(
        thread,
        row,
        checkpoints.values_of(connection, scope_id, number, row.namespace, row.id),
        tuple(checkpoints.writes_of(connection, number, row.namespace, row.id)),
    )


def _covered(
    checkpoint_id: str,
    parent_id: str | None,
    body: tuple[str, bytes],
    values: Mapping[str, tuple[str, bytes]],
) -> bytes:
    """What the commitment of a checkpoint covers: its place, its body and the digest of each channel's value."""
    sink = hashlib.sha256()
    pieces = [checkpoint_id.encode(), (parent_id or "").encode(), body[0].encode(), body[1]]
    for channel in sorted(values):
        value_type, value = values[channel]
        pieces += [
            channel.encode("utf-8", "surrogatepass"),
            value_type.encode(),
            hashlib.sha256(value).digest(),
        ]
    for piece in pieces:
        sink.update(len(piece).to_bytes(8, "big") + piece)
    return sink.digest()
