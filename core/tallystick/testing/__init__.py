"""The fakes that Tallystick is tested with, and contract suites for what has several implementations.

Fakes stand in for the model, the clock and the ids only; everything else is real. The suites in
`tallystick.testing.contracts` need pytest and are imported from there.
"""

from tallystick.testing.effects import effects
from tallystick.testing.fakes import CountingIds, HashEmbedder, ScriptedCall, StepClock, WordCounter

__all__ = ["CountingIds", "HashEmbedder", "ScriptedCall", "StepClock", "WordCounter", "effects"]
