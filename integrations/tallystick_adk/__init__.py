"""Google's Agent Development Kit on a tally: sessions and memory that last."""

from tallystick.errors import require

require("google.adk", extra="adk")

from tallystick_adk.memory import TallyMemoryService  # noqa: E402
from tallystick_adk.sessions import TallySessionService  # noqa: E402

__all__ = ["TallyMemoryService", "TallySessionService"]
