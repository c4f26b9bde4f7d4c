"""Threads of checkpoints, keyed by scope and name; knows no runtime."""

from tallystick.storage.checkpoints import CheckpointRow, PendingWrite
from tallystick.threads.threads import StoredCheckpoint, Threads

__all__ = ["CheckpointRow", "PendingWrite", "StoredCheckpoint", "Threads"]
