"""Tapes of what only LlamaIndex has: models without an agent, query engines, tools with a context;
test_runtime_tapes.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.llms import MockLLM
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.tools import AsyncBaseTool, FunctionTool, ToolMetadata, ToolOutput
from llama_index.core.workflow import Context
from pydantic import BaseModel
from tests.integrations.llama_scripted import Scripted
from tests.integrations.runtimes.base import Question, Script, Turn, call, player_of
from tests.integrations.runtimes.llama_index import TOOLS_WAIT, LlamaIndex

from tallystick import Tally
from tallystick.errors import TapeDiverged
from tallystick.recorder import Player
from tallystick_llama_index import TallyInstrumentation, TallyRetriever, TapeLLM, tape_tools

OpenTally = Callable[..., Tally]
WEIGH = [call("weigh", what="tea")]

# LlamaIndex's agents look at every attribute of their pydantic selves, deprecated ones too.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


async def weigh(what: str) -> dict[str, Any]:
    """Weigh something."""
    return {"what": what, "tons": 3}


def test_an_agent_that_calls_otherwise_is_told_so_when_it_goes_on(open_sqlite: OpenTally) -> None:
    class _Careless(TapeLLM):
        """Calls for something else than the tape says."""

        def get_tool_calls_from_response(self, *args: Any, **kwargs: Any) -> list[ToolSelection]:
            return [
                selection.model_copy(update={"tool_kwargs": {"what": "coffee"}})
                for selection in super().get_tool_calls_from_response(*args, **kwargs)
            ]

    with open_sqlite() as tally:
        LlamaIndex().run(Script(WEIGH, "Heavy."), [weigh], recorded=tally)
        player = player_of(tally)

    async def ask() -> None:
        careless = cast(Any, _Careless)(player)
        tools: Any = tape_tools(player, [weigh])
        agent = FunctionAgent(
            name="weigher",
            llm=careless,
            tools=tools,
            system_prompt="You weigh things.",
            streaming=False,
        )
        await agent.run("How heavy?")

    # The agent takes the error for that of the tool.
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one") as caught:
        asyncio.run(ask())
    assert {'-    "what": "tea"', '+    "what": "coffee"'} <= set(caught.value.diff)


class Lookup(AsyncBaseTool):
    """A tool that is no function."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata("Look something up.", name="lookup")

    def call(self, input: Any) -> ToolOutput:
        return ToolOutput(
            "lookup",
            blocks=[TextBlock(text=f"{input}:"), TextBlock(text="found")],
            raw_input={"input": input},
        )

    async def acall(self, input: Any) -> ToolOutput:
        return self.call(input)


async def note(ctx: Context, text: str) -> str:
    """Note it."""
    return f"noted {text} in {type(ctx).__name__}"


# LlamaIndex looks for the class itself, which is text in this module.
note.__annotations__ = {"ctx": Context, "text": str, "return": str}


@pytest.mark.parametrize(
    ("tool", "turn"),
    [(note, [call("note", text="tea")]), (Lookup(), [call("lookup", input="tea")])],
    ids=["with the context", "no function"],
)
def test_tools_of_each_kind_run_or_are_played(
    open_sqlite: OpenTally, tool: Any, turn: Turn
) -> None:
    with open_sqlite() as tally:
        recorded = LlamaIndex().run(Script(turn, "Done."), [tool], recorded=tally)
        played, real = player_of(tally), player_of(tally)
    assert recorded.tools in ([("noted tea in Context", False)], [("tea:\nfound", False)])
    for player, safe in ((played, set()), (real, {"note" if tool is note else "lookup"})):
        assert LlamaIndex().run(None, [tool], player=player, safe=safe).tools == recorded.tools
        assert player.finish().matches


def test_models_are_asked_without_an_agent_too(open_sqlite: OpenTally) -> None:
    say = [ChatMessage("Say it.")]

    def ask(llm: Any, tools: list[Any]) -> list[Any]:
        return [
            llm.chat(say).message.content,
            [piece.message.content for piece in llm.stream_chat(say)][-1],
            llm.complete("Say it.").text,
            asyncio.run(llm.acomplete("Say more.")).text,
            llm.predict_and_call(tools, "How heavy?").sources[0].raw_output,
        ]

    with open_sqlite() as tally:
        with tally.bind().run("caller") as run, run.active():
            model = Scripted("heron", "stork", "crane", "rook", WEIGH)
            with TallyInstrumentation(tally, strict=True):
                answers = ask(model, [FunctionTool.from_defaults(async_fn=weigh)])
        player, streamed = (tally.recordings.player(run.id) for _ in range(2))
    assert answers == ["heron", "stork", "crane", "rook", {"what": "tea", "tons": 3}]
    assert ask(TapeLLM(player), [*tape_tools(player, [weigh])]) == answers
    assert player.finish().matches
    silent = TapeLLM(streamed)
    assert [silent.chat(say).message.content for _ in range(2)] == answers[:2]
    assert [piece.text for piece in silent.stream_complete("Say it.")][-1] == "crane"


def test_a_query_engine_is_played_and_its_retrieval_is_real(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        tally.bind().remember("The heron nests in March.", speaker="Ada")

        def ask(llm: Any) -> str:
            engine = RetrieverQueryEngine.from_args(TallyRetriever(tally), llm=llm)
            return str(engine.query("When?"))

        with TallyInstrumentation(tally, strict=True):
            answer = ask(MockLLM())
        same, other = player_of(tally), player_of(tally)
        assert ask(TapeLLM(same)) == answer
        assert same.finish().matches
        tally.bind().remember("The heron nests again in June.")
        with pytest.raises(TapeDiverged):
            ask(TapeLLM(other))


class Weight(BaseModel):
    """An answer."""

    tons: int


def test_structured_output_is_played(open_sqlite: OpenTally) -> None:
    prompt = PromptTemplate("How heavy is {what}?")
    with open_sqlite() as tally:
        with TallyInstrumentation(tally, strict=True):
            model = Scripted([call("Weight", tons=3)])
            assert model.structured_predict(Weight, prompt, what="tea") == Weight(tons=3)
        player = player_of(tally)
    assert TapeLLM(player).structured_predict(Weight, prompt, what="tea") == Weight(tons=3)
    assert player.finish().matches


def test_a_retry_is_played_as_it_went(open_sqlite: OpenTally) -> None:
    def patient(model: FunctionCallingLLM) -> str:
        for _ in range(2):
            try:
                return str(model.chat([ChatMessage("Say it.")]).message.content)
            except ConnectionError:
                continue
        raise AssertionError

    with open_sqlite() as tally:
        watching = TallyInstrumentation(tally, strict=True)
        with tally.bind().run("caller") as run, run.active(), watching:
            assert patient(Scripted(ConnectionError("no route"), "heron")) == "heron"
        player = tally.recordings.player(run.id)
    assert patient(TapeLLM(player)) == "heron"
    assert player.finish().matches


def test_agents_that_hand_over_to_one_another_are_played(open_sqlite: OpenTally) -> None:
    def ask(first: FunctionCallingLLM, second: FunctionCallingLLM, tools: Sequence[Any]) -> str:
        boss = FunctionAgent(
            name="boss", description="Decides.", llm=first, can_handoff_to=["clerk"]
        )
        clerk = FunctionAgent(name="clerk", description="Weighs.", llm=second, tools=list(tools))

        async def run() -> str:
            return str(await AgentWorkflow(agents=[boss, clerk], root_agent="boss").run("How?"))

        return asyncio.run(run())

    with open_sqlite() as tally:
        over = Scripted([call("handoff", to_agent="clerk", reason="It can weigh.")])
        with TallyInstrumentation(tally, strict=True):
            answer = ask(over, Scripted(WEIGH, "Three tons."), [weigh])
        player = player_of(tally)
    assert ask(TapeLLM(player), TapeLLM(player), tape_tools(player, [weigh])) == answer
    assert player.finish().matches


@pytest.mark.skipif(
    not TOOLS_WAIT, reason="this release of LlamaIndex does not let tools of agents wait"
)
def test_a_tool_that_waits_for_a_person_is_played_with_the_answer_or_asks_again(
    open_sqlite: OpenTally,
) -> None:
    questions: list[Question] = []

    def agree(question: Question) -> bool:
        questions.append(question)
        return True

    def play(player: Player, *safe: str) -> Any:
        return runtime.run(None, [erase], player=player, safe=safe, answers=agree).tools

    runtime = LlamaIndex()
    erase = runtime.patient_tool()
    with open_sqlite() as tally:
        script = Script([call("erase", value=7)], "Paid.")
        recorded = runtime.run(script, [erase], recorded=tally, answers=agree)
        played, real = player_of(tally), player_of(tally)
    assert len(questions) == 1
    assert play(played) == recorded.tools == [("erased 7: yes", False)]
    assert played.finish().matches
    assert len(questions) == 1
    assert play(real, "erase") == recorded.tools
    assert real.finish().matches
    assert len(questions) == 2


def test_with_like_whether_calls_run_side_by_side_is_compared(open_sqlite: OpenTally) -> None:
    serial = {"more": {"allow_parallel_tool_calls": False}}
    with open_sqlite() as tally:
        LlamaIndex().run(Script(WEIGH, "Heavy."), [weigh], recorded=tally, temperature=0.5)
        like, unlike = player_of(tally), player_of(tally)
    with pytest.raises(TapeDiverged, match='"parallel_tool_calls": false'):
        LlamaIndex().run(None, [weigh], player=like, temperature=0.5, **serial)
    LlamaIndex().run(None, [weigh], player=unlike, **serial)
    assert unlike.finish().matches
