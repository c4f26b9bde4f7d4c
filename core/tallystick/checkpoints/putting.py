"""Putting checkpoints and pending writes, and copying threads: everything is prepared first, then
written in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple, Self

from tallystick.checkpoints.codec import (
    Codec,
    checkpoint_mac,
    compact_json,
    thread_checksum,
    write_mac,
)
from tallystick.checkpoints.context import Base, NewCheckpoint, PendingWrite, ThreadScope
from tallystick.checkpoints.formats import decode_frame, encode_frame, node_body, roots_json
from tallystick.checkpoints.listing import metadata_fingerprints
from tallystick.checkpoints.reading import read_base
from tallystick.checkpoints.removing import expire
from tallystick.checkpoints.values import Chunk, Value, new_chunks, share_with_base, values_digest
from tallystick.costs import measured
from tallystick.errors import StateConflict
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import checkpoints, trees
from tallystick.storage.rows.checkpoints import StateRow, ThreadRow, WriteRow

_ANCHOR_INTERVAL = 64
"""Puts after which the journal notes a thread's checksum, if its writer has not changed before."""
_SWEEP_US = 60 * 1_000_000
"""Time between two removals of expired threads, microseconds."""


class _StaleBase(Exception):
    """The cached base of a put is not part of its thread any more."""


class _Stored(NamedTuple):
    """Result of the transaction of a put."""

    row: ThreadRow
    chunk_ids: dict[bytes, int]
    at: int


class CheckpointPut:
    """One checkpoint on its way into a thread: prepared when it is made, then submitted, then
    awaited once. Other puts that are submitted meanwhile share its commit.
    """

    __slots__ = (
        "_base",
        "_checkpoint",
        "_chunks",
        "_digest",
        "_fingerprints",
        "_future",
        "_mac",
        "_metadata",
        "_scope",
        "_stored_body",
        "_stored_metadata",
        "_thread",
        "_values",
    )

    def __init__(self, scope: ThreadScope, thread: str, checkpoint: NewCheckpoint) -> None:
        self._scope = scope
        self._thread = thread
        self._checkpoint = checkpoint
        codec, namespace, parent = scope.codec, checkpoint.namespace, checkpoint.parent_id
        base = None
        if parent is not None:
            base = scope.cache.base(thread, namespace, parent) or read_base(
                scope, thread, namespace=namespace, id=parent
            )
        values = checkpoint.values
        if not isinstance(values, Mapping):
            values = values({} if base is None else base.values)
        self._metadata = compact_json(checkpoint.metadata)
        self._fingerprints = metadata_fingerprints(checkpoint.metadata, codec)
        self._stored_metadata = codec.pack(self._metadata)
        body = checkpoint.body.body
        self._stored_body = codec.pack(body) if codec.encrypts else body
        self._prepare(values, base)

    def submit(self, *, soon: bool) -> Self:
        """Hand the put to the writer, which with `soon` waits a little for more."""
        self._future: Future[_Stored] = self._scope.store.database.submit(
            self._write,
            name="checkpoint.put",
            writes=Writes.of(self._scope.name),
            deferred=soon,
        )
        return self

    @staticmethod
    def write_together(puts: Sequence[CheckpointPut]) -> None:
        """Write several, of whatever threads and scopes, in one transaction; return after the
        commit. They have no parents. Raises StateConflict; then none was stored.
        """
        first = puts[0]._scope
        future = first.store.database.submit(
            lambda tx: [each._write(tx) for each in puts],
            name="checkpoint.put",
            writes=Writes.of(*(each._scope.name for each in puts)),
        )
        with first.gate.journaling(first.actor):
            written = future.result()
        for each, stored in zip(puts, written, strict=True):
            each._note(stored)

    def wait(self) -> None:
        """Wait for the commit; then the checkpoint is the base of the next one."""
        scope = self._scope
        with scope.gate.journaling(scope.actor):
            try:
                stored = self._future.result()
            except _StaleBase:
                self._prepare(self._values, None)
                stored = self.submit(soon=False)._future.result()
        self._note(stored)

    def _note(self, stored: _Stored) -> None:
        scope, row = self._scope, stored.row
        self._chunks.note_ids(stored.chunk_ids, scope)
        base = Base(self._checkpoint.id, row.id, row.epoch, self._digest, self._values)
        scope.cache.bases.put((self._thread, self._checkpoint.namespace), base)
        if scope.cache.sweep_is_due(stored.at, _SWEEP_US):
            expire(scope)

    def _prepare(self, values: Mapping[str, Value], base: Base | None) -> None:
        """Compute all that does not depend on the thread's row: chunks, digest and MAC."""
        scope, checkpoint = self._scope, self._checkpoint
        codec = scope.codec
        shared = {} if base is None else base.values
        self._base = base
        self._values = {
            channel: share_with_base(value, shared.get(channel), codec)
            for channel, value in values.items()
        }
        self._chunks = _NewChunks(self._values.values(), codec)
        self._digest = values_digest(self._values, codec)
        self._mac = checkpoint_mac(
            codec,
            scope.name,
            self._thread,
            checkpoint.namespace,
            checkpoint.id,
            checkpoint.parent_id,
            self._metadata,
            checkpoint.body.type,
            checkpoint.body.body,
            self._digest,
        )

    @measured("checkpoint")
    def _write(self, tx: Connection) -> _Stored:
        scope, checkpoint, base = self._scope, self._checkpoint, self._base
        at = scope.now()
        row = scope.ensure_thread(tx, self._thread, at)
        if checkpoint.if_newest is not None:
            newest = checkpoints.last_of_namespaces(tx, row.id).get(checkpoint.namespace, "")
            if newest != checkpoint.if_newest:
                raise StateConflict(
                    self._thread,
                    state="changed",
                    reason="something was put since it was read",
                    hint="Read it again.",
                    what="Thread",
                )
        # The chunk ids of the base may be used only while the thread holds them (context.py).
        if base is not None and (base.thread, base.epoch) != (row.id, row.epoch):
            raise _StaleBase
        ids = self._chunks.insert_new_chunks(tx, scope.id, row.id)
        chunk_id = _ChunkIds(ids)
        roots = {channel: roots_json(value, chunk_id) for channel, value in self._values.items()}
        replaced_mac = checkpoints.add_state(
            tx,
            StateRow(
                thread_id=row.id,
                id=checkpoint.id,
                namespace=checkpoint.namespace,
                parent_id=checkpoint.parent_id,
                position=row.puts,
                marks=self._fingerprints,
                metadata=self._stored_metadata,
                state=encode_frame(
                    self._digest, roots, checkpoint.body.type, self._stored_body, scope.codec
                ),
                code=self._mac,
            ),
        )
        lifetime = checkpoint.lifetime if checkpoint.lifetime is not None else row.lifetime
        updated = replace(
            row,
            puts=row.puts + 1,
            states=row.states + (replaced_mac is None),
            checksum=thread_checksum(
                row.checksum,
                add=[self._mac],
                subtract=[] if replaced_mac is None else [replaced_mac],
            ),
            writer=scope.writer,
            lifetime=lifetime,
            expires_at=None if lifetime is None else at + lifetime,
        )
        checkpoints.update_thread(tx, updated)
        if (
            replaced_mac is not None
            or updated.writer != row.writer
            or updated.puts % _ANCHOR_INTERVAL == 0
        ):
            run = checkpoint.metadata.get("run_id")
            scope.write_anchor(
                tx, "checkpoint.put", updated, at, run=run if isinstance(run, str) else None
            )
        return _Stored(updated, ids, at)


class WritesPut:
    """Pending writes on their way to a checkpoint; handled as a CheckpointPut is."""

    __slots__ = ("_chunks", "_digests", "_future", "_rows", "_scope", "_thread", "_values")

    def __init__(
        self,
        scope: ThreadScope,
        thread: str,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[PendingWrite],
    ) -> None:
        codec = scope.codec
        self._scope = scope
        self._thread = thread
        self._values = [share_with_base(write.value, None, codec) for write in writes]
        self._chunks = _NewChunks(self._values, codec)
        self._digests = [values_digest({"": value}, codec) for value in self._values]
        rows = [
            WriteRow(
                thread_id=0,  # known in the transaction
                checkpoint_id=checkpoint_id,
                namespace=namespace,
                task_id=write.task_id,
                position=write.position,
                task_path=write.task_path,
                channel=write.channel,
                value=b"",
                code=b"",
            )
            for write in writes
        ]
        self._rows = [
            replace(row, code=write_mac(codec, scope.name, thread, row, digest))
            for row, digest in zip(rows, self._digests, strict=True)
        ]

    def submit(self, *, soon: bool) -> Self:
        """Hand the writes to the writer, which with `soon` waits a little for more."""
        self._future: Future[dict[bytes, int]] | None = None
        if self._rows:
            self._future = self._scope.store.database.submit(
                self._write,
                name="checkpoint.writes",
                writes=Writes.of(self._scope.name),
                deferred=soon,
            )
        return self

    def wait(self) -> None:
        """Wait for the commit."""
        if self._future is not None:
            with self._scope.gate.journaling(self._scope.actor):
                chunk_ids = self._future.result()
            self._chunks.note_ids(chunk_ids, self._scope)

    @measured("checkpoint")
    def _write(self, tx: Connection) -> dict[bytes, int]:
        scope = self._scope
        thread = scope.ensure_thread(tx, self._thread, scope.now())
        ids = self._chunks.insert_new_chunks(tx, scope.id, thread.id)
        chunk_id = _ChunkIds(ids)
        rows = [
            replace(
                row,
                thread_id=thread.id,
                value=encode_frame(digest, {"": roots_json(value, chunk_id)}, "", b"", scope.codec),
            )
            for row, value, digest in zip(self._rows, self._values, self._digests, strict=True)
        ]
        checkpoints.add_writes(tx, [row for row in rows if row.position < 0], replace=True)
        checkpoints.add_writes(tx, [row for row in rows if row.position >= 0], replace=False)
        return ids


class _ChunkIds:
    """The id of any chunk, stored before or in this transaction."""

    __slots__ = ("_ids",)

    def __init__(self, ids: Mapping[bytes, int]) -> None:
        self._ids = ids

    def __call__(self, chunk: Chunk) -> int:
        return self._ids[chunk.digest] if chunk.id is None else chunk.id


class _NewChunks:
    """The chunks of some values that may not be stored yet: their bodies are prepared before the
    transaction, and inserted within it.
    """

    __slots__ = ("_bodies", "_chunks", "_codec")

    def __init__(self, values: Iterable[Value], codec: Codec) -> None:
        self._codec = codec
        self._chunks = {chunk.digest: chunk for value in values for chunk in new_chunks(value)}
        self._bodies = {
            digest: codec.pack(chunk.stored_bytes())
            for digest, chunk in self._chunks.items()
            if chunk.level < 2
        }

    def insert_new_chunks(self, tx: Connection, scope_id: int, thread: int) -> dict[bytes, int]:
        """Insert the chunks that the scope does not have, note that the thread holds all of them,
        and return the id of each by its digest.
        """
        ids: dict[bytes, int] = {}
        chunk_id = _ChunkIds(ids)
        for digest, chunk in self._chunks.items():
            # The body of a node names the ids of its children, which come before it.
            body = (
                self._bodies[digest] if chunk.level < 2 else node_body(chunk, chunk_id, self._codec)
            )
            ids[digest] = trees.add(tx, scope_id, digest, body)
        trees.hold(tx, thread, list(ids.values()))
        return ids

    def note_ids(self, ids: Mapping[bytes, int], scope: ThreadScope) -> None:
        """Write the ids into the chunks and cache them, now that they are committed."""
        for digest, chunk in self._chunks.items():
            chunk.id = ids[digest]
            scope.cache.chunks.put((chunk.level, chunk.id), chunk)


def copy(scope: ThreadScope, source: str, target: str) -> int:
    """Copy all checkpoints and writes of a thread to another; return how many checkpoints.

    The rows get the MACs of their new place; their content is shared.
    """
    codec = scope.codec

    def write(tx: Connection) -> int:
        at = scope.now()
        origin = scope.find_thread(tx, source)
        if origin is None:
            return 0
        row = scope.ensure_thread(tx, target, at)
        trees.hold_all_of(tx, origin.id, row.id)
        added_macs: list[bytes] = []
        replaced_macs: list[bytes] = []
        states = checkpoints.states_of(tx, origin.id)
        for position, state in enumerate(states, start=row.puts):
            frame = decode_frame(state.state, codec)
            mac = checkpoint_mac(
                codec,
                scope.name,
                target,
                state.namespace,
                state.id,
                state.parent_id,
                codec.unpack(state.metadata),
                frame.body.type,
                frame.body.body,
                frame.digest,
            )
            replaced_mac = checkpoints.add_state(
                tx, replace(state, thread_id=row.id, position=position, code=mac)
            )
            added_macs.append(mac)
            replaced_macs += [] if replaced_mac is None else [replaced_mac]
        writes = [
            replace(
                write,
                thread_id=row.id,
                code=write_mac(
                    codec, scope.name, target, write, decode_frame(write.value, codec).digest
                ),
            )
            for write in checkpoints.writes_of(tx, origin.id)
        ]
        checkpoints.add_writes(tx, writes, replace=True)
        lifetime = row.lifetime or origin.lifetime
        updated = replace(
            row,
            puts=row.puts + len(added_macs),
            states=row.states + len(added_macs) - len(replaced_macs),
            checksum=thread_checksum(row.checksum, add=added_macs, subtract=replaced_macs),
            writer=scope.writer,
            lifetime=lifetime,
            expires_at=None if lifetime is None else at + lifetime,
        )
        checkpoints.update_thread(tx, updated)
        scope.write_anchor(tx, "thread.copy", updated, at)
        return len(added_macs)

    return scope.store.database.write(write, name="thread.copy", writes=Writes.of(scope.name))
