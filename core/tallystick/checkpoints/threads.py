"""The checkpoints of one actor's scope: put, get, list, copy, prune, delete. Each call returns
after its commit.

A thread belongs to its scope: the same name in another scope is another thread. A checkpoint is a
row with a body, metadata and the roots of its values; the values are trees that share with the
checkpoint before whatever did not change. Every row has a MAC over its place and its content, and
the thread the sum of those MACs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tallystick.checkpoints import listing, putting, reading, removing, verify
from tallystick.checkpoints.codec import Cipher
from tallystick.checkpoints.context import (
    CheckpointsContext,
    NewCheckpoint,
    PendingWrite,
    ScopeCache,
    StoredCheckpoint,
    Summary,
    ThreadScope,
)
from tallystick.checkpoints.listing import CheckpointQuery
from tallystick.checkpoints.putting import CheckpointPut, WritesPut
from tallystick.checkpoints.reading import Trail
from tallystick.checkpoints.removing import Needs
from tallystick.costs import measured
from tallystick.records import AccessKind, Actor, Scope, VerificationProblem, canonical_json
from tallystick.storage.rows import checkpoints
from tallystick.storage.rows.checkpoints import CheckpointPlace


class TaskWrite(NamedTuple):
    """A pending write without its value."""

    task_id: str
    channel: str


class Threads:
    """The threads of one scope, as one actor. Thread-safe.

    To put is to record, as a run is recorded: it goes on while changes of memory are suspended.
    """

    def __init__(
        self,
        context: CheckpointsContext,
        actor: Actor,
        scope: Scope,
        *,
        cipher: Cipher | None = None,
        trusted: bool = False,
    ) -> None:
        """`trusted` is for what the tally does by itself, in whatever scope."""
        self._context = context
        self._trusted = trusted
        self._actor = actor
        self._scope = scope
        self._scope_name = str(scope)
        self._cipher = cipher
        self._writer = canonical_json(
            {"actor": actor.identity(), "surface": actor.surface}
        ).decode()

    def encrypted(self, cipher: Cipher | None) -> Threads:
        """Return the same threads for state that is encrypted with a cipher."""
        return Threads(
            self._context, self._actor, self._scope, cipher=cipher, trusted=self._trusted
        )

    # Writing

    def put(self, thread: str, checkpoint: NewCheckpoint) -> None:
        """Store a checkpoint; return after the commit. Raises Denied."""
        self.begin_put(thread, checkpoint, soon=False).wait()

    @staticmethod
    def put_together(puts: Sequence[tuple[Threads, str, NewCheckpoint]]) -> None:
        """Store checkpoints without parents, each in a thread of whichever of these scopes, in one
        transaction; return after the commit. Raises Denied, and StateConflict where one is not
        `if_newest`; then nothing was stored.
        """
        with measured("checkpoint"):
            CheckpointPut.write_together(
                [
                    CheckpointPut(threads._new_scope("record"), thread, checkpoint)
                    for threads, thread, checkpoint in puts
                ]
            )

    def begin_put(
        self, thread: str, checkpoint: NewCheckpoint, *, soon: bool = True
    ) -> CheckpointPut:
        """Same as `put`, but return once it is submitted; call `wait()` on the result once.

        With `soon` the writer waits for more that shares its commit, at most a twentieth of a
        second or until it is hurried.
        """
        with measured("checkpoint"):
            return CheckpointPut(self._new_scope("record"), thread, checkpoint).submit(soon=soon)

    def put_writes(
        self, thread: str, *, namespace: str, checkpoint_id: str, writes: Sequence[PendingWrite]
    ) -> None:
        """Store pending writes, also before their checkpoint; return after the commit. Raises
        Denied.

        Of several at one place the last special one counts, and the first ordinary one.
        """
        self.begin_put_writes(
            thread, namespace=namespace, checkpoint_id=checkpoint_id, writes=writes, soon=False
        ).wait()

    def begin_put_writes(
        self,
        thread: str,
        *,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[PendingWrite],
        soon: bool = True,
    ) -> WritesPut:
        """Same as `put_writes`, but return once they are submitted, as `begin_put` does."""
        with measured("checkpoint"):
            scope = self._new_scope("record")
            return WritesPut(scope, thread, namespace, checkpoint_id, writes).submit(soon=soon)

    def copy(self, source: str, target: str) -> int:
        """Copy all checkpoints and writes of a thread to another, sharing their content; return how
        many checkpoints.

        Those of the same id in the target are replaced; an unknown source copies nothing. Raises
        Denied.
        """
        scope = self._existing_scope("record")
        return 0 if scope is None or source == target else putting.copy(scope, source, target)

    # Reading

    def get(
        self, thread: str, *, namespace: str, checkpoint_id: str | None = None
    ) -> StoredCheckpoint | None:
        """Return one checkpoint, or that with the greatest id; None when there is none. Raises
        Denied, CorruptTally.
        """
        with measured("checkpoint"):
            scope = self._existing_scope("read")
            if scope is None:
                return None
            return reading.get(scope, thread, namespace=namespace, checkpoint_id=checkpoint_id)

    def checkpoints(
        self,
        thread: str | None,
        *,
        namespace: str | None = None,
        checkpoint_id: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> Iterator[StoredCheckpoint]:
        """Yield checkpoints, greatest id first, of one thread or of all of the scope; state is read
        on first access.

        `filter` compares metadata as JSON. Pages are read as they are needed. Raises Denied.
        """
        scope = self._existing_scope("read")
        if scope is not None:
            query = CheckpointQuery(thread, namespace, checkpoint_id, before, limit, filter or {})
            yield from listing.list_checkpoints(scope, query)

    def history(
        self,
        thread: str | None,
        *,
        namespace: str | None = None,
        before: str | None = None,
        limit: int | None = None,
        filter: Mapping[str, Any] | None = None,
    ) -> Iterator[Summary]:
        """Same as `checkpoints`, without state and writes, of which nothing is read."""
        scope = self._existing_scope("read")
        if scope is not None:
            query = CheckpointQuery(thread, namespace, None, before, limit, filter or {})
            yield from listing.list_summaries(scope, query)

    def trails(
        self, thread: str, *, namespace: str, checkpoint_id: str | None, channels: Sequence[str]
    ) -> dict[str, Trail]:
        """Return for each channel the writes of a checkpoint's ancestors, oldest first, and the
        value they start from.

        The walk ends per channel at the nearest ancestor that has a value of it. Raises Denied,
        CorruptTally.
        """
        scope = self._existing_scope("read")
        if scope is None:
            return {channel: Trail([], None) for channel in channels}
        return reading.trails(
            scope, thread, namespace=namespace, checkpoint_id=checkpoint_id, channels=channels
        )

    def places_of_task(self, thread: str, task_id: str) -> list[CheckpointPlace]:
        """Return the checkpoints at which a task of a graph wrote. Raises Denied."""
        scope = self._existing_scope("read")
        if scope is None:
            return []
        with scope.store.database.read() as connection:
            row = scope.find_thread(connection, thread)
            return [] if row is None else checkpoints.places_of_task(connection, row.id, task_id)

    def tasks_at(self, thread: str, *, namespace: str, checkpoint_id: str) -> list[TaskWrite]:
        """Return the writes at a checkpoint, in order; values are not read.
        Raises Denied.
        """
        scope = self._existing_scope("read")
        if scope is None:
            return []
        with scope.store.database.read() as connection:
            row = scope.find_thread(connection, thread)
            writes = (
                []
                if row is None
                else checkpoints.writes_of(connection, row.id, namespace, checkpoint_id)
            )
        writes.sort(key=lambda write: (write.task_path, write.task_id, write.position))
        return [TaskWrite(write.task_id, write.channel) for write in writes]

    def names(self) -> list[str]:
        """Return the names of the scope's threads, oldest first. Raises Denied."""
        scope = self._existing_scope("read")
        if scope is None:
            return []
        with scope.store.database.read() as connection:
            return checkpoints.thread_names(connection, scope.id)

    def namespaces(self, thread: str) -> list[str]:
        """Return the namespaces of a thread that have a checkpoint, sorted. Raises Denied."""
        scope = self._existing_scope("read")
        if scope is None:
            return []
        with scope.store.database.read() as connection:
            row = scope.find_thread(connection, thread)
            return [] if row is None else sorted(checkpoints.last_of_namespaces(connection, row.id))

    def verify(self, thread: str | None = None) -> list[VerificationProblem]:
        """Return everything in a thread, or in all of the scope, that is not as it was put. Raises
        Denied.

        Every row is compared with its MAC, every chunk of state with its digest, and each thread
        with its entries in the journal. Nothing that is cached in memory is trusted.
        """
        scope = self._existing_scope("read")
        return [] if scope is None else verify.find_problems(scope, thread)

    # Removing

    def delete(self, thread: str) -> None:
        """Remove a thread and what only it needed. An unknown one is no error. Raises Denied."""
        scope = self._existing_scope("delete")
        if scope is not None:
            removing.delete(scope, thread)

    def prune(self, thread: str, *, needs: Needs = lambda _: ()) -> int:
        """Keep the newest checkpoint of each namespace; return how many others were removed. Raises
        Denied.

        `needs` names the channels of a checkpoint whose value is rebuilt from the writes of those
        before it: of these as many stay as that takes, back to one that has a value.
        """
        scope = self._existing_scope("delete")
        return 0 if scope is None else removing.prune(scope, thread, needs)

    def delete_where(self, filter: Mapping[str, Any], *, needs: Needs = lambda _: ()) -> int:
        """Remove the checkpoints of the scope whose metadata match, with their writes; return how
        many.

        Raises Denied, and Conflict when a checkpoint that stays needs the writes of one that would
        be removed; then nothing was removed.
        """
        scope = self._existing_scope("delete")
        return 0 if scope is None else removing.delete_where(scope, filter, needs)

    def expire(self) -> int:
        """Remove threads whose time is over, a few at a time; return how many. Raises Denied."""
        scope = self._existing_scope("record")
        return 0 if scope is None else removing.expire(scope)

    # Scope of one call

    def _existing_scope(self, operation: AccessKind) -> ThreadScope | None:
        """Return the scope for an allowed operation; None when nothing was ever written to it."""
        if not self._trusted:
            self._context.gate.check(self._actor, operation, self._scope)
        cache = self._context.scope_cache(self._scope, self._scope_name, self._cipher, create=False)
        if cache is None:
            return None
        return self._scope_of(cache)

    def _new_scope(self, operation: AccessKind) -> ThreadScope:
        """Return the scope for an allowed operation, which is created where it is missing."""
        if not self._trusted:
            gate = self._context.gate
            gate.check(self._actor, operation, self._scope, confirmed_later=True)
        cache = self._context.scope_cache(self._scope, self._scope_name, self._cipher, create=True)
        assert cache is not None
        return self._scope_of(cache)

    def _scope_of(self, cache: ScopeCache) -> ThreadScope:
        return ThreadScope(
            self._context.store,
            self._context.gate,
            self._actor,
            self._scope,
            self._scope_name,
            cache,
            self._writer,
        )
