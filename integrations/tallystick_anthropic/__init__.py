"""Anthropic on a tally: a compiled context as a Messages request, sent and recorded; tools."""

from typing import TYPE_CHECKING, Any

from tallystick.kit import conversation_context, tap
from tallystick_anthropic.check import check_request
from tallystick_anthropic.learning import LearningModel
from tallystick_anthropic.provider import MessagesProvider, parse_message
from tallystick_anthropic.render import render_messages
from tallystick_anthropic.tools import MessagesMemoryTools, memory_tools

if TYPE_CHECKING:
    from tallystick_anthropic.memory_tool import TallyAsyncMemoryTool, TallyMemoryTool

__all__ = [
    "LearningModel",
    "MessagesMemoryTools",
    "MessagesProvider",
    "TallyAsyncMemoryTool",
    "TallyMemoryTool",
    "check_request",
    "conversation_context",
    "memory_tools",
    "parse_message",
    "render_messages",
    "tap",
]


def __getattr__(name: str) -> Any:
    # Classes of the SDK are their bases: who renders and records alone needs no SDK.
    if name not in ("TallyAsyncMemoryTool", "TallyMemoryTool"):
        raise AttributeError(f"module 'tallystick_anthropic' has no attribute {name!r}")
    from tallystick_anthropic import memory_tool

    return getattr(memory_tool, name)
