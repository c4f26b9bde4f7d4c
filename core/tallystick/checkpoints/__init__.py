"""Threads of checkpoints as trees of shared chunks, keyed by scope and name; knows no runtime."""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick.checkpoints.codec import Cipher
    from tallystick.checkpoints.context import (
        CheckpointsContext,
        NewCheckpoint,
        PendingWrite,
        StoredCheckpoint,
        Summary,
    )
    from tallystick.checkpoints.listing import value_at
    from tallystick.checkpoints.threads import Threads
    from tallystick.checkpoints.values import Fields, Leaf, ListValue, Value
else:
    __getattr__ = late_names(
        __name__,
        {
            "codec": "Cipher",
            "context": "CheckpointsContext NewCheckpoint PendingWrite StoredCheckpoint Summary",
            "listing": "value_at",
            "threads": "Threads",
            "values": "Fields Leaf ListValue Value",
        },
    )

__all__ = [
    "CheckpointsContext",
    "Cipher",
    "Fields",
    "Leaf",
    "ListValue",
    "NewCheckpoint",
    "PendingWrite",
    "StoredCheckpoint",
    "Summary",
    "Threads",
    "Value",
    "value_at",
]
