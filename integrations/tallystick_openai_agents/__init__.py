"""The OpenAI Agents SDK on a tally: `TallyRunner` runs agents with memory, rules and receipts, and
`TallySession` keeps what was said.
"""

from tallystick.errors import require

require("agents", extra="openai-agents")

from tallystick_openai_agents.runner import TallyRunner  # noqa: E402
from tallystick_openai_agents.sessions import TallySession  # noqa: E402
from tallystick_openai_agents.tape import TapeRunner, model_call  # noqa: E402
from tallystick_openai_agents.tools import memory_tools  # noqa: E402

__all__ = ["TallyRunner", "TallySession", "TapeRunner", "memory_tools", "model_call"]
