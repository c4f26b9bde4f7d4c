"""PydanticAI's harness: its capabilities beside ours, in both orders."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai_harness import Planning, SubAgents
from pydantic_ai_harness.subagents import SubAgent
from tests.peers.packages.common import opened_tally, promise, steps_of, verifies

from tallystick_pydantic_ai import Tallystick


def _delegate(messages: Any, info: Any) -> ModelResponse:
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse([TextPart("By the window.")])
    [tool] = [tool for tool in info.function_tools if "agent_name" in str(tool)]
    arguments = {"agent_name": "researcher", "task": "Which seats are there?"}
    return ModelResponse([ToolCallPart(tool.name, arguments)])


def _answer(messages: Any, info: Any) -> ModelResponse:
    return ModelResponse([TextPart("Aisle and window.")])


def main() -> None:
    with opened_tally() as tally:
        model, other_model = FunctionModel(_delegate), FunctionModel(_answer)
        # recipe
        researcher = Agent(other_model, name="researcher", description="Looks things up.")
        agent = Agent(
            model,
            name="clerk",
            capabilities=[
                Planning(),
                SubAgents(agents=[SubAgent(researcher)], shared_capabilities=[Tallystick(tally)]),
                Tallystick(tally, capture="both"),
            ],
        )
        # end
        turned = Agent(
            model,
            name="clerk",
            capabilities=[
                Tallystick(tally, capture="both"),
                SubAgents(agents=[SubAgent(researcher)], shared_capabilities=[Tallystick(tally)]),
                Planning(),
            ],
        )
        asyncio.run(_ask(agent))
        view = tally.bind()
        first = steps_of(view)
        promise(
            "The steps of a subagent that shares the capability are below `delegate_task`.",
            (view.recordings.runs()[0].status, "completed"),
            (
                [(kind, parent) for kind, _, parent, _ in first],
                [
                    ("model_call", None),
                    ("tool_call", None),
                    ("model_call", "delegate_task"),
                    ("model_call", None),
                ],
            ),
        )
        promise(
            "The question and the answer are captured once.",
            (
                [turn.content for turn in view.memories(kinds=["turn"])][::-1],
                ["Which seat is best?", "By the window."],
            ),
        )
        asyncio.run(_ask(turned))
        promise(
            "The order of the capabilities makes no difference.",
            (steps_of(view), first),
            (len(view.recordings.runs()), 2),
            verifies(view),
        )


async def _ask(agent: Any) -> None:
    assert (await agent.run("Which seat is best?")).output == "By the window."


main()
