"""Agents of LangChain and LangGraph run again on their tape: the same requests match, others show
in a diff.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelRetryMiddleware,
    TodoListMiddleware,
    ToolRetryMiddleware,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, FakeListLLM
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCallChunk,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime, tools_condition
from langgraph.types import Command, interrupt
from pydantic import BaseModel, field_validator

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput, NotReplayable, RecordedFailure, TapeDiverged
from tallystick.recorder import Player
from tallystick.tally import BoundTally
from tallystick_langchain import (
    TallyCallbackHandler,
    TallyMiddleware,
    TapeChatModel,
    TapeLLM,
    tape_tools,
)

OpenTally = Callable[..., Tally]
Build = Callable[[BaseChatModel, list[BaseTool]], Any]
ANNA = Actor(user="anna")
KEY, OTHER_KEY = (f"sk-proj-{letter * 40}A1b2" for letter in "ab")


class Scripted(BaseChatModel):
    """Says what its script says next; a model with a name and a temperature, that streams in
    words.
    """

    script: Any = None
    model_name: str = "scripted-1"
    temperature: float = 0.5

    def __init__(self, *script: AIMessage | str | Exception, **fields: Any) -> None:
        super().__init__(**{"script": iter(script), **fields})

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name, "temperature": self.temperature}

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _next(self) -> AIMessage:
        reply = next(self.script)
        if isinstance(reply, Exception):
            raise reply
        return AIMessage(reply) if isinstance(reply, str) else reply

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next())])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._next()
        for place, call in enumerate(reply.tool_calls):
            said_so = json.dumps(call["args"])
            chunk = ToolCallChunk(
                name=call["name"], args=said_so, id=call["id"], index=place, type="tool_call_chunk"
            )
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
        for word in str(reply.text).split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))


def _calls(*calls: tuple[str, dict[str, Any]]) -> AIMessage:
    tool_calls = [
        {"name": name, "args": args, "id": f"call_{n}_{name}"}
        for n, (name, args) in enumerate(calls)
    ]
    return AIMessage("", tool_calls=tool_calls)


class Scale:
    """Tools that say how often they really ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

        @tool
        def weigh(what: str) -> str:
            """Weigh something."""
            self.ran.append(f"weigh {what}")
            return f"{what}: 3 tons"

        @tool
        def lift(what: str) -> str:
            """Lift something."""
            self.ran.append(f"lift {what}")
            raise ToolException(f"{what} is too heavy")

        lift.handle_tool_error = True
        self.tools: list[BaseTool] = [weigh, lift]


def _ask(agent: Any, text: str = "How heavy is tea?", **config: Any) -> list[str]:
    answer = agent.invoke({"messages": [("user", text)]}, config=config or None)
    return [str(message.content) for message in answer["messages"]]


def _recorded(
    tally: Tally | BoundTally,
    build: Build,
    model: BaseChatModel,
    tools: list[BaseTool],
    text: str = "How heavy?",
) -> list[str]:
    """What the agent says, recorded by the handler."""
    return _ask(build(model, tools), text, callbacks=[TallyCallbackHandler(tally, strict=True)])


def _player(bound: Tally | BoundTally, **options: Any) -> Player:
    view = bound.bind() if isinstance(bound, Tally) else bound
    return view.recordings.player(view.runs()[0].run_id, **options)


def _plain(model: BaseChatModel, tools: list[BaseTool]) -> Any:
    return create_agent(model, tools, system_prompt="You weigh things.")


@pytest.mark.smoke
def test_an_agent_runs_again_on_its_tape_and_no_tool_is_run(open_tally: OpenTally) -> None:
    scale = Scale()
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        model = Scripted(
            _calls(("weigh", {"what": "tea"}), ("lift", {"what": "ship"})),
            "Three tons, and too heavy.",
        )
        answer = _recorded(anna, _plain, model, scale.tools)
        assert set(scale.ran) == {"weigh tea", "lift ship"}
        player = _player(anna)

    again = _ask(_plain(TapeChatModel(player), tape_tools(player, scale.tools)), "How heavy?")
    assert again == answer
    assert "ship is too heavy" in again
    assert len(scale.ran) == 2
    report = player.finish()
    assert (report.fidelity, report.calls, report.matches) == ("exact", 4, True)


def test_a_model_that_completes_text_plays_its_tape(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        chain = PromptTemplate.from_template("Weigh {what}.") | FakeListLLM(
            responses=["3 tons", "2 tons"]
        ).bind(stop=["."])
        both: Runnable[Any, Any] = RunnableLambda(_each(chain))
        answer = both.invoke(
            ["tea", "salt"], {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        )
        asks = [_player(tally) for _ in range(4)]

    def again(player: Player, what: list[str], *, stop: str = ".") -> list[str]:
        chain = PromptTemplate.from_template("Weigh {what}.") | TapeLLM(player=player).bind(
            stop=[stop]
        )
        return _each(chain)(what)

    assert again(asks[0], ["tea", "salt"]) == answer == ["3 tons", "2 tons"]
    assert asks[0].finish().matches
    with pytest.raises(TapeDiverged, match="coal"):
        again(asks[1], ["tea", "coal"])
    with pytest.raises(TapeDiverged):
        again(asks[2], ["tea"], stop=";")
    with pytest.raises(TapeDiverged):
        TapeChatModel(asks[3]).invoke("Weigh tea.")


def _each(chain: Runnable[Any, str]) -> Callable[[list[str]], list[str]]:
    def invoke(what: list[str]) -> list[str]:
        return [chain.invoke({"what": value}) for value in what]

    return invoke


def test_the_same_without_threads(open_sqlite: OpenTally) -> None:
    scale = Scale()

    async def ask(agent: Any, **config: Any) -> list[str]:
        answer = await agent.ainvoke({"messages": [("user", "How heavy?")]}, config=config or None)
        return [str(message.content) for message in answer["messages"]]

    with open_sqlite() as tally:
        model = Scripted(_calls(("weigh", {"what": "tea"}), ("lift", {"what": "ship"})), "Heavy.")
        handler = TallyCallbackHandler(tally, strict=True)
        recorded_answer = asyncio.run(ask(_plain(model, scale.tools), callbacks=[handler]))
        player = _player(tally)
    assert (
        asyncio.run(ask(_plain(TapeChatModel(player), tape_tools(player, scale.tools))))
        == recorded_answer
    )
    assert player.finish().matches
    assert len(scale.ran) == 2


def test_a_changed_system_prompt_is_a_divergence_with_a_diff(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        _recorded(tally, _plain, Scripted("I cannot say."), scale.tools)
        player = _player(tally)
    changed = create_agent(
        TapeChatModel(player), tape_tools(player, scale.tools), system_prompt="You guess weights."
    )
    with pytest.raises(TapeDiverged) as caught:
        _ask(changed, "How heavy?")
    step_id = player.tape.calls[0].step_id
    assert str(caught.value).splitlines() == [
        f"The agent left its tape: call 1 is not the recorded one (model call scripted-1, step "
        f"{step_id[-8:]}).",
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


def test_a_tool_whose_description_changed_is_a_divergence(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        _recorded(tally, _plain, Scripted("I cannot say."), scale.tools)
        player = _player(tally)
    scale.tools[0].description = "Weigh it on the big scale."
    with pytest.raises(TapeDiverged, match="The agent left its tape: call 1 is not"):
        _ask(_plain(TapeChatModel(player), tape_tools(player, scale.tools)), "How heavy?")


def test_a_tool_that_is_called_otherwise_is_a_divergence_also_where_the_agent_takes_errors(
    open_sqlite: OpenTally,
) -> None:
    def graph(model: BaseChatModel, tools: list[BaseTool]) -> Any:
        """An agent of its own, which makes an error of every failure of a tool."""
        bound = model.bind_tools(tools)
        graph: StateGraph[Any, Any, Any, Any] = StateGraph(MessagesState)

        def ask(state: MessagesState) -> dict[str, Any]:
            return {"messages": [bound.invoke(state["messages"])]}

        graph.add_node("model", ask)
        graph.add_node("tools", ToolNode(tools, handle_tool_errors=True))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        return graph.compile()

    scale = Scale()
    with open_sqlite() as tally:
        _recorded(tally, graph, Scripted(_calls(("weigh", {"what": "tea"})), "Heavy."), scale.tools)
        same, other, stubbed = (_player(tally) for _ in range(3))
    _ask(graph(TapeChatModel(same), tape_tools(same, scale.tools)), "How heavy?")
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
    scale.ran.clear()
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one") as caught:
        _ask(graph(careless(other), tape_tools(other, scale.tools, safe={"weigh"})), "How heavy?")
    assert scale.ran == []
    assert {'-    "what": "tea"', '+    "what": "coffee"'} <= set(caught.value.diff)
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one"):
        other.finish()
    with pytest.raises(TapeDiverged, match="call 2 is not the recorded one"):
        _ask(graph(careless(stubbed), tape_tools(stubbed, scale.tools)), "How heavy?")


def test_an_agent_that_asks_more_or_less_than_its_tape_is_told_so(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        _recorded(
            tally, _plain, Scripted(_calls(("weigh", {"what": "tea"})), "Heavy."), scale.tools
        )
        more, less = _player(tally), _player(tally)
    agent = _plain(TapeChatModel(more), tape_tools(more, scale.tools))
    _ask(agent, "How heavy?")
    with pytest.raises(
        TapeDiverged, match="call 4 asks a model, and the tape holds no such call any more"
    ):
        _ask(agent, "How heavy?")

    agent = create_agent(
        TapeChatModel(less),
        tape_tools(less, scale.tools),
        system_prompt="You weigh things.",
        interrupt_before=["tools"],
        checkpointer=InMemorySaver(),
    )
    _ask(agent, "How heavy?", configurable={"thread_id": "t"})
    with pytest.raises(
        TapeDiverged, match="ended before 2 of 3 recorded calls; the next was tool call weigh"
    ):
        less.finish()


def test_safe_tools_run_for_real_and_are_compared(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        model = Scripted(_calls(("weigh", {"what": "tea"}), ("lift", {"what": "ship"})), "Heavy.")
        answer = _recorded(tally, _plain, model, scale.tools)
        player, other = _player(tally), _player(tally)
        scale.ran.clear()
        assert (
            _ask(
                _plain(TapeChatModel(player), tape_tools(player, scale.tools, safe={"weigh"})),
                "How heavy?",
            )
            == answer
        )
    assert scale.ran == ["weigh tea"]
    assert player.finish().matches

    @tool
    def weigh(what: str) -> str:
        """Weigh something."""
        return f"{what}: 4 tons"

    with pytest.raises(TapeDiverged) as caught:
        _ask(
            _plain(
                TapeChatModel(other), tape_tools(other, [weigh, scale.tools[1]], safe=["weigh"])
            ),
            "How heavy?",
        )
    assert {'-        "content": "tea: 3 tons",', '+        "content": "tea: 4 tons",'} <= set(
        caught.value.diff
    )
    with pytest.raises(InvalidInput, match="sing is not among the tools"):
        tape_tools(other, scale.tools, safe={"sing"})


def test_a_tool_that_raised_raises_again(open_sqlite: OpenTally) -> None:
    @tool
    def fetch() -> str:
        """Fetch it."""
        raise TimeoutError("too slow")

    @tool
    def give() -> str:
        """Give it."""
        raise ToolException("not mine")

    with open_sqlite() as tally:
        for broken, kind in ((fetch, TimeoutError), (give, ToolException)):
            with pytest.raises(kind):
                _recorded(tally, _plain, Scripted(_calls((broken.name, {}))), [broken])
            player = _player(tally)
            with pytest.raises(kind) as caught:
                _ask(_plain(TapeChatModel(player), tape_tools(player, [broken])), "How heavy?")
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

    def build(model: BaseChatModel, tools: list[BaseTool]) -> Any:
        patient: Any = {
            "max_retries": 3,
            "initial_delay": 0.0,
            "jitter": False,
            "retry_on": (ConnectionError,),
        }
        return create_agent(
            model,
            tools,
            middleware=[ModelRetryMiddleware(**patient), ToolRetryMiddleware(**patient)],
        )

    with open_sqlite() as tally:
        model = Scripted(ConnectionError("busy"), _calls(("fetch", {"page": 7})), "Fetched.")
        answer = _recorded(tally, build, model, [fetch])
        player = _player(tally)
    assert [call.error is not None for call in player.tape.calls] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]
    assert _ask(build(TapeChatModel(player), tape_tools(player, [fetch])), "How heavy?") == answer
    assert player.finish().matches
    assert len(tries) == 3


class Count(BaseModel):
    """How many."""

    number: int

    @field_validator("number")
    @classmethod
    def even(cls, number: int) -> int:
        """Only even numbers."""
        if number % 2:
            raise ValueError("it must be even")
        return number


def test_arguments_that_a_schema_refused_are_refused_again(open_sqlite: OpenTally) -> None:
    @tool(args_schema=Count)
    def count(number: int) -> str:
        """Count."""
        return str(number)

    with open_sqlite() as tally:
        model = Scripted(
            _calls(("count", {"number": 3})), _calls(("count", {"number": "4"})), "Four."
        )
        answer = _recorded(tally, _plain, model, [count])
        assert "it must be even" in answer[2]
        player = _player(tally)
    assert _ask(_plain(TapeChatModel(player), tape_tools(player, [count])), "How heavy?") == answer
    assert player.finish().matches


def test_tools_that_are_given_more_than_the_model_says_are_played_without_it(
    open_sqlite: OpenTally,
) -> None:
    @tool(response_format="content_and_artifact")
    def look(
        what: str, runtime: ToolRuntime[Any, Any], call: Annotated[str, InjectedToolCallId]
    ) -> tuple[str, Any]:
        """Look."""
        return f"{what} seen in {len(runtime.state['messages'])} ({call})", {"pixels": [1, 2]}

    with open_sqlite() as tally:
        recorded_answer = _recorded(
            tally, _plain, Scripted(_calls(("look", {"what": "tea"})), "Seen."), [look]
        )
        player = _player(tally)
    agent = _plain(TapeChatModel(player), tape_tools(player, [look]))
    answer = agent.invoke({"messages": [("user", "How heavy?")]})
    assert [message.content for message in answer["messages"]] == recorded_answer
    tool_message = answer["messages"][2]
    assert isinstance(tool_message, ToolMessage)
    assert (tool_message.artifact, tool_message.name, tool_message.tool_call_id) == (
        {"pixels": [1, 2]},
        "look",
        "call_0_look",
    )
    assert player.finish().matches


def test_a_tool_that_changes_the_graph_must_be_safe(open_sqlite: OpenTally) -> None:
    @tool
    def note(text: str, call: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Note it."""
        return Command(update={"messages": [ToolMessage(f"noted {text}", tool_call_id=call)]})

    with open_sqlite() as tally:
        answer = _recorded(
            tally, _plain, Scripted(_calls(("note", {"text": "tea"})), "Noted."), [note]
        )
        player, stubbed = _player(tally), _player(tally)
    assert (
        _ask(_plain(TapeChatModel(player), tape_tools(player, [note], safe={"note"})), "How heavy?")
        == answer
    )
    assert player.finish().matches
    with pytest.raises(NotReplayable, match=r"the tool note gave no message .* safe=\{'note'\}"):
        _ask(_plain(TapeChatModel(stubbed), tape_tools(stubbed, [note])), "How heavy?")


def test_tools_that_middleware_brings_run_for_real_and_count_where_their_results_were_the_same(
    open_sqlite: OpenTally,
) -> None:
    def build(model: BaseChatModel, tools: list[BaseTool]) -> Any:
        return create_agent(model, tools, middleware=[TodoListMiddleware()])

    scale = Scale()
    with open_sqlite() as tally:
        todo = [{"content": "weigh tea", "status": "pending"}]
        model = Scripted(
            _calls(("write_todos", {"todos": todo})), _calls(("weigh", {"what": "tea"})), "Heavy."
        )
        answer = _recorded(tally, build, model, scale.tools)
        player = _player(tally)
    assert (
        _ask(build(TapeChatModel(player), tape_tools(player, scale.tools)), "How heavy?") == answer
    )
    assert player.finish().matches


def test_a_streamed_run_is_played_streamed_or_not(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        model = Scripted(_calls(("weigh", {"what": "tea"})), "It weighs three tons.")
        handler = TallyCallbackHandler(tally, strict=True)
        inputs: Any = {"messages": [("user", "How heavy?")]}
        list(
            _plain(model, scale.tools).stream(
                inputs, stream_mode="messages", config={"callbacks": [handler]}
            )
        )
        players = [_player(tally) for _ in range(3)]

    def agent(player: Player) -> Any:
        return _plain(TapeChatModel(player), tape_tools(player, scale.tools))

    assert _ask(agent(players[0]), "How heavy?")[1:] == [
        "",
        "tea: 3 tons",
        "It weighs three tons. ",
    ]
    streamed = [chunk for chunk, _ in agent(players[1]).stream(inputs, stream_mode="messages")]
    assert (
        "".join(str(chunk.content) for chunk in streamed if chunk.type != "tool")
        == "It weighs three tons. "
    )

    async def events() -> list[str]:
        return [
            event["event"] async for event in agent(players[2]).astream_events(inputs, version="v2")
        ]

    assert {"on_chat_model_stream", "on_tool_end"} <= set(asyncio.run(events()))
    assert all(player.finish().matches for player in players)
    assert scale.ran == ["weigh tea"]


class Weight(BaseModel):
    """An answer."""

    tons: int


def test_structured_output_is_played(open_sqlite: OpenTally) -> None:
    def build(model: BaseChatModel, tools: list[BaseTool]) -> Any:
        return create_agent(model, tools, response_format=ToolStrategy(Weight))

    def heavier(model: BaseChatModel, tools: list[BaseTool]) -> Any:
        class Weight(BaseModel):
            """An answer."""

            tons: int
            sure: bool

        return create_agent(model, tools, response_format=ToolStrategy(Weight))

    scale = Scale()
    with open_sqlite() as tally:
        model = Scripted(_calls(("weigh", {"what": "tea"})), _calls(("Weight", {"tons": 3})))
        _recorded(tally, build, model, scale.tools)
        player, other = _player(tally), _player(tally)
        answer = build(
            TapeChatModel(player, like=Scripted()), tape_tools(player, scale.tools)
        ).invoke({"messages": [("user", "How heavy?")]})
        assert answer["structured_response"] == Weight(tons=3)
        assert player.finish().matches
        with pytest.raises(TapeDiverged, match="The agent left its tape: call 1 is not"):
            _ask(heavier(TapeChatModel(other), tape_tools(other, scale.tools)), "How heavy?")

        handler = TallyCallbackHandler(tally, strict=True)
        asks = Scripted(_calls(("Weight", {"tons": 4}))).with_structured_output(
            Weight, include_raw=True
        )
        asks.invoke("How heavy?", config={"callbacks": [handler]})
        for like in (None, Scripted()):
            player = _player(tally)
            result = (
                TapeChatModel(player, like=like)
                .with_structured_output(Weight, include_raw=True)
                .invoke("How heavy?")
            )
            assert isinstance(result, dict)
            assert result["parsed"] == Weight(tons=4)
            assert player.finish().matches


def test_an_agent_that_is_a_tool_is_played_as_one_or_runs_on_the_tape_itself(
    open_sqlite: OpenTally,
) -> None:
    scale = Scale()

    def expert(model: BaseChatModel, tools: list[BaseTool]) -> BaseTool:
        inner = create_agent(model, tools, system_prompt="You are the expert.")

        @tool
        def ask_expert(question: str) -> str:
            """Ask the expert."""
            return _ask(inner, question)[-1]

        return ask_expert

    with open_sqlite() as tally:
        inner = Scripted(_calls(("weigh", {"what": "tea"})), "Three tons.")
        outer = Scripted(
            _calls(("ask_expert", {"question": "tea?"})), "The expert says three tons."
        )
        answer = _recorded(tally, _plain, outer, [expert(inner, scale.tools)])
        played, run = _player(tally), _player(tally)
    assert len(played.tape.calls) == 6
    scale.ran.clear()

    unused = expert(Scripted(), scale.tools)
    assert _ask(_plain(TapeChatModel(played), tape_tools(played, [unused])), "How heavy?") == answer
    assert played.finish().matches

    deep = expert(TapeChatModel(run), tape_tools(run, scale.tools))
    assert (
        _ask(_plain(TapeChatModel(run), tape_tools(run, [deep], safe={"ask_expert"})), "How heavy?")
        == answer
    )
    assert run.finish().matches
    assert scale.ran == []


def test_with_like_the_name_and_the_parameters_of_the_model_are_compared(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        _recorded(tally, _plain, Scripted("I cannot say."), [])
        same, warmer, other, unlike = (_player(tally) for _ in range(4))
    _ask(_plain(TapeChatModel(same, like=Scripted()), []), "How heavy?")
    assert same.finish().matches
    with pytest.raises(TapeDiverged, match="call 1 is not the recorded one") as caught:
        _ask(_plain(TapeChatModel(warmer, like=Scripted(temperature=1.0)), []), "How heavy?")
    assert {'-    "temperature": 0.5', '+    "temperature": 1.0'} <= set(caught.value.diff)
    with pytest.raises(TapeDiverged, match=r'\+  "model": "scripted-2"'):
        _ask(_plain(TapeChatModel(other, like=Scripted(model_name="scripted-2")), []), "How heavy?")
    _ask(_plain(TapeChatModel(unlike), []), "How heavy?")
    assert unlike.finish().matches


# With the middleware


def _remembering(bound: BoundTally, **options: Any) -> Build:
    return lambda model, tools: create_agent(
        model,
        tools,
        system_prompt="You weigh things.",
        middleware=[TallyMiddleware(bound, **options)],
    )


def test_memories_in_a_request_match_where_the_same_tally_recalls_them(
    open_tally: OpenTally,
) -> None:
    scale = Scale()
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Anna's tea weighs three tons.")
        build = _remembering(anna)
        answer = _ask(
            build(Scripted(_calls(("weigh", {"what": "tea"})), "Three tons."), scale.tools),
            "How heavy is tea?",
        )
        player, without, elsewhere = (_player(anna) for _ in range(3))
        assert "Anna's tea weighs" in json.dumps(player.tape.calls[0].request)

        replay = _remembering(anna, record=False)
        assert (
            _ask(
                replay(TapeChatModel(player), tape_tools(player, scale.tools)), "How heavy is tea?"
            )
            == answer
        )
        assert player.finish().matches
        assert len(anna.runs()) == 1

        with pytest.raises(TapeDiverged) as caught:
            _ask(
                _plain(TapeChatModel(without), tape_tools(without, scale.tools)),
                "How heavy is tea?",
            )
        assert ": of `messages` 1 missing, with memories that a tally recalled" in caught.value.what
        assert any(
            "Anna's tea weighs three tons" in line
            for line in caught.value.diff
            if line.startswith("-")
        )

        anna.remember("Anna's tea weighs nothing at all.")
        changed = _remembering(anna, record=False)
        with pytest.raises(
            TapeDiverged,
            match="of `messages` there are others, with memories that a tally recalled",
        ):
            _ask(
                changed(TapeChatModel(elsewhere), tape_tools(elsewhere, scale.tools)),
                "How heavy is tea?",
            )


def test_what_middleware_and_handler_record_together_plays_alike(open_sqlite: OpenTally) -> None:
    scale = Scale()
    with open_sqlite() as tally:
        bound = tally.bind()
        bound.remember("Tea weighs three tons.")
        build = _remembering(bound)
        model = Scripted(_calls(("weigh", {"what": "tea"})), "Three tons.")
        answer = _recorded(tally, build, model, scale.tools, "How heavy is tea?")
        player = _player(tally)
        replay = _remembering(bound, record=False)
        again = replay(TapeChatModel(player, like=Scripted()), tape_tools(player, scale.tools))
        assert _ask(again, "How heavy is tea?") == answer
        assert player.finish().matches
        # A replay may be recorded itself, and its tape is the same one.
        player = _player(tally)
        again = build(TapeChatModel(player, like=Scripted()), tape_tools(player, scale.tools))
        _ask(again, "How heavy is tea?", callbacks=[TallyCallbackHandler(tally, strict=True)])
        first, second = (tally.recordings.tape(run.run_id) for run in bound.runs()[:2])
        assert [call.kind for call in first.calls] == [call.kind for call in second.calls]
        player = Player(first)
        _ask(replay(TapeChatModel(player), tape_tools(player, scale.tools)), "How heavy is tea?")
        assert player.finish().matches


def test_a_budget_that_came_from_the_models_profile_is_the_same_with_like(
    open_sqlite: OpenTally,
) -> None:
    small: Any = {"profile": {"max_input_tokens": 400}}
    messages = [HumanMessage(f"Note {n}: {'word ' * 40}") for n in range(20)]
    with open_sqlite() as tally:
        agent = _remembering(tally.bind())(Scripted("Noted.", **small), [])
        agent.invoke({"messages": [*messages, HumanMessage("How heavy?")]})
        same, larger = _player(tally), _player(tally)
        replay = _remembering(tally.bind(), record=False)
        replay(TapeChatModel(same, like=Scripted(**small)), []).invoke(
            {"messages": [*messages, HumanMessage("How heavy?")]}
        )
        assert same.finish().matches
        with pytest.raises(
            TapeDiverged, match=r"of `messages` 1 missing and 1. not recorded, with memories"
        ):
            replay(TapeChatModel(larger), []).invoke(
                {"messages": [*messages, HumanMessage("How heavy?")]}
            )


# What people and retention have to do with it


def test_an_approved_call_is_played_in_the_run_that_was_resumed(open_sqlite: OpenTally) -> None:
    scale = Scale()

    def build(model: BaseChatModel, tools: list[BaseTool]) -> Any:
        ask = HumanInTheLoopMiddleware(interrupt_on={"weigh": True})
        return create_agent(model, tools, middleware=[ask], checkpointer=InMemorySaver())

    def drive(agent: Any, decision: str, **more: Any) -> str:
        config: Any = {"configurable": {"thread_id": "t"}, **more}
        agent.invoke({"messages": [("user", "How heavy?")]}, config)
        answer = agent.invoke(Command(resume={"decisions": [{"type": decision}]}), config)
        return str(answer["messages"][-1].content)

    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        agent = build(Scripted(_calls(("weigh", {"what": "tea"})), "Heavy."), scale.tools)
        with tally.bind().run("weigher") as run, run.active():
            assert drive(agent, "approve", callbacks=[handler]) == "Heavy."
        approved, refused = (tally.recordings.player(run.id) for _ in range(2))
    tools = scale.tools
    assert drive(build(TapeChatModel(approved), tape_tools(approved, tools)), "approve") == "Heavy."
    assert approved.finish().matches
    with pytest.raises(TapeDiverged, match="is not the recorded one"):
        drive(build(TapeChatModel(refused), tape_tools(refused, tools)), "reject")
    assert scale.ran == ["weigh tea"]


def test_a_tool_that_waits_for_a_person_is_safe_or_cannot_be_played(open_sqlite: OpenTally) -> None:
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}: {interrupt('really?')}"

    def build(model: BaseChatModel, tools: list[BaseTool]) -> Any:
        return create_agent(
            model, tools, checkpointer=InMemorySaver(), middleware=[TallyMiddleware(tally)]
        )

    config: Any = {"configurable": {"thread_id": "t"}}
    inputs: Any = {"messages": [("user", "Pay 7.")]}
    with open_sqlite() as tally:
        build(Scripted(_calls(("pay", {"amount": 7}))), [pay]).invoke(inputs, config)
        real, stubbed = _player(tally), _player(tally)
        waiting = build(TapeChatModel(real), tape_tools(real, [pay], safe={"pay"})).invoke(
            inputs, config
        )
        assert [request.value for request in waiting["__interrupt__"]] == ["really?"]
        assert real.finish().matches
        with pytest.raises(NotReplayable, match="name it in `safe`"):
            build(TapeChatModel(stubbed), tape_tools(stubbed, [pay])).invoke(inputs, config)


def test_a_secret_in_the_prompt_matches_whatever_it_is(open_sqlite: OpenTally) -> None:
    def build(key: str) -> Build:
        return lambda model, tools: create_agent(model, tools, system_prompt=f"The key is {key}.")

    scale = Scale()
    with open_sqlite() as tally:
        model = Scripted(_calls(("weigh", {"what": KEY})), f"{KEY} weighs 3 tons.")
        _recorded(tally, build(KEY), model, scale.tools, f"How heavy is {KEY}?")
        players = [_player(tally) for _ in range(3)]
    assert KEY not in players[0].tape.dumps()
    for player, key in zip(players, (KEY, OTHER_KEY), strict=False):
        _ask(
            build(key)(TapeChatModel(player), tape_tools(player, scale.tools)),
            f"How heavy is {key}?",
        )
        assert player.finish().fidelity == "exact_redacted"
    with pytest.raises(TapeDiverged, match="is not the recorded one"):
        _ask(
            build(KEY)(TapeChatModel(players[2]), tape_tools(players[2], scale.tools)),
            "How heavy is nothing?",
        )


def test_a_run_without_payloads_has_no_tape(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        with tally.bind().run("weigher", retention="metadata_only") as run, run.active():
            _recorded(tally, _plain, Scripted("I cannot say."), [])
        with pytest.raises(NotReplayable, match="its request was not kept"):
            tally.recordings.tape(run.id)
