"""The PydanticAI recorder keeps the contract of capture."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    ModelMessage,
    ModelResponse,
    ModelRetry,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.messages import RetryPromptPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tallystick.records import Json
from tallystick.tally import BoundTally
from tallystick.testing.capture import CaptureContract, Scene
from tallystick_pydantic_ai import TallyRecorder

SCRIPTS: dict[Scene, list[list[tuple[str, dict[str, Any]]]]] = {
    "text": [],
    "parallel tools": [[("double", {"value": 1}), ("double", {"value": 2})]],
    "error": [[("divide", {"value": 0})]],
    "retry": [[("flaky", {"value": 1})], [("flaky", {"value": 1})]],
    "streaming": [],
    "nested agent": [[("expert", {"question": "How much?"})]],
    "approval": [[("erase", {"value": 1})]],
}


def _scripted(scene: Scene) -> FunctionModel:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answered = {
            part.tool_call_id
            for message in messages
            for part in message.parts
            if isinstance(part, ToolReturnPart | RetryPromptPart)
        }
        for turn, calls in enumerate(SCRIPTS[scene]):
            tool_calls = [
                ToolCallPart(name, arguments, tool_call_id=f"c{turn}{place}")
                for place, (name, arguments) in enumerate(calls)
            ]
            if not answered.issuperset(call.tool_call_id for call in tool_calls):
                return ModelResponse(parts=tool_calls)
        return ModelResponse(parts=[TextPart("It is 42.")])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for word in ("It ", "is ", "42."):
            yield word

    return FunctionModel(answer, stream_function=stream)


def _agent(bound: BoundTally, scene: Scene) -> Agent[None, Any]:
    output: Any = [str, DeferredToolRequests]
    agent: Agent[None, Any] = Agent(
        _scripted(scene), output_type=output, capabilities=[TallyRecorder(bound, strict=True)]
    )
    tries: list[int] = []

    @agent.tool_plain
    def double(value: int) -> int:
        """Twice the value."""
        return value * 2

    @agent.tool_plain
    def divide(value: int) -> float:
        """One by the value."""
        return 1 / value

    @agent.tool_plain
    def flaky(value: int) -> int:
        """The value, at the second try."""
        tries.append(value)
        if len(tries) == 1:
            raise ModelRetry("try again")
        return value

    @agent.tool_plain
    async def expert(question: str) -> str:
        """Ask another agent."""
        other: Agent[None, str] = Agent(
            _scripted("text"), capabilities=[TallyRecorder(bound, strict=True)]
        )
        return (await other.run(question)).output

    @agent.tool_plain(requires_approval=True)
    def erase(value: int) -> str:
        """Erase something, if a person agrees."""
        return "gone"

    return agent


class TestRecorder(CaptureContract):
    def play(self, bound: BoundTally, scene: Scene) -> None:
        asyncio.run(self._play(bound, scene))

    async def _play(self, bound: BoundTally, scene: Scene) -> None:
        agent = _agent(bound, scene)
        if scene == "streaming":
            async with agent.run_stream("How much?") as streamed:
                await streamed.get_output()
            return
        result = await agent.run("How much?")
        if isinstance(result.output, DeferredToolRequests):
            agreed = result.output.build_results(approve_all=True)
            await agent.run(message_history=result.all_messages(), deferred_tool_results=agreed)

    def answer_text(self, response: Json) -> str:
        assert isinstance(response, dict)
        answer: Any = response["answer"]
        return str(answer["parts"][0]["content"])
