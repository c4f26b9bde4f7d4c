"""A hook and an adapter watch one session: each turn of it is kept once, in either order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.memory import ChatMemoryBuffer
from llama_index_instrumentation.dispatcher import instrument_tags
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from sqlalchemy import Engine, event

from tallystick import Actor, Tally
from tallystick.kit import Speakers
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_hooks.handling import handle
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_llama_index import TallyInstrumentation
from tallystick_pydantic_ai import TallyRecorder

OpenTally = Callable[..., Tally]
Say = Callable[[BoundTally, str, str, Speakers], None]
"""Has an agent answer a request with a text, in the session `s1`."""
SECRET = "sk-proj-" + "a1B2" * 10
ASKED, ANSWERED = "I live in Graz.", "Noted."


class Model(GenericFakeChatModel):
    """A chat model that plays its answers, whatever tools it is offered."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _invoke(agent: Any, request: str, *handlers: TallyCallbackHandler) -> None:
    message: Any = {"messages": [HumanMessage(request)]}
    agent.invoke(message, {"callbacks": list(handlers), "configurable": {"thread_id": "s1"}})


def _middleware(bound: BoundTally, request: str, answer: str, capture: Speakers) -> None:
    middleware = TallyMiddleware(bound, capture=capture, strict=True)
    _invoke(create_agent(Model(messages=iter([answer])), [], middleware=[middleware]), request)


def _both_of_langchain(bound: BoundTally, request: str, answer: str, capture: Speakers) -> None:
    middleware = TallyMiddleware(bound, capture=capture, strict=True)
    agent = create_agent(Model(messages=iter([answer])), [], middleware=[middleware])
    _invoke(agent, request, TallyCallbackHandler(bound, capture=capture, strict=True))


def _langgraph(bound: BoundTally, request: str, answer: str, capture: Speakers) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda state: {"messages": [AIMessage(answer)]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    agent = graph.compile(checkpointer=InMemorySaver())
    _invoke(agent, request, TallyCallbackHandler(bound, capture=capture, strict=True))


def _pydantic_ai(bound: BoundTally, request: str, answer: str, capture: Speakers) -> None:
    model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(answer)]))
    agent = Agent(model, capabilities=[TallyRecorder(bound, capture=capture, strict=True)])
    asyncio.run(agent.run(request, conversation_id="s1"))


class _Answering(CustomLLM):
    """A model of LlamaIndex that always says the same."""

    answer: str

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="answering")

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return CompletionResponse(text=self.answer)

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        raise NotImplementedError


def _llama_index(bound: BoundTally, request: str, answer: str, capture: Speakers) -> None:
    engine = SimpleChatEngine.from_defaults(
        llm=_Answering(answer=answer),
        memory=ChatMemoryBuffer.from_defaults(token_limit=1_000),
    )
    with (
        TallyInstrumentation(bound, capture=capture, strict=True),
        instrument_tags({"thread_id": "s1"}),
    ):
        engine.chat(request)


runtimes = pytest.mark.parametrize(
    "say", [_middleware, _both_of_langchain, _langgraph, _pydantic_ai, _llama_index]
)


def _told(bound: BoundTally, *words: str, event: str = "turn-end") -> dict[str, Any]:
    """Tell a hook of a session, in which the user and the agent speak in turn."""
    turns = [
        {"speaker": "agent" if place % 2 else "user", "text": text}
        for place, text in enumerate(words)
    ]
    return handle(bound, event, {"session": "s1", "turns": turns})


def _turns(bound: BoundTally) -> list[str]:
    return [turn.content for turn in reversed(bound.memories(kinds=["turn"], conversation="s1"))]


def _events(tally: Tally, name: str) -> list[Any]:
    with services_of(tally).store.database.read() as connection:
        return [each for each in journal.all_entries(connection) if each.event == name]


@runtimes
def test_what_a_hook_kept_first_an_adapter_keeps_not_again(
    open_sqlite: OpenTally, say: Say
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        _told(bound, "Hello.", "Hello!", ASKED, ANSWERED)
        kept = {turn.content: turn.id for turn in bound.memories(kinds=["turn"])}
        say(bound, ASKED, ANSWERED, "both")
        left = _told(bound, "Hello.", "Hello!", ASKED, ANSWERED, event="session-end")
        say(bound, "And Linz?", "Linz too.", "both")

        assert _turns(bound) == ["Hello.", "Hello!", ASKED, ANSWERED, "And Linz?", "Linz too."]
        assert "recorded_by" in left["facts"]
        seen = [each for each in _events(tally, "turn.seen_again") if "hook" in str(each.details)]
        assert {each.subject_id for each in seen} == {kept[ASKED], kept[ANSWERED]}
        assert {each.details["stored_by"] for each in seen} == {"hook"}


@runtimes
def test_words_with_a_secret_that_a_hook_kept_without_it_are_kept_once(
    open_sqlite: OpenTally, say: Say
) -> None:
    asked, answered = (f"{text} The key is {SECRET}." for text in (ASKED, ANSWERED))
    with open_sqlite() as tally:
        bound = tally.bind()
        _told(bound, asked, answered)
        say(bound, asked, answered, "both")

        assert len(_turns(bound)) == 2
        assert SECRET not in str(_turns(bound))


@runtimes
def test_what_an_adapter_kept_first_a_hook_leaves_to_it(open_sqlite: OpenTally, say: Say) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        say(bound, ASKED, ANSWERED, "both")
        _told(bound, ASKED, ANSWERED)
        say(bound, "And Linz?", "Linz too.", "both")
        _told(bound, ASKED, ANSWERED, "And Linz?", "Linz too.", event="session-end")

        assert _turns(bound) == [ASKED, ANSWERED, "And Linz?", "Linz too."]


@runtimes
def test_a_request_that_a_hook_kept_before_its_answer_is_kept_once(
    open_sqlite: OpenTally, say: Say
) -> None:
    """An agent's program may compact between a request and its answer."""
    with open_sqlite() as tally:
        bound = tally.bind()
        _told(bound, "Hello.", "Hello!", ASKED, event="before-compact")
        say(bound, ASKED, ANSWERED, "both")

        assert _turns(bound) == ["Hello.", "Hello!", ASKED, ANSWERED]


@runtimes
def test_who_keeps_the_words_of_the_user_alone_keeps_none_of_a_hook_again(
    open_sqlite: OpenTally, say: Say
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        _told(bound, ASKED, ANSWERED)
        say(bound, ASKED, ANSWERED, "user")

        assert _turns(bound) == [ASKED, ANSWERED]


@runtimes
def test_the_same_words_said_twice_are_two_turns_whoever_kept_the_first(
    open_sqlite: OpenTally, say: Say
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        _told(bound, "yes", "One.")
        say(bound, "yes", "Two.", "both")
        say(bound, "yes", "Two.", "both")

        assert _turns(bound) == ["yes", "One.", "yes", "Two.", "yes", "Two."]


def test_an_exchange_that_is_not_the_newest_of_a_hook_is_another_one(
    open_sqlite: OpenTally,
) -> None:
    """A fork of a thread asks again what was asked earlier."""
    with open_sqlite() as tally:
        bound = tally.bind()
        _told(bound, ASKED, ANSWERED, "And Linz?", "Linz too.")
        _middleware(bound, ASKED, ANSWERED, "both")

        assert _turns(bound) == [ASKED, ANSWERED, "And Linz?", "Linz too.", ASKED, ANSWERED]


def test_another_user_or_application_with_the_same_session_keeps_its_own_words(
    open_sqlite: OpenTally,
) -> None:
    ann, bob = (Actor(user=name, projects={"apollo"}) for name in ("ann", "bob"))
    with open_sqlite() as tally:
        _told(tally.bind(ann, "project:apollo"), ASKED, ANSWERED)
        _told(tally.bind(ann), ASKED, ANSWERED)
        _middleware(tally.bind(bob, "project:apollo"), ASKED, ANSWERED, "both")
        _middleware(tally.bind(bob), ASKED, ANSWERED, "both")
        with tally.bind(bob).run("agent", metadata={"thread_id": "s2"}) as run:
            tally.bind(bob).keep_turn(run, user=ASKED, assistant=ANSWERED)

        assert _turns(tally.bind(bob, "project:apollo")) == [ASKED, ANSWERED, ASKED, ANSWERED]
        assert len(tally.bind(bob).memories(kinds=["turn"])) == 4
        assert _events(tally, "turn.seen_again") == []


def test_what_a_hook_kept_in_another_scope_of_the_actor_is_kept_once_and_journaled_there(
    open_sqlite: OpenTally,
) -> None:
    ann = Actor(user="ann", projects={"apollo"})
    with open_sqlite() as tally:
        _told(tally.bind(ann), ASKED, ANSWERED)
        _middleware(tally.bind(ann, "project:apollo"), ASKED, ANSWERED, "both")

        assert _turns(tally.bind(ann, "project:apollo")) == []
        assert _turns(tally.bind(ann)) == [ASKED, ANSWERED]
        streams = {each.stream for each in _events(tally, "turn.seen_again")}
        assert streams == {"scope:private:ann"}


def test_the_first_exchange_of_a_session_costs_a_few_reads_and_a_later_one_none(
    open_sqlite: OpenTally,
) -> None:
    statements: list[str] = []
    here = threading.get_ident()

    def count(*call: Any) -> None:
        if threading.get_ident() == here:  # a process that works has others
            statements.append(call[2])

    def keep(bound: BoundTally, session: str, text: str) -> int:
        with bound.run("agent", metadata={"thread_id": session}) as run:
            statements.clear()
            bound.keep_turn(run, user=text, assistant=ANSWERED)
            return len(statements)

    with open_sqlite() as tally:
        bound = tally.bind()
        keep(bound, "s0", "Hello.")
        _told(bound, ASKED, ANSWERED)
        event.listen(Engine, "before_cursor_execute", count)
        try:
            costs = [keep(bound, "s1", f"Is Graz number {number}?") for number in range(3)]
        finally:
            event.remove(Engine, "before_cursor_execute", count)

    assert costs[0] - costs[1] <= 4
    assert costs[1] == costs[2]
