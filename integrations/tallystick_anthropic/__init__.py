"""Anthropic on a tally: a compiled context as a Messages request, sent and recorded; tools."""

from tallystick.kit import conversation_context, tap
from tallystick_anthropic.check import check_request
from tallystick_anthropic.learning import LearningModel
from tallystick_anthropic.provider import MessagesProvider, parse_message
from tallystick_anthropic.render import render_messages
from tallystick_anthropic.tools import MessagesMemoryTools, memory_tools

__all__ = [
    "LearningModel",
    "MessagesMemoryTools",
    "MessagesProvider",
    "check_request",
    "conversation_context",
    "memory_tools",
    "parse_message",
    "render_messages",
    "tap",
]
