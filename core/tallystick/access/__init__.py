"""Decides, writes the decision down, and keeps the log of reads."""

from tallystick.access.gate import Gate

__all__ = ["Gate"]
