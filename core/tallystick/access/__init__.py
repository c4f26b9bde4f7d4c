"""Decides, writes the decision down, and keeps the log of reads."""

from tallystick.access.gate import Gate
from tallystick.access.showing import UNREADABLE, recallable, replacements, shown_to
from tallystick.access.spaces import Spaces
from tallystick.access.tokens import fits, mint

__all__ = ["UNREADABLE", "Gate", "Spaces", "fits", "mint", "recallable", "replacements", "shown_to"]
