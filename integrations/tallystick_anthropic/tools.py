"""The six memory tools for code that calls the Messages API itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.kit import PlainMemoryTools
from tallystick.records import ModelAnswer, ModelToolCall, ToolSpec
from tallystick_anthropic.provider import parse_message


class MessagesMemoryTools(PlainMemoryTools):
    """Memory tools for `client.messages.create(…, tools=tools.definitions)`, and for compiles."""

    runtime = "anthropic"

    def _definition(self, spec: ToolSpec) -> dict[str, Any]:
        return {
            "name": spec.name,
            "description": spec.description,
            "input_schema": spec.parameters,
        }

    def _parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        return parse_message(response)

    def _output(self, call: ModelToolCall, text: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call.id, "content": text}


memory_tools = MessagesMemoryTools
