"""Tally, and BoundTally with its verbs: where the rooms of the core are joined."""

from tallystick.memory.recall import Recalled
from tallystick.records import Moment
from tallystick.tally.compiling import Candidate
from tallystick.tally.enforcement import ModelCheck, ToolCheck
from tallystick.tally.operator import Operator
from tallystick.tally.tally import BoundTally, Tally

__all__ = [
    "BoundTally",
    "Candidate",
    "ModelCheck",
    "Moment",
    "Operator",
    "Recalled",
    "Tally",
    "ToolCheck",
]
