"""Rules over tools and models bite in LangChain and LangGraph, and a person is asked by an
interrupt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from tallystick import Actor, PolicyRule, Tally
from tallystick.adapters import enforcing
from tallystick.errors import ActionDenied, ApprovalRequired, Denied
from tallystick.records import ArgumentCondition
from tallystick.tally import BoundTally
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware, ToolRules, memory_tools

OpenTally = Callable[..., Tally]
ADA = Actor(user="ada", agent="coder")
KEY = "sk-" + "a1B2c3D4" * 5
ran: list[str] = []
"""The commands that the shell has run."""


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
def shell(command: str) -> str:
    """Run a command."""
    ran.append(command)
    return f"ran {command}"


class Model(GenericFakeChatModel):
    """A chat model that plays its answers and keeps what it was sent."""

    sent: list[list[BaseMessage]] = []

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.sent.append(list(messages))
        return super()._generate(messages, *args, **kwargs)


def _model(*answers: AIMessage | str) -> Model:
    return Model(messages=iter(answers), sent=[])


def _calls(*commands: str) -> AIMessage:
    calls: Any = [
        {"name": "shell", "args": {"command": command}, "id": f"c{number}"}
        for number, command in enumerate(commands)
    ]
    return AIMessage("", tool_calls=calls)


def _rule(effect: str, applies_to: str = "tool_call", **conditions: Any) -> PolicyRule:
    name = f"{effect}-{applies_to}"
    fields = {"id": name, "name": name, "effect": effect, "applies_to": applies_to}
    return PolicyRule.load({**fields, "conditions": conditions})


NO_RM = _rule(
    "deny",
    tool=("shell",),
    arguments=(ArgumentCondition(path="$.command", matches=r"\brm\b"),),
)
ASK = _rule("require_approval", tool=("shell",))
APPROVE: Any = Command(resume={"decisions": [{"type": "approve"}]})
REJECT: Any = Command(resume={"decisions": [{"type": "reject", "message": "Not today."}]})
THREAD: Any = {"configurable": {"thread_id": "t"}}


def _agent(bound: BoundTally, model: Model, **options: Any) -> Any:
    middleware = [TallyMiddleware(bound, strict=True, **options)]
    return create_agent(model, [shell], middleware=middleware, checkpointer=InMemorySaver())


def _play(agent: Any, value: Any, *, is_async: bool = False, **more: Any) -> Any:
    config = {**THREAD, **more}
    if isinstance(value, str):
        value = {"messages": [HumanMessage(value)]}
    return asyncio.run(agent.ainvoke(value, config)) if is_async else agent.invoke(value, config)


def _tool_messages(state: Any) -> list[str]:
    return [str(m.text) for m in state["messages"] if isinstance(m, ToolMessage)]


def _checks(bound: BoundTally) -> list[dict[str, Any]]:
    """The policy checks of all runs, with the kind of the step that they are in."""
    recordings = bound.recordings
    return [
        {**entry.summary, "step": step.step_kind}
        for run in reversed(bound.runs())
        for step in recordings.steps(run.run_id)
        for entry in recordings.receipt(step.step_id).entries
        if entry.kind == "policy_check"
    ]


is_async = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
watched = pytest.mark.parametrize("watched", [False, True], ids=["alone", "with a handler"])


@is_async
@watched
def test_a_denied_tool_never_runs_and_the_model_reads_why(
    open_sqlite: OpenTally, is_async: bool, watched: bool
) -> None:
    with open_sqlite(rules=[NO_RM]) as tally:
        bound = tally.bind(ADA)
        agent = _agent(bound, _model(_calls("rm -rf /", "ls"), "done"))
        handlers = [TallyCallbackHandler(bound, strict=True)] if watched else []
        state = _play(agent, "clean up", is_async=is_async, callbacks=handlers)
        denied, allowed = _tool_messages(state)
        assert ran == ["ls"]
        assert "deny-tool_call" in denied
        assert allowed == "ran ls"
        assert sorted(check["outcome"] for check in _checks(bound)) == ["allowed", "denied"]
        if not watched:
            assert {check["step"] for check in _checks(bound)} == {"tool_call"}
        assert len(bound.runs()) == 1


@is_async
@watched
def test_an_approved_call_runs_once_with_exactly_its_arguments(
    open_sqlite: OpenTally, is_async: bool, watched: bool
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound = tally.bind(ADA)
        agent = _agent(bound, _model(_calls("make deploy"), _calls("make deploy"), "done"))
        handlers = [TallyCallbackHandler(bound, strict=True)] if watched else []
        state = _play(agent, "deploy", is_async=is_async, callbacks=handlers)
        [interrupt] = state["__interrupt__"]
        [request] = interrupt.value["action_requests"]
        [approval] = bound.approvals()
        assert (request["name"], request["args"]) == ("shell", {"command": "make deploy"})
        assert request["approval_id"] == approval.id
        assert ran == []

        state = _play(agent, APPROVE, is_async=is_async, callbacks=handlers)
        assert ran == ["make deploy"]
        # The second call is another action, though its arguments are the same.
        assert "__interrupt__" in state
        used = bound.approval(approval.id)
        assert used.state == "used"
        assert (used.decided_by or {})["user"] == "ada"
        assert "agent" not in (used.decided_by or {})

        state = _play(agent, REJECT, is_async=is_async, callbacks=handlers)
        assert ran == ["make deploy"]
        assert "Not today." in _tool_messages(state)[-1]


def test_a_grant_from_elsewhere_lets_the_same_call_run_and_no_other(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound, person = tally.bind(ADA), tally.bind(Actor(user="ada"))
        for commands in ("make deploy", "make deploy # now"):
            agent = create_agent(
                _model(_calls(commands), "done"), [shell], middleware=[TallyMiddleware(bound)]
            )
            # Without a checkpointer nobody can be asked in the graph: the call is not made.
            with pytest.raises(ApprovalRequired):
                _play(agent, "deploy")
        [second, first] = person.approvals()
        person.approve(first.id, reason="reviewed")
        for commands in ("make deploy # now", "make deploy"):
            agent = create_agent(
                _model(_calls(commands), "done"), [shell], middleware=[TallyMiddleware(bound)]
            )
            if commands == "make deploy":
                _play(agent, "deploy")
            else:
                with pytest.raises(ApprovalRequired):
                    _play(agent, "deploy")
        assert ran == ["make deploy"]
        assert person.approval(second.id).state == "pending"


def test_parallel_calls_that_wait_are_answered_one_by_one(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound = tally.bind(ADA)
        agent = _agent(bound, _model(_calls("one", "two"), "done"))
        state = _play(agent, "both")
        answers = {
            interrupt.id: {
                "decisions": [
                    {
                        "type": "approve"
                        if interrupt.value["action_requests"][0]["args"]["command"] == "two"
                        else "reject"
                    }
                ]
            }
            for interrupt in state["__interrupt__"]
        }
        assert len(answers) == 2
        _play(agent, Command(resume=answers))
        assert ran == ["two"]


@is_async
def test_an_answer_counts_for_no_call_that_was_changed_while_it_waited(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound = tally.bind(ADA)
        agent = _agent(bound, _model(_calls("make deploy"), "done"))
        _play(agent, "deploy", is_async=is_async)
        message = agent.get_state(THREAD).values["messages"][-1]
        changed = message.model_copy(update={"tool_calls": _calls("rm -rf /").tool_calls})
        agent.update_state(THREAD, {"messages": [changed]}, as_node="model")
        _play(agent, APPROVE, is_async=is_async)
        state = _play(agent, APPROVE, is_async=is_async)
        assert ran == []
        assert "before these arguments were asked about" in _tool_messages(state)[-1]


@is_async
def test_a_rule_that_redacts_cleans_arguments_and_result(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    @tool
    def fetch(token: str) -> str:
        """Fetch with a token."""
        ran.append(token)
        return f"the key is {KEY}"

    with open_sqlite(rules=[_rule("redact", tool=("fetch",))]) as tally:
        bound = tally.bind(ADA)
        call: Any = {"name": "fetch", "args": {"token": KEY}, "id": "c1"}
        agent = create_agent(
            _model(AIMessage("", tool_calls=[call]), "done"),
            [fetch],
            middleware=[TallyMiddleware(bound, strict=True)],
        )
        state = _play(agent, "fetch", is_async=is_async)
        assert KEY not in ran[0]
        assert KEY not in _tool_messages(state)[0]


@is_async
def test_rules_over_models_deny_redact_and_want_a_receipt(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[_rule("deny", "model_call")]) as tally:
        model = _model("never")
        with pytest.raises(ActionDenied, match="deny-model_call"):
            _play(_agent(tally.bind(ADA), model), "hello", is_async=is_async)
        assert model.sent == []
        [check] = _checks(tally.bind(ADA))
        assert (check["outcome"], check["step"]) == ("denied", "model_call")


@is_async
def test_the_texts_of_a_request_are_cleaned_and_the_state_is_not(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[_rule("redact", "model_call")]) as tally:
        model = _model("ok")
        state = _play(_agent(tally.bind(ADA), model), f"my key is {KEY}", is_async=is_async)
        assert KEY not in str(model.sent)
        assert KEY in str(state["messages"][0].text)


@is_async
def test_a_model_call_waits_for_a_person_and_is_made_once_approved(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[_rule("require_approval", "model_call")]) as tally:
        model = _model("ok")
        agent = _agent(tally.bind(ADA), model)
        assert "__interrupt__" in _play(agent, "hello", is_async=is_async)
        assert model.sent == []
        _play(agent, APPROVE, is_async=is_async)
        assert len(model.sent) == 1


def test_require_receipt_refuses_where_nothing_records(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[_rule("require_receipt", tool=("shell",))]) as tally:
        bound = tally.bind(ADA)
        with pytest.raises(ActionDenied, match="nothing records"):
            _play(_agent(bound, _model(_calls("ls"), "done"), record=False), "list")
        assert ran == []
        _play(_agent(bound, _model(_calls("ls"), "done")), "list")
        assert ran == ["ls"]


@is_async
def test_a_handler_alone_refuses_a_ruled_tool_before_it_runs(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[NO_RM]) as tally:
        bound = tally.bind(ADA)
        handler = TallyCallbackHandler(bound)
        for commands in ("rm -rf /", "ls"):
            agent = create_agent(_model(_calls(commands), "done"), [shell])
            if commands == "ls":
                _play(agent, "x", is_async=is_async, callbacks=[handler])
            else:
                with pytest.raises(ActionDenied, match="deny-tool_call") as refused:
                    _play(agent, "x", is_async=is_async, callbacks=[handler])
                assert refused.value.reason == "not_enforced"
        assert ran == ["ls"]
        assert handler.failures == 0
        assert {"outcome": "denied", "step": "tool_call"}.items() <= _checks(bound)[0].items()


@is_async
@pytest.mark.parametrize("kind", ["tool_call", "model_call"])
def test_a_ruled_call_does_not_pass_a_handler_that_cannot_judge_it(
    open_sqlite: OpenTally, kind: str, is_async: bool
) -> None:
    with open_sqlite(rules=[_rule("deny", kind)]) as tally:
        model = _model(_calls("ls"), "done")
        agent = create_agent(model, [shell])
        handlers = [TallyCallbackHandler(tally)]
        disagreement: Any = {
            "configurable": {"thread_id": "t", "actor": ADA},
            "metadata": {"user_id": "eve"},
        }
        with pytest.raises(Denied) as refused:
            _play(agent, "x", is_async=is_async, callbacks=handlers, **disagreement)
        assert refused.value.decision.reason == "principal_mismatch"
        assert ran == []
        assert len(model.sent) == (kind == "tool_call")


def test_a_handler_alone_refuses_a_ruled_model_before_it_is_asked(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[_rule("deny", "model_call")]) as tally:
        bound = tally.bind(ADA)
        model = _model("never", "checked")
        handler: Any = {"callbacks": [TallyCallbackHandler(bound)]}
        chain: Any = RunnableLambda(lambda text: text) | model
        with pytest.raises(ActionDenied) as refused:
            chain.invoke("hello", handler)
        assert refused.value.reason == "not_enforced"
        assert model.sent == []
        with enforcing("model_call", None):
            chain.invoke("hello", handler)
        assert len(model.sent) == 1


@is_async
def test_tool_rules_guard_the_tools_of_a_plain_graph(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[NO_RM, ASK]) as tally:
        bound = tally.bind(ADA)
        rules = ToolRules(bound)
        builder: Any = StateGraph(MessagesState)
        node = ToolNode(
            [shell], wrap_tool_call=rules.wrap_tool_call, awrap_tool_call=rules.awrap_tool_call
        )
        builder.add_node("tools", node)
        builder.add_edge(START, "tools")
        builder.add_edge("tools", END)
        graph = builder.compile(checkpointer=InMemorySaver())
        handlers = [TallyCallbackHandler(bound, strict=True)]
        state = _play(
            graph,
            {"messages": [_calls("rm -rf /")]},
            is_async=is_async,
            callbacks=handlers,
        )
        assert "deny-tool_call" in _tool_messages(state)[0]
        other: Any = {"configurable": {"thread_id": "u"}}
        state = _play(graph, {"messages": [_calls("ls")]}, is_async=is_async, **other)
        assert "__interrupt__" in state
        _play(graph, APPROVE, is_async=is_async, **other)
        assert ran == ["ls"]


def test_memory_tools_obey_the_rules_by_themselves(open_sqlite: OpenTally) -> None:
    deny = _rule("deny", tool=("memory_store",))
    with open_sqlite(rules=[deny]) as tally:
        bound = tally.bind(ADA)
        call: Any = {"name": "memory_store", "args": {"content": "a note"}, "id": "c1"}
        agent = create_agent(_model(AIMessage("", tool_calls=[call]), "done"), memory_tools(bound))
        state = _play(agent, "note", callbacks=[TallyCallbackHandler(bound, strict=True)])
        assert "action_denied" in _tool_messages(state)[0]
        assert bound.memories() == []


def test_rules_see_who_acts_in_each_call(open_sqlite: OpenTally) -> None:
    rule = _rule("deny", tool=("shell",), agent=("intern",))
    with open_sqlite(rules=[rule]) as tally:
        for name in ("intern", "senior"):
            agent = create_agent(
                _model(_calls(name), "done"), [shell], middleware=[TallyMiddleware(tally)]
            )
            actor = Actor(user="ada", agent=name)
            _play(agent, "go", configurable={"thread_id": "t", "actor": actor})
        assert ran == ["senior"]


def test_the_doctor_names_the_pieces_that_enforce(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[NO_RM]) as tally:
        TallyCallbackHandler(tally)
        before = [f for f in tally.bind().operator.doctor() if "deny-tool_call" in f.text]
        assert [finding.status for finding in before] == ["problem"]
        ToolRules(tally)
        after = [f for f in tally.bind().operator.doctor() if "deny-tool_call" in f.text]
        assert [finding.status for finding in after] == ["ok"]
        assert "ToolRules" in after[0].text
