"""Tools that ask a person are offered to runs that can ask one, and to no others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.capabilities import HandleDeferredToolCalls
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import ToolOutput
from pydantic_ai.tools import DeferredToolResults

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick_pydantic_ai import Tallystick, memory_toolset

OpenTally = Callable[..., Tally]
ANN = Actor(user="ann")
ASKING = {"memory_modify", "memory_forget"}


class Answer(BaseModel):
    text: str
    score: int


def _offered(agent: Agent[Any, Any], **options: Any) -> set[str]:
    """The tools that the model of a run is offered."""
    model = TestModel(call_tools=[])
    asyncio.run(agent.run("Hello?", model=model, **options))
    parameters = model.last_model_request_parameters
    assert parameters is not None
    return {tool.name for tool in parameters.function_tools}


@pytest.mark.parametrize("output_type", [str, int, Answer, [Answer, str], ToolOutput(Answer)])
def test_an_agent_of_any_output_type_runs_with_the_line_of_the_readme(
    open_sqlite: OpenTally, output_type: Any
) -> None:
    with open_sqlite() as tally:
        agent = Agent(TestModel(), output_type=output_type, capabilities=[Tallystick(tally)])
        asyncio.run(agent.run("Hello?"))
        [run] = tally.bind().recordings.runs()
        assert run.status == "completed"
        assert tally.bind().recordings.verify(run.id).ok
        assert not ASKING & _offered(agent)


def test_that_tools_are_not_offered_is_said_once(
    open_sqlite: OpenTally, caplog: pytest.LogCaptureFixture
) -> None:
    with open_sqlite() as tally, caplog.at_level(logging.WARNING, "tallystick"):
        agent = Agent(TestModel(), name="clerk", capabilities=[Tallystick(tally)])

        async def talk() -> None:
            await agent.run("Hello?")
            async with agent.run_stream("Hello?") as streamed:
                await streamed.get_output()
            async with agent.iter("Hello?") as run:
                _ = [node async for node in run]

        asyncio.run(talk())
        [record] = caplog.records
        assert "clerk is not offered memory_modify and memory_forget" in record.getMessage()
        assert "DeferredToolRequests" in record.getMessage()


@pytest.mark.parametrize("output_type", [[str, DeferredToolRequests], str | DeferredToolRequests])
def test_a_run_that_may_end_with_requests_asks_and_goes_on_when_approved(
    open_sqlite: OpenTally, caplog: pytest.LogCaptureFixture, output_type: Any
) -> None:
    with open_sqlite() as tally:
        memory_id = tally.bind().remember("The gate closes at six.").id
        agent: Agent[Any, Any] = Agent(
            TestModel(call_tools=["memory_forget"]),
            output_type=output_type,
            capabilities=[Tallystick(tally)],
        )
        assert _offered(agent) > ASKING
        asked = asyncio.run(agent.run("Forget the gate."))
        assert isinstance(asked.output, DeferredToolRequests)
        [call] = asked.output.approvals
        call.args = {"memory_id": memory_id, "reason": "asked to"}
        asyncio.run(
            agent.run(
                message_history=asked.all_messages(),
                deferred_tool_results=asked.output.build_results(approve_all=True),
            )
        )
        assert tally.bind().memories() == []
        assert not caplog.records


def test_a_capability_that_answers_in_place_counts_as_asking(open_sqlite: OpenTally) -> None:
    async def approve(ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        return requests.build_results(approve_all=True)

    with open_sqlite() as tally:
        agent: Agent[Any, Answer] = Agent(
            TestModel(),
            output_type=Answer,
            capabilities=[Tallystick(tally), HandleDeferredToolCalls(approve)],
        )
        assert _offered(agent) > ASKING
        asyncio.run(agent.run("Hello?"))


def test_an_application_may_say_that_its_runs_ask(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        toolset = memory_toolset(tally, approval="deferred")
        plain: Agent[None, str] = Agent(TestModel(), toolsets=[toolset])
        result: Any = asyncio.run(plain.run("Hello?", output_type=[str, DeferredToolRequests]))
        assert isinstance(result.output, DeferredToolRequests)
        assert _offered(Agent(TestModel(), toolsets=[toolset])) > ASKING
        assert not ASKING & _offered(Agent(TestModel(), toolsets=[memory_toolset(tally)]))
        with_tools = Agent(TestModel(), capabilities=[Tallystick(tally, approval="deferred")])
        assert _offered(with_tools) > ASKING


def test_an_agent_in_a_tool_is_offered_what_it_can_ask_itself(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        inner = Agent(TestModel(), capabilities=[Tallystick(tally)])
        outer: Agent[None, Any] = Agent(
            TestModel(call_tools=["ask_clerk"]),
            output_type=[str, DeferredToolRequests],
            capabilities=[Tallystick(tally)],
        )

        @outer.tool_plain
        async def ask_clerk(text: str) -> str:
            """Ask the clerk."""
            return (await inner.run(text)).output

        assert isinstance(asyncio.run(outer.run("Hello?")).output, str)


def test_two_capabilities_that_say_the_same_are_one(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        twice = [Tallystick(tally), Tallystick(tally)]
        agent = Agent(TestModel(), capabilities=twice)
        asyncio.run(agent.run("Hello?"))
        assert len(tally.bind().recordings.runs()) == 1
        with pytest.raises(InvalidInput, match="differs"):
            Agent(TestModel(), capabilities=[*twice, Tallystick(tally, actor=ANN)])
        # One that is given to a run replaces that of the agent.
        asyncio.run(agent.run("Hello?", capabilities=[Tallystick(tally, actor=ANN)]))
        assert len(tally.bind(ANN).recordings.runs()) == 1
