"""TallyMiddleware: an agent's calls are compiled to a budget, recorded once, and its state is its
own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import (
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from tallystick import Actor, Tally
from tallystick.compiler import FRAMED, compile_context
from tallystick.errors import ApprovalRequired, BudgetInfeasible, InvalidInput
from tallystick.records import CompilationRequest, PolicyConditions, PolicyRule
from tallystick.records.escaping import as_item
from tallystick.records.framing import CLOSE, OPEN
from tallystick.settings import Settings
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing.adapter_contract import AdapterContract
from tallystick.tokens import counter_for
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_langchain.render import CONTEXT_ID, items_of, render, tool_specs

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")


class Model(GenericFakeChatModel):
    """Plays its answers and keeps what it was asked."""

    asked: list[list[BaseMessage]] = []
    offered: list[str] = []

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        self.offered.extend(getattr(tool, "name", "") for tool in tools)
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.asked.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


def _model(*answers: AIMessage | str | Exception) -> Model:
    def play() -> Iterator[AIMessage | str]:
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
            yield answer

    return Model(messages=play(), asked=[], offered=[])


@tool
def double(value: int) -> int:
    """Twice the value."""
    return value * 2


@tool
def erase() -> str:
    """Erase everything."""
    return "gone"


erase.metadata = {"tool_class": "destructive"}

CALL = AIMessage("", tool_calls=[{"name": "double", "args": {"value": 21}, "id": "call_1"}])


def _steps(bound: BoundTally, run: int = 0) -> list[tuple[str, str | None, str]]:
    return [
        (step.step_kind, step.name, step.status)
        for step in bound.recordings.steps(bound.recordings.runs()[run].id)
    ]


def _ask(agent: Any, text: str, **options: Any) -> dict[str, Any]:
    answer: dict[str, Any] = agent.invoke({"messages": [HumanMessage(text)]}, **options)
    return answer


class TestMiddleware(AdapterContract):
    """What was said to an agent is remembered where that is wanted; what is remembered it is
    given.
    """

    verbs = frozenset({"remember", "context", "tool_call"})

    def stored_fields(self, content: str) -> dict[str, Any]:
        return {"content": content, "kind": "turn", "speaker": "alice", "conversation": "t1"}

    def store_memories(self, bound: BoundTally, contents: Sequence[str]) -> list[str]:
        return [one.id for one in bound.remember_many(list(contents))]

    def remember(self, bound: BoundTally, content: str) -> None:
        watching = TallyMiddleware(bound, memories=0, capture="user", strict=True)
        agent = create_agent(
            _model("Noted."), [], middleware=[watching], checkpointer=InMemorySaver()
        )
        _ask(agent, content, config={"configurable": {"thread_id": "t1"}})

    def context(self, bound: BoundTally, query: str) -> str:
        model = _model("So.")
        _ask(create_agent(model, [], middleware=[TallyMiddleware(bound, strict=True)]), query)
        return "\n".join(str(message.content) for message in model.asked[0])

    def tool_call(self, bound: BoundTally, value: int) -> None:
        call = AIMessage(
            "", tool_calls=[{"name": "double", "args": {"value": value}, "id": "call_1"}]
        )
        watching = TallyMiddleware(bound, memories=0, strict=True)
        _ask(create_agent(_model(call, "It is."), [double], middleware=[watching]), "Double it.")


@pytest.mark.smoke
def test_an_agent_is_given_what_it_remembers_and_each_call_has_a_receipt(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Anna's favourite number is 21.")
        model = _model(CALL, "It is 42.")
        agent: Any = create_agent(
            model, [double], system_prompt="Be brief.", middleware=[TallyMiddleware(anna)]
        )
        answer = _ask(agent, "Double my favourite number.")

        assert [message.type for message in answer["messages"]] == ["human", "ai", "tool", "ai"]
        assert "tally_run" not in answer
        first, second = model.asked
        assert [message.type for message in first] == ["system", "human"]
        own, _, remembered = str(first[0].content).partition(OPEN)
        assert own.strip() == "Be brief."
        assert "favourite number is 21" in remembered
        assert remembered.endswith(CLOSE)
        # The next request begins with this one, byte for byte.
        assert [message.content for message in second[:2]] == [message.content for message in first]

        (run,) = anna.recordings.runs()
        assert run.status == "completed"
        assert _steps(anna) == [
            ("model_call", "model", "completed"),
            ("tool_call", "double", "completed"),
            ("model_call", "model", "completed"),
        ]
        assert anna.recordings.verify(run.id).ok


def test_what_is_forgotten_in_the_middle_of_a_turn_is_not_given_again(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        memory_id = anna.remember("Anna's favourite number is 21.").id

        @tool
        def forget_it() -> str:
            """Forget the number."""
            anna.forget(memory_id, reason="asked")
            return "forgotten"

        call = AIMessage("", tool_calls=[{"name": "forget_it", "args": {}, "id": "call_1"}])
        model = _model(call, "Done.")
        agent: Any = create_agent(model, [forget_it], middleware=[TallyMiddleware(anna)])
        _ask(agent, "Forget my favourite number.")
        first, second = (str([message.content for message in messages]) for messages in model.asked)
        assert ("number is 21" in first, "number is 21" in second) == (True, False)


def test_an_agent_without_threads_does_the_same(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model(CALL, "It is 42."), [double], middleware=[TallyMiddleware(anna)]
        )
        answer = asyncio.run(agent.ainvoke({"messages": [HumanMessage("Double 21.")]}))
        assert answer["messages"][-1].content == "It is 42."
        assert [kind for kind, *_ in _steps(anna)] == ["model_call", "tool_call", "model_call"]


def test_a_handler_and_the_middleware_fill_the_same_steps(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model(CALL, "It is 42."), [double], middleware=[TallyMiddleware(anna)]
        )
        _ask(agent, "Double 21.", config={"callbacks": [TallyCallbackHandler(anna, strict=True)]})
        (run,) = anna.recordings.runs()
        assert [kind for kind, *_ in _steps(anna)] == ["model_call", "tool_call", "model_call"]
        steps = anna.recordings.steps(run.id)
        kinds = [entry.kind for step in steps for entry in anna.recordings.entries(step.id)]
        assert kinds.count("request") == kinds.count("response") == kinds.count("compiled") == 2
        assert kinds.count("tool_call") == 1


def test_calls_inside_of_a_run_are_steps_of_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(_model("Hello."), [], middleware=[TallyMiddleware(anna)])
        with anna.run("mine") as run:
            _ask(agent, "Hello?")
        assert [record.id for record in anna.recordings.runs()] == [run.id]
        assert _steps(anna) == [("model_call", "model", "completed")]


def test_nothing_is_recorded_where_it_is_not_wanted(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model(CALL, "42"), [double], middleware=[TallyMiddleware(anna, record=False)]
        )
        assert _ask(agent, "Double 21.")["messages"][-1].content == "42"
        assert anna.recordings.runs() == []


def test_an_answer_may_be_streamed(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model("It is forty two."), [], middleware=[TallyMiddleware(anna)]
        )
        chunks = list(
            agent.stream({"messages": [HumanMessage("Double 21.")]}, stream_mode="messages")
        )
        answer_chunks = [chunk for chunk, _ in chunks if isinstance(chunk, AIMessageChunk)]
        assert "".join(str(chunk.content) for chunk in answer_chunks) == "It is forty two."
        assert _steps(anna) == [("model_call", "model", "completed")]


def test_a_failing_model_ends_the_run_as_failed(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model(ConnectionError("no line")), [], middleware=[TallyMiddleware(anna)]
        )
        with pytest.raises(ConnectionError):
            _ask(agent, "Hello?")
        assert anna.recordings.runs()[0].status == "failed"
        assert _steps(anna) == [("model_call", "model", "failed")]


def test_a_recorder_that_fails_breaks_no_agent_and_its_run_says_so(
    open_tally: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise KeyError("content")

    monkeypatch.setattr("tallystick_langchain.handler.request_of", broken)
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        lenient, strict = TallyMiddleware(anna), TallyMiddleware(anna, strict=True)
        agent: Any = create_agent(_model("Done."), middleware=[lenient])
        assert _ask(agent, "Go.")["messages"][-1].content == "Done."
        assert (lenient.failures, anna.recordings.runs()[0].gaps) == (1, 1)
        with pytest.raises(KeyError):
            _ask(create_agent(_model("Done."), middleware=[strict]), "Go.")


def test_who_acts_comes_with_the_context_of_the_call(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        tally.bind(ANNA).remember("The key is under the mat.")
        tally.bind(BEN).remember("The key is in the shed.")
        model = _model("…", "…")
        agent: Any = create_agent(
            model, [], middleware=[TallyMiddleware(tally)], context_schema=Actor
        )
        for actor, place, other in ((ANNA, "mat", "shed"), (BEN, "shed", "mat")):
            _ask(agent, "Where is the key?", context=actor)
            seen = " ".join(str(message.content) for message in model.asked[-1])
            assert place in seen
            assert other not in seen
            assert len(tally.bind(actor).recordings.runs()) == 1


def test_a_long_conversation_fits_its_budget_and_loses_nothing_of_its_state(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        model = _model("Under the mat.")
        agent: Any = create_agent(
            model,
            [],
            middleware=[TallyMiddleware(anna, budget=1_000)],
            checkpointer=InMemorySaver(),
        )
        messages: list[BaseMessage] = [
            HumanMessage("The key is under the mat, remember that.", id="m0")
        ]
        for number in range(150):
            messages += [
                HumanMessage(f"Tell me of the river, part {number}."),
                AIMessage(f"It bends {number} times. " * 4),
            ]
        config: Any = {"configurable": {"thread_id": "t"}}
        answer = agent.invoke({"messages": [*messages, HumanMessage("Where is the key?")]}, config)

        assert len(answer["messages"]) == len(messages) + 2
        (request,) = model.asked
        count = tally.count_tokens
        assert sum(count(str(message.content)) + 4 for message in request) <= 1_000
        assert request[-1].content == "Where is the key?"
        assert "user: The key is under the mat" in str(
            next(candidate for candidate in request if candidate.id == CONTEXT_ID).content
        )


def test_required_messages_that_do_not_fit_are_an_error_that_lists_them(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(_model("…"), [], middleware=[TallyMiddleware(anna, budget=100)])
        with pytest.raises(BudgetInfeasible) as refused:
            _ask(agent, "word " * 500)
        assert len(refused.value.required) == 1
        assert anna.recordings.runs()[0].status == "failed"
        with pytest.raises(InvalidInput, match="reserve"):
            TallyMiddleware(anna, budget=10, reserve=10)


def test_a_tool_that_policy_denies_is_not_offered(open_tally: OpenTally) -> None:
    with open_tally(tool_classes={"double": "read_only"}) as tally:
        deny = PolicyRule(
            id="no-erasing",
            name="No erasing",
            effect="deny",
            applies_to="context_item",
            conditions=PolicyConditions(tool_class=("destructive",)),
        )
        model = _model("…")
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            model, [double, erase], middleware=[TallyMiddleware(anna, rules=[deny])]
        )
        _ask(agent, "Hello?")
        assert model.offered == ["double"]


@pytest.mark.parametrize("watched", [False, True])
def test_a_call_that_needs_an_approval_is_a_blocked_step_and_never_reaches_the_model(
    open_tally: OpenTally, watched: bool
) -> None:
    rule = PolicyRule(
        id="ask-first",
        name="Erasing wants a person",
        effect="require_approval",
        conditions=PolicyConditions(tool_class=("destructive",)),
    )
    with open_tally(tool_classes={"double": "read_only"}) as tally:
        anna = tally.bind(ANNA)
        model = _model("Done.")
        agent: Any = create_agent(
            model, [double, erase], middleware=[TallyMiddleware(anna, rules=[rule])]
        )
        handlers = [TallyCallbackHandler(anna)] if watched else []
        with pytest.raises(ApprovalRequired, match="tool:erase"):
            _ask(agent, "Erase all.", config={"callbacks": handlers})
        with pytest.raises(ApprovalRequired):
            asyncio.run(
                agent.ainvoke(
                    {"messages": [HumanMessage("Erase all.")]}, config={"callbacks": handlers}
                )
            )
        assert model.asked == []
        for run in anna.recordings.runs():
            assert run.status == "blocked"
            (step,) = anna.recordings.steps(run.id)
            assert step.status == "blocked"
            (approval,) = [
                entry
                for entry in anna.recordings.receipt(step.id).entries
                if entry.kind == "approval"
            ]
            assert {**approval.summary, "state": "asked"} == {
                "state": "asked",
                "approval": anna.approvals.list()[0].id,
                "action": "send_to_model",
                "subject": "tool:erase",
                "rule": "ask-first",
            }


def test_it_stands_beside_the_stock_middleware(open_tally: OpenTally) -> None:
    """Summarization, PII and context editing first, Tallystick last: it compiles what they left."""
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        model = _model(CALL, "It is 42.")
        summaries = _model(*["Anna counts things."] * 5)
        agent: Any = create_agent(
            model,
            [double],
            middleware=[
                SummarizationMiddleware(summaries, trigger=("messages", 6), keep=("messages", 2)),
                PIIMiddleware("email", strategy="redact"),
                ContextEditingMiddleware(),
                TallyMiddleware(anna),
            ],
        )
        talk: list[BaseMessage] = []
        for number in range(8):
            talk += [HumanMessage(f"Count to {number}."), AIMessage("Done.")]
        agent.invoke({"messages": [*talk, HumanMessage("I am anna@example.org. Double 21.")]})
        seen = " ".join(str(message.content) for message in model.asked[0])
        assert "Anna counts things." in seen
        assert "anna@example.org" not in seen
        assert "Count to 0." not in seen
        assert [kind for kind, *_ in _steps(anna)][-3:] == ["model_call", "tool_call", "model_call"]


def test_a_person_may_be_asked_in_between(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model(CALL, "It is 42."),
            [double],
            checkpointer=InMemorySaver(),
            middleware=[
                HumanInTheLoopMiddleware(interrupt_on={"double": True}),
                TallyMiddleware(anna),
            ],
        )
        config: Any = {"configurable": {"thread_id": "t"}}
        inputs = agent.invoke({"messages": [HumanMessage("Double 21.")]}, config)
        assert inputs["__interrupt__"]
        answer = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
        assert answer["messages"][-1].content == "It is 42."
        (run,) = anna.recordings.runs()
        assert run.status == "completed"
        assert [kind for kind, *_ in _steps(anna)] == ["model_call", "tool_call", "model_call"]


def test_a_run_that_goes_on_in_another_process_has_the_goal_of_the_first(
    open_tally: OpenTally,
) -> None:
    saver = InMemorySaver()
    config: Any = {"configurable": {"thread_id": "t"}}

    def agent(tally: Tally, *answers: Any) -> Any:
        return create_agent(
            _model(*answers),
            [double],
            name="calculator",
            checkpointer=saver,
            middleware=[
                HumanInTheLoopMiddleware(interrupt_on={"double": True}),
                TallyMiddleware(tally.bind(ANNA)),
            ],
        )

    with open_tally() as tally:
        agent(tally, CALL).invoke({"messages": [HumanMessage("Double 21.")]}, config)
    with open_tally() as tally:
        approve: Any = Command(resume={"decisions": [{"type": "approve"}]})
        agent(tally, "It is 42.").invoke(approve, config)

        runs = tally.bind(ANNA).recordings.runs()
        assert [(run.agent_name, run.goal) for run in runs] == [("calculator", "Double 21.")] * 2


# Rendering

texts = st.text(max_size=40)
turns = st.lists(
    st.one_of(
        st.tuples(st.just("human"), texts),
        st.tuples(st.just("ai"), texts),
        st.tuples(st.just("tool"), st.integers(1, 3)),
    ),
    max_size=30,
)


def _conversation(parts: list[tuple[str, Any]]) -> list[BaseMessage]:
    messages: list[BaseMessage] = [SystemMessage("You plan trips.", id="system")]
    for place, (kind, what) in enumerate(parts):
        if kind == "human":
            messages.append(HumanMessage(what, id=f"h{place}"))
        elif kind == "ai":
            messages.append(AIMessage(what, id=f"a{place}"))
        else:
            calls: Any = [
                {"name": "double", "args": {"value": n}, "id": f"c{place}-{n}"} for n in range(what)
            ]
            messages.append(AIMessage("", id=f"a{place}", tool_calls=calls))
            messages += [
                ToolMessage(f"result {n}", tool_call_id=f"c{place}-{n}", id=f"t{place}-{n}")
                for n in range(what)
            ]
    return [*messages, HumanMessage("Where to?", id="ask")]


@hypothesis_settings(max_examples=100)
@given(parts=turns, budget=st.integers(260, 700), relevant=st.integers(0, 30))
def test_what_is_rendered_fits_pairs_and_says_what_was_chosen(
    parts: list[tuple[str, Any]], budget: int, relevant: int
) -> None:
    counter = counter_for(None, cache_dir=Path())
    message_items = items_of(_conversation(parts), counter.count)
    items = [item for item, _ in message_items.values()]
    request = CompilationRequest(
        request_id="r",
        context_items=tuple(items),
        tool_specs=tuple(tool_specs([double])),
        token_budget=budget,
        as_of=1,
        target=FRAMED,
        relevance={item.id: 900_000 for item in items[:relevant]},
    )
    compiled = compile_context(request, counter=counter)
    rendered = render(
        compiled, {item_id: message for item_id, (_, message) in message_items.items()}
    ).all

    used = sum(counter.count(str(message.content)) + 4 for message in rendered)
    assert used <= budget
    waiting: list[str] = []
    for message in rendered:
        if isinstance(message, ToolMessage):
            waiting.remove(message.tool_call_id)
        else:
            assert waiting == []
            waiting = (
                [str(call["id"]) for call in message.tool_calls]
                if isinstance(message, AIMessage)
                else []
            )
    assert waiting == []
    whole = "\n".join(str(message.content) for message in rendered)
    for item in compiled.selected_items:
        if item.kind != "tool_schema" and "<" not in item.content:
            assert item.content.strip() in whole or as_item(item.content) in whole
    assert rendered[-1].content == "Where to?"


def test_an_agent_goes_on_when_its_message_is_too_large_to_remember(tmp_path: Path) -> None:
    """The turn is in the recorded request; that it is no memory is counted and named."""
    settings = Settings(longest_memory_kb=5)
    with Tally.open(tmp_path / "tally", background=False, settings=settings) as tally:
        model = _model(AIMessage("Read."))
        agent = create_agent(model, [], middleware=[TallyMiddleware(tally, capture="user")])
        result = agent.invoke({"messages": [HumanMessage("log line\n" * 1_000)]})
        assert result["messages"][-1].text == "Read."
        assert tally.bind().memories(kinds=["turn"]) == []
        assert any("InvalidInput" in gap for gap in services_of(tally).recorder.health.gaps)


def _invalid(id: str, arguments: str = '{"value": ') -> InvalidToolCall:
    return InvalidToolCall(
        name="double", args=arguments, id=id, error="no JSON", type="invalid_tool_call"
    )


@pytest.mark.parametrize("is_mixed", [False, True], ids=["only invalid", "mixed"])
def test_the_answer_to_an_invalid_call_reaches_the_model(
    open_sqlite: OpenTally, is_mixed: bool
) -> None:
    """LangChain answers a call that it could not parse, so that the model sees its mistake."""
    valid = [ToolCall(name="double", args={"value": 2}, id="ok1")] if is_mixed else []
    history = [
        HumanMessage("Two times two?"),
        AIMessage("", tool_calls=valid, invalid_tool_calls=[_invalid("bad1")]),
        *([ToolMessage("4", tool_call_id="ok1")] if is_mixed else []),
        HumanMessage("And then?"),
    ]
    requests = []
    for middleware in (False, True):
        model = _model("Four.")
        with open_sqlite() as tally:
            ours = [TallyMiddleware(tally, memories=0)] if middleware else []
            inputs: Any = {"messages": list(history)}
            create_agent(model, [double], middleware=ours).invoke(inputs)
        requests.append([_shape(message) for message in model.asked[-1]])

    plain, compiled = requests
    if ("tool", "bad1") not in [(kind, call) for kind, *_, call in plain]:
        pytest.skip("this release of LangChain answers no invalid calls")
    assert compiled == plain


def _shape(message: BaseMessage) -> tuple[Any, ...]:
    calls = message.tool_calls if isinstance(message, AIMessage) else []
    invalid = message.invalid_tool_calls if isinstance(message, AIMessage) else []
    result = message.tool_call_id if isinstance(message, ToolMessage) else None
    return message.type, message.text, calls, invalid, result


def test_an_invalid_call_and_its_answer_are_never_separated() -> None:
    """Whatever the budget, both are sent or neither; and one that nobody answered costs nothing."""
    counter = counter_for(None, cache_dir=Path())
    history = [
        HumanMessage("Two times two? " + "Think. " * 100, id="h1"),
        AIMessage("Thinking. " * 100, id="a1", invalid_tool_calls=[_invalid("bad1")]),
        ToolMessage("That was no JSON. " * 100, tool_call_id="bad1", id="t1", status="error"),
        AIMessage("Four.", id="a2", invalid_tool_calls=[_invalid("never answered")]),
        HumanMessage("And then?", id="h2"),
    ]
    items = items_of(history, counter.count)
    sizes = set()
    for budget in range(300, 1_600, 100):
        request = CompilationRequest(
            request_id="r",
            context_items=tuple(item for item, _ in items.values()),
            token_budget=budget,
            as_of=1,
            target=FRAMED,
        )
        compiled = compile_context(request, counter=counter)
        sent = render(compiled, {name: message for name, (_, message) in items.items()}).messages
        ids = {message.id for message in sent}
        assert ("a1" in ids) == ("t1" in ids)
        assert {"a2", "h2"} <= ids
        sizes.add(len(ids))
        for message in sent:
            if message.id == "a1" and isinstance(message, AIMessage):
                assert [call["id"] for call in message.invalid_tool_calls] == ["bad1"]
    assert len(sizes) > 1


class Scripted(GenericFakeChatModel):
    """A model with a name, which plays its answers and failures in turn."""

    model_name: str
    script: list[Any]

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ChatResult(generations=[ChatGeneration(message=answer)])


def _scripted(name: str, *script: AIMessage | Exception) -> Scripted:
    return Scripted(messages=iter(()), model_name=name, script=list(script))


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("with_handler", [False, True])
@pytest.mark.parametrize("is_last", [False, True])
def test_each_attempt_of_one_agent_call_is_a_step_of_one_run(
    open_sqlite: OpenTally, is_last: bool, with_handler: bool, asynchronous: bool
) -> None:
    """Whether the attempts are made around the middleware or inside of it."""
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        primary = _scripted("primary", TimeoutError("slow"), TimeoutError("slower"))
        backup = _scripted("backup", AIMessage("By the backup."))
        around = [
            ModelFallbackMiddleware(backup),
            ModelRetryMiddleware(max_retries=1, initial_delay=0.0, on_failure="error"),
        ]
        watching = TallyMiddleware(anna, strict=True, agent_name="helper")
        middleware: list[Any] = [*around, watching] if is_last else [watching, *around]
        agent: Any = create_agent(primary, [], middleware=middleware)
        handlers = [TallyCallbackHandler(anna, strict=True)] if with_handler else []
        config = {"callbacks": handlers}
        if asynchronous:
            answer = asyncio.run(agent.ainvoke({"messages": [HumanMessage("Hello?")]}, config))
        else:
            answer = _ask(agent, "Hello?", config=config)

        assert answer["messages"][-1].text == "By the backup."
        (run,) = anna.recordings.runs()
        assert run.status == "completed"
        assert _steps(anna) == [
            ("model_call", "primary", "failed"),
            ("model_call", "primary", "failed"),
            ("model_call", "backup", "completed"),
        ]
        entries = [
            [entry.kind for entry in anna.recordings.entries(step.id)]
            for step in anna.recordings.steps(run.id)
        ]
        assert ["error" in kinds for kinds in entries] == [True, True, False]
        assert [kinds.count("request") for kinds in entries] == [1, 1, 1]
        assert entries[2].count("response") == 1
        assert anna.recordings.verify(run.id).ok


@pytest.mark.parametrize("is_last", [False, True])
def test_each_attempt_of_a_tool_is_a_step_of_one_run(open_sqlite: OpenTally, is_last: bool) -> None:
    attempts: list[int] = []

    @tool
    def flaky(value: int) -> int:
        """Fail once."""
        attempts.append(value)
        if len(attempts) == 1:
            raise TimeoutError("slow")
        return value

    call = AIMessage("", tool_calls=[{"name": "flaky", "args": {"value": 2}, "id": "call_1"}])
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        again = ToolRetryMiddleware(max_retries=1, initial_delay=0.0, on_failure="error")
        watching = TallyMiddleware(anna, strict=True)
        middleware: list[Any] = [again, watching] if is_last else [watching, again]
        _ask(create_agent(_model(call, "Two."), [flaky], middleware=middleware), "Two?")
        (run,) = anna.recordings.runs()
        assert (run.status, _steps(anna)) == (
            "completed",
            [
                ("model_call", "model", "completed"),
                ("tool_call", "flaky", "failed"),
                ("tool_call", "flaky", "completed"),
                ("model_call", "model", "completed"),
            ],
        )
        entries = [
            [entry.kind for entry in anna.recordings.entries(step.id)]
            for step in anna.recordings.steps(run.id)
        ]
        assert [kinds.count("tool_call") for kinds in entries] == [0, 1, 1, 0]
        assert anna.recordings.verify(run.id).ok


def test_an_agent_that_hands_over_ends_its_run(open_sqlite: OpenTally) -> None:
    @tool
    def to_bob() -> Any:
        """Hand over to Bob."""
        return Command(goto="bob", graph=Command.PARENT)

    call = AIMessage("", tool_calls=[{"name": "to_bob", "args": {}, "id": "call_1"}])
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        alice: Any = create_agent(
            _model(call), [to_bob], middleware=[TallyMiddleware(anna, agent_name="alice")]
        )
        bob: Any = create_agent(
            _model("Bob here."), [], middleware=[TallyMiddleware(anna, agent_name="bob")]
        )
        builder = StateGraph(MessagesState)
        builder.add_node("alice", alice, destinations=("bob",))
        builder.add_node("bob", bob)
        builder.add_edge(START, "alice")
        graph: Any = builder.compile()
        _ask(graph, "Hello?")
        runs = anna.recordings.runs()
        assert [(run.agent_name, run.status) for run in runs] == [
            ("bob", "completed"),
            ("alice", "completed"),
        ]
        assert _steps(anna, 1)[-1] == ("tool_call", "to_bob", "completed")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_agent_in_a_tool_is_recorded_in_the_run_of_the_one_that_called_it(
    open_sqlite: OpenTally, asynchronous: bool
) -> None:
    inner: Any = create_agent(_model(CALL, "42"), [double], name="inner")

    @tool
    def ask_inner(question: str) -> str:
        """Ask the other agent."""
        return str(_ask(inner, question)["messages"][-1].text)

    call = AIMessage(
        "", tool_calls=[{"name": "ask_inner", "args": {"question": "21?"}, "id": "call_0"}]
    )
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model(call, "It is 42."), [ask_inner], middleware=[TallyMiddleware(anna, strict=True)]
        )
        if asynchronous:
            asyncio.run(agent.ainvoke({"messages": [HumanMessage("21?")]}))
        else:
            _ask(agent, "21?")
        (run,) = anna.recordings.runs()
        assert run.status == "completed"
        steps = anna.recordings.steps(run.id)
        names = {step.id: f"{step.step_kind} {step.name}" for step in steps}
        assert [
            (names[step.id], names.get(step.parent_step_id or ""), step.status) for step in steps
        ] == [
            ("model_call model", None, "completed"),
            ("tool_call ask_inner", None, "completed"),
            ("model_call Model", "tool_call ask_inner", "completed"),
            ("tool_call double", "tool_call ask_inner", "completed"),
            ("model_call Model", "tool_call ask_inner", "completed"),
            ("model_call model", None, "completed"),
        ]


def test_an_agent_that_is_stopped_ends_its_run(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        agent: Any = create_agent(
            _model(CALL, "42"), [double], middleware=[TallyMiddleware(anna, strict=True)]
        )
        stream = agent.stream({"messages": [HumanMessage("21?")]})
        for chunk in stream:
            if "model" in chunk:
                break
        stream.close()
        with pytest.raises(GraphRecursionError):
            _ask(
                create_agent(
                    _model(CALL, CALL, CALL, "42"),
                    [double],
                    middleware=[TallyMiddleware(anna, strict=True)],
                ),
                "21?",
                config={"recursion_limit": 3},
            )
        assert [run.status for run in anna.recordings.runs()] == ["failed", "cancelled"]
