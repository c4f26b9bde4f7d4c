"""Checkpoints as callers give them and get them: new ones, pending writes, stored ones, and
summaries without state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.checkpoints.values import Leaf, Value

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
