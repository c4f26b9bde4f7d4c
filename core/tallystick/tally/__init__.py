"""Tally, and BoundTally with its verbs: where the rooms of the core are joined."""

from tallystick.memory.recall import Recalled
from tallystick.tally.compiling import Candidate
from tallystick.tally.enforcement import ModelCheck, ToolCheck
from tallystick.tally.model_calls import ModelCall, ModelStream, is_provider, model_provider
from tallystick.tally.operator import Operator
from tallystick.tally.tally import BoundTally, Tally

__all__ = [
    "BoundTally",
    "Candidate",
    "ModelCall",
    "ModelCheck",
    "ModelStream",
    "Operator",
    "Recalled",
    "Tally",
    "ToolCheck",
    "is_provider",
    "model_provider",
]
