"""Tally, and BoundTally with its verbs: where the rooms of the core are joined."""

from typing import TYPE_CHECKING

from tallystick.loading import late_names

if TYPE_CHECKING:
    from tallystick.memory.recalled import Recalled
    from tallystick.tally.approvals import BoundApprovals
    from tallystick.tally.compiling import Candidate
    from tallystick.tally.corrections import Corrections
    from tallystick.tally.enforcement import AllowedModelCall, AllowedToolCall
    from tallystick.tally.jobs import Jobs
    from tallystick.tally.memory_tree import MemoryTree, SeenVersions
    from tallystick.tally.model_calls import (
        ModelCall,
        ModelStream,
        is_provider,
        model_provider,
        named_provider,
        replay_call,
        sorted_errors,
    )
    from tallystick.tally.operator import Operator
    from tallystick.tally.recordings import BoundRecordings
    from tallystick.tally.reviews import Reviews
    from tallystick.tally.services import OpenOptions
    from tallystick.tally.spaces import BoundSpaces
    from tallystick.tally.tally import BoundTally, Tally
else:
    __getattr__ = late_names(
        "tallystick",
        {
            "memory.recalled": "Recalled",
            "tally.approvals": "BoundApprovals",
            "tally.compiling": "Candidate",
            "tally.corrections": "Corrections",
            "tally.enforcement": "AllowedModelCall AllowedToolCall",
            "tally.jobs": "Jobs",
            "tally.memory_tree": "MemoryTree SeenVersions",
            "tally.model_calls": "ModelCall ModelStream is_provider model_provider named_provider "
            "replay_call sorted_errors",
            "tally.operator": "Operator",
            "tally.recordings": "BoundRecordings",
            "tally.reviews": "Reviews",
            "tally.services": "OpenOptions",
            "tally.spaces": "BoundSpaces",
            "tally.tally": "BoundTally Tally",
        },
    )

__all__ = [
    "BoundApprovals",
    "BoundRecordings",
    "BoundSpaces",
    "BoundTally",
    "Corrections",
    "Jobs",
    "MemoryTree",
    "Reviews",
    "SeenVersions",
    "Candidate",
    "ModelCall",
    "AllowedModelCall",
    "ModelStream",
    "OpenOptions",
    "Operator",
    "Recalled",
    "Tally",
    "AllowedToolCall",
    "is_provider",
    "model_provider",
    "named_provider",
    "replay_call",
    "sorted_errors",
]
