"""The observers of each runtime keep the contract of capture."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from tests.integrations.runtimes.base import Call, Runtime, Script, call
from tests.integrations.runtimes.langchain import LangChain, LangGraph
from tests.integrations.runtimes.llama_index import TOOLS_WAIT, LlamaIndex
from tests.integrations.runtimes.openai_agents import OpenAIAgents
from tests.integrations.runtimes.pydantic_ai import PydanticAI

from tallystick.records import Json
from tallystick.tally import BoundTally
from tallystick.testing.capture import CaptureContract, Scene

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


@pytest.fixture
def open_tally(open_sqlite: Any) -> Any:
    """The store of the contract, on SQLite or on PostgreSQL."""
    return open_sqlite


class _Played(CaptureContract):
    runtime: ClassVar[Runtime]
    stream: ClassVar[Runtime]

    def options(self, bound: BoundTally) -> dict[str, Any]:
        """Return what observes an agent."""
        return {"recorded": bound}

    def play(self, bound: BoundTally, scene: Scene) -> None:
        runtime = self.stream if scene == "streaming" else self.runtime
        tries: list[int] = []

        def double(value: int) -> int:
            """Twice the value."""
            return value * 2

        def divide(value: int) -> float:
            """One by the value."""
            return 1 / value

        def flaky(value: int) -> int:
            """The value, at the second try."""
            tries.append(value)
            if len(tries) == 1:
                raise runtime.tool_error("try again")
            return value

        options = self.options(bound)
        # A handler is inherited, a middleware is not.
        inner = {} if runtime.inherits and "ruled" not in options else options
        expert = type(runtime)().expert(Script("It is 42."), [], **inner)
        called = {each.name for turn in SCENES[scene] for each in turn}
        tools = [double, divide, flaky, expert, runtime.patient_tool()]
        runtime.run(
            Script(*SCENES[scene], "It is 42."),
            [tool for tool in tools if tool.__name__ in called],
            prompt="How much?",
            answers=lambda question: True,
            **options,
        )

    def answer_text(self, response: Json) -> str:
        assert isinstance(response, dict)
        return self.runtime.text_in(response["answer"])


class TestLangChainHandler(_Played):
    runtime, stream = LangChain(), LangChain("stream")


class TestHandlerOnGraph(_Played):
    runtime, stream = LangGraph(), LangGraph("stream")


class TestLangChainMiddleware(TestLangChainHandler):
    sees_chunks = False

    def options(self, bound: BoundTally) -> dict[str, Any]:
        return {"recorded": bound, "ruled": bound}


class TestLangChainMiddlewareWithHandler(TestLangChainMiddleware):
    sees_chunks = True
    runtime, stream = LangChain(watched=True), LangChain("stream", watched=True)


class TestPydanticAI(_Played):
    runtime, stream = PydanticAI(), PydanticAI("run_stream")


class TestOpenAIAgents(_Played):
    runtime, stream = OpenAIAgents(), OpenAIAgents("run_stream")


# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
class TestLlamaIndex(_Played):
    runtime, stream = LlamaIndex(), LlamaIndex("streamed run")

    @pytest.mark.skipif(
        not TOOLS_WAIT, reason="this release of LlamaIndex does not let tools of agents wait"
    )
    def test_a_person_is_asked(self, open_tally: Any) -> None:
        super().test_a_person_is_asked(open_tally)
