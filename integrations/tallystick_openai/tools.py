"""The six memory tools for code that calls the Responses API itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.kit import PlainMemoryTools
from tallystick.records import ModelAnswer, ModelToolCall, ToolSpec
from tallystick_openai.provider import parse_response


class ResponsesMemoryTools(PlainMemoryTools):
    """Memory tools for `client.responses.create(…, tools=tools.definitions)`, and for compiles."""

    runtime = "openai"

    def _definition(self, spec: ToolSpec) -> dict[str, Any]:
        return {
            "type": "function",
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
            "strict": False,
        }

    def _parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        return parse_response(response)

    def _output(self, call: ModelToolCall, text: str) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call.id, "output": text}


memory_tools = ResponsesMemoryTools
