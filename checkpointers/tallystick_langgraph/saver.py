"""TallySaver: LangGraph's checkpointer on a tally, synchronous and asynchronous in one class.

A thread belongs to the scope of its actor: another actor's `thread_id` is another thread. Each
`put` returns after its commit. Checkpoints share everything that did not change, so that a thread
grows with its messages.
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
from dataclasses import replace
from datetime import timedelta
from functools import partial
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
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from tallystick.aio import in_thread, iterate_in_thread
from tallystick.checkpoints import (
    Leaf,
    NewCheckpoint,
    PendingWrite,
    StoredCheckpoint,
    Summary,
    Threads,
    Value,
)
from tallystick.checkpoints.putting import WritesPut
from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.kit import ActorSource, Binder, check_names, describe_value
from tallystick.kit.background import is_remote, run_in_lane
from tallystick.records import Actor, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_langgraph.calls import (
    authenticated_user,
    call_of,
    checkpoint_id_of,
    handed_out,
    named_config,
    place_of,
    thread_named,
)
from tallystick_langgraph.encryption import splitter_and_cipher
from tallystick_langgraph.from_conn_string import ManagedTally, SetUp
from tallystick_langgraph.lazy_values import LazyValues
from tallystick_langgraph.serde import TallySerializer

T = TypeVar("T")


class TallySaver(BaseCheckpointSaver[Any]):
    """Checkpoints of LangGraph threads on a tally.

    `graph = builder.compile(checkpointer=TallySaver(tally))`. Each step of the graph fills it with
    the state of its thread, which is no memory: another thread does not see it. Thread-safe; one
    saver serves any number of loops.
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
        """`actor` says who acts, by default what the call names (docs/who-acts.md);
        `scope` is the scope of the threads, by default the actor's private one.

        `allow` names the types of your own that stored state may hold: classes, a state schema,
        which stands for the types of its fields, or (module, name). It is for the default
        serializer; with `serde` yours decides. `ttl` is how long a thread stays after its last put.
        """
        if serde is not None and allow != ():
            raise InvalidInput(
                "`allow` is for the default serializer. Give the types to yours, or leave "
                "`serde` out."
            )
        if ttl is not None:
            _check_lifetime(ttl)
        if serde is not None:
            _check_serializer(serde)
        super().__init__(serde=serde or TallySerializer(allow))
        self._binder = Binder(
            tally, runtime="langgraph", piece="TallySaver", actor=actor, scope=scope
        )
        self._ttl = ttl
        self._lifetime = None if ttl is None else int(ttl / timedelta(microseconds=1))
        self._splitter, self._cipher = splitter_and_cipher(self.serde)
        self._common: Threads | None = None

    def __repr__(self) -> str:
        return self._binder.describe(ttl=self._ttl)

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        serde: SerializerProtocol | None = None,
        allow: Iterable[Any] = (),
        ttl: timedelta | None = None,
    ) -> ManagedTally[Self]:
        """Return a saver on a tally of its own, which is closed at the end of a `with` or `async
        with` block.

        `conn_string` is the folder of a tally or postgresql://…, created on first use; the rest is
        as for TallySaver. A tally on PostgreSQL has no owner: give `actor`.
        """
        saver = partial(cls, actor=actor, scope=scope, serde=serde, allow=allow, ttl=ttl)
        return ManagedTally(saver, conn_string, piece="TallySaver", actor=actor, scope=scope)

    def setup(self) -> SetUp:
        """Do nothing: a tally is set up when it is opened. LangGraph's savers need this call, and
        the asynchronous ones await it, which is possible here too.
        """
        return SetUp()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Self:
        """Return the same saver with more types allowed; LangGraph calls this with those of a
        graph's schema.
        """
        clone: Any = super().with_allowlist(extra_allowlist)
        clone._splitter, clone._cipher = splitter_and_cipher(clone.serde)
        clone._common = None
        if clone._cipher is not None:
            # Caches of a scope are kept per cipher object: two objects would fill two of them.
            clone._cipher = self._cipher
        same: Self = clone
        return same

    def at_step(
        self, step_id: str, *, thread: str | None = None, config: RunnableConfig | None = None
    ) -> RunnableConfig:
        """Return the config of the checkpoint from which a recorded step ran: `graph.invoke(None,
        saver.at_step(step))`.

        The graph goes on from there with whatever has changed since: its model, its settings, or
        its state after `graph.update_state(saver.at_step(step), {…})`. For a step in a subgraph it
        is the checkpoint of the whole graph. With `thread` the fork lives in a new thread of that
        name, and the old one stays as it is. `config` names the actor, as everywhere. Raises
        NotFound, Denied; InvalidInput for a step of no thread.
        """
        threads, _ = self._acting(config)
        bound, names = self._bound(config)
        step = bound.recordings.step(step_id)
        name, path = step.metadata.get("thread_id"), step.metadata.get("langgraph_checkpoint_ns")
        if not isinstance(name, str) or not isinstance(path, str) or not path:
            raise InvalidInput(
                f"Step {step_id} was recorded in no thread of a graph: there is nothing to go "
                f"back to."
            )
        task = path.partition("|")[0].rpartition(":")[2]
        ids = [id for namespace, id in threads.places_of_task(name, task) if not namespace]
        if not ids:
            raise NotFound(
                f"Thread {name} has no checkpoint from which step {step_id} ran; it may have "
                f"been pruned."
            )
        if thread is not None:
            threads.copy(name, thread)
        placed = handed_out(names, thread or name, "", max(ids))
        given = (config or {}).get("configurable", {})
        placed["configurable"] = {**given, **placed.get("configurable", {})}
        return placed

    # Reading

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that `config` names, or the latest of its thread; None when there
        is none.
        """
        thread, namespace = place_of(config)
        threads, names = self._acting(config)
        stored = threads.get(thread, namespace=namespace, checkpoint_id=checkpoint_id_of(config))
        return None if stored is None else self._tuple(stored, self._channel_values(stored), names)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, newest first; `filter` compares metadata as JSON, `before` is
        exclusive.

        The channel values of each are read on first access.
        """
        configurable = config.get("configurable", {}) if config else {}
        threads, names = self._acting(config)
        checkpoints = threads.checkpoints(
            thread_named(configurable["thread_id"]) if "thread_id" in configurable else None,
            namespace=configurable.get("checkpoint_ns"),
            checkpoint_id=checkpoint_id_of(config),
            before=checkpoint_id_of(before),
            limit=limit,
            filter=filter,
        )
        for stored in checkpoints:
            yield self._tuple(stored, self._lazy_values(stored), names)

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
        threads, _ = self._acting(config)
        return threads.history(
            thread_named(configurable["thread_id"]) if "thread_id" in configurable else None,
            namespace=configurable.get("checkpoint_ns"),
            before=checkpoint_id_of(before),
            limit=limit,
            filter=filter,
        )

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return for each channel the writes of the checkpoints before this one, oldest first, back
        to one that has a value, which is the `seed`.
        """
        thread, namespace = place_of(config)
        threads, _ = self._acting(config)
        trails = threads.trails(
            thread,
            namespace=namespace,
            checkpoint_id=checkpoint_id_of(config),
            channels=channels,
        )
        histories: dict[str, DeltaChannelHistory] = {}
        for channel in channels:
            writes, seed = trails[channel]
            entry: DeltaChannelHistory = {"writes": [self._write(write) for write in writes]}
            if seed is not None:
                entry["seed"] = self._splitter.join(seed, channel)
            histories[channel] = entry
        return histories

    # Writing

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; return its config after the commit.

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
        values = checkpoint.get("channel_values", {})
        rest = {
            name: value
            for name, value in checkpoint.items()
            if name not in {"channel_values", "id"}
        }
        thread, namespace = place_of(config)
        new = NewCheckpoint(
            namespace=namespace,
            id=checkpoint["id"],
            parent_id=checkpoint_id_of(config),
            metadata=_json_metadata(
                self._with_run(config, get_checkpoint_metadata(config, metadata))
            ),
            body=Leaf(*self._inner.dumps_typed(rest)),
            values=lambda base: {
                channel: self._split(channel, value, base.get(channel))
                for channel, value in values.items()
            },
            lifetime=self._lifetime,
        )
        threads, names = self._acting(config)
        put = threads.begin_put(thread, new, soon=soon)

        def wait() -> RunnableConfig:
            put.wait()
            return handed_out(names, thread, namespace, new.id)

        return wait

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
        self._begin_put_writes(config, writes, task_id, task_path, soon=False).wait()

    def _begin_put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
        *,
        soon: bool,
    ) -> WritesPut:
        thread, namespace = place_of(config)
        checkpoint_id = checkpoint_id_of(config)
        if checkpoint_id is None:
            raise InvalidInput(
                "This call names no checkpoint. Pass config={'configurable': {'thread_id': …, "
                "'checkpoint_id': …}}, as `put` returns it."
            )
        pending = [
            PendingWrite(
                task_id,
                task_path,
                WRITES_IDX_MAP.get(channel, index),
                channel,
                self._split(channel, value, None),
            )
            for index, (channel, value) in enumerate(writes)
        ]
        threads, _ = self._acting(config)
        return threads.begin_put_writes(
            thread,
            namespace=namespace,
            checkpoint_id=checkpoint_id,
            writes=pending,
            soon=soon,
        )

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Return the version after `current`: the next integer; text stays text, for threads that
        came from other savers.

        Deterministic: values are addressed by content, so that forks need no random part to keep
        theirs apart.
        """
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}"
        return 1 if current is None else int(current) + 1

    # Removing, copying

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread of the bound actor; an unknown one is no error."""
        self._acting(None)[0].delete(thread_named(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints that were put in these runs, those of subgraphs too, with their
        writes.

        A run is known by the `run_id` of the config it was called with, or by that of the tally's
        own run in whose block it was called. An id of a run that a callback handler recorded stands
        for the call that it recorded. Raises Conflict when a DeltaChannel of a checkpoint that
        stays is rebuilt from one that would go; what was put in the runs before it in the list is
        removed then.
        """
        check_names("run_ids", run_ids)
        for run_id in run_ids:
            for id in {str(run_id), *self._recorded_call(str(run_id))}:
                self._acting(None)[0].delete_where({"run_id": id}, needs=_delta_channels)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy all checkpoints and writes of a thread; their content is shared, not copied."""
        self._acting(None)[0].copy(thread_named(source_thread_id), thread_named(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of each namespace, or with "delete" none.

        For a DeltaChannel as many before it stay as its value is rebuilt from.
        """
        if strategy not in {"keep_latest", "delete"}:
            raise InvalidInput(f"There is no strategy {strategy!r}. Use 'keep_latest' or 'delete'.")
        check_names("thread_ids", thread_ids)
        threads, _ = self._acting(None)
        for thread_id in thread_ids:
            if strategy == "delete":
                threads.delete(thread_named(thread_id))
            else:
                threads.prune(thread_named(thread_id), needs=_delta_channels)

    def expire(self) -> int:
        """Remove threads of the bound actor whose `ttl` is over; return how many. Puts do this too,
        a few at a time.
        """
        return self._acting(None)[0].expire()

    # The same, asynchronously

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Same as `get_tuple`, in a worker thread."""
        if is_remote(self._binder.tally):
            # Side by side, because the way to the server takes longest.
            return await in_thread(self.get_tuple, config)
        return await self._run_async(lambda _: _constant(self.get_tuple(config)))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Same as `list`, in worker threads, where the channel values are read too: an access on
        the event loop reads nothing from disk. For ids and metadata alone use `history`.
        """
        checkpoints = self.list(config, filter=filter, before=before, limit=limit)
        async for checkpoint in iterate_in_thread(map(_with_values, checkpoints)):
            yield checkpoint

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
        return await self._run_async(
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
        await self._run_async(
            lambda soon: self._begin_put_writes(config, writes, task_id, task_path, soon=soon).wait
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

    # Parts of the above

    def _with_run(self, config: RunnableConfig, metadata: CheckpointMetadata) -> Mapping[str, Any]:
        """Return metadata with the run of the put, where the config, the runtime of a subgraph or
        an open run names it.
        """
        if "run_id" in metadata:
            return metadata
        run_id: Any = config.get("run_id")
        if run_id is None:
            runtime = config.get("configurable", {}).get("__pregel_runtime")
            run_id = getattr(getattr(runtime, "execution_info", None), "run_id", None)
        if run_id is None:
            run_id = self._binder.current_run_id()
        return metadata if run_id is None else {**metadata, "run_id": str(run_id)}

    def _recorded_call(self, run_id: str) -> tuple[str, ...]:
        """Return LangChain's id of the call that was recorded as this run, if there is one."""
        try:
            run = self._bound(None)[0].recordings.run(run_id)
        except (NotFound, Denied):
            return ()
        call_id = run.metadata.get("langchain_run_id")
        return (call_id,) if isinstance(call_id, str) else ()

    async def _run_async(self, begin: Callable[[bool], Callable[[], T]]) -> T:
        """Run a short call in the lane that all tasks share; with a cipher, which may be slow, in a
        worker of its own.
        """
        if self._cipher is not None:
            return await in_thread(lambda: begin(False)())
        return await run_in_lane(self._binder.tally, lambda: begin(True))

    @property
    def _inner(self) -> SerializerProtocol:
        """Return the serializer of bodies: of encrypted state, the one beneath the encryption."""
        inner: SerializerProtocol = self._splitter.serde
        return inner

    def _acting(self, config: RunnableConfig | None) -> tuple[Threads, Mapping[str, Any]]:
        """Return the threads of whoever acts in a call, None for one with ids alone, and the names
        that the configs it hands out carry.
        """
        config = None if config is None else named_config(config)
        # Where nothing in a config can name the actor, every call has the same one.
        is_common = authenticated_user() is None and self._binder.is_common(config)
        if is_common and self._common is not None:
            return self._common, {}
        bound, names = self._bound(config)
        threads = bound.threads
        threads = threads if self._cipher is None else threads.encrypted(self._cipher)
        if is_common:
            self._common = threads
        return threads, names

    def _bound(self, config: RunnableConfig | None) -> tuple[BoundTally, Mapping[str, Any]]:
        if config is None and authenticated_user() is None:
            return self._binder.bound(), {}
        # A thread is its own session in the journal.
        call = replace(call_of(self._binder, config), session=None)
        bound = self._binder.bound(call)
        return bound, self._binder.names_to_carry(call, bound.actor)

    def _split(self, channel: str, value: Any, base: Value | None) -> Value:
        try:
            return self._splitter.split(value, base)
        except RecursionError as error:
            raise InvalidInput(
                f"Channel {channel!r} holds a value that contains itself or is nested too deeply "
                f"to be stored."
            ) from error
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"Channel {channel!r} holds what cannot be stored: {error}."
            ) from error

    def _channel_values(self, stored: StoredCheckpoint) -> dict[str, Any]:
        return {
            channel: self._splitter.join(value, channel) for channel, value in stored.values.items()
        }

    def _lazy_values(self, stored: StoredCheckpoint) -> dict[str, Any]:
        if not stored.summary.channels:
            return {}
        return LazyValues(stored.summary.channels, lambda: self._channel_values(stored))

    def _write(self, write: PendingWrite) -> tuple[str, str, Any]:
        return write.task_id, write.channel, self._splitter.join(write.value, write.channel)

    def _tuple(
        self, stored: StoredCheckpoint, values: dict[str, Any], names: Mapping[str, Any]
    ) -> CheckpointTuple:
        summary = stored.summary
        body = self._inner.loads_typed((stored.body.type, stored.body.body))
        checkpoint: Any = {**body, "id": summary.id, "channel_values": values}
        metadata: Any = dict(summary.metadata)
        return CheckpointTuple(
            config=handed_out(names, summary.thread, summary.namespace, summary.id),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=handed_out(names, summary.thread, summary.namespace, summary.parent_id)
            if summary.parent_id
            else None,
            pending_writes=[self._write(write) for write in stored.writes],
        )


def _check_lifetime(ttl: object) -> None:
    """Raise InvalidInput unless `ttl` is a positive timedelta; the store's forms are named."""
    if isinstance(ttl, timedelta):
        if ttl <= timedelta(0):
            raise InvalidInput("`ttl` has to be more than 0.")
        return
    minutes = ttl.get("default_ttl") if isinstance(ttl, Mapping) else ttl
    number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
    raise InvalidInput(
        f"The `ttl` of TallySaver is {describe_value(ttl)}. Write "
        f"ttl=timedelta(minutes={minutes if number else '…'}).",
        argument="ttl",
    )


def _check_serializer(serde: object) -> None:
    if not (hasattr(serde, "dumps_typed") and hasattr(serde, "loads_typed")):
        raise InvalidInput(
            f"`serde` is {describe_value(serde)}. Give a serializer with `dumps_typed` and "
            f"`loads_typed`, or leave it out."
        )


def _with_values(checkpoint: CheckpointTuple) -> CheckpointTuple:
    """Return a listed checkpoint whose channel values have been read."""
    values = checkpoint.checkpoint["channel_values"]
    return checkpoint._replace(
        checkpoint={**checkpoint.checkpoint, "channel_values": dict(values.items())}
    )


def _constant(result: T) -> Callable[[], T]:
    return lambda: result


def _delta_channels(summary: Summary) -> Collection[str]:
    """Return the DeltaChannels of a checkpoint, whose updates its metadata count; one with a
    snapshot has a value.
    """
    counted = summary.metadata.get("counters_since_delta_snapshot")
    return tuple(counted) if isinstance(counted, Mapping) else ()


def _json_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as JSON; the Actor in `configurable` is no part of it. Raises InvalidInput
    naming the key.
    """
    entries = {name: value for name, value in metadata.items() if not isinstance(value, Actor)}
    if not _is_json(entries):
        name, value = next(
            (entry for entry in entries.items() if not _is_json(entry[1])), ("", entries)
        )
        raise InvalidInput(
            f"Checkpoint metadata {name!r} is a {type(value).__name__}, which JSON cannot hold. "
            "Put it into the graph's state instead."
        )
    return entries


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
