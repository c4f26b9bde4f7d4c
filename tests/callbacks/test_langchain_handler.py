"""TallyCallbackHandler keeps the adapter contract on real LangChain and LangGraph runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage, messages_to_dict
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware

OpenTally = Callable[..., Tally]


@tool
def double(value: int) -> int:
    """Twice the value."""
    return value * 2


def _says(*answers: str | AIMessage) -> GenericFakeChatModel:
    messages: Iterator[AIMessage | str] = iter(answers)
    return _Model(messages=messages)


class _Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@pytest.mark.smoke
class TestHandler(AdapterContract):
    verbs = frozenset({"model_call", "tool_call"})

    def model_call(self, bound: BoundTally, prompt: str, answer: str) -> None:
        _says(answer).invoke(
            prompt, config={"callbacks": [TallyCallbackHandler(bound, strict=True)]}
        )

    def tool_call(self, bound: BoundTally, value: int) -> None:
        double.invoke(
            {"value": value}, config={"callbacks": [TallyCallbackHandler(bound, strict=True)]}
        )


def _agent() -> Any:
    from langchain.agents import create_agent

    call = AIMessage("", tool_calls=[{"name": "double", "args": {"value": 21}, "id": "call_1"}])
    return create_agent(_says(call, "It is 42."), [double])


def _steps(bound: BoundTally) -> list[tuple[str, str | None, str]]:
    return [
        (step.step_kind, step.name, step.status)
        for step in bound.recordings.steps(bound.recordings.runs()[0].id)
    ]


ASKED = ("model_call", "_Model", "completed")
EXPECTED = [ASKED, ("tool_call", "double", "completed"), ASKED]


def test_an_agent_is_one_run_with_a_step_for_each_call(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        _agent().invoke({"messages": [("user", "double 21")]}, config={"callbacks": [handler]})

        [run] = tally.bind().recordings.runs()
        assert (run.agent_name, run.status) == ("agent", "completed")
        assert _steps(tally.bind()) == EXPECTED
        assert tally.recordings.verify(run.id).ok


def test_an_asynchronous_agent_is_recorded_alike(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        asyncio.run(
            _agent().ainvoke({"messages": [("user", "double 21")]}, config={"callbacks": [handler]})
        )

        assert _steps(tally.bind()) == EXPECTED


def test_runs_side_by_side_stay_apart(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        chain: RunnableLambda[str, Any] = RunnableLambda(
            lambda text: _says(f"said {text}").invoke(text)
        )
        chain.batch(["a", "b", "c"], config={"callbacks": [handler]})

        runs = tally.bind().recordings.runs()
        assert len(runs) == 3
        for run in runs:
            [step] = tally.recordings.steps(run.id)
            request, response = tally.recordings.entries(step.id)
            request_payload: Any = request.payload
            response_payload: Any = response.payload
            assert (
                response_payload["answer"]["content"]
                == f"said {request_payload['messages'][0]['data']['content']}"
            )


def test_a_run_is_named_by_what_was_asked_without_its_secrets(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        secret = "ghp_" + "a1B2" * 9
        _agent().invoke(
            {"messages": [("user", f"double 21 with {secret}")]}, config={"callbacks": [handler]}
        )

        [run] = tally.bind().recordings.runs()
        assert run.goal is not None
        assert run.goal.startswith("double 21 with")
        assert secret not in run.goal


def test_a_recorder_that_may_not_write_breaks_no_run_and_counts_what_it_missed(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, actor=Actor(user="eve"), scope="project:apollo")

        answer = _says("heron").invoke("Say heron.", config={"callbacks": [handler]})

        assert answer.content == "heron"
        assert handler.failures > 0


def test_the_actor_may_come_from_the_metadata_of_the_call(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(
            tally, actor=lambda call: Actor(user=call.metadata["who"]), strict=True
        )
        _says("hi").invoke("hi", config={"callbacks": [handler], "metadata": {"who": "alice"}})

        assert len(tally.bind(Actor(user="alice")).recordings.runs()) == 1
        assert tally.bind(Actor(user="bob")).recordings.runs() == []


class _Odd:
    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


def test_a_result_that_cannot_be_compared_is_recorded_beside_one_of_the_same_text(
    open_sqlite: OpenTally,
) -> None:
    messages = [
        ToolMessage("", tool_call_id="a"),
        ToolMessage("", tool_call_id="a", artifact=_Odd()),
    ]
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        _says("It is 42.").invoke(messages, config={"callbacks": [handler]})
        [step] = tally.bind().recordings.steps(tally.bind().recordings.runs()[0].id)
        request = tally.bind().recordings.entries(step.id)[0].payload
        assert isinstance(request, dict)
        recorded_messages = cast("list[Any]", request["messages"])
        assert recorded_messages[0]["data"]["artifact"] is None
        assert "_Odd" in recorded_messages[1]["data"]["artifact"]


@pytest.mark.parametrize(
    "edit",
    [
        lambda message: setattr(message, "content", "double 22"),
        lambda message: setattr(message, "id", "m-2"),
        lambda message: message.additional_kwargs.update(cached=True),
        lambda message: message.response_metadata.update(seen=1),
        lambda message: message.tool_calls.append(
            {"name": "double", "args": {"value": 2}, "id": "call_2"}
        ),
    ],
)
def test_a_message_that_is_edited_in_place_is_recorded_as_it_is_now(
    edit: Callable[[AIMessage], Any], open_sqlite: OpenTally
) -> None:
    message = AIMessage("double 21", id="m-1")
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        requests = []
        for _ in range(2):
            _says("It is 42.").invoke([message], config={"callbacks": [handler]})
            [step] = tally.bind().recordings.steps(tally.bind().recordings.runs()[0].id)
            request = tally.bind().recordings.entries(step.id)[0].payload
            assert isinstance(request, dict)
            requests.append(request["messages"])
            assert requests[-1] == messages_to_dict([message])
            edit(message)
        assert requests[0] != requests[1]


def test_a_secret_at_the_end_of_what_is_kept_of_a_goal_is_redacted_whole(
    open_sqlite: OpenTally,
) -> None:
    secret = "sk-proj-" + "a1B2c3D4" * 6
    with open_sqlite() as tally:
        prompt = "x " * 240 + secret + " and more"
        _agent().invoke(
            {"messages": [("user", prompt)]}, config={"callbacks": [TallyCallbackHandler(tally)]}
        )
        goal = tally.bind().recordings.runs()[0].goal
        assert goal is not None
        assert "sk-proj" not in goal
        assert "[redacted:" in goal


def test_a_resumed_run_has_the_goal_of_the_turn_that_it_goes_on_with(
    open_sqlite: OpenTally,
) -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command

    def calls(number: int) -> AIMessage:
        return AIMessage(
            "", tool_calls=[{"name": "double", "args": {"value": number}, "id": f"call_{number}"}]
        )

    with open_sqlite() as tally:
        agent: Any = create_agent(
            _says(calls(21), "It is 42.", calls(4), "It is 8."),
            [double],
            name="calculator",
            middleware=[HumanInTheLoopMiddleware(interrupt_on={"double": True})],
            checkpointer=InMemorySaver(),
        )
        handler = TallyCallbackHandler(tally, strict=True)
        config: Any = {"callbacks": [handler], "configurable": {"thread_id": "t"}}
        approve: Any = Command(resume={"decisions": [{"type": "approve"}]})
        for question in ("double 21", "double 4"):
            agent.invoke({"messages": [("user", question)]}, config)
            agent.invoke(approve, config)

        runs = [(run.agent_name, run.goal, run.status) for run in tally.bind().recordings.runs()]
        assert runs == [
            ("calculator", "double 4", "completed"),
            ("calculator", "double 4", "blocked"),
            ("calculator", "double 21", "completed"),
            ("calculator", "double 21", "blocked"),
        ]


@pytest.mark.parametrize("is_new_process", [False, True])
def test_what_the_user_said_is_kept_once_where_an_agent_waits_and_goes_on(
    open_sqlite: OpenTally, is_new_process: bool
) -> None:
    """The handler keeps it while the agent waits, and the middleware sees it again at the end."""
    from langchain.agents import create_agent
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command, interrupt

    @tool
    def refund(order: int) -> str:
        """Refund an order."""
        return str(interrupt({"refund": order}))

    call = AIMessage("", tool_calls=[{"name": "refund", "args": {"order": 1002}, "id": "c1"}])
    model, saver = _says(call, "It is on its way."), InMemorySaver()
    said = "I am Dan from Bern. Please refund 1002."

    def invoke(tally: Tally, given: Any) -> None:
        middleware = TallyMiddleware(tally, capture="user")
        agent = create_agent(model, [refund], middleware=[middleware], checkpointer=saver)
        handler = TallyCallbackHandler(tally, capture="both", strict=True)
        agent.invoke(given, {"callbacks": [handler], "configurable": {"thread_id": "t"}})

    with open_sqlite() as tally:
        invoke(tally, {"messages": [("user", said)]})
        assert [turn.content for turn in tally.bind().memories()] == [said]
        if not is_new_process:
            invoke(tally, Command(resume="yes"))
    with open_sqlite() as tally:
        if is_new_process:
            invoke(tally, Command(resume="yes"))
        turns = [turn.content for turn in tally.bind().memories()]
        assert turns == ["It is on its way.", said]
        after, before = tally.bind().recordings.runs()
        assert (before.status, after.metadata["continues"]) == ("blocked", before.id)


def test_a_graph_without_a_name_has_that_of_its_server_or_is_an_agent(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        handler = TallyCallbackHandler(tally, strict=True)
        config: Any = {"callbacks": [handler]}
        question = {"messages": [("user", "double 21")]}
        _agent().invoke(question, config)
        _agent().invoke(question, {**config, "metadata": {"graph_id": "support"}})
        _agent().invoke(question, {**config, "run_name": "nightly"})

        assert [run.agent_name for run in tally.bind().recordings.runs()] == [
            "nightly",
            "support",
            "agent",
        ]
