"""The adapter of ADK keeps the contracts of effects, of capture and of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types
from tests.integrations.adk.runtime import ADK
from tests.integrations.runtimes.base import Call, Script, call

from tallystick.errors import Conflict, Denied
from tallystick.records import Json
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick.testing.capture import CaptureContract, Scene
from tallystick.testing.request_contract import (
    ANSWERS,
    PLACE,
    PROMPTS,
    SYSTEM,
    TOOL_NAME,
    RequestContract,
    depth,
)
from tallystick_adk import TallyMemoryService


@pytest.fixture
def open_tally(open_sqlite: Any) -> Any:
    """The store of the contract, on SQLite or on PostgreSQL."""
    return open_sqlite


def double(value: int) -> int:
    """Twice the value."""
    return value * 2


class TestEffects(AdapterContract):
    verbs = frozenset({"context", "model_call", "tool_call"})

    def context(self, bound: BoundTally, query: str) -> str:
        script = Script("So.")
        ADK().run(script, prompt=query, remembering=bound)
        return script.sent[0]

    def model_call(self, bound: BoundTally, prompt: str, answer: str) -> None:
        assert ADK().run(Script(answer), prompt=prompt, recorded=bound).text == answer

    def tool_call(self, bound: BoundTally, value: int) -> None:
        ADK().run(Script([call("double", value=value)], "So."), [double], recorded=bound)


class TestMemoryEffects(AdapterContract):
    verbs = frozenset({"recall", "forget"})

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        named: Any = {"app_name": "desk", "user_id": bound.actor.user}
        service = TallyMemoryService(bound)
        try:
            found = asyncio.run(service.search_memory(query=query, **named))
        except Denied:
            return []
        return [str(each.id) for each in found.memories]

    def remember(self, bound: BoundTally, content: str) -> None:
        entry = MemoryEntry(content=types.Content(parts=[types.Part(text=content)]))
        named: Any = {"app_name": "desk", "user_id": bound.actor.user}
        asyncio.run(TallyMemoryService(bound).add_memory(memories=[entry], **named))

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        named: Any = {"app_name": "desk", "user_id": bound.actor.user}
        try:
            asyncio.run(TallyMemoryService(bound).delete_memory(memory_id=memory_id, **named))
        except Conflict:
            return


SCENES: dict[Scene, list[list[Call]]] = {
    "text": [],
    "parallel tools": [[call("double", value=1), call("double", value=2)]],
    "error": [[call("divide", value=0)]],
    "retry": [[call("flaky", value=1)], [call("flaky", value=1)]],
    "streaming": [],
    "nested agent": [[call("expert", question="How much?")]],
    "approval": [[call("erase", value=1)]],
}
"""What the model asks for, turn by turn; then it says that it is 42."""


class TestCapture(CaptureContract):
    def play(self, bound: BoundTally, scene: Scene) -> None:
        runtime = ADK("run_async streamed" if scene == "streaming" else "run_async")
        tries: list[int] = []

        def divide(value: int) -> float:
            """One by the value."""
            return 1 / value

        def flaky(value: int) -> int:
            """The value, at the second try."""
            tries.append(value)
            if len(tries) == 1:
                raise runtime.tool_error("try again")
            return value

        expert = ADK().expert(Script("It is 42."), [], recorded=bound)
        called = {each.name for turn in SCENES[scene] for each in turn}
        tools = [double, divide, flaky, expert, runtime.patient_tool()]
        runtime.run(
            Script(*SCENES[scene], "It is 42."),
            [tool for tool in tools if tool.__name__ in called],
            prompt="How much?",
            answers=lambda question: True,
            recorded=bound,
        )

    def answer_text(self, response: Json) -> str:
        assert isinstance(response, dict)
        return ADK().text_in(response["answer"])


class TestRequests(RequestContract):
    runtime: ClassVar[ADK] = ADK()

    def play(self, bound: BoundTally) -> None:
        turns = [[call(TOOL_NAME, place=PLACE)] if words is None else words for words in ANSWERS]
        self.runtime.run(
            Script(*turns),
            [depth],
            system=SYSTEM,
            earlier=PROMPTS[:-1],
            prompt=PROMPTS[-1],
            recorded=bound,
            remembering=bound,
        )


class TestStreamedRequests(TestRequests):
    runtime = ADK("run_async streamed")
