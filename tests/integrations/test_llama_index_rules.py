"""Rules at what only LlamaIndex has: tools and models that are called without an agent;
test_runtime_rules.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from tests.integrations.llama_scripted import Scripted, calls
from tests.integrations.runtimes.base import Script
from tests.integrations.runtimes.llama_index import TOOLS_WAIT, LlamaIndex
from tests.integrations.runtimes.ruling import (
    ANNA,
    ASK,
    BOT,
    DENY,
    KEY,
    PAY,
    Bank,
    checks_of,
    paying,
    rule,
)

from tallystick import Tally
from tallystick.errors import ActionDenied, ApprovalRequired
from tallystick_llama_index import TallyInstrumentation, ruled_llm, ruled_tools

# LlamaIndex reads deprecated attributes of pydantic when a workflow ends.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

OpenTally = Callable[..., Tally]


def test_a_tool_called_directly_is_denied_alike(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        llm = ruled_llm(tally, Scripted(Script()), actor=BOT)
        [function] = bank.tools
        [tool] = ruled_tools(
            tally, [FunctionTool.from_defaults(function)], actor=BOT, llm=llm, provider="us"
        )
        for output in (
            tool.call(to="ben", euros=666),
            tool.call("ben", 666),
            asyncio.run(tool.acall(to="ben", euros=666)),
        ):
            assert output.is_error
        assert tool.call(to="ben", euros=5).is_error is False
        assert bank.paid == [("ben", 5)]


def test_a_tool_called_directly_is_checked_with_its_defaults(open_sqlite: OpenTally) -> None:
    paid: list[int] = []

    def pay(to: str, euros: int = 13) -> str:
        """Pay somebody."""
        paid.append(euros)
        return "paid"

    with open_sqlite(rules=[DENY]) as tally:
        [tool] = ruled_tools(tally, [pay], actor=BOT)
        assert tool.call(to="ben").is_error
        assert paid == []


def test_a_tool_called_directly_waits_for_a_grant_from_elsewhere(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        [tool] = ruled_tools(tally, bank.tools, actor=BOT, approval="elsewhere")
        with pytest.raises(ApprovalRequired):
            tool.call(**PAY)
        with pytest.raises(ApprovalRequired) as waits:
            asyncio.run(tool.acall(**PAY))
        [approval] = waits.value.approvals
        tally.bind(ANNA).approvals.approve(approval.id, reason="fine")
        with pytest.raises(ApprovalRequired):
            tool.call(to="ben", euros=6)
        assert tool.call(**PAY).is_error is False
        with pytest.raises(ApprovalRequired):
            tool.call(**PAY)
        assert bank.paid == [("ben", 5)]


def test_a_tool_called_directly_needs_its_receipt(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("require_receipt", tool=("pay",))]) as tally:
        bank = Bank()
        [tool] = ruled_tools(tally, bank.tools, actor=BOT)
        with pytest.raises(ActionDenied) as refused:
            tool.call(**PAY)
        assert refused.value.reason == "receipt_required"
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            tool.call(**PAY)
        assert bank.paid == [("ben", 5)]


@pytest.mark.skipif(
    not TOOLS_WAIT, reason="this release of LlamaIndex does not let tools of agents wait"
)
def test_a_tool_that_wants_the_context_of_its_workflow_gets_it(open_sqlite: OpenTally) -> None:
    contexts: list[Any] = []

    async def pay(ctx: Context, to: str, euros: int) -> str:
        """Pay somebody."""
        contexts.append(ctx)
        return "paid"

    # LlamaIndex looks for the class of a parameter itself.
    pay.__annotations__.update(ctx=Context, to=str, euros=int)
    with open_sqlite(rules=[ASK]) as tally:
        outcome = LlamaIndex().run(
            paying(PAY), [pay], ruled=tally.bind(BOT), answers=lambda question: True
        )
        assert outcome.tools == [("paid", False)]
        assert isinstance(contexts[0], Context)


@pytest.mark.skipif(
    not TOOLS_WAIT, reason="this release of LlamaIndex does not let tools of agents wait"
)
@pytest.mark.parametrize(
    ("effect", "response", "said"),
    [
        ("deny", None, "a stays"),
        ("require_approval", "yes", "b is here"),
        ("require_approval", "not now", "a stays"),
    ],
)
def test_a_handoff_goes_by_the_rules_where_the_workflow_gives_out_ruled_tools(
    open_sqlite: OpenTally, effect: str, response: str | None, said: str
) -> None:
    async def hand_over(tally: Tally) -> str:
        class RuledWorkflow(AgentWorkflow):
            async def get_tools(self, agent_name: str, input_str: str | None = None) -> Any:
                return ruled_tools(tally, await super().get_tools(agent_name, input_str), actor=BOT)

        asks = calls(("c1", "handoff", {"to_agent": "b", "reason": "b knows"}))
        models = {
            "a": Scripted(asks, ChatMessage("a stays", role="assistant")),
            "b": Scripted(ChatMessage("b is here", role="assistant")),
        }
        agents: list[Any] = [
            FunctionAgent(name=name, description=name, llm=model) for name, model in models.items()
        ]
        running = RuledWorkflow(agents=agents, root_agent="a").run(user_msg="hi")
        async for event in running.stream_events():
            if isinstance(event, InputRequiredEvent):
                answer: dict[str, Any] = {"response": response, "waiter_id": event.get("waiter_id")}
                running.ctx.send_event(HumanResponseEvent(**answer))
        return str(await running)

    with open_sqlite(rules=[rule(effect, tool=("handoff",))]) as tally:
        assert asyncio.run(hand_over(tally)) == said


def _ask(llm: Any, way: str, text: str) -> Any:
    """Send a text to a model in one of LlamaIndex's ways."""
    messages = [ChatMessage(text)]

    async def stream() -> Any:
        return [piece async for piece in await llm.astream_chat(messages)][-1]

    ways: dict[str, Callable[[], Any]] = {
        "chat": lambda: llm.chat(messages=messages),
        "achat": lambda: asyncio.run(llm.achat(messages)),
        "stream_chat": lambda: list(llm.stream_chat(messages))[-1],
        "astream_chat": lambda: asyncio.run(stream()),
        "complete": lambda: llm.complete(text),
        "acomplete": lambda: asyncio.run(llm.acomplete(prompt=text)),
        "chat_with_tools": lambda: llm.chat_with_tools([], user_msg=text),
        "predict": lambda: llm.predict(PromptTemplate(text)),
    }
    return ways[way]()


CHATS = ("chat", "achat", "stream_chat", "astream_chat")
WAYS = (*CHATS, "complete", "acomplete", "chat_with_tools", "predict")


def test_a_denied_request_is_sent_in_no_way(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("deny", "model_call", model=("scripted",))]) as tally:
        script = Script()
        llm = ruled_llm(tally, Scripted(script), actor=BOT)
        assert isinstance(llm, Scripted)
        for way in WAYS:
            with pytest.raises(ActionDenied) as refused:
                _ask(llm, way, "hi")
            assert refused.value.reason == "denied_by_rule"
        assert script.sent == []


@pytest.mark.parametrize("way", CHATS)
def test_a_redacted_request_is_recorded_as_it_was_sent(open_sqlite: OpenTally, way: str) -> None:
    with open_sqlite(rules=[rule("redact", "model_call")]) as tally:
        script = Script("hello")
        llm = ruled_llm(tally, Scripted(script), actor=BOT)
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            _ask(llm, way, f"My mail is anna@example.org, my key {KEY}.")

        assert not any(secret in str(script.sent) for secret in (KEY, "anna@example.org"))
        bound = tally.bind(ANNA)
        [run] = bound.recordings.runs()
        steps = bound.recordings.steps(run.id)
        assert [step.step_kind for step in steps] == ["model_call"]
        assert checks_of(tally) == [("model_call", "redacted", "redact-model_call")]
        assert bound.recordings.verify(run.id).ok


class Completing(CustomLLM):
    """A model that only completes: LlamaIndex makes chats of that, some as they are read."""

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(model_name="completing")

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="hello")

    @llm_completion_callback()
    def stream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> Generator[CompletionResponse, None, None]:
        return (CompletionResponse(text=text, delta="x") for text in ("hel", "hello"))


def test_a_chat_that_is_made_of_completions_is_checked_once(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("redact", "model_call")]) as tally:
        llm = ruled_llm(tally, Completing(), actor=BOT)
        ways = [way for way in WAYS if way != "chat_with_tools"]
        for number, way in enumerate(ways, start=1):
            with TallyInstrumentation(tally, actor=BOT, strict=True):
                assert "hello" in str(_ask(llm, way, "hi"))
            assert [outcome for _, outcome, _ in checks_of(tally)] == ["redacted"] * number, way


@pytest.mark.parametrize("way", [way for way in WAYS if way != "chat_with_tools"])
def test_a_call_of_a_model_that_only_completes_is_one_step_in_each_way(
    open_sqlite: OpenTally, way: str
) -> None:
    with open_sqlite() as tally:
        for llm in (Completing(), ruled_llm(tally, Completing())):
            with TallyInstrumentation(tally, strict=True):
                assert "hello" in str(_ask(llm, way, "hi"))
        bound = tally.bind()
        runs = bound.recordings.runs()
        steps = [step for run in runs for step in bound.recordings.steps(run.id)]
        assert [run.status for run in runs] == ["completed"] * 2
        assert [step.step_kind for step in steps] == ["model_call"] * 2


def test_the_instrumentation_alone_refuses_a_ruled_request_in_each_way(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        script = Script()
        llm = Scripted(script)
        for number, way in enumerate(WAYS, start=1):
            observed = TallyInstrumentation(tally, actor=BOT, strict=True)
            with observed, pytest.raises(ActionDenied) as refused:
                _ask(llm, way, "hi")
            assert refused.value.reason == "not_enforced"
            checks = [("model_call", "denied", "deny-model_call")] * number
            assert checks_of(tally) == checks, way
            assert llm.callback_manager.handlers == []
        assert script.sent == []
