"""Threads of checkpoints as trees of shared pieces, keyed by scope and name; knows no runtime."""

from tallystick.checkpoints.codec import Sealer
from tallystick.checkpoints.context import CheckpointsContext
from tallystick.checkpoints.stored import PendingWrite, StoredCheckpoint, Summary
from tallystick.checkpoints.threads import Threads
from tallystick.checkpoints.upgrade import upgrade
from tallystick.checkpoints.values import Fields, Leaf, Run, Value

__all__ = [
    "Fields",
    "Leaf",
    "PendingWrite",
    "Run",
    "Sealer",
    "StoredCheckpoint",
    "Summary",
    "Threads",
    "CheckpointsContext",
    "Value",
    "upgrade",
]
