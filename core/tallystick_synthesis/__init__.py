"""Synthesis: documents that are made of memory, and can show where each sentence comes from.

`Synthesis(bound)` plans, collects, drafts, verifies and remembers them.
"""

from typing import TYPE_CHECKING

from tallystick.loading import late_names
from tallystick_synthesis.extension import EXTENSION

if TYPE_CHECKING:
    from tallystick_synthesis.synthesis import AsyncSynthesis, Synthesis, SynthesisVerbs
else:
    __getattr__ = late_names(__name__, {"synthesis": "AsyncSynthesis Synthesis SynthesisVerbs"})

__all__ = ["EXTENSION", "AsyncSynthesis", "Synthesis", "SynthesisVerbs"]
