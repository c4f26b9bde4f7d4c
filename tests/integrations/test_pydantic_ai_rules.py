"""Rules over calls bite in PydanticAI: at its tools, its requests and its deferred results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolApproved,
    ToolCallPart,
    ToolDenied,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ToolReturnPart, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from tallystick import Actor, PolicyRule, Tally
from tallystick.errors import (
    ActionDenied,
    ApprovalRequired,
    Denied,
    InvalidInput,
    NotFound,
    TokenRefused,
)
from tallystick.records import ArgumentCondition, SpaceMember
from tallystick.tally import BoundTally
from tallystick_pydantic_ai import (
    TallyPolicy,
    TallyRecorder,
    Tallystick,
    TapeCapability,
    memory_toolset,
)

OpenTally = Callable[..., Tally]
BOT, ANNA = Actor(user="anna", agent="bot"), Actor(user="anna")
KEY = "sk-" + "a1B2c3D4" * 5
PAY = {"to": "ben", "euros": 5}
OUTPUT: Any = [str, DeferredToolRequests]


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


class Letter(BaseModel):
    """What a tool with typed arguments gets."""

    text: str


class Bank:
    """An agent with a tool that pays, and what it paid."""

    def __init__(self, tally: Tally | BoundTally, *calls: dict[str, Any], **options: Any) -> None:
        self.paid: list[tuple[Any, ...]] = []
        self.requests: list[list[ModelMessage]] = []
        self.calls = calls
        self.agent: Agent[Any, Any] = Agent(
            FunctionModel(self.answer, stream_function=self.stream),
            output_type=OUTPUT,
            capabilities=options.pop(
                "capabilities", [Tallystick(tally, actor=BOT, tools=False, context=False)]
            ),
            **options,
        )
        self.agent.tool_plain(self.pay)

    def pay(self, to: str, euros: int, note: str = "") -> str:
        self.paid.append((to, euros))
        return f"paid {to}, account {KEY}"

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(list(messages))
        if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(
            parts=[
                ToolCallPart("pay", arguments, tool_call_id=f"c{place}")
                for place, arguments in enumerate(self.calls)
            ]
            or [TextPart("hello")]
        )

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for place, part in enumerate(self.answer(messages, info).parts):
            if isinstance(part, ToolCallPart):
                yield {
                    place: DeltaToolCall(
                        "pay", part.args_as_json_str(), tool_call_id=part.tool_call_id
                    )
                }
            else:
                yield getattr(part, "content", "")

    def run(self, *arguments: Any, **options: Any) -> Any:
        return asyncio.run(self.agent.run(*arguments, **options))

    def resume(self, result: Any, answers: dict[str, Any], **options: Any) -> Any:
        return self.run(
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals=answers, **options),
        )


def checks_of(tally: Tally, actor: Actor = ANNA) -> list[tuple[Any, Any, Any]]:
    """The policy checks of all runs, oldest first: kind of the step, outcome and rule."""
    bound = tally.bind(actor)
    return [
        (step.step_kind, entry.summary["outcome"], entry.summary["rule"])
        for run in reversed(bound.runs())
        for step in bound.recordings.steps(run.run_id)
        for entry in bound.recordings.entries(step.step_id)
        if entry.kind == "policy_check"
    ]


def returned(result: Any) -> list[tuple[str, str]]:
    """The results of tools that the model reads, with their outcomes."""
    return [
        (str(part.content), part.outcome)
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]


def test_a_denied_call_does_not_run_and_the_model_reads_why(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank(tally, {"to": "ben", "euros": 13}, PAY)

        result = bank.run("pay")

        assert (result.output, bank.paid) == ("done", [("ben", 5)])
        [(denial, outcome), (_, paid)] = returned(result)
        assert (outcome, paid) == ("denied", "success")
        assert "stopped by rule deny-tool_call" in denial
        bound = tally.bind(ANNA)
        [run] = bound.runs()
        steps = bound.recordings.steps(run.run_id)
        assert sorted((step.step_kind, step.status) for step in steps) == [
            ("model_call", "completed"),
            ("model_call", "completed"),
            ("tool_call", "completed"),
            ("tool_call", "failed"),
        ]
        assert sorted(checks_of(tally), key=str) == [
            ("tool_call", "allowed", None),
            ("tool_call", "denied", "deny-tool_call"),
        ]
        assert bound.recordings.verify(run.run_id).ok


def test_a_denied_call_of_a_stream_does_not_run(open_sqlite: OpenTally) -> None:
    async def stream(bank: Bank) -> str:
        async with bank.agent.run_stream("pay") as result:
            return str(await result.get_output())

    with open_sqlite(rules=[DENY, rule("allow", "model_call")]) as tally:
        bank = Bank(tally, {"to": "ben", "euros": 666})

        assert asyncio.run(stream(bank)) == "done"
        assert bank.paid == []
        assert checks_of(tally) == [
            ("model_call", "allowed", "allow-model_call"),
            ("tool_call", "denied", "deny-tool_call"),
            ("model_call", "allowed", "allow-model_call"),
        ]


def test_rules_see_the_arguments_that_the_tool_gets(open_sqlite: OpenTally) -> None:
    class Dearer(AbstractCapability[Any]):
        """A capability of the application that changes arguments."""

        async def before_tool_execute(self, ctx: Any, *, args: Any, **more: Any) -> Any:
            return {**args, "euros": 13}

    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank(tally, PAY, capabilities=[Tallystick(tally, actor=BOT), Dearer()])
        bank.run("pay")

        assert bank.paid == []


def test_redaction_cleans_the_arguments_and_the_result(open_sqlite: OpenTally) -> None:
    letters: list[Letter] = []

    def send(letter: Letter) -> dict[str, str]:
        letters.append(letter)
        return {"answer": f"The key is {KEY}.", "password": "hunter2"}

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("send", {"letter": {"text": f"Use {KEY}"}}, "c0")])

    with open_sqlite(rules=[rule("redact", tool=("send",))]) as tally:
        agent = Agent(FunctionModel(answer), capabilities=[Tallystick(tally, actor=BOT)])
        agent.tool_plain(send)

        result = asyncio.run(agent.run("send"))

        [letter] = letters
        assert letter.text.startswith("Use [redacted:")
        [(content, _)] = returned(result)
        assert KEY not in content
        assert "hunter2" not in content


def test_an_approval_waits_and_the_answer_of_the_person_counts_once(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY)
        waiting = bank.run("pay")

        assert isinstance(waiting.output, DeferredToolRequests)
        [call] = waiting.output.approvals
        metadata = waiting.output.metadata[call.tool_call_id]
        [approval] = tally.bind(ANNA).approvals()
        assert metadata == {
            "approval": approval.id,
            "action": "tool_call",
            "rule": "require_approval-tool_call",
            "reason": "require_approval-tool_call",
            "arguments_digest": metadata["arguments_digest"],
        }
        assert len(metadata["arguments_digest"]) == 64
        assert bank.paid == []
        [run] = tally.bind(ANNA).runs()
        steps = tally.bind(ANNA).recordings.steps(run.run_id)
        assert (run.status, [(step.step_kind, step.status) for step in steps]) == (
            "blocked",
            [("model_call", "completed"), ("tool_call", "blocked")],
        )
        kinds = [entry.kind for entry in tally.bind(ANNA).recordings.entries(steps[1].step_id)]
        assert kinds == ["tool_call", "policy_check", "approval"]

        done = bank.resume(waiting, {call.tool_call_id: True})

        assert (done.output, bank.paid) == ("done", [("ben", 5)])
        used = tally.bind(ANNA).approval(approval.id)
        assert used.state == "used"
        assert used.decided_by == {"user": "anna", "role": "member"}

        again = bank.run("pay")
        assert isinstance(again.output, DeferredToolRequests)
        assert bank.paid == [("ben", 5)]


@pytest.mark.parametrize("way", ["overridden", "another history"])
def test_an_answer_does_not_count_for_other_arguments(open_sqlite: OpenTally, way: str) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY)
        waiting = bank.run("pay")
        dearer = {"to": "ben", "euros": 500}
        answer: Any = True
        if way == "overridden":
            answer = ToolApproved(override_args=dearer)
        else:
            waiting.all_messages()[-1].parts[0].args = dearer

        anew = bank.resume(waiting, {"c0": answer})

        assert isinstance(anew.output, DeferredToolRequests)
        assert bank.paid == []
        assert [each.arguments for each in tally.bind(ANNA).approvals()] == [
            {**dearer, "note": ""},
            {**PAY, "note": ""},
        ]


@pytest.mark.parametrize("answer", [False, ToolDenied("too dear")])
def test_a_refusal_is_recorded_and_holds(open_sqlite: OpenTally, answer: Any) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY)
        waiting = bank.run("pay")
        refused = bank.resume(waiting, {"c0": answer})

        assert refused.output == "done"
        [approval] = tally.bind(ANNA).approvals(state="denied")
        assert (approval.decided_by or {})["user"] == "anna"
        if isinstance(answer, ToolDenied):
            assert approval.decided_reason == "too dear"
        [(reason, outcome)] = returned(bank.run("pay"))
        assert (outcome, "anna denied it" in reason, bank.paid) == ("denied", True, [])


def test_what_was_granted_elsewhere_passes_once_and_only_as_it_was(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY)
        bank.run("pay")
        [approval] = tally.bind(ANNA).approvals()
        with pytest.raises(Denied):
            tally.bind(BOT).approve(approval.id, reason="I may")
        tally.bind(ANNA).approve(approval.id, reason="fine")

        other = Bank(tally, {"to": "ben", "euros": 6})
        assert isinstance(other.run("pay").output, DeferredToolRequests)
        assert bank.run("pay").output == "done"
        assert isinstance(bank.run("pay").output, DeferredToolRequests)
        assert (bank.paid, other.paid) == ([("ben", 5)], [])


def test_a_token_comes_with_the_results_and_a_foreign_one_is_refused(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY)
        waiting = bank.run("pay")
        [approval] = tally.bind(ANNA).approvals()
        token = tally.bind(ANNA).approve(approval.id, reason="fine").token

        with pytest.raises(TokenRefused):
            bank.resume(waiting, {"c0": True}, metadata={"c0": {"approval_token": f"{token}x"}})
        bank.resume(waiting, {"c0": True}, metadata={"c0": {"approval_token": token}})
        assert bank.paid == [("ben", 5)]


def test_an_answer_of_somebody_who_may_not_decide_grants_nothing(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        root = tally.bind(Actor(user="root", role="operator"))
        member = SpaceMember(principal_id="anna", role="writer")
        root.spaces.create("team:red", name="Red", members=[member], reason="a team")
        policy = TallyPolicy(tally, actor=BOT, scope="team:red")
        bank = Bank(tally, PAY, capabilities=[policy])
        waiting = bank.run("pay")

        with pytest.raises(NotFound):
            bank.resume(waiting, {"c0": True})
        assert bank.paid == []


def test_parallel_calls_wait_and_are_answered_each_for_itself(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY, {"to": "zoe", "euros": 7}, {"to": "tom", "euros": 8})
        waiting = bank.run("pay")
        assert len(waiting.output.approvals) == len(tally.bind(ANNA).approvals()) == 3

        bank.resume(waiting, {"c0": True, "c1": False, "c2": True})

        assert sorted(bank.paid) == [("ben", 5), ("tom", 8)]
        states = [each.state for each in tally.bind(ANNA).approvals(state=None)]
        assert sorted(states) == ["denied", "used", "used"]


def test_equal_calls_need_a_grant_each(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY, PAY)
        first = bank.resume(bank.run("pay"), {"c0": True, "c1": True})

        assert isinstance(first.output, DeferredToolRequests)
        assert bank.paid == [("ben", 5)]
        [call] = first.output.approvals
        assert bank.resume(first, {call.tool_call_id: True}).output == "done"
        assert bank.paid == [("ben", 5), ("ben", 5)]


def test_without_deferred_results_the_error_names_the_approval(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY)
        with pytest.raises(UserError) as raised:
            bank.run("pay", output_type=str)
        [approval] = tally.bind(ANNA).approvals()
        assert approval.id in raised.value.__notes__[0]


def test_a_memory_tool_asks_once_in_both_ways(open_sqlite: OpenTally) -> None:
    forget = rule("require_approval", tool=("memory_forget",))
    with open_sqlite(rules=[forget]) as tally:
        stored = tally.bind(ANNA).remember("Tea at four.")
        arguments = {"memory_id": stored.id, "reason": "stale"}
        bank = Bank(tally, capabilities=[Tallystick(tally, actor=BOT, context=False)])

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
                return ModelResponse(parts=[TextPart("done")])
            return ModelResponse(parts=[ToolCallPart("memory_forget", arguments, "c0")])

        bank.agent.model = FunctionModel(answer)
        waiting = bank.run("forget")
        [approval] = tally.bind(ANNA).approvals()
        # Early releases lose the metadata of a call that they would have deferred anyway.
        metadata = waiting.output.metadata.get("c0")
        assert metadata is None or metadata["approval"] == approval.id

        assert bank.resume(waiting, {"c0": True}).output == "done"
        assert tally.bind(ANNA).memories() == []
        assert [each.state for each in tally.bind(ANNA).approvals(state=None)] == ["used"]

        again = tally.bind(ANNA).remember("Tea at five.")
        arguments["memory_id"] = again.id
        bank.run("forget")
        [approval] = tally.bind(ANNA).approvals()
        tally.bind(ANNA).approve(approval.id, reason="yes")
        assert bank.run("forget").output == "done"
        assert tally.bind(ANNA).memories() == []


@pytest.mark.parametrize("with_recorder", [False, True])
def test_memory_tools_go_by_the_rules_without_the_policy(
    open_sqlite: OpenTally, with_recorder: bool
) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("memory_store", {"content": "Tea."}, "c0")])

    with open_sqlite(rules=[rule("deny", tool=("memory_store",))]) as tally:
        agent = Agent(
            FunctionModel(answer),
            toolsets=[memory_toolset(tally, actor=BOT)],
            capabilities=[TallyRecorder(tally, actor=BOT)] if with_recorder else [],
        )
        result = asyncio.run(agent.run("store"))

        assert [outcome for _, outcome in returned(result)] == ["denied"]
        assert tally.bind(ANNA).memories() == []


def test_the_recorder_alone_refuses_a_ruled_call_before_it_runs(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank(tally, PAY, capabilities=[TallyRecorder(tally, actor=BOT)])
        with pytest.raises(ActionDenied) as refused:
            bank.run("pay")
        assert (refused.value.reason, bank.paid) == ("not_enforced", [])
        assert checks_of(tally) == [("tool_call", "denied", "require_approval-tool_call")]
        free = Bank(tally, PAY, capabilities=[TallyRecorder(tally, actor=BOT), TallyPolicy(tally)])
        assert isinstance(free.run("pay").output, DeferredToolRequests)


@pytest.mark.parametrize("streamed", [False, True])
def test_the_recorder_alone_refuses_a_ruled_request(open_sqlite: OpenTally, streamed: bool) -> None:
    async def stream(bank: Bank) -> None:
        async with bank.agent.run_stream("hi") as result:
            await result.get_output()

    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        bank = Bank(tally, capabilities=[TallyRecorder(tally, actor=BOT)])
        with pytest.raises(ActionDenied) as refused:
            asyncio.run(stream(bank)) if streamed else bank.run("hi")
        assert (refused.value.reason, bank.requests) == ("not_enforced", [])
        assert checks_of(tally) == [("model_call", "denied", "deny-model_call")]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_denied_request_is_not_sent(open_sqlite: OpenTally, streamed: bool) -> None:
    async def stream(bank: Bank) -> None:
        async with bank.agent.run_stream("hi") as result:
            await result.get_output()

    with open_sqlite(rules=[rule("deny", "model_call", provider=("function",))]) as tally:
        bank = Bank(tally)
        with pytest.raises(ActionDenied) as refused:
            asyncio.run(stream(bank)) if streamed else bank.run("hi")
        assert (refused.value.reason, bank.requests) == ("denied_by_rule", [])
        assert checks_of(tally) == [("model_call", "denied", "deny-model_call")]


def test_a_model_that_may_turn_to_another_counts_as_any(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("deny", "model_call", provider=("openai",))]) as tally:
        bank = Bank(tally)
        model = bank.agent.model
        assert isinstance(model, FunctionModel)
        assert bank.run("hi").output == "hello"
        with pytest.raises(ActionDenied):
            bank.run("hi", model=FallbackModel(model, model))


@pytest.mark.parametrize("streamed", [False, True])
def test_a_redacted_request_leaves_the_history_as_it_is(
    open_sqlite: OpenTally, streamed: bool
) -> None:
    async def stream(bank: Bank) -> Any:
        async with bank.agent.run_stream(f"My key is {KEY}") as result:
            await result.get_output()
            return result

    with open_sqlite(rules=[rule("redact", "model_call")]) as tally:
        bank = Bank(tally, PAY, instructions=f"Never say {KEY}.")
        result = asyncio.run(stream(bank)) if streamed else bank.run(f"My key is {KEY}")

        assert KEY not in str(bank.requests)
        assert "[redacted:" in str(bank.requests[0])
        assert bank.paid == [("ben", 5)]
        [prompt] = [
            part for part in result.all_messages()[0].parts if isinstance(part, UserPromptPart)
        ]
        assert prompt.content == f"My key is {KEY}"
        assert [outcome for _, outcome, _ in checks_of(tally)] == ["redacted", "redacted"]


def test_a_request_that_waits_passes_with_the_same_history_once_granted(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[rule("require_approval", "model_call")]) as tally:
        bank = Bank(tally)
        with pytest.raises(ApprovalRequired) as waits:
            bank.run("hi")
        [approval] = waits.value.approvals
        tally.bind(ANNA).approve(approval.id, reason="fine")

        assert bank.run("hi").output == "hello"
        with pytest.raises(ApprovalRequired):
            bank.run("hi")
        assert len(bank.requests) == 1


def test_a_request_with_recalled_memories_can_be_granted_too(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("require_approval", "model_call")]) as tally:
        tally.bind(ANNA).remember("The tea is green.")
        bank = Bank(tally, capabilities=[Tallystick(tally, actor=BOT)])
        with pytest.raises(ApprovalRequired) as waits:
            bank.run("Which tea?")
        [approval] = waits.value.approvals
        assert "green" in str(approval.arguments)
        tally.bind(ANNA).approve(approval.id, reason="fine")

        assert bank.run("Which tea?").output == "hello"
        assert "green" in str(bank.requests)


def test_a_receipt_is_wanted_and_there_is_one_with_the_recorder(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("require_receipt", tool=("pay",))]) as tally:
        unrecorded = Bank(tally, PAY, capabilities=[TallyPolicy(tally, actor=BOT)])
        with pytest.raises(ActionDenied) as refused:
            unrecorded.run("pay")
        assert (refused.value.reason, unrecorded.paid) == ("receipt_required", [])
        recorded = Bank(tally, PAY)
        assert (recorded.run("pay").output, recorded.paid) == ("done", [("ben", 5)])


def test_rules_are_those_of_who_acts(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("deny", tool=("pay",), agent=("bot",))]) as tally:
        policy = TallyPolicy(tally)
        bot = Bank(tally, PAY, capabilities=[policy], deps_type=Actor)
        bot.run("pay", deps=BOT)
        assert bot.paid == []
        bot.run("pay", deps=Actor(user="anna", agent="cashier"))
        assert bot.paid == [("ben", 5)]


def test_two_policies_of_one_run_check_a_call_once(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        second = TallyPolicy(tally, actor=BOT, id="another")
        bank = Bank(tally, PAY, capabilities=[Tallystick(tally, actor=BOT, context=False), second])
        waiting = bank.run("pay")
        assert bank.resume(waiting, {"c0": True}).output == "done"
        assert bank.paid == [("ben", 5)]


def test_a_renamed_memory_tool_is_checked_once_and_by_the_name_that_the_model_uses(
    open_sqlite: OpenTally,
) -> None:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("my_memory_store", {"content": "Tea."}, "c0")])

    with open_sqlite(rules=[rule("deny", tool=("memory_store",))]) as tally:
        agent = Agent(
            FunctionModel(answer),
            toolsets=[memory_toolset(tally, actor=BOT).prefixed("my")],
            capabilities=[Tallystick(tally, actor=BOT, tools=False, context=False)],
        )
        asyncio.run(agent.run("store"))

        assert checks_of(tally) == [("tool_call", "allowed", None)]
        assert [memory.content for memory in tally.bind(ANNA).memories()] == ["Tea."]


def test_a_tool_that_runs_elsewhere_is_checked_before_it_is_deferred(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[DENY, rule("redact", tool=("ship",))]) as tally:
        external: ExternalToolset[Any] = ExternalToolset([ToolDefinition(name="ship")])

        def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return ModelResponse(parts=[ToolCallPart("ship", {"text": KEY}, "c0")])

        bank = Bank(tally, toolsets=[external])
        bank.agent.model = FunctionModel(answer)
        with pytest.raises(ActionDenied) as refused:
            bank.run("ship")
        assert refused.value.reason == "not_enforced"


def test_the_doctor_knows_the_policy(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        Bank(tally, PAY).run("pay")
        root = tally.bind(Actor(user="root", role="operator"))
        assert "TallyPolicy" in str(root.operator.doctor())


def test_a_policy_cannot_be_loaded_late(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput):
        TallyPolicy(tally, defer_loading=True)


def test_a_replayed_denial_is_told_again(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank(tally, {"to": "ben", "euros": 13})
        first = bank.run("pay")
        bound = tally.bind(ANNA)
        [run] = bound.runs()
        player = bound.recordings.player(run.run_id)
        again = Bank(tally, capabilities=[TapeCapability(player)])
        assert returned(again.run("pay")) == returned(first)
