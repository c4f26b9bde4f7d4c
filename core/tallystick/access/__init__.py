"""Decides, writes the decision down, and keeps the log of reads."""

from tallystick.access.gate import Gate
from tallystick.access.spaces import Spaces

__all__ = ["Gate", "Spaces"]
