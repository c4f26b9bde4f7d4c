"""Tokens: what fills the TokenCounter port: exact where an encoding is on the machine, else a safe
estimate.

Importing this loads nothing heavy; tiktoken comes on first use.
"""

from tallystick.tokens.estimate import CachedCounter, PiecesCounter
from tallystick.tokens.resolve import TiktokenCounter, counter_for
from tallystick.tokens.usage import usage_of

__all__ = ["CachedCounter", "PiecesCounter", "TiktokenCounter", "counter_for", "usage_of"]
