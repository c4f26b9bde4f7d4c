"""A model that answers by a script, for the example and its test."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types


def call(name: str, **arguments: Any) -> types.FunctionCall:
    """Return a call of a tool."""
    return types.FunctionCall(name=name, args=arguments)


class Scripted(BaseLlm):
    """Each turn is what it says, or the tool that it calls."""

    model: str = "scripted"
    turns: list[Any]

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer a request with the next turn."""
        turn = self.turns.pop(0)
        part = types.Part(text=turn) if isinstance(turn, str) else types.Part(function_call=turn)
        usage = types.GenerateContentResponseUsageMetadata(
            prompt_token_count=len(str(llm_request.contents)) // 4, candidates_token_count=8
        )
        said = types.Content(role="model", parts=[part])
        yield LlmResponse(content=said, usage_metadata=usage)
