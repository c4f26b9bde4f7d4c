"""Decides, writes the decision down, and keeps the log of reads."""

from tallystick.access.gate import Gate
from tallystick.access.spaces import Spaces
from tallystick.access.tokens import fits, mint

__all__ = ["Gate", "Spaces", "fits", "mint"]
