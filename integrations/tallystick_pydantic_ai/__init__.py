"""PydanticAI on a tally: the `Tallystick` capability gives each run what it remembers, and records
it.
"""

from tallystick.errors import require

require("pydantic_ai", extra="pydantic-ai")

from tallystick_pydantic_ai.capability import TallyContext, TallyMemory, Tallystick  # noqa: E402
from tallystick_pydantic_ai.learning import LearningModel  # noqa: E402
from tallystick_pydantic_ai.policy import TallyPolicy  # noqa: E402
from tallystick_pydantic_ai.recorder import TallyRecorder  # noqa: E402
from tallystick_pydantic_ai.replay import model_call  # noqa: E402
from tallystick_pydantic_ai.tape import TapeCapability  # noqa: E402
from tallystick_pydantic_ai.toolset import memory_toolset  # noqa: E402

__all__ = [
    "LearningModel",
    "TallyContext",
    "TallyMemory",
    "TallyPolicy",
    "TallyRecorder",
    "Tallystick",
    "TapeCapability",
    "memory_toolset",
    "model_call",
]
