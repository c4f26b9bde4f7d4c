"""Rules at the pieces that only LangChain and LangGraph have; tests/integrations/
test_runtime_rules.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, InjectedStore, ToolNode, ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel, Field, field_validator
from tests.integrations.runtimes.base import Script, call
from tests.integrations.runtimes.langchain import LangChain, Scripted
from tests.integrations.runtimes.ruling import ASK, BOT, DENY, PAY, Bank, paying, rule

from tallystick import Tally
from tallystick.errors import ActionDenied, Denied, InvalidInput
from tallystick.kit import enforcing
from tallystick.records import ArgumentCondition
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware, ToolRules

OpenTally = Callable[..., Tally]
APPROVE: Any = Command(resume={"decisions": [{"type": "approve"}]})
THREAD: Any = {"configurable": {"thread_id": "t"}}
is_async = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def _play(agent: Any, value: Any, *, is_async: bool = False, **more: Any) -> Any:
    config = {**THREAD, **more}
    if isinstance(value, str):
        value = {"messages": [("user", value)]}
    return asyncio.run(agent.ainvoke(value, config)) if is_async else agent.invoke(value, config)


def _tool_messages(state: Any) -> list[str]:
    return [str(each.text) for each in state["messages"] if isinstance(each, ToolMessage)]


@is_async
def test_an_answer_counts_for_no_call_that_was_changed_while_it_waited(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        agent: Any = create_agent(
            Scripted(paying(PAY)),
            bank.tools,
            middleware=[TallyMiddleware(tally.bind(BOT), strict=True)],
            checkpointer=InMemorySaver(),
        )
        _play(agent, "pay", is_async=is_async)
        message = agent.get_state(THREAD).values["messages"][-1]
        [asked] = message.tool_calls
        dearer = {**asked, "args": {**PAY, "euros": 500}}
        changed = message.model_copy(update={"tool_calls": [dearer]})
        agent.update_state(THREAD, {"messages": [changed]}, as_node="model")
        _play(agent, APPROVE, is_async=is_async)
        state = _play(agent, APPROVE, is_async=is_async)
        assert bank.paid == []
        assert "before these arguments were asked about" in _tool_messages(state)[-1]


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_a_model_call_waits_for_a_person_and_is_made_once_approved(
    open_sqlite: OpenTally, way: str
) -> None:
    with open_sqlite(rules=[rule("require_approval", "model_call")]) as tally:
        script = Script("ok")
        runtime, bound = LangChain(way), tally.bind(BOT)
        assert len(runtime.run(script, ruled=bound).waiting) == 1
        assert script.sent == []
        assert runtime.run(script, ruled=bound, answers=lambda question: True).text == "ok"
        assert len(script.sent) == 1


@is_async
@pytest.mark.parametrize("kind", ["tool_call", "model_call"])
def test_a_ruled_call_does_not_pass_a_handler_that_cannot_judge_it(
    open_sqlite: OpenTally, kind: str, is_async: bool
) -> None:
    with open_sqlite(rules=[rule("deny", kind)]) as tally:
        bank, script = Bank(), paying(PAY)
        agent = create_agent(Scripted(script), bank.tools)
        disagreement: Any = {
            "configurable": {"thread_id": "t", "actor": BOT},
            "metadata": {"user_id": "eve"},
        }
        handlers = [TallyCallbackHandler(tally)]
        with pytest.raises(Denied) as refused:
            _play(agent, "x", is_async=is_async, callbacks=handlers, **disagreement)
        assert refused.value.decision.reason == "principal_mismatch"
        assert bank.paid == []
        assert len(script.sent) == (kind == "tool_call")


def test_a_handler_alone_refuses_a_model_unless_something_enforces_its_rules(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        script, handler = Script("checked"), TallyCallbackHandler(tally.bind(BOT))
        chain: Any = RunnableLambda(lambda text: text) | Scripted(script)
        with pytest.raises(ActionDenied) as refused:
            chain.invoke("hello", {"callbacks": [handler]})
        assert (refused.value.reason, script.sent) == ("not_enforced", [])
        assert handler.failures == 0
        with enforcing(tally, "model_call", "scripted-1"):
            chain.invoke("hello", {"callbacks": [handler]})
        assert len(script.sent) == 1
        nameless: Any = RunnableLambda(str) | GenericFakeChatModel(messages=iter(["checked"]))
        with enforcing(tally, "model_call", None):
            assert nameless.invoke("hello", {"callbacks": [handler]}).content == "checked"


@is_async
def test_tool_rules_guard_the_tools_of_a_plain_graph(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite(rules=[DENY, ASK]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        rules = ToolRules(bound)
        assert "ToolRules" in str(tally.bind().operator.doctor())
        builder: Any = StateGraph(MessagesState)
        node = ToolNode(
            [tool(each) for each in bank.tools],
            wrap_tool_call=rules.wrap_tool_call,
            awrap_tool_call=rules.awrap_tool_call,
        )
        builder.add_node("tools", node)
        builder.add_edge(START, "tools")
        builder.add_edge("tools", END)
        graph = builder.compile(checkpointer=InMemorySaver())

        def pay(euros: int, thread: str) -> Any:
            asked: Any = {"name": "pay", "args": {"to": "ben", "euros": euros}, "id": "c1"}
            messages = {"messages": [AIMessage("", tool_calls=[asked])]}
            return _play(graph, messages, is_async=is_async, **_thread(thread))

        def _thread(name: str) -> dict[str, Any]:
            handlers = [TallyCallbackHandler(bound, strict=True)]
            return {"configurable": {"thread_id": name}, "callbacks": handlers}

        assert "deny-tool_call" in _tool_messages(pay(13, "t"))[0]
        assert "__interrupt__" in pay(5, "u")
        _play(graph, APPROVE, is_async=is_async, **_thread("u"))
        assert bank.paid == [("ben", 5)]


class _Order(BaseModel):
    euros: int
    state: Annotated[dict[str, Any], InjectedState]
    store: Annotated[Any, InjectedStore]
    call_id: Annotated[str, InjectedToolCallId]
    wallet: Annotated[str, InjectedToolArg] = "none"

    @field_validator("euros")
    @classmethod
    def _is_positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("nobody pays nothing")
        return value


@is_async
def test_what_the_graph_injects_arrives_and_no_rule_sees_it(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    paid: list[Any] = []

    @tool(args_schema=_Order)
    def order(
        euros: int, state: Any, store: Any, call_id: str, wallet: str, config: RunnableConfig
    ) -> str:
        """Order something."""
        paid.append((euros, len(state["messages"]), store, call_id, wallet, "metadata" in config))
        return "ordered"

    @tool
    def look(euros: int, runtime: ToolRuntime) -> str:
        """Look at something."""
        paid.append((euros, runtime.tool_call_id))
        return "looked"

    script = Script(
        [
            call("order", euros="5"),
            call("order", euros="13"),
            call("order", euros=0),
            call("look", euros="6"),
            call("look", euros="13"),
        ],
        "done",
    )
    ruling = rule("deny", arguments=(ArgumentCondition(path="$.euros", equals=13),))
    hidden = rule("deny", arguments=(ArgumentCondition(path="$.*", contains="messages"),))
    with open_sqlite(rules=[ruling, hidden.replace(id="hidden")]) as tally:
        store = InMemoryStore()
        middleware: Any = TallyMiddleware(tally.bind(BOT), strict=True)
        agent = create_agent(Scripted(script), [order, look], middleware=[middleware], store=store)
        state = _play(agent, "order", is_async=is_async)
    texts = _tool_messages(state)
    assert sorted(paid, key=str) == [
        (5, 2, store, "c10_order", "none", True),
        (6, "c13_look"),
    ]
    assert ["stopped by rule" in text for text in texts] == [False, True, False, False, True]
    assert "nobody pays nothing" in texts[2]


@pytest.mark.parametrize("written", [{"euros": "13"}, {"euros": True}, {}])
def test_a_handler_alone_refuses_what_the_tool_may_make_a_ruled_call_of(
    open_sqlite: OpenTally, written: dict[str, Any]
) -> None:
    def pay(euros: int = 13) -> str:
        """Pay somebody."""
        raise AssertionError

    with open_sqlite(rules=[DENY]) as tally:
        script = Script([call("pay", **written)], "done")
        with pytest.raises(ActionDenied, match="deny-tool_call"):
            LangChain().run(script, [pay], recorded=tally.bind(BOT))


class _Nothing(BaseModel, extra="forbid"):
    """The schema of a tool without arguments."""


class _Numbers(BaseModel):
    n: int
    force: bool = True


class _Own(BaseTool):
    """A tool that reads its arguments in a way of its own."""

    name: str = "own"
    description: str = "Do something."
    args_schema: Any = _Numbers
    ran: list[Any] = []

    def run(self, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
        self.ran.append(tool_input)
        return ToolMessage("ran", tool_call_id=kwargs["tool_call_id"])

    def _run(self) -> str:
        raise AssertionError


def test_no_reading_of_its_own_leads_a_tool_round_the_rules(open_sqlite: OpenTally) -> None:
    ran: list[str] = []

    @tool(args_schema=_Nothing)
    def wipe() -> str:
        """Wipe everything."""
        ran.append("wipe")
        return "wiped"

    written = [call("own", n=each) for each in ("13", "5", "many")]
    script = Script([call("wipe", all=True), *written], "done")
    own = _Own()
    on = (ArgumentCondition(path="$.n", equals=13),)
    rules = [rule("deny", tool=("wipe",)), rule("deny", arguments=on).replace(id="own")]
    with open_sqlite(rules=rules) as tally:
        outcome = LangChain().run(script, [wipe, own], ruled=tally.bind(BOT))
    assert (ran, own.ran) == ([], [{"n": 5, "force": True}])
    assert [each.text for each in outcome.tools].count("ran") == 1


class _Aliased(BaseModel):
    euros: int = Field(alias="amount")


@pytest.mark.skipif(
    "provided_fields" not in inspect.getsource(BaseTool._parse_input),
    reason="this release of LangChain gives no tool a value by its alias",
)
def test_rules_name_a_value_as_the_tool_does_and_not_by_its_alias(open_sqlite: OpenTally) -> None:
    paid: list[int] = []

    @tool(args_schema=_Aliased)
    def order(euros: int) -> str:
        """Order something."""
        paid.append(euros)
        return "ordered"

    ruling = rule("deny", arguments=(ArgumentCondition(path="$.euros", equals=13),))
    with open_sqlite(rules=[ruling]) as tally:
        script = Script([call("order", amount="13"), call("order", amount="5")], "done")
        LangChain().run(script, [order], ruled=tally.bind(BOT))
    assert paid == [5]


def test_a_middleware_between_the_rules_and_the_tool_changes_no_arguments(
    open_sqlite: OpenTally,
) -> None:
    class Meddler(AgentMiddleware[Any, Any, Any]):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(
                request.override(tool_call={**request.tool_call, "args": {**PAY, "euros": 500}})
            )

    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        middleware: Any = [TallyMiddleware(tally.bind(BOT), strict=True), Meddler()]
        agent = create_agent(Scripted(paying(PAY)), bank.tools, middleware=middleware)
        with pytest.raises(InvalidInput, match="last in `middleware`"):
            _play(agent, "pay")
        assert bank.paid == []
