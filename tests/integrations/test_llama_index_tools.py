"""LlamaIndex's memory tools keep the adapter contract, and ask a person by the events of a
workflow.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.tools import FunctionTool, ToolOutput
from llama_index.core.workflow import (
    Context,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)

from tallystick import Tally
from tallystick.operations import MEMORY_TOOLS
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_llama_index import TallyInstrumentation, memory_tools

OpenTally = Callable[..., Tally]


class Calling(Workflow):
    """A workflow that calls one tool."""

    def __init__(self, tool: FunctionTool, arguments: dict[str, Any]) -> None:
        super().__init__(timeout=60)
        self._tool, self._given = tool, arguments

    @step
    async def call(self, ctx: Context, ev: StartEvent) -> StopEvent:
        """Call it, with the context where it wants one."""
        more = {"ctx": ctx} if self._tool.requires_context else {}
        output = await self._tool.acall(**self._given, **more)
        return StopEvent(result=output)


async def _called(tool: FunctionTool, arguments: dict[str, Any], response: str | None) -> Any:
    running = Calling(tool, arguments).run()
    async for event in running.stream_events():
        if isinstance(event, InputRequiredEvent):
            assert response is not None
            answer: Any = {"waiter_id": event.get("waiter_id"), "response": response}
            assert running.ctx is not None
            running.ctx.send_event(HumanResponseEvent(**answer))
    output: Any = await running
    assert isinstance(output, ToolOutput)
    return output.raw_output


def _through_tool(
    bound: BoundTally, name: str, arguments: dict[str, Any], response: str = "yes"
) -> Any:
    [tool] = [tool for tool in memory_tools(bound) if tool.metadata.name == name]
    return asyncio.run(_called(tool, arguments, response))


class TestTools(AdapterContract):
    verbs = frozenset({"recall", "remember", "modify", "forget"})

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        answer = _through_tool(bound, "memory_search", {"query": query})
        assert answer.get("error") in (None, "Denied")
        return [memory["id"] for memory in answer.get("memories", [])]

    def remember(self, bound: BoundTally, content: str) -> None:
        _through_tool(bound, "memory_store", {"content": content})

    def modify(
        self, bound: BoundTally, memory_id: str, content: str, reason: str, if_version: int
    ) -> None:
        arguments = {
            "memory_id": memory_id,
            "content": content,
            "reason": reason,
            "if_version": if_version,
        }
        _through_tool(bound, "memory_modify", arguments)

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        _through_tool(bound, "memory_forget", {"memory_id": memory_id, "reason": reason})


def test_the_six_tools_are_offered_with_their_descriptions_and_without_the_context(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        tools = memory_tools(tally)
    assert [tool.metadata.name for tool in tools] == list(MEMORY_TOOLS)
    assert [tool.metadata.description for tool in tools] == [
        memory_tool.description for memory_tool in MEMORY_TOOLS.values()
    ]
    offered: Any = tools[4].metadata.get_parameters_dict()
    assert list(offered["properties"]) == ["memory_id", "content", "reason", "if_version"]


def test_a_person_may_say_no_and_the_model_is_told_why(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        arguments = {"memory_id": owner.remember("Keep me.").id, "reason": "tidy"}
        with TallyInstrumentation(tally, strict=True):
            answer = _through_tool(owner, "memory_forget", arguments, "It is dear to me.")
        assert answer["message"] == "memory_forget was not done. It is dear to me."
        assert owner.get(arguments["memory_id"]).content == "Keep me."
        statuses = [step.status for step in owner.recordings.steps(owner.runs()[0].run_id)]
        assert statuses == ["blocked", "completed"]


def test_who_asks_elsewhere_may_leave_it_to_that(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        arguments = {"memory_id": owner.remember("Forget me.").id, "reason": "tidy"}
        forget = memory_tools(owner, approval="elsewhere")[5]
        asyncio.run(_called(forget, arguments, None))
        assert owner.memories() == []
