"""Synthesis: documents that are made of memory, and can show where each sentence comes from.

`Synthesis(bound)` plans, collects, drafts, verifies and remembers them.
"""

from tallystick_synthesis.extension import EXTENSION
from tallystick_synthesis.synthesis import AsyncSynthesis, Synthesis, SynthesisVerbs

__all__ = ["EXTENSION", "AsyncSynthesis", "Synthesis", "SynthesisVerbs"]
