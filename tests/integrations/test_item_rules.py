"""Rules over context items hold in each runtime: the item stays out, or the request is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from tests.integrations.runtimes.base import Runtime, Script, call
from tests.integrations.runtimes.direct import Direct, ScriptedProvider
from tests.integrations.runtimes.langchain import LangChain, LangGraph, Scripted
from tests.integrations.runtimes.llama_index import LlamaIndex, ReAct
from tests.integrations.runtimes.pydantic_ai import PydanticAI
from tests.integrations.runtimes.ruling import ANNA, BOT, PAY, Bank, checks_of, paying, rule

from tallystick import Actor, Tally
from tallystick.errors import (
    ActionDenied,
    ApprovalRequired,
    Denied,
    InvalidInput,
    RequestDenied,
    TallystickError,
)
from tallystick.records import ContextItem, PolicyConditions, PolicyRule
from tallystick.tally import replay_call
from tallystick_langchain import TallyCallbackHandler, compile_messages
from tallystick_pydantic_ai import Tallystick

OpenTally = Callable[..., Tally]
KINDS = ("user_msg", "assistant_msg", "tool_result", "system", "tool_schema", "memory")
EFFECTS = ("deny", "redact", "require_approval")
COMPILED: list[Runtime] = [
    LangChain(),
    LangGraph(),
    PydanticAI(),
    PydanticAI("run_stream"),
    LlamaIndex(),
    LlamaIndex("streamed run"),
    ReAct(),
    ReAct("streamed run"),
    Direct("call_model"),
    Direct("http"),
]
"""Runtimes in which the whole request is compiled, as the matrix of rules has them."""
RUNTIMES = [
    pytest.param(LangChain(), {"recorded"}, id="langchain handler"),
    pytest.param(PydanticAI(), {"ruled"}, id="pydantic_ai policy"),
    pytest.param(PydanticAI(), {"recorded"}, id="pydantic_ai recorder"),
    pytest.param(LlamaIndex(), {"recorded"}, id="llama_index instrumentation"),
]
"""Pieces that see a request and compile nothing."""
TEXTS = {
    "user_msg": "Where is the scale",
    "assistant_msg": "Good morning from the desk.",
    "tool_result": "paid ben",
    "system": "You weigh things.",
    "memory": "in the shed",
}
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("runtime", COMPILED, ids=repr)
def test_no_request_has_what_a_rule_keeps_back(
    open_sqlite: OpenTally, runtime: Runtime, effect: str, kind: str
) -> None:
    """The matrix: six kinds of items, three effects, each runtime; nothing is sent."""
    with open_sqlite(rules=[rule(effect, "context_item", kind=(kind,))]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        bound.remember("The scale is in the shed.")
        script = Script(TEXTS["assistant_msg"], [call("pay", **PAY)], "done", "done")
        outcome: TallystickError | None = None
        try:
            runtime.run(
                script,
                bank.tools,
                earlier=("Hello?",),
                prompt="Where is the scale? Then pay Ben.",
                ruled=bound,
                recorded=bound,
                remembering=bound,
            )
        except TallystickError as error:
            outcome = error
        assert not isinstance(outcome, ActionDenied), outcome
        if kind == "tool_schema":
            assert not script.offered
        else:
            assert not any(TEXTS[kind] in request for request in script.sent)
        if (effect, kind) == ("deny", "user_msg"):
            assert isinstance(outcome, RequestDenied)
            assert not script.sent
        if effect == "redact":
            assert outcome is None
            assert len(script.sent) == 3


@pytest.mark.parametrize("runtime", COMPILED, ids=repr)
def test_every_kind_of_item_is_sent_where_no_rule_keeps_it_back(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[rule("deny", "context_item", sensitivity=("secret",))]) as tally:
        bound = tally.bind(BOT)
        bound.remember("The scale is in the shed.")
        script = Script(TEXTS["assistant_msg"], [call("pay", **PAY)], "done")
        given: dict[str, Any] = dict.fromkeys(("ruled", "recorded", "remembering"), bound)
        prompt = "Where is the scale? Then pay Ben."
        runtime.run(script, Bank().tools, earlier=("Hello?",), prompt=prompt, **given)
        assert script.offered == {"pay"}
        assert [kind for kind, text in TEXTS.items() if text not in script.sent[-1]] == []


@pytest.mark.parametrize("kind", KINDS[:-1])
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(("runtime", "pieces"), RUNTIMES)
def test_a_piece_that_compiles_nothing_refuses_the_request(
    open_sqlite: OpenTally, runtime: Runtime, pieces: set[str], effect: str, kind: str
) -> None:
    with open_sqlite(rules=[rule(effect, "context_item", kind=(kind,))]) as tally:
        bound, bank, script = tally.bind(BOT), Bank(), paying(PAY)
        options: dict[str, Any] = dict.fromkeys(pieces, bound)
        with pytest.raises(ActionDenied) as refused:
            runtime.run(script, bank.tools, asks=False, **options)
        assert refused.value.reason == "not_enforced"
        assert not any(TEXTS.get(kind, "never") in request for request in script.sent)
        assert len(script.sent) == (kind in ("assistant_msg", "tool_result"))


@pytest.mark.parametrize(
    ("runtime", "pieces"), [*RUNTIMES, pytest.param(LangChain(), {"ruled"}, id="langchain")]
)
def test_a_rule_over_other_items_lets_the_request_go(
    open_sqlite: OpenTally, runtime: Runtime, pieces: set[str]
) -> None:
    rules = [
        rule("deny", "context_item", sensitivity=("secret",)),
        rule("deny", "context_item", tool_class=("destructive",)).replace(id="destructive"),
    ]
    with open_sqlite(rules=rules, tool_classes={"pay": "write"}) as tally:
        bank = Bank()
        options: dict[str, Any] = dict.fromkeys(pieces, tally.bind(BOT))
        assert runtime.run(paying(PAY), bank.tools, asks=False, **options).text == "done"
        assert bank.paid == [("ben", 5)]


@pytest.mark.parametrize("effect", ["deny", "redact", "require_approval"])
def test_a_request_of_compile_messages_passes_the_handler_and_no_other_does(
    open_sqlite: OpenTally, effect: str
) -> None:
    with open_sqlite(rules=[rule(effect, "context_item", kind=("system",))]) as tally:
        bound, script = tally.bind(BOT), Script("hello", "never")
        messages = [SystemMessage("Secret.", id="s"), HumanMessage("How heavy?", id="u")]
        observed: Any = {"callbacks": [TallyCallbackHandler(bound, strict=True)]}
        if effect == "require_approval":
            with pytest.raises(ApprovalRequired) as waits:
                compile_messages(messages, bound, budget=1_000)
            tally.bind(ANNA).approvals.approve(waits.value.approvals[0].id, reason="fine")
        compiled = compile_messages(messages, bound, budget=1_000)
        assert Scripted(script).invoke(compiled, observed).text == "hello"
        assert ("Secret." in script.sent[0]) == (effect == "require_approval")
        with pytest.raises(ActionDenied):
            Scripted(script).invoke(messages, observed)
        assert len(script.sent) == 1


def test_the_refusal_is_recorded_and_the_doctor_lists_the_rule(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("deny", "context_item", kind=("system",))]) as tally:
        bound = tally.bind(BOT)
        root = tally.bind(Actor(user="root", role="operator"))

        def findings() -> list[str]:
            return [
                each.status for each in root.operator.doctor() if "deny-context_item" in each.text
            ]

        leaves = Tallystick(bound, context=False, tools=False)
        with pytest.raises(ActionDenied) as refused:
            PydanticAI().run(Script("never"), more={"capabilities": [leaves]})
        assert (refused.value.action, refused.value.reason) == ("send_to_model", "not_enforced")
        assert checks_of(tally) == [("model_call", "denied", "deny-context_item")]
        assert findings() == ["problem"]
        bound.compile([], budget=100)
        assert findings() == ["ok"]


def test_a_stored_context_is_sent_only_under_the_rules_of_today(open_sqlite: OpenTally) -> None:
    item = ContextItem(id="q", kind="user_msg", content="When does the heron nest?")
    later = PolicyRule(id="no-files", name="No", effect="deny", applies_to="context_item")
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ada"))
        with bound.run("birds") as run, run.step("model_call", name="scripted-1") as step:
            bound.compile([item], budget=500)
    for rules, is_sent in (((), True), ((later,), False)):
        script = Script("In March.")
        with open_sqlite(rules=rules) as tally:
            bound = tally.bind(Actor(user="ada"))
            stored = bound.recordings.compiled(step.id).compiled
            if is_sent:
                bound.call_model(stored, provider=ScriptedProvider(script))
            else:
                with pytest.raises(InvalidInput, match="without the rules no-files"):
                    bound.call_model(stored, provider=ScriptedProvider(script))
        assert len(script.sent) == is_sent


@pytest.mark.parametrize("how", ["forget", "hide", "redact", "erase", "leave"])
def test_a_context_is_sent_only_while_its_memories_may_be_seen(
    open_sqlite: OpenTally, how: Any
) -> None:
    """Sent again, and asked again by a replay, unless that leaves the memory out."""
    item = ContextItem(id="q", kind="user_msg", content="When does the heron nest?")
    with open_sqlite() as tally:
        root = tally.bind(Actor(user="root", role="operator"))
        member: Any = {"principal_id": "ada", "role": "steward"}
        space = root.spaces.create("team:red", name="Red", reason="birds", members=[member])
        bound = tally.bind(Actor(user="ada"), scope="team:red")
        memory = bound.remember("The heron nests in the old mill.")
        compiled = bound.compile([item, *bound.recall("heron")], budget=500)
        script = Script("In March.", "In April.")
        provider = ScriptedProvider(script)
        sent = bound.call_model(compiled, provider=provider)
        if how == "forget":
            bound.forget(memory.id, reason="gone")
        elif how == "erase":
            seen = root.operator.erase([memory.id], reason="gone")
            root.operator.erase(
                [memory.id], reason="gone", mode="apply", confirm_token=seen.confirm_token
            )
        elif how == "leave":
            root.spaces.update("team:red", members=[], reason="dissolved", if_version=space.version)
        else:
            preview = bound.corrections.make(memory.id, how, reason="gone", mode="preview")
            bound.corrections.make(
                memory.id, how, reason="gone", mode="apply", confirm_token=preview.confirm_token
            )

        refused = Denied if how == "leave" else InvalidInput
        with pytest.raises(refused):
            bound.call_model(compiled, provider=provider)
        if how in ("forget", "hide", "redact"):
            again: Any = {"call": replay_call(bound, provider), "render": provider.render}
            for changed in (again, again | {"token_budget": 400}):
                with pytest.raises(InvalidInput, match="may not be seen any more"):
                    bound.recordings.preview_replay(sent.step_id, **changed)
            again["context_mutations"] = {memory.id: None}
            bound.recordings.preview_replay(sent.step_id, **again)
        assert [("old mill" in each) for each in map(str, script.sent)] == [True] + [False] * (
            len(script.sent) - 1
        )


def test_a_replay_asks_a_model_only_under_the_rules_of_today(open_sqlite: OpenTally) -> None:
    later = PolicyRule(
        id="no-system",
        name="No",
        effect="deny",
        applies_to="context_item",
        conditions=PolicyConditions(kind=("system",)),
    )
    items = [
        ContextItem(id="s", kind="system", content="Secret."),
        ContextItem(id="q", kind="user_msg", content="When does the heron nest?"),
    ]
    provider = ScriptedProvider(script := Script("In March.", "In April."))
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ada"))
        sent = bound.call_model(bound.compile(items, budget=500), provider=provider)
    with open_sqlite(rules=[later]) as tally:
        bound = tally.bind(Actor(user="ada"))
        again: Any = {"call": replay_call(bound, provider), "render": provider.render}
        for changed in (again, again | {"token_budget": 400}):
            with pytest.raises(InvalidInput, match="without the rules no-system"):
                bound.recordings.preview_replay(sent.step_id, **changed)
        bound.recordings.preview_replay(sent.step_id, **again, policy_rules=[later])
    assert ["Secret." in str(each) for each in script.sent] == [True, False]
