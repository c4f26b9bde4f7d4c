"""Comparing: a candidate configuration of recall beside the one that the settings name.

`Comparing(bound)` starts a comparison, reports it, promotes the candidate or stops.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names
from tallystick_comparing.extension import EXTENSION

if TYPE_CHECKING:
    from tallystick_comparing.comparing import AsyncComparing, Comparing, ComparingVerbs
else:
    __getattr__ = late_names(__name__, {"comparing": "AsyncComparing Comparing ComparingVerbs"})

__all__ = ["EXTENSION", "AsyncComparing", "Comparing", "ComparingVerbs"]
