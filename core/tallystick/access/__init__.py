"""Decides, writes the decision down, and keeps the log of reads."""

from tallystick.access.confirm import fits, mint
from tallystick.access.gate import Gate
from tallystick.access.spaces import Spaces
from tallystick.access.visibility import UNREADABLE, recallable, replacements, shown_to

__all__ = ["UNREADABLE", "Gate", "Spaces", "fits", "mint", "recallable", "replacements", "shown_to"]
