"""One exchange is remembered once, whatever observes it, and what is asked for is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ImageUrl, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.integrations.llama_scripted import Scripted, calls

from tallystick import Tally
from tallystick.errors import InvalidInput
from tallystick.kit import Speakers
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_llama_index import TallyInstrumentation
from tallystick_pydantic_ai import TallyRecorder, Tallystick

OpenTally = Callable[..., Tally]
ASKED, ANSWERED = "I live in Graz.", "Noted."
SECRET = "sk-" + "a1B2c3D4" * 5


class Model(GenericFakeChatModel):
    """A chat model that plays its answers, whatever tools it is offered."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _model(*answers: AIMessage | str) -> Model:
    return Model(messages=iter(answers))


def _turns(bound: BoundTally) -> list[tuple[str | None, str]]:
    turns = sorted(bound.memories(kinds=["turn"]), key=lambda turn: turn.position or 0)
    return [(turn.speaker, turn.content) for turn in turns]


def _invoke(agent: Any, text: str, *handlers: TallyCallbackHandler) -> None:
    message: Any = {"messages": [HumanMessage(text)]}
    agent.invoke(message, {"callbacks": list(handlers), "configurable": {"thread_id": "t"}})


@pytest.mark.parametrize("of_middleware", ["off", "user", "both"])
@pytest.mark.parametrize("of_handler", ["off", "user", "both"])
@pytest.mark.parametrize("handlers", [1, 2])
def test_middleware_and_handlers_store_one_exchange_once(
    open_sqlite: OpenTally, of_middleware: Speakers, of_handler: Speakers, handlers: int
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        middleware = TallyMiddleware(bound, capture=of_middleware, agent_name="agent", strict=True)
        agent = create_agent(_model("Noted.", "Noted."), [], middleware=[middleware])
        observers = [
            TallyCallbackHandler(bound, capture=of_handler, agent_name="agent", strict=True)
            for _ in range(handlers)
        ]
        _invoke(agent, ASKED, *observers)
        expected = []
        if {of_middleware, of_handler} - {"off"}:
            expected.append(("local", ASKED))
        if "both" in (of_middleware, of_handler):
            expected.append(("agent", ANSWERED))
        assert _turns(bound) == expected


def test_the_journal_says_who_stored_a_turn_and_who_saw_it_again(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        middleware = TallyMiddleware(bound, capture="user", strict=True)
        handler = TallyCallbackHandler(bound, capture="user", strict=True)
        _invoke(create_agent(_model(ANSWERED), [], middleware=[middleware]), ASKED, handler)
        [turn] = bound.memories(kinds=["turn"])
        with services_of(tally).store.database.read() as connection:
            entries = journal.about(connection, turn.id)
        details = [entry.details for entry in entries if entry.event == "turn.seen_again"]
        [run] = bound.recordings.runs()
        assert details == [
            {
                "run": run.id,
                "observer": "TallyCallbackHandler",
                "stored_by": "TallyMiddleware",
            }
        ]


def test_the_same_words_said_twice_in_one_run_are_two_turns(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        middleware = TallyMiddleware(bound, capture="user", strict=True)
        handler = TallyCallbackHandler(bound, capture="user", strict=True)
        agent = create_agent(_model("One.", "Two."), [], middleware=[middleware])
        with bound.run("agent"):
            _invoke(agent, "yes", handler)
            _invoke(agent, "yes", handler)
        assert _turns(bound) == [("local", "yes"), ("local", "yes")]


OBSERVERS = ["handler", "middleware"]


def _observed(
    bound: BoundTally,
    observer: str,
    model: Model,
    tools: Sequence[Any] = (),
    saver: InMemorySaver | None = None,
    **options: Any,
) -> tuple[Any, list[TallyCallbackHandler]]:
    """Return an agent with one observer that captures both speakers, and its handlers."""
    if observer == "middleware":
        middleware = TallyMiddleware(bound, capture="both", agent_name="agent", strict=True)
        options = {**options, "middleware": [middleware]}
        return create_agent(model, tools, checkpointer=saver, **options), []
    handler = TallyCallbackHandler(bound, capture="both", agent_name="agent", strict=True)
    return create_agent(model, tools, checkpointer=saver, **options), [handler]


@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize(
    "messages",
    [
        [("user", ASKED), ("ai", "Let me see.")],
        [HumanMessage(ASKED), AIMessage("Hm."), ToolMessage("a result", tool_call_id="c1")],
        [{"role": "user", "content": ASKED}, {"role": "assistant", "content": "Let me see."}],
    ],
)
def test_what_a_model_or_a_tool_said_last_in_a_request_is_not_taken_for_words_of_the_user(
    open_sqlite: OpenTally, observer: str, messages: list[Any]
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        agent, handlers = _observed(bound, observer, _model(ANSWERED))
        agent.invoke({"messages": messages}, {"callbacks": handlers})
        assert _turns(bound) == [("local", ASKED), ("agent", ANSWERED)]
        assert bound.recordings.runs()[0].goal == ASKED


@pytest.mark.parametrize("observer", OBSERVERS)
def test_words_to_a_run_that_failed_are_kept_with_the_run_that_goes_on_and_answers_them(
    open_sqlite: OpenTally, observer: str
) -> None:
    class Down(Model):
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            raise ConnectionError("down")

    with open_sqlite() as tally:
        bound, saver = tally.bind(), InMemorySaver()
        config: Any = {"configurable": {"thread_id": "t"}}
        agent, handlers = _observed(bound, observer, Down(messages=iter(())), saver=saver)
        with pytest.raises(ConnectionError):
            agent.invoke({"messages": [HumanMessage(ASKED)]}, {**config, "callbacks": handlers})
        agent, handlers = _observed(bound, observer, _model(ANSWERED), saver=saver)
        for _ in range(2):
            agent.invoke(None, {**config, "callbacks": handlers})
        assert _turns(bound) == [("local", ASKED), ("agent", ANSWERED)]


@pytest.mark.parametrize("observer", OBSERVERS)
def test_words_are_kept_once_however_often_their_run_stops_and_goes_on(
    open_sqlite: OpenTally, observer: str
) -> None:
    @tool
    def look(place: str) -> str:
        """Look around."""
        return "nothing"

    def looking(place: str) -> AIMessage:
        call = {"name": "look", "args": {"place": place}, "id": place}
        return AIMessage("", tool_calls=[call])

    with open_sqlite() as tally:
        bound = tally.bind()
        model = _model(looking("here"), looking("there"), ANSWERED)
        agent, handlers = _observed(
            bound, observer, model, [look], InMemorySaver(), interrupt_before=["tools"]
        )
        config: Any = {"configurable": {"thread_id": "t"}, "callbacks": handlers}
        agent.invoke({"messages": [HumanMessage(f"{ASKED} {SECRET}")]}, config)
        for _ in range(3):
            agent.invoke(None, config)
        [(_, asked), answered] = _turns(bound)
        assert asked.startswith(ASKED)
        assert SECRET not in asked
        assert answered == ("agent", ANSWERED)


@pytest.mark.parametrize(
    ("said", "kept"), [([AIMessage(ANSWERED)], [("agent", ANSWERED)]), ([], [])]
)
@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_of_a_graph_without_a_model_is_the_agents_and_silence_is_none(
    open_sqlite: OpenTally, said: list[AIMessage], kept: list[tuple[str, str]], waits: bool
) -> None:
    def answer(state: MessagesState) -> dict[str, Any]:
        if waits:
            interrupt("May I?")
        return {"messages": said}

    with open_sqlite() as tally:
        bound = tally.bind()
        graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
        agent = graph.compile(checkpointer=InMemorySaver())
        watching = TallyCallbackHandler(bound, capture="both", agent_name="agent", strict=True)
        _invoke(agent, ASKED, watching)
        config: Any = {"callbacks": [watching], "configurable": {"thread_id": "t"}}
        if waits:
            agent.invoke(Command(resume="yes"), config)
        agent.invoke(None, config)
        assert _turns(bound) == [("local", ASKED), *kept]


def test_an_agent_that_is_a_tool_of_another_has_no_words_of_the_user(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        inner = create_agent(
            _model("inner answer"),
            [],
            middleware=[TallyMiddleware(bound, capture="both", strict=True)],
        )

        @tool
        def ask_expert(question: str) -> str:
            """Ask the expert."""
            message: Any = {"messages": [HumanMessage(question)]}
            return str(inner.invoke(message)["messages"][-1].text)

        call = {"name": "ask_expert", "args": {"question": "sub-question"}, "id": "c1"}
        outer = create_agent(
            _model(AIMessage("", tool_calls=[call]), ANSWERED),
            [ask_expert],
            middleware=[TallyMiddleware(bound, capture="both", agent_name="agent", strict=True)],
        )
        _invoke(outer, ASKED)
        assert _turns(bound) == [("local", ASKED), ("agent", ANSWERED)]


@pytest.mark.parametrize("word", ["all", "assistant", "USER", "", True, None, 1])
def test_a_word_that_capture_does_not_know_is_refused(open_sqlite: OpenTally, word: Any) -> None:
    with open_sqlite() as tally:
        for make in (
            TallyMiddleware,
            TallyCallbackHandler,
            TallyRecorder,
            Tallystick,
            TallyInstrumentation,
        ):
            with pytest.raises(InvalidInput, match="'off', 'user'"):
                make(tally, capture=word)


class Answer(BaseModel):
    """A typed output."""

    city: str
    sure: bool


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.parametrize("speakers", ["user", "both"])
@pytest.mark.parametrize("is_handed_over", [False, True])
def test_an_agent_of_llama_index_is_captured_with_its_answer(
    open_sqlite: OpenTally, speakers: Speakers, is_handed_over: bool
) -> None:
    async def ask() -> None:
        hands_over = calls(("c1", "handoff", {"to_agent": "b", "reason": "b knows"}))
        says = ChatMessage(ANSWERED, role="assistant")
        models = [Scripted(*([hands_over] if is_handed_over else [says])), Scripted(says)]
        agents: list[Any] = [
            FunctionAgent(name=name, description=name, llm=model)
            for name, model in zip("ab", models, strict=True)
        ]
        await AgentWorkflow(agents=agents, root_agent="a").run(user_msg=ASKED)

    with open_sqlite() as tally:
        bound = tally.bind()
        with TallyInstrumentation(bound, capture=speakers, agent_name="agent", strict=True):
            asyncio.run(ask())
        answered = [("agent", ANSWERED)] if speakers == "both" else []
        assert _turns(bound) == [("local", ASKED), *answered]


@dataclass
class Plain:
    """Another one."""

    city: str


@pytest.mark.parametrize(
    ("output", "arguments", "text"),
    [
        (Answer, {"city": "Graz", "sure": True}, '{"city":"Graz","sure":true}'),
        (Plain, {"city": "Graz"}, '{"city":"Graz"}'),
        (list[str], {"response": ["Graz", "Linz"]}, '["Graz","Linz"]'),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_a_typed_output_is_captured_as_its_json(
    open_sqlite: OpenTally, output: Any, arguments: dict[str, Any], text: str, inside: bool
) -> None:
    def answer(messages: Any, info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, arguments)])

    with open_sqlite() as tally:
        bound = tally.bind()
        recorder = TallyRecorder(bound, capture="both", agent_name="agent", strict=True)
        agent = Agent(FunctionModel(answer), output_type=output, capabilities=[recorder])
        if inside:
            with bound.run("agent"):
                asyncio.run(agent.run(ASKED))
        else:
            asyncio.run(agent.run(ASKED))
        assert _turns(bound) == [("local", ASKED), ("agent", text)]


def test_of_a_prompt_with_a_picture_the_text_is_captured(open_sqlite: OpenTally) -> None:
    def answer(messages: Any, info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(ANSWERED)])

    with open_sqlite() as tally:
        bound = tally.bind()
        recorder = TallyRecorder(bound, capture="user", strict=True)
        agent = Agent(FunctionModel(answer), capabilities=[recorder])
        asyncio.run(agent.run([ASKED, ImageUrl("https://example.org/house.png")]))
        assert _turns(bound) == [("local", ASKED)]
