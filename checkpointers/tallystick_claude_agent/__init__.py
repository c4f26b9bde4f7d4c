"""The Claude Agent SDK on a tally: sessions that last, and hooks that remember and check."""

from tallystick.errors import require

require("claude_agent_sdk", extra="claude-agent")

from tallystick_claude_agent.hooks import TallyHooks  # noqa: E402
from tallystick_claude_agent.session_store import TallySessionStore  # noqa: E402

__all__ = ["TallyHooks", "TallySessionStore"]
