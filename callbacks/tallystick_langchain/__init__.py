"""LangChain on a tally: `TallyMiddleware` compiles and records an agent's calls,
`TallyCallbackHandler` records any.
"""

from typing import TYPE_CHECKING, Any

from tallystick.errors import require

require("langchain_core", extra="langchain")

from tallystick_langchain.compiling import CompiledMessages, compile_messages  # noqa: E402
from tallystick_langchain.handler import TallyCallbackHandler  # noqa: E402
from tallystick_langchain.ingesting import ingest  # noqa: E402
from tallystick_langchain.learning import LearningModel  # noqa: E402
from tallystick_langchain.replay import chat_model_call, render_chat  # noqa: E402
from tallystick_langchain.tape import TapeChatModel, TapeLLM, tape_tools  # noqa: E402
from tallystick_langchain.tools import memory_tools  # noqa: E402

if TYPE_CHECKING:
    from tallystick_langchain.middleware import TallyMiddleware
    from tallystick_langchain.rules import ToolRules

__all__ = [
    "CompiledMessages",
    "LearningModel",
    "TallyCallbackHandler",
    "TallyMiddleware",
    "TapeChatModel",
    "TapeLLM",
    "ToolRules",
    "chat_model_call",
    "compile_messages",
    "ingest",
    "memory_tools",
    "render_chat",
    "tape_tools",
]


def __getattr__(name: str) -> Any:
    """`TallyMiddleware` and `ToolRules` on first use: they need `langchain` with its agents, and
    LangGraph.
    """
    if name == "TallyMiddleware":
        require("langchain", extra="langchain")
        from tallystick_langchain.middleware import TallyMiddleware

        return TallyMiddleware
    if name == "ToolRules":
        require("langgraph", extra="langgraph")
        from tallystick_langchain.rules import ToolRules

        return ToolRules
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
