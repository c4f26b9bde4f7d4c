"""Dependencies of the checkpoints: the store, the codec and caches of each scope, and what one call
of one actor needs of them.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tallystick.access import Gate
from tallystick.aio import Lane
from tallystick.checkpoints.codec import Cipher, Codec
from tallystick.checkpoints.values import Chunk, Leaf, Value
from tallystick.records import Actor, Scope
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import checkpoints, journal, scopes, trees, working
from tallystick.storage.rows.checkpoints import ThreadRow
from tallystick.storage.rows.scopes import ScopeRow
from tallystick.storage.rows.working import Holder

T = TypeVar("T")

_CHUNK_BYTES = 32 << 20
"""Bytes of chunks that are cached per scope and cipher."""
_BASES = 256
"""Threads and namespaces of which the last values are cached, per scope and cipher."""

# Cached ids: who may use them
#
# Ids of threads and chunks are never assigned twice (autoincrement on SQLite, sequences on
# PostgreSQL), so a cached id is right or names nothing; it never names something else. An id is
# written into a chunk (`Chunk.id`) only after the commit that stored it: a unit that was rolled
# back leaves no id behind.
#
# Reading may use a cached chunk whenever roots that were read from the database name its id.
#
# Writing may put the id of a cached chunk into new roots only if the thread still holds that chunk
# in the transaction that writes. A thread lets go of chunks only when checkpoints are removed from
# it, and then its epoch grows; a thread that was deleted and begun anew has another id. Therefore a
# `Base` carries the thread's id and epoch, and a put compares both with the thread's row inside its
# own transaction. Where they differ, the put is prepared again without a base. What breaks
# otherwise: roots that name a chunk which a removal has destroyed, or will.
#
# Chunks that are not from a base are inserted in the transaction, or found there by their digest,
# and the transaction records that the thread holds them.


@dataclass(frozen=True)
class Base:
    """The stored values of a checkpoint, on which the next one builds."""

    id: str
    thread: int
    epoch: int
    digest: bytes
    values: Mapping[str, Value]


class _LruCache(Generic[T]):
    """The entries used last, up to a total weight. Thread-safe."""

    def __init__(self, most: int, weigh: Callable[[T], int]) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._entries: OrderedDict[object, T] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: object) -> T | None:
        with self._guard:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: object, entry: T) -> None:
        with self._guard:
            before = self._entries.pop(key, None)
            if before is not None:
                self._weight -= self._weigh(before)
            self._entries[key] = entry
            self._weight += self._weigh(entry)
            while self._weight > self._most and self._entries:
                _, evicted = self._entries.popitem(last=False)
                self._weight -= self._weigh(evicted)


class ScopeCache:
    """One scope under one cipher: its codec, and the chunks and values lately read or written.

    It contains only bytes that are stored already: it saves reading them again and is never the
    only copy.
    """

    def __init__(self, scope: ScopeRow, codec: Codec) -> None:
        self.scope = scope
        self.codec = codec
        self.chunks: _LruCache[Chunk] = _LruCache(
            _CHUNK_BYTES, lambda chunk: len(chunk.content) + 256
        )
        self.bases: _LruCache[Base] = _LruCache(_BASES, lambda _: 1)
        self._swept_at = 0

    def base(self, thread: str, namespace: str, id: str) -> Base | None:
        """Return the values of a checkpoint, if it is the one last put or read in its thread."""
        base = self.bases.get((thread, namespace))
        return base if base is not None and base.id == id else None

    def sweep_is_due(self, at: int, interval: int) -> bool:
        """Return True, once in `interval` microseconds, when expired threads are to be removed."""
        if at - self._swept_at < interval:
            return False
        self._swept_at = at
        return True


class CheckpointsContext:
    """Dependencies of all threads of a tally. Thread-safe."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self.store = store
        self.gate = gate
        self._guard = threading.Lock()
        self._scope_caches: dict[tuple[str, int], tuple[ScopeCache, Cipher | None]] = {}
        self.lane = Lane(store.database.commit_now)
        """Where asynchronous calls are carried out together."""

    def scope_cache(
        self, scope: Scope, name: str, cipher: Cipher | None, *, create: bool
    ) -> ScopeCache | None:
        """Return the cache of the scope of this name; None when nothing was ever written to it,
        unless `create`.
        """
        key = (name, id(cipher))
        with self._guard:
            entry = self._scope_caches.get(key)
        if entry is not None:
            return entry[0]
        row = self._scope_row(scope, create)
        if row is None:
            return None
        codec = (
            Codec(row.secret) if cipher is None else Codec(self._digest_key(row, cipher), cipher)
        )
        with self._guard:
            # The cipher is kept in the entry, because `id` of an object may be reused once the
            # object is gone; the next cipher at that address would read this one's cache.
            return self._scope_caches.setdefault(key, (ScopeCache(row, codec), cipher))[0]

    def forget(self) -> None:
        """Drop everything that is cached in memory."""
        with self._guard:
            self._scope_caches.clear()

    def _scope_row(self, scope: Scope, create: bool) -> ScopeRow | None:
        with self.store.database.read() as connection:
            rows = scopes.find(connection, [scope])
        if rows or not create:
            return rows[0] if rows else None
        return self.store.database.write(
            lambda tx: scopes.ensure(tx, scope), name="scope", writes=Writes.of(scope)
        )

    def _digest_key(self, scope: ScopeRow, cipher: Cipher) -> bytes:
        """Return the key of a scope's digests under a cipher, which is stored encrypted with it."""
        with self.store.database.read() as connection:
            stored = trees.find_key(connection, scope.id, cipher.name)
        if stored is None:
            new_key = Codec(b"", cipher).pack(os.urandom(32))
            stored = self.store.database.write(
                lambda tx: trees.add_key(tx, scope, cipher.name, new_key),
                name="tree.key",
                writes=Writes.of(scope.scope),
            )
        return Codec(b"", cipher).unpack(stored)


@dataclass(frozen=True)
class ThreadScope:
    """Dependencies of one call: a scope under one cipher and the actor, who is allowed to make the
    call; the scope's threads as rows, and their entries in the journal.
    """

    store: Store
    gate: Gate
    actor: Actor
    scope: Scope
    name: str
    """The scope as text, as streams of the journal and MACs of rows name it."""
    cache: ScopeCache
    writer: str
    """Identity of the actor, which a thread stores as that of its last put."""

    @property
    def id(self) -> int:
        """The id of the scope's row."""
        return self.cache.scope.id

    @property
    def codec(self) -> Codec:
        """The codec of the scope's state."""
        return self.cache.codec

    def now(self) -> int:
        """Return the time of the store's clock, microseconds."""
        return self.store.clock.now()

    def has_ended(self, row: ThreadRow) -> bool:
        """Return True if a thread's time is over: it is not found, removed or not."""
        return row.expires_at is not None and row.expires_at <= self.now()

    def find_thread(self, connection: Connection, name: str) -> ThreadRow | None:
        """Return the thread of this name, or None."""
        row = checkpoints.find_thread(connection, self.id, name)
        return None if row is None or self.has_ended(row) else row

    def ensure_thread(self, tx: Connection, name: str, at: int) -> ThreadRow:
        """Return the thread of this name, which begins now where there is none. Raises Denied."""
        if self.actor.assumed:
            # Decided here rather than before: the transaction sees a user whom another process
            # has just named, and the caller of a put need not read the database.
            self.gate.confirm(tx, self.actor, "record", self.scope)
        row = self.find_thread(tx, name)
        if row is not None:
            return row
        self.remove_thread(tx, name, "thread.expire")
        return checkpoints.add_thread(tx, self.id, name, at=at)

    def remove_thread(self, tx: Connection, name: str, event: str) -> None:
        """Remove a thread, what only it needed, and what is kept for its turns, working values and
        the working set, and journal that; a missing one is no error.
        """
        working.remove(tx, [self.id], [Holder("thread", name), Holder("session", name)], None)
        row = checkpoints.find_thread(tx, self.id, name)
        if row is None:
            return
        count = checkpoints.delete_thread(tx, row.id)
        self._journal(tx, row, event, self.now(), {"checkpoints": count})

    def write_anchor(
        self,
        tx: Connection,
        event: str,
        row: ThreadRow,
        at: int,
        *,
        removed: int = 0,
        run: str | None = None,
    ) -> None:
        """Journal the count and the checksum of a thread, with which `verify` compares its rows.

        `run` is the run of the last put.
        """
        details = {"puts": row.puts, "checkpoints": row.states, "seal": row.checksum}
        self._journal(
            tx, row, event, at, {**details, **({"removed": removed} if removed else {})}, run
        )

    def _journal(
        self,
        tx: Connection,
        thread: ThreadRow,
        event: str,
        at: int,
        details: Mapping[str, Any],
        run: str | None = None,
    ) -> None:
        # A thread is its own session, and a run the request, unless the actor says otherwise; so it
        # is in the histories of memory.
        trace = {
            "session_id": self.actor.session_id or thread.name,
            "request_id": self.actor.request_id or run,
        }
        journal.append(
            tx,
            journal.Event(
                stream=thread.stream,
                event=event,
                actor=self.actor.model_copy(update=trace),
                at=at,
                audit_id=self.store.ids.new(),
                subject_id=f"thread:{thread.id}",
                details=details,
                texts={"thread": thread.name},
            ),
        )


NewValues = Callable[[Mapping[str, Value]], Mapping[str, Value]]
"""The values of a new checkpoint, computed from those of its parent."""


@dataclass(frozen=True)
class NewCheckpoint:
    """A checkpoint to put. It replaces the one of the same namespace and id."""

    namespace: str
    id: str
    parent_id: str | None
    metadata: Mapping[str, Any]
    body: Leaf
    values: Mapping[str, Value] | NewValues
    """Channel to value, or a function of the parent's values, so that new values are compared with
    those; content that the parent has is shared with it.
    """
    lifetime: int | None = None
    """Microseconds from its last put until the thread ends; None leaves the thread's own."""
    if_newest: str | None = None
    """If given, the id that has to be the greatest of the namespace until now; empty for none."""


@dataclass(frozen=True)
class PendingWrite:
    """One write of a task at a checkpoint. Special writes have a negative position."""

    task_id: str
    task_path: str
    position: int
    channel: str
    value: Value


@dataclass(frozen=True)
class Summary:
    """A checkpoint without its state."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    metadata: Mapping[str, Any]
    channels: frozenset[str]
    """The channels that have a value."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint with its body and pending writes; `values` are read on first access."""

    summary: Summary
    body: Leaf
    writes: tuple[PendingWrite, ...]
    _read: Callable[[], Mapping[str, Value]]

    @property
    def values(self) -> Mapping[str, Value]:
        """Channel to value. Raises CorruptTally, also when the checkpoint was removed since it was
        listed.
        """
        return self._read()
