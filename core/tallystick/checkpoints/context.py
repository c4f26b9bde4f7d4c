"""What all views of a tally's threads share: the codecs of its scopes and what was lately read or
written.

What is kept here is bytes that are stored already, under ids that are never given twice: it saves
reading them again and is never the only copy.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from tallystick.access import Gate
from tallystick.aio import Lane
from tallystick.checkpoints.codec import Codec, Sealer
from tallystick.checkpoints.ropes import Part
from tallystick.checkpoints.values import Value
from tallystick.records import Scope
from tallystick.storage import Store, scopes, trees
from tallystick.storage.scopes import ScopeRow

__all__ = ["Base", "ScopeCache", "CheckpointsContext"]

T = TypeVar("T")

_PARTS = 32 << 20
"""Bytes of pieces that are kept per scope and cipher."""
_BASES = 256
"""Threads and namespaces of which the last tree is kept, per scope and cipher."""


@dataclass(frozen=True)
class Base:
    """The stored values of a checkpoint, on which the next one builds."""

    id: str
    thread: int
    epoch: int
    digest: bytes
    values: Mapping[str, Value]


class _Recent(Generic[T]):
    """The entries used last, up to a total weight. Thread-safe."""

    def __init__(self, most: int, weigh: Callable[[T], int]) -> None:
        self._most = most
        self._weigh = weigh
        self._weight = 0
        self._entries: OrderedDict[object, T] = OrderedDict()
        self._guard = threading.Lock()

    def get(self, key: object) -> T | None:
        with self._guard:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: object, entry: T) -> None:
        with self._guard:
            before = self._entries.pop(key, None)
            if before is not None:
                self._weight -= self._weigh(before)
            self._entries[key] = entry
            self._weight += self._weigh(entry)
            while self._weight > self._most and self._entries:
                _, gone = self._entries.popitem(last=False)
                self._weight -= self._weigh(gone)


class ScopeCache:
    """One scope under one cipher: how its state is coded, and what was lately read or written of
    it.
    """

    def __init__(self, scope: ScopeRow, codec: Codec) -> None:
        self.scope = scope
        self.codec = codec
        self.parts: _Recent[Part] = _Recent(_PARTS, lambda part: len(part.content) + 256)
        self.bases: _Recent[Base] = _Recent(_BASES, lambda _: 1)
        self._looked_at = 0

    def due(self, at: int, every: int) -> bool:
        """Whether it is time for what is to happen once in `every` microseconds."""
        if at - self._looked_at < every:
            return False
        self._looked_at = at
        return True


class CheckpointsContext:
    """The threads of a tally, behind every view of them. Thread-safe."""

    def __init__(self, store: Store, gate: Gate) -> None:
        self.store = store
        self.gate = gate
        self._guard = threading.Lock()
        self._scope_caches: dict[tuple[str, int], tuple[ScopeCache, Sealer | None]] = {}
        self.lane = Lane(store.database.commit_now)
        """Where asynchronous calls are carried out together."""

    def scope_cache(
        self, scope: Scope, sealer: Sealer | None, *, create: bool
    ) -> ScopeCache | None:
        """The keeper of a scope; None when nothing was ever written to it, unless `create`."""
        key = (str(scope), id(sealer))
        with self._guard:
            found = self._scope_caches.get(key)
        if found is not None:
            return found[0]
        row = self._scope(scope, create)
        if row is None:
            return None
        codec = (
            Codec(row.secret) if sealer is None else Codec(self._sealed_key(row, sealer), sealer)
        )
        with self._guard:
            # The sealer is kept with it: the id of an object may be given again once the object is
            # gone.
            return self._scope_caches.setdefault(key, (ScopeCache(row, codec), sealer))[0]

    def forget(self) -> None:
        """Let go of everything that is kept in memory."""
        with self._guard:
            self._scope_caches.clear()

    def _scope(self, scope: Scope, create: bool) -> ScopeRow | None:
        with self.store.database.read() as connection:
            found = scopes.find(connection, [scope])
        if found or not create:
            return found[0] if found else None
        return self.store.database.write(lambda tx: scopes.ensure(tx, scope), name="scope")

    def _sealed_key(self, scope: ScopeRow, sealer: Sealer) -> bytes:
        with self.store.database.read() as connection:
            sealed = trees.key_of(connection, scope.id, sealer.name)
        if sealed is None:
            fresh = Codec(b"", sealer).pack(os.urandom(32))
            sealed = self.store.database.write(
                lambda tx: trees.keep_key(tx, scope, sealer.name, fresh), name="tree.key"
            )
        return Codec(b"", sealer).unpack(sealed)
