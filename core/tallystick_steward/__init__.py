"""Stewardship of a tally: measures, alerts, health, repairs, and a loop that may act within bounds.

`Steward(bound)` has the verbs. Nothing here destroys a text without a person.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names
from tallystick_steward.extension import EXTENSION

if TYPE_CHECKING:
    from tallystick_steward.steward import Steward
else:
    __getattr__ = late_names(__name__, {"steward": "Steward"})

__all__ = ["EXTENSION", "Steward"]
