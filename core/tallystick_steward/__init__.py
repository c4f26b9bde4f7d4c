"""Stewardship of a tally: measures, alerts, health, repairs, and a loop that may act within bounds.

`Steward(bound)` has the verbs. Nothing here destroys a text without a person.
"""

from tallystick_steward.extension import EXTENSION
from tallystick_steward.steward import Steward

__all__ = ["EXTENSION", "Steward"]
