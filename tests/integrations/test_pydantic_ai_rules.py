"""Rules at what only PydanticAI has: capabilities, deferred results and toolsets;
test_runtime_rules.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    NativeOutput,
    ToolApproved,
    ToolOutput,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from tests.integrations.runtimes.base import Script, call
from tests.integrations.runtimes.pydantic_ai import PydanticAI, results_of, scripted
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

from tallystick import Actor, Tally
from tallystick.errors import ActionDenied, ApprovalRequired, InvalidInput, NotFound, TokenRefused
from tallystick.records import SpaceMember
from tallystick_pydantic_ai import (
    TallyPolicy,
    TallyRecorder,
    Tallystick,
    TapeCapability,
    memory_toolset,
)

OpenTally = Callable[..., Tally]
DEAR = {"to": "ben", "euros": 13}


def quiet(tally: Tally) -> list[Any]:
    """Return the capability that records and rules, and nothing else."""
    return [Tallystick(tally, actor=BOT, tools=False, context=False)]


def agent_of(
    script: Script, capabilities: list[Any], tools: Any = (), **options: Any
) -> Agent[Any, Any]:
    """Return an agent that may end with questions."""
    output: Any = [str, DeferredToolRequests]
    return Agent(
        scripted(script), tools=tools, output_type=output, capabilities=capabilities, **options
    )


def run(agent: Agent[Any, Any], *arguments: Any, **options: Any) -> Any:
    return asyncio.run(agent.run(*arguments, **options))


def pay(bank: Bank, capabilities: list[Any], *payments: dict[str, Any]) -> Any:
    """Return the result of an agent that pays, by default once."""
    return run(agent_of(paying(*payments or (PAY,)), capabilities, bank.tools), "pay")


def resume(
    waiting: Any, bank: Bank, capabilities: list[Any], answer: Any = True, **options: Any
) -> Any:
    """Answer the one question of a result."""
    [asked] = waiting.output.approvals
    results = DeferredToolResults(approvals={asked.tool_call_id: answer}, **options)
    agent = agent_of(Script("done"), capabilities, bank.tools)
    return run(agent, message_history=waiting.all_messages(), deferred_tool_results=results)


def test_rules_see_the_arguments_that_the_tool_gets(open_sqlite: OpenTally) -> None:
    class Dearer(AbstractCapability[Any]):
        """A capability of the application that changes arguments."""

        async def before_tool_execute(self, ctx: Any, *, args: Any, **more: Any) -> Any:
            return {**args, "euros": 13}

    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        pay(bank, [Tallystick(tally, actor=BOT), Dearer()])
        assert bank.paid == []


def test_of_a_key_that_comes_twice_rules_see_what_the_tool_gets(open_sqlite: OpenTally) -> None:
    def answer(messages: list[Any], info: Any) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse(parts=[TextPart("done")])
        arguments = '{"to": "ben", "euros": 5, "euros": "13"}'
        return ModelResponse(parts=[ToolCallPart("pay", arguments, tool_call_id="c1")])

    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        agent: Any = Agent(FunctionModel(answer), tools=bank.tools, capabilities=quiet(tally))
        [denied] = results_of(run(agent, "pay"))
        assert (bank.paid, denied.failed) == ([], True)


class Letter(BaseModel):
    """The argument of a tool with types."""

    text: str


def test_redaction_cleans_typed_arguments_and_structured_results(open_sqlite: OpenTally) -> None:
    letters: list[Letter] = []

    def send(letter: Letter) -> dict[str, str]:
        letters.append(letter)
        return {"answer": f"The key is {KEY}.", "password": "hunter2"}

    with open_sqlite(rules=[rule("redact", tool=("send",))]) as tally:
        script = Script([call("send", letter={"text": f"Use {KEY}"})], "done")
        outcome = PydanticAI().run(script, [send], ruled=tally.bind(BOT))

        assert letters[0].text.startswith("Use [redacted:")
        assert KEY not in outcome.tools[0].text
        assert "hunter2" not in outcome.tools[0].text


def test_a_deferred_call_says_what_waits_and_its_run_is_blocked(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        waiting = pay(Bank(), quiet(tally))

        [asked] = waiting.output.approvals
        metadata = waiting.output.metadata[asked.tool_call_id]
        [approval] = tally.bind(ANNA).approvals.list()
        assert metadata == {
            "approval": approval.id,
            "action": "tool_call",
            "rule": "require_approval-tool_call",
            "reason": "require_approval-tool_call",
            "arguments_digest": metadata["arguments_digest"],
        }
        assert len(metadata["arguments_digest"]) == 64
        [recorded] = tally.bind(ANNA).recordings.runs()
        steps = tally.bind(ANNA).recordings.steps(recorded.id)
        assert (recorded.status, [(step.step_kind, step.status) for step in steps]) == (
            "blocked",
            [("model_call", "completed"), ("tool_call", "blocked")],
        )


@pytest.mark.parametrize("way", ["overridden", "another history"])
def test_an_answer_does_not_count_for_other_arguments(open_sqlite: OpenTally, way: str) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank, dearer = Bank(), {"to": "ben", "euros": 500}
        waiting = pay(bank, quiet(tally))
        answer: Any = True
        if way == "overridden":
            answer = ToolApproved(override_args=dearer)
        else:
            waiting.all_messages()[-1].parts[0].args = dearer

        anew = resume(waiting, bank, quiet(tally), answer)

        assert isinstance(anew.output, DeferredToolRequests)
        assert bank.paid == []
        assert [each.arguments for each in tally.bind(ANNA).approvals.list()] == [
            {**dearer, "note": ""},
            {**PAY, "note": ""},
        ]


def test_a_token_comes_with_the_results_and_a_foreign_one_is_refused(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        waiting = pay(bank, quiet(tally))
        [approval] = tally.bind(ANNA).approvals.list()
        token = tally.bind(ANNA).approvals.approve(approval.id, reason="fine").token
        [asked] = waiting.output.approvals

        def with_token(text: str) -> None:
            metadata = {asked.tool_call_id: {"approval_token": text}}
            resume(waiting, bank, quiet(tally), metadata=metadata)

        with pytest.raises(TokenRefused):
            with_token(f"{token}x")
        with_token(str(token))
        assert bank.paid == [("ben", 5)]


def test_an_answer_of_somebody_who_may_not_decide_grants_nothing(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        root = tally.bind(Actor(user="root", role="operator"))
        member = SpaceMember(principal_id="anna", role="writer")
        root.spaces.create("team:red", name="Red", members=[member], reason="a team")
        bank, policy = Bank(), [TallyPolicy(tally, actor=BOT, scope="team:red")]
        waiting = pay(bank, policy)

        with pytest.raises(NotFound):
            resume(waiting, bank, policy)
        assert bank.paid == []


def test_a_grant_from_elsewhere_lets_a_memory_tool_pass(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("require_approval", tool=("memory_forget",))]) as tally:
        person = tally.bind(ANNA)
        memory_id = person.remember("Tea at five.").id

        def forget() -> Any:
            turn = [call("memory_forget", memory_id=memory_id, reason="stale")]
            capabilities = [Tallystick(tally, actor=BOT, context=False)]
            return run(agent_of(Script(turn, "done"), capabilities), "forget").output

        # Early releases lose the metadata of a call that they would have deferred anyway.
        waiting = forget()
        [approval] = person.approvals.list()
        metadata = waiting.metadata.get(waiting.approvals[0].tool_call_id)
        assert metadata is None or metadata["approval"] == approval.id
        person.approvals.approve(approval.id, reason="yes")
        assert forget() == "done"
        assert person.memories() == []


def test_a_recorder_and_a_policy_side_by_side_ask(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        waiting = pay(Bank(), [TallyRecorder(tally, actor=BOT), TallyPolicy(tally)])
        assert isinstance(waiting.output, DeferredToolRequests)


def test_a_rule_may_name_the_provider_and_a_model_that_falls_back_counts_as_any(
    open_sqlite: OpenTally,
) -> None:
    by_provider = [rule("deny", "model_call", provider=(name,)) for name in ("function", "openai")]
    with open_sqlite(rules=by_provider[:1]) as tally:
        with pytest.raises(ActionDenied) as refused:
            run(agent_of(Script("never"), quiet(tally)), "hi")
        assert refused.value.reason == "denied_by_rule"
    with open_sqlite(rules=by_provider[1:]) as tally:
        agent = agent_of(Script("hello"), quiet(tally))
        assert run(agent, "hi").output == "hello"
        with pytest.raises(ActionDenied):
            run(agent, "hi", model=FallbackModel(scripted("no"), scripted("no")))


def test_a_request_with_recalled_memories_can_be_granted_too(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("require_approval", "model_call")]) as tally:
        tally.bind(ANNA).remember("The tea is green.")
        script = Script("hello")
        agent = agent_of(script, [Tallystick(tally, actor=BOT)])
        with pytest.raises(ApprovalRequired) as waits:
            run(agent, "Which tea?")
        [approval] = waits.value.approvals
        assert "green" in str(approval.arguments)
        tally.bind(ANNA).approvals.approve(approval.id, reason="fine")

        assert run(agent, "Which tea?").output == "hello"
        assert "green" in str(script.sent)


def test_two_policies_of_one_run_check_a_call_once(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank, second = Bank(), TallyPolicy(tally, actor=BOT, id="another")
        capabilities = [Tallystick(tally, actor=BOT, context=False), second]
        waiting = pay(bank, capabilities)
        assert resume(waiting, bank, capabilities).output == "done"
        assert bank.paid == [("ben", 5)]


def test_a_renamed_memory_tool_is_checked_once_and_by_the_name_that_the_model_uses(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[rule("deny", tool=("memory_store",))]) as tally:
        script = Script([call("my_memory_store", content="Tea.")], "done")
        toolsets = [memory_toolset(tally, actor=BOT).prefixed("my")]
        run(agent_of(script, quiet(tally), toolsets=toolsets), "store")

        assert checks_of(tally) == [("tool_call", "allowed", None)]
        assert [memory.content for memory in tally.bind(ANNA).memories()] == ["Tea."]


def test_a_tool_that_runs_elsewhere_is_checked_before_it_is_deferred(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[DENY, rule("redact", tool=("ship",))]) as tally:
        external: ExternalToolset[Any] = ExternalToolset([ToolDefinition(name="ship")])
        agent = agent_of(Script([call("ship", text=KEY)]), quiet(tally), toolsets=[external])
        with pytest.raises(ActionDenied) as refused:
            run(agent, "ship")
        assert refused.value.reason == "not_enforced"


def test_a_policy_cannot_be_loaded_late(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises(InvalidInput):
        TallyPolicy(tally, defer_loading=True)


def test_a_replayed_denial_is_told_again(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        first = pay(Bank(), quiet(tally), DEAR)
        bound = tally.bind(ANNA)
        [recorded] = bound.recordings.runs()
        again = pay(Bank(), [TapeCapability(bound.recordings.player(recorded.id))], DEAR)
        assert results_of(again) == results_of(first)


@pytest.mark.parametrize("named", ["by itself", "as a tool", "among others", "as text"])
def test_a_function_of_the_output_goes_by_the_rules_as_a_tool_does(
    open_sqlite: OpenTally, named: str
) -> None:
    class Note(BaseModel):
        text: str

    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        [function] = bank.tools
        outputs: dict[str, tuple[str, Any]] = {
            "by itself": ("final_result", function),
            "as a tool": ("pay", ToolOutput(function, name="pay")),
            "among others": ("pay", [Note, ToolOutput(function, name="pay")]),
            "as text": ("", NativeOutput(function)),
        }
        tool, output = outputs[named]
        script: list[Any] = [json.dumps(DEAR), json.dumps(PAY)]
        if tool:
            script = [[call(tool, **DEAR)], [call(tool, **PAY)]]
        agent = Agent(scripted(*script), output_type=output, capabilities=quiet(tally))

        assert run(agent, "pay").output.startswith("paid ben")

        assert bank.paid == [("ben", 5)]
        denied = ("policy_check", "denied", DENY.id)
        assert checks_of(tally) == [denied, ("policy_check", "allowed", None)]


def test_a_function_of_the_output_waits_for_a_grant_from_elsewhere(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()

        def pay_at_last() -> Any:
            script = Script([call("final_result", **PAY)])
            agent = Agent(scripted(script), output_type=bank.tools[0], capabilities=quiet(tally))
            return run(agent, "pay").output

        with pytest.raises(ApprovalRequired) as waits:
            pay_at_last()
        [approval] = waits.value.approvals
        tally.bind(ANNA).approvals.approve(approval.id, reason="fine")
        pay_at_last()
        assert bank.paid == [("ben", 5)]


def test_a_streamed_function_of_the_output_does_not_run_before_it_is_checked(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        script = Script([call("final_result", **PAY)])
        agent = Agent(scripted(script), output_type=bank.tools[0], capabilities=quiet(tally))

        async def stream() -> None:
            async with agent.run_stream("pay") as result:
                async for _ in result.stream_output(debounce_by=None):
                    pass

        with pytest.raises(ApprovalRequired):
            asyncio.run(stream())
        assert bank.paid == []


def test_a_recorder_refuses_a_function_of_the_output_that_nothing_checks(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bank = Bank()
        agent = Agent(
            scripted([call("final_result", **DEAR)]),
            output_type=bank.tools[0],
            capabilities=[TallyRecorder(tally, actor=BOT)],
        )
        with pytest.raises(ActionDenied) as refused:
            run(agent, "pay")
        assert refused.value.reason == "not_enforced"
        assert bank.paid == []
