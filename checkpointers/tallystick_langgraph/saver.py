"""TallySaver: LangGraph's checkpointer on a tally, synchronous and asynchronous in one class.

A thread belongs to the scope of who acts: another actor's `thread_id` is another thread. Each `put`
returns after its commit. Checkpoints share everything that did not change, so that a thread grows
with what is said in it.
"""

from __future__ import annotations

import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import timedelta
from typing import Any, Self, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from tallystick.adapters import Binder
from tallystick.aio import in_thread, iterate_in_thread
from tallystick.checkpoints import Leaf, PendingWrite, StoredCheckpoint, Summary, Threads, Value
from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.recorder import current_run
from tallystick.records import Actor, Scope
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of
from tallystick_langgraph.encryption import storing
from tallystick_langgraph.from_conn_string import Opened
from tallystick_langgraph.lazy_values import LaterValues
from tallystick_langgraph.serde import TallySerializer

__all__ = ["TallySaver"]

T = TypeVar("T")

ActorSource = Actor | Callable[[RunnableConfig], Actor | None]
"""Who acts: an Actor, or a callable from the config of the call."""


def actor_from_configurable(config: RunnableConfig) -> Actor | None:
    """The Actor under `actor` in `configurable`: the runtime's own way to say who acts. None names
    nobody.
    """
    actor = config.get("configurable", {}).get("actor")
    return actor if isinstance(actor, Actor) else None


def thread_of(config: RunnableConfig) -> str | None:
    """The thread of a call, which the history of what it changes names as the session."""
    thread = config.get("configurable", {}).get("thread_id")
    return None if thread is None else str(thread)


class TallySaver(BaseCheckpointSaver[Any]):
    """Checkpoints of LangGraph threads on a tally.

    `graph = builder.compile(checkpointer=TallySaver(tally))`. Thread-safe; one saver serves any
    number of loops.
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        serde: SerializerProtocol | None = None,
        allow: Iterable[Any] = (),
        ttl: timedelta | None = None,
    ) -> None:
        """`actor` says who acts (by default the Actor under `configurable["actor"]`, else the bound
        one or the owner); `scope` where threads live, by default the actor's private scope.

        `allow` names the types of your own that stored state may hold: classes, a state schema,
        which stands for the types of its fields, or (module, name). It is for the default
        serializer; with `serde` yours decides. `ttl` is how long a thread stays after its last put.
        """
        if serde is not None and tuple(allow):
            raise InvalidInput(
                "`allow` is for the default serializer. Give the types to yours, or leave "
                "`serde` out."
            )
        super().__init__(serde=serde or TallySerializer(allow))
        self._binder = Binder[RunnableConfig](
            tally, surface="langgraph", actor=actor or actor_from_configurable, scope=scope
        )
        self._lifetime = None if ttl is None else int(ttl / timedelta(microseconds=1))
        self._shapes, self._sealer = storing(self.serde)
        # Where a config cannot say who acts, or does not, it is the same actor in every call.
        self._static = actor is None or isinstance(actor, Actor)
        self._common: Threads | None = None

    @classmethod
    def from_conn_string(cls, conn_string: str, **options: Any) -> Opened[Self]:
        """A saver on a tally of its own, which is closed at the end of a `with` or `async with`
        block.

        `conn_string` is the folder of a tally or postgresql://…, made on first use; options are
        those of TallySaver. A tally on PostgreSQL has no owner: give `actor`.
        """
        return Opened(cls, conn_string, options)

    def setup(self) -> None:
        """Nothing: a tally is set up when it is opened. LangGraph's own savers have to be told."""

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """The same saver with more types allowed; LangGraph calls this with those of a graph's
        schema.
        """
        clone: Any = super().with_allowlist(extra_allowlist)
        clone._shapes, clone._sealer = storing(clone.serde)
        clone._common = None
        if clone._sealer is not None:
            # One sealer per cipher: what is remembered of its scope goes by it.
            clone._sealer = self._sealer
        same: Self = clone
        return same

    def at_step(
        self, step_id: str, *, thread: str | None = None, config: RunnableConfig | None = None
    ) -> RunnableConfig:
        """The config of the checkpoint from which a recorded step ran: `graph.invoke(None,
        saver.at_step(step))`.

        The graph goes on from there with whatever has changed since: its model, its settings, or
        its state after `graph.update_state(saver.at_step(step), {…})`. For a step in a subgraph it
        is the checkpoint of the whole graph. With `thread` the fork lives in a new thread of that
        name, and the old one stays as it is. `config` says who acts, as everywhere. Raises
        NotFound, Denied; InvalidInput for a step of no thread.
        """
        context = self._threads(config)
        step = self._binder.bound(config or {}).recordings.step(step_id)
        name, path = step.metadata.get("thread_id"), step.metadata.get("langgraph_checkpoint_ns")
        if not isinstance(name, str) or not isinstance(path, str) or not path:
            raise InvalidInput(
                f"Step {step_id} was recorded in no thread of a graph: there is nothing to go "
                f"back to."
            )
        task = path.partition("|")[0].rpartition(":")[2]
        found = [id for namespace, id in context.places_of_task(name, task) if not namespace]
        if not found:
            raise NotFound(
                f"Thread {name} has no checkpoint from which step {step_id} ran; it may have "
                f"been pruned."
            )
        if thread is not None:
            context.copy(name, thread)
        place = {"thread_id": thread or name, "checkpoint_ns": "", "checkpoint_id": max(found)}
        return {"configurable": {**(config or {}).get("configurable", {}), **place}}

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the latest of its thread; None when there is
        none.
        """
        place = _Place.of(config)
        stored = self._threads(config).get(
            place.thread, namespace=place.namespace, checkpoint_id=get_checkpoint_id(config)
        )
        return None if stored is None else self._tuple(stored, self._grown(stored))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, newest first; `filter` compares metadata as JSON, `before` is exclusive.

        The channel values of each are read when they are first looked at.
        """
        configurable = config.get("configurable", {}) if config else {}
        found = self._threads(config).checkpoints(
            str(configurable["thread_id"]) if "thread_id" in configurable else None,
            namespace=configurable.get("checkpoint_ns"),
            checkpoint_id=get_checkpoint_id(config) if config else None,
            before=get_checkpoint_id(before) if before else None,
            limit=limit,
            filter=filter,
        )
        for stored in found:
            yield self._tuple(stored, self._later(stored))

    def history(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[Summary]:
        """Same as `list`, without state and writes, of which nothing is read."""
        configurable = config.get("configurable", {}) if config else {}
        return self._threads(config).history(
            str(configurable["thread_id"]) if "thread_id" in configurable else None,
            namespace=configurable.get("checkpoint_ns"),
            before=get_checkpoint_id(before) if before else None,
            limit=limit,
            filter=filter,
        )

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel the writes of the checkpoints before this one, oldest first, back to one
        that holds a value, which is the `seed`.
        """
        place = _Place.of(config)
        trails = self._threads(config).trails(
            place.thread,
            namespace=place.namespace,
            checkpoint_id=get_checkpoint_id(config),
            channels=channels,
        )
        found: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            writes, seed = trails[channel]
            entry: DeltaChannelHistory = {"writes": [self._write(write) for write in writes]}
            if seed is not None:
                entry["seed"] = self._shapes.grown(seed, channel)
            found[channel] = entry
        return found

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; returns its config after the commit.

        Every value is compared with what is stored, whatever `new_versions` says: a value that was
        edited in place under an old version is stored as it is now. Raises InvalidInput naming the
        channel that cannot be stored.
        """
        return self._begin_put(config, checkpoint, metadata, soon=False)()

    def _begin_put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        *,
        soon: bool,
    ) -> Callable[[], RunnableConfig]:
        place = _Place.of(config)
        parent = get_checkpoint_id(config)
        given = checkpoint.get("channel_values", {})
        rest = {
            name: value
            for name, value in checkpoint.items()
            if name not in {"channel_values", "id"}
        }
        waited = self._threads(config).begin_put(
            place.thread,
            namespace=place.namespace,
            checkpoint_id=checkpoint["id"],
            parent_id=parent,
            metadata=_json_metadata(
                self._of_run(config, get_checkpoint_metadata(config, metadata))
            ),
            body=Leaf(*self._inner.dumps_typed(rest)),
            values=lambda before: {
                channel: self._planted(channel, value, before.get(channel))
                for channel, value in given.items()
            },
            lifetime=self._lifetime,
            soon=soon,
        )

        def ended() -> RunnableConfig:
            waited()
            return _config(place.thread, place.namespace, checkpoint["id"])

        return ended

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task wrote at a checkpoint, which itself may arrive later.

        Special writes replace, ordinary ones stay as they were first.
        """
        self._begin_put_writes(config, writes, task_id, task_path, soon=False)()

    def _begin_put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
        *,
        soon: bool,
    ) -> Callable[[], None]:
        place = _Place.of(config)
        pending = [
            PendingWrite(
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, index),
                channel,
                self._planted(channel, value, None),
            )
            for index, (channel, value) in enumerate(writes)
        ]
        return self._threads(config).begin_put_writes(
            place.thread,
            namespace=place.namespace,
            checkpoint_id=str(get_checkpoint_id(config)),
            writes=pending,
            soon=soon,
        )

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The version after `current`: the next integer; text stays text, for threads that came
        from other savers.

        Deterministic: values are addressed by content, so that forks need no random part to keep
        theirs apart.
        """
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}"
        return 1 if current is None else int(current) + 1

    # Removing, copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread of the bound actor; an unknown one is no error."""
        self._threads(None).delete(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that were put in these runs, those of subgraphs too, with their
        writes.

        A run is known by the `run_id` of the config it was called with, or by that of the tally's
        own run in whose block it was called. An id of a run that a callback handler recorded stands
        for the call that it recorded. Raises Conflict when a DeltaChannel of a checkpoint that
        stays is rebuilt from one that would go; what was put in the runs before it in the list is
        removed then.
        """
        for run_id in run_ids:
            for known in {str(run_id), *self._recorded_call(str(run_id))}:
                self._threads(None).delete_where({"run_id": known}, needs=_delta_channels)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread; their content is shared, not copied."""
        self._threads(None).copy(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace, or with "delete" none.

        For a DeltaChannel as many before it stay as its value is rebuilt from.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise InvalidInput(f"There is no strategy {strategy!r}. Use 'keep_latest' or 'delete'.")
        threads = self._threads(None)
        for thread_id in thread_ids:
            if strategy == "delete":
                threads.delete(str(thread_id))
            else:
                threads.prune(str(thread_id), needs=_delta_channels)

    def expire(self) -> int:
        """Remove threads of the bound actor whose `ttl` is over; how many. Puts do this too, a few
        at a time.
        """
        return self._threads(None).expire()

    # The same, asynchronously

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Same as `get_tuple`, in a worker thread."""
        if services_of(self._binder.tally).store.database.is_remote:
            return await in_thread(
                self.get_tuple, config
            )  # side by side: what costs is the way to the server
        return await self._in_turn(lambda _: _ended(self.get_tuple(config)))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Same as `list`, in worker threads; only channel values that are looked at are read where
        you look.
        """
        async for found in iterate_in_thread(
            self.list(config, filter=filter, before=before, limit=limit)
        ):
            yield found

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Same as `get_delta_channel_history`, in a worker thread."""
        return await in_thread(
            lambda: self.get_delta_channel_history(config=config, channels=channels)
        )

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Same as `put`, in a worker thread; tasks that put at the same time share a commit."""
        return await self._in_turn(
            lambda soon: self._begin_put(config, checkpoint, metadata, soon=soon)
        )

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Same as `put_writes`, in a worker thread; tasks that write at the same time share a
        commit.
        """
        await self._in_turn(
            lambda soon: self._begin_put_writes(config, writes, task_id, task_path, soon=soon)
        )

    async def adelete_thread(self, thread_id: str) -> None:
        """Same as `delete_thread`, in a worker thread."""
        await in_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Same as `delete_for_runs`, in a worker thread."""
        await in_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Same as `copy_thread`, in a worker thread."""
        await in_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Same as `prune`, in a worker thread."""
        await in_thread(lambda: self.prune(thread_ids, strategy=strategy))

    # What the above are made of

    def _of_run(self, config: RunnableConfig, metadata: CheckpointMetadata) -> Mapping[str, Any]:
        """Metadata with the run that puts, where the config, the runtime of a subgraph or an open
        run names it.
        """
        if "run_id" in metadata:
            return metadata
        named: Any = config.get("run_id")
        if named is None:
            runtime = config.get("configurable", {}).get("__pregel_runtime")
            named = getattr(getattr(runtime, "execution_info", None), "run_id", None)
        if named is None:
            run = current_run()
            named = (
                run.id
                if run is not None and run.context is services_of(self._binder.tally).recorder
                else None
            )
        return metadata if named is None else {**metadata, "run_id": str(named)}

    def _recorded_call(self, run_id: str) -> tuple[str, ...]:
        """The id that LangChain gave the call that a recorded run was, if this is one."""
        try:
            found = self._binder.bound(None).recordings.run(run_id).metadata.get("langchain_run_id")
        except (NotFound, Denied):
            return ()
        return (found,) if isinstance(found, str) else ()

    async def _in_turn(self, begin: Callable[[bool], Callable[[], T]]) -> T:
        """Short calls of all tasks go together. With a cipher, which may be slow, each has a worker
        of its own.
        """
        if self._sealer is not None:
            return await in_thread(lambda: begin(False)())
        return await services_of(self._binder.tally).checkpoints.lane.run(lambda: begin(True))

    @property
    def _inner(self) -> SerializerProtocol:
        """The serializer of bodies: where pieces are encrypted, the one beneath the encryption."""
        inner: SerializerProtocol = self._shapes.serde
        return inner

    def _threads(self, config: RunnableConfig | None) -> Threads:
        named = config.get("configurable", {}).get("actor") if config is not None else None
        if self._common is not None and named is None:
            return self._common
        threads = self._binder.bound(config).threads
        threads = threads if self._sealer is None else threads.sealed(self._sealer)
        if self._static and named is None:
            self._common = threads
        return threads

    def _planted(self, channel: str, value: Any, before: Value | None) -> Value:
        try:
            return self._shapes.planted(value, before)
        except RecursionError as error:
            raise InvalidInput(
                f"Channel {channel!r} holds a value that contains itself or is nested too deeply "
                f"to be stored."
            ) from error
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"Channel {channel!r} holds what cannot be stored: {error}."
            ) from error

    def _grown(self, stored: StoredCheckpoint) -> dict[str, Any]:
        return {
            channel: self._shapes.grown(value, channel) for channel, value in stored.values.items()
        }

    def _later(self, stored: StoredCheckpoint) -> dict[str, Any]:
        if not stored.summary.channels:
            return {}
        return LaterValues(stored.summary.channels, lambda: self._grown(stored))

    def _write(self, write: PendingWrite) -> tuple[str, str, Any]:
        return write.task_id, write.channel, self._shapes.grown(write.value, write.channel)

    def _tuple(self, stored: StoredCheckpoint, values: dict[str, Any]) -> CheckpointTuple:
        summary = stored.summary
        body = self._inner.loads_typed((stored.body.type, stored.body.body))
        checkpoint: Any = {**body, "id": summary.id, "channel_values": values}
        metadata: Any = dict(summary.metadata)
        return CheckpointTuple(
            config=_config(summary.thread, summary.namespace, summary.id),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=_config(summary.thread, summary.namespace, summary.parent_id)
            if summary.parent_id
            else None,
            pending_writes=[self._write(write) for write in stored.writes],
        )


class _Place:
    """Thread and namespace that a config names."""

    def __init__(self, thread: str, namespace: str) -> None:
        self.thread = thread
        self.namespace = namespace

    @classmethod
    def of(cls, config: RunnableConfig) -> _Place:
        configurable = config.get("configurable", {})
        if "thread_id" not in configurable:
            raise InvalidInput(
                "This call names no thread. Pass config={'configurable': {'thread_id': …}}."
            )
        return cls(str(configurable["thread_id"]), str(configurable.get("checkpoint_ns", "")))


def _ended(result: T) -> Callable[[], T]:
    return lambda: result


def _config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {
        "configurable": {
            "thread_id": thread,
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
    }


def _delta_channels(summary: Summary) -> Collection[str]:
    """The DeltaChannels of a checkpoint, which it counts updates for; one with a snapshot holds a
    value.
    """
    counted = summary.metadata.get("counters_since_delta_snapshot")
    return tuple(counted) if isinstance(counted, Mapping) else ()


def _json_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON; the Actor in `configurable` is no part of it. Raises InvalidInput naming
    the key.
    """
    kept = {name: value for name, value in metadata.items() if not isinstance(value, Actor)}
    if not _is_json(kept):
        name, value = next((one for one in kept.items() if not _is_json(one[1])), ("", kept))
        raise InvalidInput(
            f"Checkpoint metadata {name!r} is a {type(value).__name__}, which JSON cannot hold. "
            "Put it into the graph's state instead."
        )
    return kept


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
