"""OpenAI on a tally: a compiled context as a Responses request, sent and recorded; tools."""

from tallystick.kit import TapedProvider, ToolQuestion, conversation_context, tap
from tallystick_openai.check import check_request
from tallystick_openai.embedding import embedding_model
from tallystick_openai.learning import LearningModel
from tallystick_openai.provider import ResponsesProvider, parse_response
from tallystick_openai.render import render_responses
from tallystick_openai.tools import ResponsesMemoryTools, memory_tools

__all__ = [
    "LearningModel",
    "ResponsesMemoryTools",
    "ResponsesProvider",
    "TapedProvider",
    "ToolQuestion",
    "check_request",
    "conversation_context",
    "embedding_model",
    "memory_tools",
    "parse_response",
    "render_responses",
    "tap",
]
