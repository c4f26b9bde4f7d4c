"""Rules over calls bite in LlamaIndex: at ruled tools, ruled models and the memory tools."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult, base_agent
from llama_index.core.base.llms.types import ChatMessage, CompletionResponse, LLMMetadata
from llama_index.core.llms import CustomLLM
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from llama_index_instrumentation.dispatcher import instrument_tags

from tallystick import Actor, PolicyRule, Tally
from tallystick.errors import ActionDenied, ApprovalRequired, Denied
from tallystick.records import ArgumentCondition
from tallystick_llama_index import (
    TallyInstrumentation,
    memory_tools,
    ruled_llm,
    ruled_tools,
)

from .llama_scripted import Scripted, calls

# LlamaIndex reads deprecated attributes of pydantic when a workflow ends.
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

OpenTally = Callable[..., Tally]
BOT, ANNA = Actor(user="anna", agent="bot"), Actor(user="anna")
KEY = "sk-" + "a1B2c3D4" * 5
PAY = {"to": "ben", "euros": 5}


def rule(effect: str, applies_to: str = "tool_call", **conditions: Any) -> PolicyRule:
    name = f"{effect}-{applies_to}"
    return PolicyRule.load(
        {
            "id": name,
            "name": name,
            "effect": effect,
            "applies_to": applies_to,
            "conditions": conditions,
        }
    )


ASK = rule("require_approval", tool=("pay",))
DENY = rule("deny", tool=("pay",), arguments=(ArgumentCondition(path="$.euros", one_of=(13, 666)),))

lets_tools_wait = pytest.mark.skipif(
    "WaitingForEvent" not in inspect.getsource(base_agent),
    reason="this release of LlamaIndex does not let tools of agents wait",
)


class Bank:
    """A tool that pays, and what it paid."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.notes: list[str] = []

    def pay(self, to: str, euros: int = 13, note: str = "") -> str:
        """Pay somebody."""
        self.paid.append((to, euros))
        self.notes.append(note)
        return f"paid {to}, account {KEY}"


async def drive(agent: FunctionAgent, answers: dict[str, Any] | Any = "yes") -> list[Any]:
    """Run an agent, answer what it asks, and return its events."""
    events: list[Any] = []
    handler = agent.run("pay")
    async for event in handler.stream_events():
        events.append(event)
        if isinstance(event, InputRequiredEvent):
            arguments: Any = event.get("arguments")
            response = answers[arguments["to"]] if isinstance(answers, dict) else answers
            fields: Any = {"waiter_id": event.get("waiter_id"), "response": response}
            assert handler.ctx is not None
            handler.ctx.send_event(HumanResponseEvent(**fields))
    await handler
    return events


def pay_with(tools: Any, *arguments: dict[str, Any], **options: Any) -> list[Any]:
    """The events of an agent that calls the tool `pay`, with each of these arguments at once."""
    selections = [(f"c{place}", "pay", each) for place, each in enumerate(arguments)]
    answers = options.pop("answers", "yes")
    llm = Scripted(calls(*selections), "done")
    return asyncio.run(drive(FunctionAgent(tools=tools, llm=llm, **options), answers))


def outputs(events: list[Any]) -> list[tuple[str, bool]]:
    return [
        (event.tool_output.content, event.tool_output.is_error)
        for event in events
        if isinstance(event, ToolCallResult)
    ]


def questions_in(events: list[Any]) -> list[Any]:
    return [event.get("arguments") for event in events if isinstance(event, InputRequiredEvent)]


def checks_of(tally: Tally) -> list[tuple[Any, Any, Any]]:
    """The policy checks of all runs, oldest first: kind of the step, outcome and rule."""
    bound = tally.bind(ANNA)
    return [
        (step.step_kind, entry.summary["outcome"], entry.summary["rule"])
        for run in reversed(bound.runs())
        for step in bound.recordings.steps(run.run_id)
        for entry in bound.recordings.entries(step.step_id)
        if entry.kind == "policy_check"
    ]


def test_a_denied_call_does_not_run_and_the_model_reads_why(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            events = pay_with(
                ruled_tools(tally, [bank.pay], actor=BOT), {"to": "ben"}, {**PAY, "to": "zoe"}
            )

        assert bank.paid == [("zoe", 5)]
        ran, denied = sorted(outputs(events), key=lambda output: output[1])
        assert (ran[1], denied[1], "stopped by rule deny-tool_call" in denied[0]) == (
            False,
            True,
            True,
        )
        bound = tally.bind(ANNA)
        [run] = bound.runs()
        kinds = [(step.step_kind, step.status) for step in bound.recordings.steps(run.run_id)]
        assert sorted(kinds) == [
            ("model_call", "completed"),
            ("model_call", "completed"),
            ("tool_call", "completed"),
            ("tool_call", "failed"),
        ]
        assert sorted(checks_of(tally), key=str) == [
            ("tool_call", "allowed", None),
            ("tool_call", "denied", "deny-tool_call"),
        ]


def test_a_tool_called_directly_is_denied_alike(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        [tool] = ruled_tools(tally, [FunctionTool.from_defaults(bank.pay)], actor=BOT)
        for output in (
            tool.call(to="ben", euros=666),
            tool.call("ben", 666),
            asyncio.run(tool.acall(to="ben", euros=666)),
        ):
            assert output.is_error
        assert tool.call(to="ben", euros=5).is_error is False
        assert bank.paid == [("ben", 5)]


def test_redaction_cleans_the_arguments_and_the_result(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("redact")]) as tally:
        bank = Bank()
        events = pay_with(ruled_tools(tally, [bank.pay], actor=BOT), {**PAY, "note": KEY})

        assert bank.notes[0].startswith("[redacted:")
        [(content, _)] = outputs(events)
        assert KEY not in content


@lets_tools_wait
def test_an_approval_waits_for_the_event_of_a_person_and_is_used_once(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        tools = ruled_tools(tally, [bank.pay], actor=BOT)
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            events = pay_with(tools, PAY)

        assert questions_in(events) == [{**PAY, "note": ""}]
        assert bank.paid == [("ben", 5)]
        [approval] = tally.bind(ANNA).approvals(state=None)
        assert (approval.state, approval.decided_by) == (
            "used",
            {"user": "anna", "role": "member"},
        )
        bound = tally.bind(ANNA)
        steps = [
            step
            for step in bound.recordings.steps(bound.runs()[0].run_id)
            if step.step_kind == "tool_call"
        ]
        assert [step.status for step in steps] == ["blocked", "completed"]
        kinds = [entry.kind for entry in bound.recordings.entries(steps[0].step_id)]
        assert kinds == ["tool_call", "policy_check", "approval"]
        assert len(questions_in(pay_with(tools, PAY))) == 1


@lets_tools_wait
def test_a_refusal_is_recorded_and_holds(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        tools = ruled_tools(tally, [bank.pay], actor=BOT)
        [(why, is_error)] = outputs(pay_with(tools, PAY, answers="too dear"))
        assert (is_error, "anna denied it: too dear" in why) == (True, True)
        assert questions_in(pay_with(tools, PAY)) == []
        assert questions_in(pay_with(tools, {**PAY, "euros": 6})) == [
            {"to": "ben", "euros": 6, "note": ""}
        ]
        assert bank.paid == [("ben", 6)]


@lets_tools_wait
def test_parallel_calls_wait_and_are_answered_each_for_itself(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        people = [{"to": name, "euros": 5} for name in ("ben", "zoe", "tom")]
        answers = {"ben": "yes", "zoe": "no", "tom": True}
        pay_with(ruled_tools(tally, [bank.pay], actor=BOT), *people, answers=answers)

        assert sorted(bank.paid) == [("ben", 5), ("tom", 5)]
        states = [each.state for each in tally.bind(ANNA).approvals(state=None)]
        assert sorted(states) == ["denied", "used", "used"]


def test_what_was_granted_elsewhere_passes_once_and_only_as_it_was(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        [tool] = ruled_tools(tally, [bank.pay], actor=BOT, approval="elsewhere")
        with pytest.raises(ApprovalRequired):
            tool.call(**PAY)
        with pytest.raises(ApprovalRequired) as waits:
            tool.call(**PAY)
        with pytest.raises(ApprovalRequired):
            asyncio.run(tool.acall(**PAY))
        [approval] = waits.value.approvals
        with pytest.raises(Denied):
            tally.bind(BOT).approve(approval.id, reason="I may")
        tally.bind(ANNA).approve(approval.id, reason="fine")

        with pytest.raises(ApprovalRequired):
            tool.call(to="ben", euros=6)
        assert tool.call(**PAY).is_error is False
        with pytest.raises(ApprovalRequired):
            tool.call(**PAY)
        assert bank.paid == [("ben", 5)]


@lets_tools_wait
def test_a_tool_that_wants_the_context_of_its_workflow_gets_it(open_sqlite: OpenTally) -> None:
    contexts: list[Any] = []

    async def pay(ctx: Context, to: str, euros: int) -> str:
        """Pay somebody."""
        contexts.append(ctx)
        return "paid"

    # LlamaIndex looks for the class of a parameter itself.
    pay.__annotations__.update(ctx=Context, to=str, euros=int)
    with open_sqlite(rules=[ASK]) as tally:
        events = pay_with(ruled_tools(tally, [pay], actor=BOT), PAY)
        assert outputs(events) == [("paid", False)]
        assert isinstance(contexts[0], Context)


@lets_tools_wait
@pytest.mark.parametrize("wrapped", [False, True])
def test_memory_tools_go_by_the_rules_and_ask_once(open_sqlite: OpenTally, wrapped: bool) -> None:
    rules = [
        rule("require_approval", tool=("memory_forget",)),
        rule("deny", tool=("memory_store",)),
    ]
    with open_sqlite(rules=rules) as tally:
        stored = tally.bind(ANNA).remember("Tea at four.")
        tools: Any = memory_tools(tally, actor=BOT)
        tools = ruled_tools(tally, tools, actor=BOT) if wrapped else tools
        forget = {"memory_id": stored.id, "reason": "stale"}

        async def forgetting() -> tuple[int, list[Any]]:
            llm = Scripted(
                calls(("c0", "memory_forget", forget), ("c1", "memory_store", {"content": "x"})),
                "done",
            )
            handler = FunctionAgent(tools=tools, llm=llm).run("forget")
            questions, results = 0, []
            async for event in handler.stream_events():
                if isinstance(event, InputRequiredEvent):
                    questions += 1
                    fields: Any = {"waiter_id": event.get("waiter_id"), "response": "yes"}
                    assert handler.ctx is not None
                    handler.ctx.send_event(HumanResponseEvent(**fields))
                elif isinstance(event, ToolCallResult):
                    results.append((event.tool_name, event.tool_output.is_error))
            await handler
            return questions, results

        with TallyInstrumentation(tally, actor=BOT, strict=True):
            questions, results = asyncio.run(forgetting())
        assert questions == 1
        assert sorted(results) == [("memory_forget", False), ("memory_store", True)]
        assert tally.bind(ANNA).memories() == []


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


WAYS = (
    "chat",
    "achat",
    "stream_chat",
    "astream_chat",
    "complete",
    "acomplete",
    "chat_with_tools",
    "predict",
)


class Listening(Scripted):
    """A model that notes what it was sent."""

    heard: list[str] = []

    def says(self, messages: Any) -> ChatMessage:
        self.heard.extend(str(message.content) for message in messages)
        return super().says(messages)


@pytest.mark.parametrize("way", WAYS)
def test_a_denied_request_is_not_sent(open_sqlite: OpenTally, way: str) -> None:
    with open_sqlite(rules=[rule("deny", "model_call", model=("scripted",))]) as tally:
        model = Scripted(*["hello"] * 5)
        llm = ruled_llm(tally, model, actor=BOT)
        assert isinstance(llm, Scripted)
        with pytest.raises(ActionDenied) as refused:
            _ask(llm, way, "hi")
        assert refused.value.reason == "denied_by_rule"
        assert len(list(model._script)) == 5


@pytest.mark.parametrize("way", ["chat", "achat", "stream_chat", "astream_chat"])
def test_a_redacted_request_is_recorded_as_it_was_sent(open_sqlite: OpenTally, way: str) -> None:
    with open_sqlite(rules=[rule("redact", "model_call")]) as tally:
        model = Listening(*["hello"] * 2, heard=[])
        llm = ruled_llm(tally, model, actor=BOT)
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            _ask(llm, way, f"My mail is anna@example.org, my key {KEY}.")

        assert KEY not in str(model.heard)
        assert "anna@example.org" not in str(model.heard)
        bound = tally.bind(ANNA)
        [run] = bound.runs()
        steps = bound.recordings.steps(run.run_id)
        assert [step.step_kind for step in steps] == ["policy_check", "model_call"]
        assert checks_of(tally) == [("policy_check", "redacted", "redact-model_call")]
        assert bound.recordings.verify(run.run_id).ok


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


@pytest.mark.parametrize("way", [way for way in WAYS if way != "chat_with_tools"])
def test_a_chat_that_is_made_of_completions_is_checked_once(
    open_sqlite: OpenTally, way: str
) -> None:
    with open_sqlite(rules=[rule("redact", "model_call")]) as tally:
        llm = ruled_llm(tally, Completing(), actor=BOT)
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            assert "hello" in str(_ask(llm, way, "hi"))
        assert [outcome for _, outcome, _ in checks_of(tally)] == ["redacted"]


def test_an_agent_asks_a_ruled_model_which_is_checked_once_a_request(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[rule("allow", "model_call"), DENY]) as tally:
        bank = Bank()
        llm = ruled_llm(tally, Scripted(calls(("c0", "pay", PAY)), "done"), actor=BOT)
        tools: Any = ruled_tools(tally, [bank.pay], actor=BOT, llm=llm, provider="us")
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            asyncio.run(drive(FunctionAgent(tools=tools, llm=llm)))
        assert bank.paid == [("ben", 5)]
        assert [outcome for _, outcome, _ in checks_of(tally)] == ["allowed"] * 3


def test_a_request_that_waits_passes_once_granted(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("require_approval", "model_call")]) as tally:
        llm = ruled_llm(tally, Scripted("hello", "again"), actor=BOT)
        with pytest.raises(ApprovalRequired) as waits:
            _ask(llm, "chat", "hi")
        [approval] = waits.value.approvals
        tally.bind(ANNA).approve(approval.id, reason="fine")
        assert _ask(llm, "chat", "hi").message.content == "hello"
        with pytest.raises(ApprovalRequired):
            _ask(llm, "chat", "hi")


def test_a_receipt_is_wanted_and_there_is_one_with_the_instrumentation(
    open_sqlite: OpenTally,
) -> None:
    rules = [rule("require_receipt", "model_call"), rule("require_receipt", tool=("pay",))]
    with open_sqlite(rules=rules) as tally:
        bank = Bank()
        [tool] = ruled_tools(tally, [bank.pay], actor=BOT)
        llm = ruled_llm(tally, Scripted("hello"), actor=BOT)
        for call in (lambda: tool.call(**PAY), lambda: _ask(llm, "chat", "hi")):
            with pytest.raises(ActionDenied) as refused:
                call()
            assert refused.value.reason == "receipt_required"
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            tool.call(**PAY)
            _ask(llm, "chat", "hi")
        assert bank.paid == [("ben", 5)]


@pytest.mark.parametrize("way", WAYS)
def test_the_instrumentation_alone_refuses_a_ruled_request(
    open_sqlite: OpenTally, way: str
) -> None:
    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        llm = Scripted(*["hello"] * 5)
        observed = TallyInstrumentation(tally, actor=BOT, strict=True)
        with observed, pytest.raises(ActionDenied) as refused:
            _ask(llm, way, "hi")
        assert refused.value.reason == "not_enforced"
        assert len(list(llm._script)) == 5
        assert checks_of(tally) == [("model_call", "denied", "deny-model_call")]
        assert llm.callback_manager.handlers == []


def test_the_instrumentation_alone_notes_a_tool_that_it_cannot_stop(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            pay_with([bank.pay], PAY)
        assert bank.paid == [("ben", 5)]
        assert checks_of(tally) == [("tool_call", "not_enforced", "require_approval-tool_call")]
        root = tally.bind(Actor(user="root", role="operator"))
        assert "ruled_tools" not in str(root.operator.doctor())
        ruled_tools(tally, [bank.pay])
        assert "ruled_tools" in str(root.operator.doctor())


def test_rules_are_those_of_who_acts(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("deny", tool=("pay",), agent=("bot",))]) as tally:
        bank = Bank()
        tools = ruled_tools(tally, [bank.pay])
        with instrument_tags({"actor": BOT}):
            pay_with(tools, PAY)
        assert bank.paid == []
        with instrument_tags({"actor": ANNA}):
            pay_with(tools, PAY)
        assert bank.paid == [("ben", 5)]


def test_without_rules_nothing_is_checked(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bank = Bank()
        llm = ruled_llm(tally, Scripted("hello"), actor=BOT)
        with TallyInstrumentation(tally, actor=BOT, strict=True):
            pay_with(ruled_tools(tally, [bank.pay], actor=BOT), PAY)
            assert _ask(llm, "chat", "hi").message.content == "hello"
        assert checks_of(tally) == []
