"""Rules over calls hold in each runtime: at tools, at models, and where a person is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.integrations.runtimes.base import Question, Runtime, Script, Turn, call
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
from tests.integrations.runtimes.runtimes import in_runtimes, in_ways

from tallystick import Actor, Tally
from tallystick.errors import ActionDenied, ApprovalRequired, Denied

OpenTally = Callable[..., Tally]


def refusal_of(run: Callable[[], Any]) -> str:
    """Return the refusal of a run: the error that it raised, or that its tool gave."""
    try:
        outcome = run()
    except ActionDenied as error:
        return f"{error.reason}: {error}"
    return "; ".join(result.text for result in outcome.tools if result.failed)


@in_ways("invoke", "ainvoke", "run", watched=True)
def test_a_denied_call_does_not_run_and_the_model_reads_why(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        script = paying({"to": "ben", "euros": 13}, {"to": "zoe", "euros": 5})
        outcome = runtime.run(script, bank.tools, ruled=bound, recorded=bound)

        assert (outcome.text, bank.paid) == ("done", [("zoe", 5)])
        ran, denied = sorted(outcome.tools, key=lambda result: result.failed)
        assert (ran.failed, denied.failed) == (False, True)
        assert "stopped by rule deny-tool_call" in denied.text
        [run] = bound.recordings.runs()
        steps = bound.recordings.steps(run.id)
        kinds = sorted((step.step_kind, step.status) for step in steps)
        checks = sorted(((kind, by) for _, kind, by in checks_of(tally)), key=str)
        assert checks == [("allowed", None), ("denied", "deny-tool_call")]
        # A handler beside the middleware sees no call that was denied.
        assert runtime.watched or {kind for kind, _, _ in checks_of(tally)} == {"tool_call"}
        assert runtime.watched or kinds == [
            ("model_call", "completed"),
            ("model_call", "completed"),
            ("tool_call", "completed"),
            ("tool_call", "failed"),
        ]
        assert bound.recordings.verify(run.id).ok


@in_ways("invoke", "run", "run_stream", "streamed run")
def test_each_request_and_each_call_is_checked_once(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[DENY, rule("allow", "model_call")]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        runtime.run(paying({"to": "ben", "euros": 666}), bank.tools, ruled=bound, recorded=bound)

        assert bank.paid == []
        assert [(outcome, by) for _, outcome, by in checks_of(tally)] == [
            ("allowed", "allow-model_call"),
            ("denied", "deny-tool_call"),
            ("allowed", "allow-model_call"),
        ]


@in_runtimes()
def test_without_rules_nothing_is_checked(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite() as tally:
        bound, bank = tally.bind(BOT), Bank()
        runtime.run(paying(PAY), bank.tools, ruled=bound, recorded=bound)
        assert bank.paid == [("ben", 5)]
        assert checks_of(tally) == []


@in_ways("invoke", "ainvoke", "run")
def test_redaction_cleans_the_arguments_and_the_result(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[rule("redact", tool=("pay",))]) as tally:
        bank = Bank()
        outcome = runtime.run(paying({**PAY, "note": KEY}), bank.tools, ruled=tally.bind(BOT))

        assert bank.notes[0].startswith("[redacted:")
        assert KEY not in outcome.tools[0].text


@in_ways("invoke", "ainvoke", "run", watched=True, waits=True)
def test_an_approved_call_runs_once_with_exactly_its_arguments(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound, person, bank = tally.bind(BOT), tally.bind(ANNA), Bank()
        asked: list[str | None] = []

        def approve(question: Question) -> bool:
            [pending] = person.approvals.list()
            assert (question.name, question.approval) == ("pay", pending.id)
            assert question.arguments.items() >= PAY.items()
            assert bank.paid == [("ben", 5)] * len(asked)
            asked.append(question.approval)
            return True

        calls = 1 if runtime.watched else 2
        for number in range(1, calls + 1):
            # The second call is another action, though its arguments are the same.
            outcome = runtime.run(
                paying(PAY), bank.tools, ruled=bound, recorded=bound, answers=approve
            )
            assert (outcome.text, len(asked)) == ("done", number)
            assert bank.paid == [("ben", 5)] * number

        for approval in person.approvals.list(state=None):
            assert approval.state == "used"
            assert approval.decided_by == {"user": "anna", "role": "member"}
        steps = [
            step
            for run in reversed(bound.recordings.runs())
            for step in bound.recordings.steps(run.id)
            if step.step_kind == "tool_call"
        ]
        if not runtime.watched:
            assert [step.status for step in steps] == ["blocked", "completed"] * 2
            kinds = [entry.kind for entry in bound.recordings.entries(steps[0].id)]
            # LangGraph's interrupt is kept too.
            interrupts = ["approval"] if runtime.name == "langchain" else []
            assert kinds == ["tool_call", "policy_check", "approval", *interrupts]


@in_runtimes(
    waits=True,
    fails={
        "langchain": "the second of two equal calls raises ApprovalRequired once both are answered",
        "llama_index": "the second of two equal calls waits for an answer for ever",
    },
)
def test_equal_calls_need_a_grant_each(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        outcome = runtime.run(
            paying(PAY, PAY),
            bank.tools,
            ruled=tally.bind(BOT),
            answers=lambda question: True,
            seconds=0.5,
        )
        assert (outcome.text, bank.paid) == ("done", [("ben", 5)] * 2)
        approvals = tally.bind(ANNA).approvals.list(state=None)
        assert [approval.state for approval in approvals] == ["used", "used"]


@in_runtimes(waits=True)
def test_a_refusal_is_recorded_and_holds(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound, bank = tally.bind(BOT), Bank()

        def run(payment: dict[str, Any], answer: Any) -> Any:
            return runtime.run(
                paying(payment), bank.tools, ruled=bound, recorded=bound, answers=answer
            )

        outcome = run(PAY, lambda question: "too dear")
        assert outcome.text == "done"
        assert "too dear" in outcome.tools[0].text
        [approval] = tally.bind(ANNA).approvals.list(state="denied")
        assert (approval.decided_by or {})["user"] == "anna"
        assert approval.decided_reason == "too dear"
        assert {each.goal for each in tally.bind(ANNA).recordings.runs()} == {"How heavy?"}

        [held] = run(PAY, None).tools
        assert (held.failed, "anna denied it" in held.text, bank.paid) == (True, True, [])
        assert run({**PAY, "euros": 6}, lambda question: True).text == "done"
        assert bank.paid == [("ben", 6)]


@in_runtimes(waits=True)
def test_parallel_calls_wait_and_are_answered_each_for_itself(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank = Bank()
        people = [{"to": name, "euros": 5} for name in ("ben", "zoe", "tom")]
        runtime.run(
            paying(*people),
            bank.tools,
            ruled=tally.bind(BOT),
            answers=lambda question: question.arguments["to"] != "zoe",
        )

        assert sorted(bank.paid) == [("ben", 5), ("tom", 5)]
        states = [each.state for each in tally.bind(ANNA).approvals.list(state=None)]
        assert sorted(states) == ["denied", "used", "used"]


@in_runtimes()
def test_a_grant_from_elsewhere_lets_the_same_call_pass_once_and_no_other(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound, person, bank = tally.bind(BOT), tally.bind(ANNA), Bank()

        def attempt(payment: dict[str, Any]) -> None:
            try:
                outcome = runtime.run(paying(payment), bank.tools, ruled=bound, asks=False)
                texts = [result.text for result in outcome.tools if result.failed]
            except runtime.unasked as error:
                texts = [str(error), *getattr(error, "__notes__", ())]
            assert any(each.id in text for text in texts for each in person.approvals.list())

        attempt(PAY)
        attempt(PAY)
        [approval] = person.approvals.list()
        with pytest.raises(Denied):
            bound.approvals.approve(approval.id, reason="I may")
        person.approvals.approve(approval.id, reason="fine")

        attempt({"to": "ben", "euros": 6})
        outcome = runtime.run(paying(PAY), bank.tools, ruled=bound, asks=False)
        assert (outcome.text, bank.paid) == ("done", [("ben", 5)])
        attempt(PAY)
        assert bank.paid == [("ben", 5)]


@in_ways("invoke", "ainvoke", "run", "run_stream")
def test_a_denied_request_is_not_sent(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        bound, script = tally.bind(BOT), Script("never")
        with pytest.raises(ActionDenied, match="deny-model_call") as refused:
            runtime.run(script, ruled=bound, recorded=bound)
        assert (refused.value.reason, script.sent) == ("denied_by_rule", [])
        [(_, outcome, by)] = checks_of(tally)
        assert (outcome, by) == ("denied", "deny-model_call")


@in_ways("invoke", "ainvoke", "run", "run_stream")
def test_a_redacted_request_is_sent_clean_and_recorded_so(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[rule("redact", "model_call")]) as tally:
        bound, bank, script = tally.bind(BOT), Bank(), paying(PAY)
        outcome = runtime.run(
            script,
            bank.tools,
            prompt=f"My mail is anna@example.org, my key {KEY}.",
            system=f"Never say {KEY}.",
            ruled=bound,
            recorded=bound,
        )

        assert bank.paid == [("ben", 5)]
        assert len(script.sent) == 2
        # LlamaIndex keeps no history of its own.
        assert runtime.name == "llama_index" or "anna@example.org" in outcome.history
        assert all("[redacted:" in request for request in script.sent)
        assert not any(
            secret in request for secret in (KEY, "anna@example.org") for request in script.sent
        )
        assert [outcome for _, outcome, _ in checks_of(tally)] == ["redacted", "redacted"]
        assert bound.recordings.verify(bound.recordings.runs()[0].id).ok


@in_runtimes(
    fails={"langchain": "LangGraph gives the messages of each run new ids, which the grant names"}
)
def test_a_request_that_waits_passes_once_granted(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite(rules=[rule("require_approval", "model_call")]) as tally:
        bound, script = tally.bind(BOT), Script("hello", "never")
        with pytest.raises(ApprovalRequired) as waits:
            runtime.run(script, ruled=bound, asks=False)
        [approval] = waits.value.approvals
        tally.bind(ANNA).approvals.approve(approval.id, reason="fine")

        assert runtime.run(script, ruled=bound, asks=False).text == "hello"
        with pytest.raises(ApprovalRequired):
            runtime.run(script, ruled=bound, asks=False)
        assert len(script.sent) == 1


@in_runtimes()
def test_a_receipt_is_required_and_there_is_one_where_the_run_is_recorded(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[rule("require_receipt", tool=("pay",))]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        why = refusal_of(lambda: runtime.run(paying(PAY), bank.tools, ruled=bound))
        assert ("nothing records" in why, bank.paid) == (True, [])
        runtime.run(paying(PAY), bank.tools, ruled=bound, recorded=bound)
        assert bank.paid == [("ben", 5)]


@in_runtimes()
def test_a_receipt_is_required_of_requests_too(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite(rules=[rule("require_receipt", "model_call")]) as tally:
        bound, script = tally.bind(BOT), Script("hello")
        with pytest.raises(ActionDenied) as refused:
            runtime.run(script, ruled=bound)
        assert (refused.value.reason, script.sent) == ("receipt_required", [])
        assert runtime.run(script, ruled=bound, recorded=bound).text == "hello"


@in_ways("invoke", "ainvoke", "run", "run_stream")
def test_an_observer_alone_refuses_a_ruled_request(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        script = Script("never")
        with pytest.raises(ActionDenied) as refused:
            runtime.run(script, recorded=tally.bind(BOT))
        assert (refused.value.reason, script.sent) == ("not_enforced", [])
        assert checks_of(tally) == [("model_call", "denied", "deny-model_call")]


@in_ways("invoke", "ainvoke", "run")
def test_an_observer_alone_refuses_a_ruled_call_or_notes_that_nothing_stopped_it(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        dear = {"to": "ben", "euros": 13}
        if runtime.name == "llama_index":
            # LlamaIndex has no hook that may stop a tool.
            runtime.run(paying(dear), bank.tools, recorded=bound)
            assert bank.paid == [("ben", 13)]
            assert checks_of(tally) == [("tool_call", "not_enforced", "deny-tool_call")]
            return
        with pytest.raises(ActionDenied, match="deny-tool_call") as refused:
            runtime.run(paying(dear), bank.tools, recorded=bound)
        assert (refused.value.reason, bank.paid) == ("not_enforced", [])
        assert checks_of(tally) == [("tool_call", "denied", "deny-tool_call")]
        runtime.run(paying(PAY), bank.tools, recorded=bound)
        assert bank.paid == [("ben", 5)]


@in_runtimes()
def test_rules_are_those_of_who_acts(open_sqlite: OpenTally, runtime: Runtime) -> None:
    with open_sqlite(rules=[rule("deny", tool=("pay",), agent=("bot",))]) as tally:
        bank = Bank()
        runtime.run(paying(PAY), bank.tools, ruled=tally, actor=BOT)
        assert bank.paid == []
        cashier = Actor(user="anna", agent="cashier")
        runtime.run(paying(PAY), bank.tools, ruled=tally, actor=cashier)
        assert bank.paid == [("ben", 5)]


@in_runtimes()
@pytest.mark.parametrize("recorded", [False, True], ids=["unrecorded", "recorded"])
def test_memory_tools_go_by_the_rules_by_themselves(
    open_sqlite: OpenTally, runtime: Runtime, recorded: bool
) -> None:
    with open_sqlite(rules=[rule("deny", tool=("memory_store",))]) as tally:
        bound = tally.bind(BOT)
        script = Script([call("memory_store", content="Tea.")], "done")
        outcome = runtime.run(script, tools_of=bound, recorded=bound if recorded else None)

        assert "deny-tool_call" in outcome.tools[0].text
        # The others have an outcome of their own for a denial.
        assert ("action_denied" in outcome.tools[0].text) == (runtime.name == "langchain")
        assert bound.memories() == []


@in_runtimes(
    waits=True,
    fails={"pydantic_ai": "without TallyPolicy the tool asks as a destructive one and by the rule"},
)
def test_a_memory_tool_that_waits_by_itself_asks_once(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    _forget_with_one_question(open_sqlite, runtime, ruled=False)


@in_runtimes(
    waits=True,
    fails={"langchain": "the middleware asks by the rule, and the tool as a destructive one"},
)
def test_a_memory_tool_that_waits_under_the_rules_asks_once(
    open_sqlite: OpenTally, runtime: Runtime
) -> None:
    _forget_with_one_question(open_sqlite, runtime, ruled=True)


def _forget_with_one_question(open_sqlite: OpenTally, runtime: Runtime, *, ruled: bool) -> None:
    forget = rule("require_approval", tool=("memory_forget",))
    with open_sqlite(rules=[forget]) as tally:
        bound, person = tally.bind(BOT), tally.bind(ANNA)
        stored, questions = person.remember("Tea at four."), []

        def approve(question: Question) -> bool:
            questions.append(question.name)
            return True

        turn: Turn = [call("memory_forget", memory_id=stored.id, reason="stale")]
        outcome = runtime.run(
            Script(turn, "done"),
            tools_of=bound,
            ruled=bound if ruled else None,
            recorded=bound,
            answers=approve,
        )
        assert (outcome.text, questions) == ("done", ["memory_forget"])
        assert person.memories() == []
        assert [each.state for each in person.approvals.list(state=None)] == ["used"]


@in_runtimes()
def test_the_doctor_names_the_pieces_that_enforce(open_sqlite: OpenTally, runtime: Runtime) -> None:
    pieces = {
        "langchain": "TallyMiddleware",
        "pydantic_ai": "TallyPolicy",
        "llama_index": "ruled_tools",
        "openai_agents": "TallyRunner",
    }

    with open_sqlite(rules=[DENY]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        root = tally.bind(Actor(user="root", role="operator"))

        def findings() -> list[Any]:
            return [each for each in root.operator.doctor() if "deny-tool_call" in each.text]

        runtime.run(Script("hello"), recorded=bound)
        assert [finding.status for finding in findings()] == ["problem"]
        runtime.run(paying(PAY), bank.tools, ruled=bound)
        [finding] = findings()
        assert (finding.status, pieces[runtime.name] in finding.text) == ("ok", True)
