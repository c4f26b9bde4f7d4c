"""Google's Agent Development Kit on a tally: `TallyPlugin` gives its agents memory, rules and
receipts, `TallySessionService` and `TallyMemoryService` keep their sessions and their memory.
"""

from tallystick.errors import require

require("google.adk", extra="adk")

from tallystick_adk.memory import TallyMemoryService  # noqa: E402
from tallystick_adk.plugin import TallyPlugin  # noqa: E402
from tallystick_adk.sessions import TallySessionService  # noqa: E402
from tallystick_adk.tape import TapePlugin, model_call  # noqa: E402
from tallystick_adk.tools import memory_tools  # noqa: E402

__all__ = [
    "TallyMemoryService",
    "TallyPlugin",
    "TallySessionService",
    "TapePlugin",
    "memory_tools",
    "model_call",
]
