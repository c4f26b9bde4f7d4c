"""What a thread holds, as callers give it and get it: pending writes, checkpoints, and checkpoints
without state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tallystick.checkpoints.values import Leaf, Value

__all__ = ["PendingWrite", "StoredCheckpoint", "Summary"]


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
    """The channels that hold a value."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint with its body and pending writes; `values` are read when they are first asked
    for.
    """

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
