"""Rules over context items hold in each runtime: the item stays out, or the request is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from tests.integrations.runtimes.base import Runtime, Script
from tests.integrations.runtimes.langchain import LangChain, Scripted
from tests.integrations.runtimes.llama_index import LlamaIndex
from tests.integrations.runtimes.pydantic_ai import PydanticAI
from tests.integrations.runtimes.ruling import ANNA, BOT, PAY, Bank, checks_of, paying, rule

from tallystick import Actor, Tally
from tallystick.errors import ActionDenied, ApprovalRequired, TallystickError
from tallystick_langchain import TallyCallbackHandler, compile_messages
from tallystick_pydantic_ai import Tallystick

OpenTally = Callable[..., Tally]
KINDS = ("user_msg", "assistant_msg", "tool_result", "system", "tool_schema")
RUNTIMES = [
    pytest.param(LangChain(), {"ruled", "recorded"}, id="langchain"),
    pytest.param(LangChain(), {"recorded"}, id="langchain handler"),
    pytest.param(PydanticAI(), {"ruled"}, id="pydantic_ai"),
    pytest.param(PydanticAI("run_stream"), {"ruled"}, id="pydantic_ai stream"),
    pytest.param(PydanticAI(), {"recorded"}, id="pydantic_ai recorder"),
    pytest.param(LlamaIndex(), {"ruled"}, id="llama_index"),
    pytest.param(LlamaIndex("streamed run"), {"ruled"}, id="llama_index stream"),
    pytest.param(LlamaIndex(), {"recorded"}, id="llama_index instrumentation"),
]
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("effect", ["deny", "redact", "require_approval"])
@pytest.mark.parametrize(("runtime", "pieces"), RUNTIMES)
def test_an_item_that_a_rule_keeps_back_is_not_sent(
    open_sqlite: OpenTally, runtime: Runtime, pieces: set[str], effect: str, kind: str
) -> None:
    with open_sqlite(rules=[rule(effect, "context_item", kind=(kind,))]) as tally:
        bound, bank, script = tally.bind(BOT), Bank(), paying(PAY)
        options: dict[str, Any] = dict.fromkeys(pieces, bound)
        outcome: TallystickError | None = None
        try:
            runtime.run(script, bank.tools, asks=False, **options)
        except (ActionDenied, ApprovalRequired, TallystickError) as error:
            outcome = error
        texts = {
            "user_msg": "How heavy?",
            "tool_result": "paid ben",
            "system": "You weigh things.",
        }
        if kind in texts:
            assert not any(texts[kind] in request for request in script.sent)
        is_refused = isinstance(outcome, ActionDenied) and outcome.reason == "not_enforced"
        if pieces == {"ruled", "recorded"}:
            # The middleware compiles the whole request.
            assert not is_refused
        else:
            assert is_refused
            assert len(script.sent) == (kind in ("assistant_msg", "tool_result"))


@pytest.mark.parametrize(("runtime", "pieces"), RUNTIMES)
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
