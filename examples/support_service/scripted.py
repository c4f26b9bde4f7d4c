"""The offline stand-in for a model: it refunds what it is asked to refund, and answers questions
from what stands in its context alone.
"""

from __future__ import annotations

import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool


class ScriptedChatModel(BaseChatModel):
    """A clerk by rule."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """Bind tools as most models do, so that they are recorded."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_answer(messages))])


def _answer(messages: list[BaseMessage]) -> AIMessage:
    latest = messages[-1]
    if isinstance(latest, ToolMessage):
        return AIMessage(f"About your refund: {latest.text}.")
    if wanted := re.search(r"refund order (\d+)", latest.text):
        call = ToolCall(name="refund", args={"order": int(wanted[1])}, id=f"refund-{wanted[1]}")
        return AIMessage("", tool_calls=[call])
    if latest.text.endswith("?"):
        context = "\n".join(message.text for message in messages[:-1])
        orders = sorted(set(re.findall(r"order (\d+)", context)))
        return AIMessage(f"You told me of order {', '.join(orders) or 'none'}.")
    return AIMessage("I have noted that.")
