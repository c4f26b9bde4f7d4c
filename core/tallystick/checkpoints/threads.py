"""The checkpoints of one actor's scope: put, get, list, copy, prune, delete; each call answers
after its commit.

A thread belongs to its scope: the same name in another scope is another thread. A checkpoint is a
row with a body, metadata and the roots of its values; the values are trees that share with the
checkpoint before whatever did not change. Every row carries a code over its place and its content,
and the thread the sum of those codes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tallystick.checkpoints import copying, listing, putting, reading, removing, verify
from tallystick.checkpoints.codec import Sealer
from tallystick.checkpoints.context import CheckpointsContext
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.listing import Asked
from tallystick.checkpoints.putting import Grown, Waited
from tallystick.checkpoints.removing import Needs
from tallystick.checkpoints.stored import PendingWrite, StoredCheckpoint, Summary
from tallystick.checkpoints.values import Leaf, Value
from tallystick.records import AccessKind, Actor, Scope, VerificationProblem, canonical_json
from tallystick.storage import checkpoints

__all__ = ["Threads"]

_SWEEP_US = 60 * 1_000_000
"""Time between two looks for threads whose time is over, microseconds."""
_SWEPT = 20
"""Most threads that one look removes."""


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
        sealer: Sealer | None = None,
        trusted: bool = False,
    ) -> None:
        """`trusted` is for what the tally does by itself, in whatever scope."""
        self._context = context
        self._trusted = trusted
        self._actor = actor
        self._scope = scope
        self._sealer = sealer
        self._writer = canonical_json(
            {"actor": actor.identity(), "surface": actor.surface}
        ).decode()

    def sealed(self, sealer: Sealer | None) -> Threads:
        """The same threads for state that is encrypted."""
        return Threads(
            self._context, self._actor, self._scope, sealer=sealer, trusted=self._trusted
        )

    # Writing

    def put(
        self,
        thread: str,
        *,
        namespace: str,
        checkpoint_id: str,
        parent_id: str | None,
        metadata: Mapping[str, Any],
        body: Leaf,
        values: Mapping[str, Value] | Grown,
        lifetime: int | None = None,
    ) -> None:
        """Store a checkpoint; returns after the commit. One of the same id is replaced. Raises
        Denied.

        `values` may be a function of the values that the parent holds, so that new ones are
        compared with those; content that the parent holds is shared with it. With `lifetime`,
        microseconds, the thread ends that long after its last put.
        """
        self.begin_put(
            thread,
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            parent_id=parent_id,
            metadata=metadata,
            body=body,
            values=values,
            lifetime=lifetime,
            soon=False,
        )()

    def begin_put(
        self,
        thread: str,
        *,
        namespace: str,
        checkpoint_id: str,
        parent_id: str | None,
        metadata: Mapping[str, Any],
        body: Leaf,
        values: Mapping[str, Value] | Grown,
        lifetime: int | None = None,
        soon: bool = True,
    ) -> Waited:
        """Same as `put`, begun: what is returned waits for the commit.

        With `soon` the writer waits for more that shares it, at most a twentieth of a second or
        until it is hurried.
        """
        desk = self._desk_made("record")
        begun = putting.begin_put(
            desk,
            thread,
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            parent_id=parent_id,
            metadata=metadata,
            body=body,
            values=values,
            lifetime=lifetime,
            soon=soon,
        )
        if not desk.scope_cache.due(desk.now(), _SWEEP_US):
            return begun

        def waited() -> None:
            begun()
            self.expire()

        return waited

    def put_writes(
        self, thread: str, *, namespace: str, checkpoint_id: str, writes: Sequence[PendingWrite]
    ) -> None:
        """Store pending writes, also before their checkpoint; returns after the commit. Raises
        Denied.

        Of several at one place the last special one counts, and the first ordinary one.
        """
        self.begin_put_writes(
            thread, namespace=namespace, checkpoint_id=checkpoint_id, writes=writes, soon=False
        )()

    def begin_put_writes(
        self,
        thread: str,
        *,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[PendingWrite],
        soon: bool = True,
    ) -> Waited:
        """Same as `put_writes`, begun, as `begin_put` is."""
        self._require("record")
        if not writes:
            return lambda: None
        desk = self._desk_made(None)
        return putting.begin_put_writes(
            desk, thread, namespace=namespace, checkpoint_id=checkpoint_id, writes=writes, soon=soon
        )

    # Reading

    def get(
        self, thread: str, *, namespace: str, checkpoint_id: str | None = None
    ) -> StoredCheckpoint | None:
        """One checkpoint, or that with the greatest id; None when there is none. Raises Denied,
        CorruptTally.
        """
        desk = self._desk("read")
        return (
            None
            if desk is None
            else reading.get(desk, thread, namespace=namespace, checkpoint_id=checkpoint_id)
        )

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
        """Checkpoints, greatest id first, of one thread or of all of the scope; state is read when
        asked for.

        `filter` compares metadata as JSON. Pages are read as they are needed. Raises Denied.
        """
        desk = self._desk("read")
        if desk is not None:
            yield from listing.listed(
                desk, Asked(thread, namespace, checkpoint_id, before, limit, filter or {})
            )

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
        desk = self._desk("read")
        if desk is not None:
            yield from listing.summaries(
                desk, Asked(thread, namespace, None, before, limit, filter or {})
            )

    def trails(
        self, thread: str, *, namespace: str, checkpoint_id: str | None, channels: Sequence[str]
    ) -> dict[str, tuple[list[PendingWrite], Value | None]]:
        """For each channel the writes of a checkpoint's ancestors, oldest first, and the value they
        start from.

        The walk ends per channel at the nearest ancestor that holds a value of it. Raises Denied,
        CorruptTally.
        """
        desk = self._desk("read")
        if desk is None:
            return {channel: ([], None) for channel in channels}
        return reading.trails(
            desk, thread, namespace=namespace, checkpoint_id=checkpoint_id, channels=channels
        )

    # Removing, copying

    def delete(self, thread: str) -> None:
        """Remove a thread and what only it needed. An unknown one is no error. Raises Denied."""
        desk = self._desk("delete")
        if desk is not None:
            removing.delete(desk, thread)

    def copy(self, source: str, target: str) -> int:
        """Copy all checkpoints and writes of a thread to another, sharing their content; how many
        checkpoints.

        Those of the same id in the target are replaced; an unknown source copies nothing. Raises
        Denied.
        """
        desk = self._desk("record")
        return 0 if desk is None or source == target else copying.copy(desk, source, target)

    def prune(self, thread: str, *, needs: Needs = lambda _: ()) -> int:
        """Keep the newest checkpoint of each namespace; how many others were removed. Raises
        Denied.

        `needs` names the channels of a checkpoint whose value is rebuilt from the writes of those
        before it: of these as many stay as that takes, back to one that holds a value.
        """
        desk = self._desk("delete")
        return 0 if desk is None else removing.prune(desk, thread, needs)

    def delete_where(self, filter: Mapping[str, Any], *, needs: Needs = lambda _: ()) -> int:
        """Remove the checkpoints of the scope whose metadata match, with their writes; how many.

        Raises Denied, and Conflict when a checkpoint that stays needs the writes of one that would
        go; then nothing was removed.
        """
        desk = self._desk("delete")
        return 0 if desk is None else removing.delete_where(desk, filter, needs)

    def expire(self, *, limit: int = _SWEPT) -> int:
        """Remove threads whose time is over, at most `limit`; how many. Raises Denied."""
        desk = self._desk("record")
        return 0 if desk is None else removing.expire(desk, limit)

    # Looking into them

    def places_of_task(self, thread: str, task_id: str) -> list[tuple[str, str]]:
        """At which checkpoints a task of a graph wrote, as (namespace, id). Raises Denied."""
        desk = self._desk("read")
        if desk is None:
            return []
        with desk.store.database.read() as connection:
            row = desk.thread(connection, thread)
            return [] if row is None else checkpoints.places_of_task(connection, row.id, task_id)

    def tasks_at(self, thread: str, *, namespace: str, checkpoint_id: str) -> list[tuple[str, str]]:
        """What was written at a checkpoint, as (task id, channel), in order; values are not read.
        Raises Denied.
        """
        desk = self._desk("read")
        if desk is None:
            return []
        with desk.store.database.read() as connection:
            row = desk.thread(connection, thread)
            rows = (
                []
                if row is None
                else checkpoints.writes_of(connection, row.id, namespace, checkpoint_id)
            )
        rows.sort(key=lambda one: (one.task_path, one.task_id, one.position))
        return [(one.task_id, one.channel) for one in rows]

    def names(self) -> list[str]:
        """The threads of the scope, oldest first. Raises Denied."""
        desk = self._desk("read")
        if desk is None:
            return []
        with desk.store.database.read() as connection:
            return checkpoints.thread_names(connection, desk.scope_cache.scope.id)

    def verify(self, thread: str | None = None) -> list[VerificationProblem]:
        """Everything in a thread, or in all of the scope, that is not as it was put; empty when all
        is. Raises Denied.

        Every row is held against its code, every piece of state against its digest, and each thread
        against what the journal says of it. Nothing that is kept in memory is trusted.
        """
        desk = self._desk("read")
        return [] if desk is None else verify.problems(desk, thread)

    # What the above are made of

    def _require(self, operation: AccessKind) -> None:
        if not self._trusted:
            self._context.gate.require(self._actor, operation, self._scope)

    def _desk(self, operation: AccessKind) -> Desk | None:
        """Where an operation that is allowed is carried out; None when nothing was ever written to
        the scope.
        """
        self._require(operation)
        scope_cache = self._context.scope_cache(self._scope, self._sealer, create=False)
        return (
            None
            if scope_cache is None
            else Desk(self._context.store, self._actor, self._scope, scope_cache, self._writer)
        )

    def _desk_made(self, operation: AccessKind | None) -> Desk:
        if operation is not None:
            self._require(operation)
        scope_cache = self._context.scope_cache(self._scope, self._sealer, create=True)
        assert scope_cache is not None
        return Desk(self._context.store, self._actor, self._scope, scope_cache, self._writer)
