"""Threads of checkpoints as trees of shared pieces, keyed by scope and name; knows no runtime."""

from tallystick.threads.codec import Sealer
from tallystick.threads.room import ThreadsRoom
from tallystick.threads.stored import PendingWrite, StoredCheckpoint, Summary
from tallystick.threads.threads import Threads
from tallystick.threads.upgrade import upgrade
from tallystick.threads.values import Fields, Leaf, Run, Value

__all__ = [
    "Fields",
    "Leaf",
    "PendingWrite",
    "Run",
    "Sealer",
    "StoredCheckpoint",
    "Summary",
    "Threads",
    "ThreadsRoom",
    "Value",
    "upgrade",
]
