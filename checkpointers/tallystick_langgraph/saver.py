"""TallySaver: LangGraph's checkpointer on a tally, synchronous and asynchronous in one class.

A thread belongs to the scope of who acts: another actor's `thread_id` is another thread. Each `put` returns after
its commit. Values are serialised by LangGraph's own serializer, under its rules for what may be read back.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from tallystick.edge import in_thread, iterate_in_thread
from tallystick.errors import InvalidInput
from tallystick.records import Actor, Scope
from tallystick.tally import Binder, BoundTally, Tally
from tallystick.threads import PendingWrite, StoredCheckpoint, Threads

__all__ = ["TallySaver"]

ActorSource = Actor | Callable[[RunnableConfig], Actor | None]
"""Who acts: an Actor, or a callable from the config of the call."""


def actor_from_configurable(config: RunnableConfig) -> Actor | None:
    """The Actor under `actor` in `configurable`: the runtime's own way to say who acts. None names nobody."""
    actor = config.get("configurable", {}).get("actor")
    return actor if isinstance(actor, Actor) else None


class TallySaver(BaseCheckpointSaver[str]):
    """Checkpoints of LangGraph threads on a tally.

    `graph = builder.compile(checkpointer=TallySaver(tally))`. Thread-safe; one saver serves any number of loops.
    """

    def __init__(
        self, tally: Tally | BoundTally, *, actor: ActorSource | None = None, scope: str | Scope | None = None,
        serde: SerializerProtocol | None = None,
    ) -> None:  # fmt: skip
        """`actor` says who acts (by default the Actor under `configurable["actor"]`, else the bound one or the
        owner); `scope` where threads live, by default the actor's private scope."""
        super().__init__(serde=serde)
        self._binder = Binder[RunnableConfig](
            tally, surface="langgraph", actor=actor or actor_from_configurable, scope=scope
        )

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that `config` names, or the latest of its thread; None when there is none."""
        place = _Place.of(config)
        stored = self._threads(config).get(
            place.thread, namespace=place.namespace, checkpoint_id=get_checkpoint_id(config)
        )
        return None if stored is None else self._tuple(stored)

    def list(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:  # fmt: skip
        """Checkpoints, newest first; `filter` compares metadata, `before` is exclusive."""
        configurable = config.get("configurable", {}) if config else {}
        found = self._threads(config).checkpoints(
            str(configurable["thread_id"]) if "thread_id" in configurable else None,
            namespace=configurable.get("checkpoint_ns"),
            checkpoint_id=get_checkpoint_id(config) if config else None,
            before=get_checkpoint_id(before) if before else None,
            limit=limit,
            where=lambda metadata: _matches(metadata, filter or {}),
        )
        for stored in found:
            yield self._tuple(stored)

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Store a checkpoint; returns its config after the commit."""
        place = _Place.of(config)
        values = checkpoint["channel_values"]
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        self._threads(config).put(
            place.thread,
            namespace=place.namespace,
            checkpoint_id=checkpoint["id"],
            parent_id=get_checkpoint_id(config),
            metadata=_json_metadata(get_checkpoint_metadata(config, metadata)),
            body=self.serde.dumps_typed(rest),
            values={channel: self.serde.dumps_typed(value) for channel, value in values.items()},
        )
        return _config(place.thread, place.namespace, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote at a checkpoint, which itself may arrive later.

        Special writes replace, ordinary ones stay as they were first.
        """
        place = _Place.of(config)
        pending = [
            PendingWrite(
                task_id, task_path, WRITES_IDX_MAP.get(channel, index), channel, *self.serde.dumps_typed(value)
            )
            for index, (channel, value) in enumerate(writes)
        ]
        self._threads(config).put_writes(
            place.thread,
            namespace=place.namespace,
            checkpoint_id=str(get_checkpoint_id(config)),
            writes=pending,
            replace=all(channel in WRITES_IDX_MAP for channel, _ in writes),
        )

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread of the bound actor; an unknown one is no error."""
        self._threads(None).delete(str(thread_id))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Same as `get_tuple`, in a worker thread."""
        return await in_thread(self.get_tuple, config)

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:  # fmt: skip
        """Same as `list`, in worker threads."""
        async for found in iterate_in_thread(self.list(config, filter=filter, before=before, limit=limit)):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """Same as `put`, in a worker thread."""
        return await in_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Same as `put_writes`, in a worker thread."""
        await in_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Same as `delete_thread`, in a worker thread."""
        await in_thread(self.delete_thread, thread_id)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version after `current`: 32 digits, so that versions compare as text.

        Deterministic: values are addressed by content, so that forks need no random part to keep theirs apart.
        """
        number = 0 if current is None else int(str(current).split(".")[0])
        return f"{number + 1:032}"

    def _threads(self, config: RunnableConfig | None) -> Threads:
        return self._binder.bound(config).threads

    def _tuple(self, stored: StoredCheckpoint) -> CheckpointTuple:
        row = stored.row
        body = self.serde.loads_typed((row.body_type, row.body))
        body["channel_values"] = {channel: self.serde.loads_typed(value) for channel, value in stored.values.items()}
        checkpoint: Checkpoint = body
        metadata: Any = dict(row.metadata)
        return CheckpointTuple(
            config=_config(stored.thread, row.namespace, row.id),
            checkpoint=checkpoint,
            metadata=metadata,
            parent_config=_config(stored.thread, row.namespace, row.parent_id) if row.parent_id else None,
            pending_writes=[
                (write.task_id, write.channel, self.serde.loads_typed((write.value_type, write.value)))
                for write in stored.writes
            ],
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
            raise InvalidInput("This call names no thread. Pass config={'configurable': {'thread_id': …}}.")
        return cls(str(configurable["thread_id"]), str(configurable.get("checkpoint_ns", "")))


def _config(thread: str, namespace: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}}


def _json_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata as JSON; the Actor in `configurable` is no part of it. Raises InvalidInput naming the key."""
    kept = {name: value for name, value in metadata.items() if not isinstance(value, Actor)}
    for name, value in kept.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"Checkpoint metadata {name!r} is a {type(value).__name__}, which JSON cannot hold. "
                "Put it into the graph's state instead."
            ) from error
    return kept


def _matches(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    return all(metadata.get(name) == value for name, value in filter.items())
