"""The instrumentation of LlamaIndex keeps the contract of capture."""

import asyncio
import inspect
from collections.abc import Sequence
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent, base_agent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from pydantic import PrivateAttr
from tests.integrations.llama_scripted import Scripted, calls

from tallystick.records import Json
from tallystick.tally import BoundTally
from tallystick.testing.capture import CaptureContract, Scene
from tallystick_llama_index import TallyInstrumentation

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

SCRIPTS: dict[Scene, list[list[tuple[str, dict[str, Any]]]]] = {
    "text": [],
    "parallel tools": [[("double", {"value": 1}), ("double", {"value": 2})]],
    "error": [[("divide", {"value": 0})]],
    "retry": [[("flaky", {"value": 1})], [("flaky", {"value": 1})]],
    "streaming": [],
    "nested agent": [[("expert", {"question": "How much?"})]],
    "approval": [[("erase", {"value": 1})]],
}


class Playing(Scripted):
    """Asks for the tools of its scene, one turn for each answer of tools, then says `It is 42.`"""

    _turns: Any = PrivateAttr()

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._turns = SCRIPTS[scene]

    def says(self, messages: Sequence[ChatMessage]) -> ChatMessage:
        answered = {message.additional_kwargs.get("tool_call_id") for message in messages}
        for turn, request in enumerate(self._turns):
            keys = [f"c{turn}{place}" for place in range(len(request))]
            if not answered.issuperset(keys):
                return calls(
                    *(
                        (key, name, arguments)
                        for key, (name, arguments) in zip(keys, request, strict=True)
                    )
                )
        return ChatMessage(role="assistant", content="It is 42.")


def _event(kind: Any, **fields: Any) -> Any:
    """An event; its fields are its own, which types do not know."""
    return kind(**fields)


def _tools() -> list[Any]:
    tries: list[int] = []

    async def double(value: int) -> int:
        """Twice the value."""
        return value * 2

    async def divide(value: int) -> float:
        """One by the value."""
        return 1 / value

    async def flaky(value: int) -> int:
        """The value, at the second try."""
        tries.append(value)
        if len(tries) == 1:
            raise ValueError("try again")
        return value

    async def expert(question: str) -> str:
        """Ask another agent."""
        return str(
            await FunctionAgent(tools=[], llm=Playing("text"), streaming=False).run(question)
        )

    async def erase(ctx: Context, value: int) -> str:
        """Erase something, if a person agrees."""
        event = await ctx.wait_for_event(
            HumanResponseEvent,
            waiter_id="sure",
            waiter_event=_event(InputRequiredEvent, prefix="Erase?"),
            timeout=60,
        )
        return f"gone: {event.response}"

    return [
        FunctionTool.from_defaults(async_fn=function)
        for function in (double, divide, flaky, expert, erase)
    ]


WAITS = "WaitingForEvent" in inspect.getsource(base_agent)
"""Whether a tool of an agent may wait: early releases take it for an error of the tool."""


class TestInstrumentation(CaptureContract):
    @pytest.mark.skipif(
        not WAITS, reason="this release of LlamaIndex does not let tools of agents wait"
    )
    def test_a_person_is_asked(self, open_tally: Any) -> None:
        super().test_a_person_is_asked(open_tally)

    def play(self, bound: BoundTally, scene: Scene) -> None:
        with TallyInstrumentation(bound, strict=True):
            asyncio.run(self._play(scene))

    async def _play(self, scene: Scene) -> None:
        agent = FunctionAgent(tools=_tools(), llm=Playing(scene), streaming=scene == "streaming")
        running = agent.run("How much?")
        async for event in running.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert running.ctx is not None
                running.ctx.send_event(_event(HumanResponseEvent, response="yes"))
        await running

    def answer_text(self, response: Json) -> str:
        assert isinstance(response, dict)
        answer: Any = response["answer"]
        return str(answer["blocks"][0]["text"])
