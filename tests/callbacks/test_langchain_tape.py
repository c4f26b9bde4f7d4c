"""Tapes of what only LangChain and LangGraph have: middleware, completions, tools with more than
arguments; tests/integrations/test_runtime_tapes.py holds the facts of every runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ModelRetryMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel, FakeListLLM
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException, tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition
from langgraph.types import Command
from pydantic import BaseModel
from tests.integrations.runtimes.base import Outcome, Script, call, player_of
from tests.integrations.runtimes.langchain import LangChain, Scripted

from tallystick import Tally
from tallystick.errors import NotReplayable, RecordedFailure, TapeDiverged
from tallystick.recorder import Player
from tallystick_langchain import (
    TallyCallbackHandler,
    TallyMiddleware,
    TapeChatModel,
    TapeLLM,
    tape_tools,
)

OpenTally = Callable[..., Tally]
WEIGH = [call("weigh", what="tea")]
HOW_HEAVY: Any = {"messages": [("user", "How heavy?")]}


@tool
def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 3 tons"


def run(script: Script | None, *tools: BaseTool, **options: Any) -> Outcome:
    return LangChain().run(script, tools, **options)


def test_a_model_that_completes_text_plays_its_tape(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        chain = PromptTemplate.from_template("Weigh {what}.") | FakeListLLM(
            responses=["3 tons", "2 tons"]
        ).bind(stop=["."])
        both: Runnable[Any, Any] = RunnableLambda(_each(chain))
        answer = both.invoke(
            ["tea", "salt"], {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        )
        players = [player_of(tally) for _ in range(4)]

    def again(player: Player, what: list[str], *, stop: str = ".") -> list[str]:
        chain = PromptTemplate.from_template("Weigh {what}.") | TapeLLM(player=player).bind(
            stop=[stop]
        )
        return _each(chain)(what)

    assert again(players[0], ["tea", "salt"]) == answer == ["3 tons", "2 tons"]
    assert players[0].finish().matches
    with pytest.raises(TapeDiverged, match="coal"):
        again(players[1], ["tea", "coal"])
    with pytest.raises(TapeDiverged):
        again(players[2], ["tea"], stop=";")
    with pytest.raises(TapeDiverged):
        TapeChatModel(players[3]).invoke("Weigh tea.")


def test_a_divergence_shows_what_changed_and_what_stands_around_it(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        run(Script("Heavy."), recorded=tally)
        player = player_of(tally)
    with pytest.raises(TapeDiverged) as caught:
        run(None, player=player, system="You guess weights.")
    assert str(caught.value).splitlines()[1:] == [
        "--- recorded",
        "+++ asked now",
        "@@ -3,5 +3,5 @@",
        "     {",
        '       "data": {',
        '-        "content": "You weigh things."',
        '+        "content": "You guess weights."',
        "       },",
        '       "type": "system"',
    ]


def _each(chain: Runnable[Any, str]) -> Callable[[list[str]], list[str]]:
    return lambda what: [chain.invoke({"what": value}) for value in what]


def test_a_tool_that_is_called_otherwise_is_a_divergence_also_where_the_agent_takes_errors(
    open_sqlite: OpenTally,
) -> None:
    ran: list[str] = []

    @tool("weigh")
    def count(what: str) -> str:
        """Weigh something."""
        ran.append(what)
        return f"{what}: 3 tons"

    def ask(model: BaseChatModel, *tools: BaseTool, **config: Any) -> None:
        """Ask an agent of its own, which makes an error of every failure of a tool."""
        bound = model.bind_tools(tools)
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)

        def answer(state: Any) -> dict[str, Any]:
            return {"messages": [bound.invoke(state["messages"])]}

        graph.add_node("model", answer)
        graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        settings: Any = config
        graph.compile().invoke(HOW_HEAVY, settings)

    with open_sqlite() as tally:
        ask(
            Scripted(WEIGH, "Heavy."),
            count,
            callbacks=[TallyCallbackHandler(tally, strict=True)],
        )
        same, other, stubbed = (player_of(tally) for _ in range(3))
    ask(TapeChatModel(same), *tape_tools(same, [count]))
    assert same.finish().matches

    class _Careless(TapeChatModel):
        """Calls for something else than the tape says."""

        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            result = super()._generate(messages, *args, **kwargs)
            message = result.generations[0].message
            if isinstance(message, AIMessage) and message.tool_calls:
                message.tool_calls[0]["args"] = {"what": "coffee"}
            return result

    careless: Any = _Careless
    ran.clear()
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one") as caught:
        ask(careless(other), *tape_tools(other, [count], safe={"weigh"}))
    assert ran == []
    assert {'-    "what": "tea"', '+    "what": "coffee"'} <= set(caught.value.diff)
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one"):
        other.finish()
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one"):
        ask(careless(stubbed), *tape_tools(stubbed, [count]))


def test_a_tool_exception_that_nobody_handles_is_raised_again(open_sqlite: OpenTally) -> None:
    @tool
    def give() -> str:
        """Give it."""
        raise ToolException("not mine")

    with open_sqlite() as tally:
        with pytest.raises(ToolException):
            run(Script([call("give")]), give, recorded=tally)
        player = player_of(tally)
    with pytest.raises(ToolException) as caught:
        run(None, give, player=player)
    assert isinstance(caught.value, RecordedFailure)
    assert player.finish().matches


def test_retries_are_played_as_they_went(open_sqlite: OpenTally) -> None:
    tries: list[str] = []

    @tool
    def fetch(page: int) -> str:
        """Fetch a page."""
        tries.append("real")
        if len(tries) < 3:
            raise ConnectionError("no route")
        return f"page {page}"

    patient: Any = {
        "max_retries": 3,
        "initial_delay": 0.0,
        "jitter": False,
        "retry_on": (ConnectionError,),
    }
    more = {"middleware": [ModelRetryMiddleware(**patient), ToolRetryMiddleware(**patient)]}
    with open_sqlite() as tally:
        script = Script(ConnectionError("busy"), [call("fetch", page=7)], "Fetched.")
        assert run(script, fetch, recorded=tally, more=more).text == "Fetched."
        player = player_of(tally)
    failures = [each.error is not None for each in player.tape.calls]
    assert failures == [True, False, True, True, False, False]
    assert run(None, fetch, player=player, more=more).text == "Fetched."
    assert player.finish().matches
    assert len(tries) == 3


def test_tools_that_are_given_more_than_the_model_says_are_played_without_it(
    open_sqlite: OpenTally,
) -> None:
    @tool(response_format="content_and_artifact")
    def look(
        what: str, runtime: ToolRuntime[Any, Any], key: Annotated[str, InjectedToolCallId]
    ) -> tuple[str, Any]:
        """Look."""
        return f"{what} seen in {len(runtime.state['messages'])} ({key})", {"pixels": [1, 2]}

    with open_sqlite() as tally:
        recorded = run(Script([call("look", what="tea")], "Seen."), look, recorded=tally)
        player = player_of(tally)
    played = run(None, look, player=player)
    assert (played.text, played.tools) == (recorded.text, recorded.tools)
    message = played.native["messages"][2]
    assert isinstance(message, ToolMessage)
    assert (message.artifact, message.name) == ({"pixels": [1, 2]}, "look")
    assert f"({message.tool_call_id})" in message.text
    assert player.finish().matches


def test_a_tool_that_changes_the_graph_must_be_safe(open_sqlite: OpenTally) -> None:
    @tool
    def note(text: str, key: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note it."""
        return Command(update={"messages": [ToolMessage(f"noted {text}", tool_call_id=key)]})

    with open_sqlite() as tally:
        recorded = run(Script([call("note", text="tea")], "Noted."), note, recorded=tally)
        player, stubbed = player_of(tally), player_of(tally)
    assert run(None, note, player=player, safe={"note"}).tools == recorded.tools
    assert player.finish().matches
    with pytest.raises(NotReplayable, match=r"the tool note gave no message .* safe=\{'note'\}"):
        run(None, note, player=stubbed)


def test_tools_that_middleware_brings_run_for_real_and_count_where_their_results_were_the_same(
    open_sqlite: OpenTally,
) -> None:
    more = {"middleware": [TodoListMiddleware()]}
    todo = [{"content": "weigh tea", "status": "pending"}]
    with open_sqlite() as tally:
        script = Script([call("write_todos", todos=todo)], WEIGH, "Heavy.")
        recorded = run(script, weigh, recorded=tally, more=more)
        player = player_of(tally)
    assert run(None, weigh, player=player, more=more).tools == recorded.tools
    assert player.finish().matches


class Weight(BaseModel):
    """An answer."""

    tons: int


def test_structured_output_is_played(open_sqlite: OpenTally) -> None:
    def heavier() -> type[BaseModel]:
        class Weight(BaseModel):
            """An answer."""

            tons: int
            sure: bool

        return Weight

    def more(schema: type[BaseModel]) -> dict[str, Any]:
        return {"response_format": ToolStrategy(schema)}

    with open_sqlite() as tally:
        script = Script(WEIGH, [call("Weight", tons=3)])
        run(script, weigh, recorded=tally, more=more(Weight))
        player, other = player_of(tally), player_of(tally)
        state = run(None, weigh, player=player, more=more(Weight), temperature=0.5).native
        assert state["structured_response"] == Weight(tons=3)
        assert player.finish().matches
        with pytest.raises(TapeDiverged, match="The agent left its tape: call 1 is not"):
            run(None, weigh, player=other, more=more(heavier()))

        asks = Scripted([call("Weight", tons=4)]).with_structured_output(Weight, include_raw=True)
        asks.invoke("How heavy?", {"callbacks": [TallyCallbackHandler(tally, strict=True)]})
        for like in (None, Scripted()):
            player = player_of(tally)
            model = TapeChatModel(player, like=like)
            result = model.with_structured_output(Weight, include_raw=True).invoke("How heavy?")
            assert isinstance(result, dict)
            assert result["parsed"] == Weight(tons=4)
            assert player.finish().matches


def test_with_like_the_name_of_the_model_is_compared(open_sqlite: OpenTally) -> None:
    def ask(model: BaseChatModel, **config: Any) -> None:
        settings: Any = config
        create_agent(model).invoke(HOW_HEAVY, settings)

    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        ask(Scripted("I cannot say.", temperature=1.0), callbacks=[handler])
        other, unlike = player_of(tally), player_of(tally)
    like = Scripted(model_name="scripted-2", temperature=1.0)
    with pytest.raises(TapeDiverged, match=r'\+  "model": "scripted-2"'):
        ask(TapeChatModel(other, like=like))
    ask(TapeChatModel(unlike))
    assert unlike.finish().matches


def test_what_middleware_and_handler_record_together_plays_alike(open_sqlite: OpenTally) -> None:
    both = LangChain(watched=True)
    with open_sqlite() as tally:
        bound = tally.bind()
        bound.remember("Tea weighs three tons.")
        options: Any = {"tools": [weigh], "prompt": "How heavy is tea?", "remembering": bound}
        recorded = both.run(Script(WEIGH, "Three tons."), recorded=bound, **options)
        player = player_of(tally)
        played = both.run(player=player, temperature=0.5, **options)
        assert (played.text, played.tools) == (recorded.text, recorded.tools)
        assert player.finish().matches
        # A replay may be recorded itself, and its tape is the same one.
        both.run(player=player_of(tally), temperature=0.5, recorded=bound, **options)
        first, second = (tally.recordings.tape(run.id) for run in bound.recordings.runs()[:2])
        assert [each.kind for each in first.calls] == [each.kind for each in second.calls]
        player = Player(first)
        both.run(player=player, **options)
        assert player.finish().matches


def test_a_budget_that_came_from_the_models_profile_is_the_same_with_like(
    open_sqlite: OpenTally,
) -> None:
    small: Any = {"profile": {"max_input_tokens": 400}}
    notes = [HumanMessage(f"Note {n}: {'word ' * 40}") for n in range(20)]

    def ask(model: BaseChatModel, tally: Tally, **options: Any) -> None:
        agent: Any = create_agent(model, middleware=[TallyMiddleware(tally, **options)])
        agent.invoke({"messages": [*notes, HumanMessage("How heavy?")]})

    with open_sqlite() as tally:
        ask(Scripted("Noted.", **small), tally)
        same, larger = player_of(tally), player_of(tally)
        ask(TapeChatModel(same, like=Scripted(**small)), tally, record=False)
        assert same.finish().matches
        with pytest.raises(
            TapeDiverged, match=r"of `messages` 1 missing and 1. not recorded, with memories"
        ):
            ask(TapeChatModel(larger), tally, record=False)
