"""Agents of ADK with a TallyPlugin: receipts, compiled requests, rules and confirmations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.agents import LlmAgent
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from tests.integrations.adk.runtime import (
    ADK,
    Conversation,
    Scripted,
    asked_in,
    scripted,
    words_of,
)
from tests.integrations.runtimes.base import Question, Script, call
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
from tallystick.errors import ActionDenied, Denied
from tallystick.records import RunRecord
from tallystick_adk import TallyMemoryService, TallyPlugin, TallySessionService

OpenTally = Callable[..., Tally]
ANN = Actor(user="ann")


def steps_of(tally: Any, run: RunRecord) -> list[tuple[str, str | None, str]]:
    steps = tally.recordings.steps(run.id)
    return [(step.step_kind, step.name, step.status) for step in steps]


def agent(model: Scripted, **fields: Any) -> LlmAgent:
    return LlmAgent(**{"name": "clerk", "model": model, "instruction": "You weigh.", **fields})


async def talk(made: LlmAgent, *words: str, plugins: Any, **options: Any) -> Conversation:
    conversation = Conversation(made, *plugins, **options)
    await conversation.begin()
    for each in words:
        await conversation.say(each)
    return conversation


async def test_an_invocation_is_one_run_with_its_calls_and_what_they_took(
    open_sqlite: OpenTally,
) -> None:
    usage = types.GenerateContentResponseUsageMetadata(
        prompt_token_count=30, candidates_token_count=5, thoughts_token_count=7
    )
    model = scripted([call("double", value=3)], "Six.")
    model.usage = usage

    def double(value: int) -> int:
        """Twice the value."""
        return 2 * value

    with open_sqlite() as tally:
        plugin = TallyPlugin(tally, strict=True)
        await talk(agent(model, tools=[double]), "How much?", plugins=[plugin], user="ann")
        ann = tally.bind(ANN)
        [run] = ann.recordings.runs()
        entries = ann.recordings.entries(ann.recordings.steps(run.id)[0].id)
        summary = next(each.summary for each in entries if each.kind == "response")

        assert (run.status, run.goal, run.agent_name) == ("completed", "How much?", "clerk")
        assert run.metadata["thread_id"] == "t"
        assert steps_of(ann, run) == [
            ("model_call", "scripted", "completed"),
            ("tool_call", "double", "completed"),
            ("model_call", "scripted", "completed"),
        ]
        assert summary["usage"] == {"input_tokens": 30, "output_tokens": 12}
        assert ann.recordings.verify(run.id).ok
        assert tally.bind().recordings.runs() == []
        assert plugin.failures == 0


async def test_an_agent_that_takes_over_is_in_the_same_run(open_sqlite: OpenTally) -> None:
    expert = agent(scripted("42 kg."), name="expert", description="Weighs.")
    boss = agent(
        scripted([call("transfer_to_agent", agent_name="expert")]),
        name="boss",
        sub_agents=[expert],
    )
    with open_sqlite() as tally:
        owner = tally.bind()
        conversation = await talk(boss, "How heavy?", plugins=[TallyPlugin(owner, strict=True)])
        [run] = owner.recordings.runs()
        agents = [step.metadata["agent"] for step in owner.recordings.steps(run.id)]

        assert words_of(conversation.events) == "42 kg."
        assert agents == ["boss", "boss", "expert"]
        assert [name for _, name, _ in steps_of(owner, run)] == [
            *("scripted", "transfer_to_agent", "scripted"),
        ]


async def test_an_agent_that_is_a_tool_is_in_the_run_of_the_agent_around_it(
    open_sqlite: OpenTally,
) -> None:
    expert = agent(scripted("42 kg."), name="expert", description="Weighs.")
    boss = agent(scripted([call("expert", request="How heavy?")], "It is 42."), name="boss")
    boss.tools.append(AgentTool(expert))
    with open_sqlite() as tally:
        owner = tally.bind()
        plugin = TallyPlugin(owner, strict=True, capture="both")
        await talk(boss, "Well?", plugins=[plugin])
        [run] = owner.recordings.runs()
        kinds = [(kind, name) for kind, name, _ in steps_of(owner, run)]
        turns = [each.content for each in owner.memories()]

    assert sorted(kinds) == [("model_call", "scripted")] * 3 + [("tool_call", "expert")]
    assert turns[::-1] == ["Well?", "It is 42."]


async def test_a_tool_or_a_model_that_fails_fails_its_step_and_its_run(
    open_sqlite: OpenTally,
) -> None:
    def divide(value: int) -> float:
        """One by the value."""
        return 1 / value

    with open_sqlite() as tally:
        owner = tally.bind()
        plugin = TallyPlugin(owner, strict=True)
        dividing = agent(scripted([call("divide", value=0)]), tools=[divide])
        with pytest.raises(ZeroDivisionError):
            await talk(dividing, "Well?", plugins=[plugin])
        offline = agent(scripted(ConnectionError("no route")))
        with pytest.raises(ConnectionError):
            await talk(offline, "Well?", plugins=[plugin])
        second, first = owner.recordings.runs()

        assert (first.status, steps_of(owner, first)[-1]) == (
            "failed",
            ("tool_call", "divide", "failed"),
        )
        assert (second.status, steps_of(owner, second)) == (
            "failed",
            [("model_call", "scripted", "failed")],
        )


async def test_a_run_that_is_cancelled_ends(open_sqlite: OpenTally) -> None:
    waiting = asyncio.Event()

    async def wait() -> str:
        """Wait for ever."""
        waiting.set()
        await asyncio.sleep(3_600)
        return "over"

    with open_sqlite() as tally:
        owner = tally.bind()
        made = agent(scripted([call("wait")]), tools=[wait])
        task = asyncio.create_task(talk(made, "Well?", plugins=[TallyPlugin(owner)]))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        [run] = owner.recordings.runs()

    assert run.status == "cancelled"


async def test_a_request_fits_its_budget_and_keeps_calls_with_their_results(
    open_sqlite: OpenTally,
) -> None:
    def look(place: str) -> str:
        """Look somewhere."""
        return f"{place} is empty. " * 40

    turns: list[Any] = []
    for number in range(6):
        turns += [[call("look", place=f"room {number}")], f"Room {number} is empty."]
    script = Script(*turns)
    with open_sqlite() as tally:
        owner = tally.bind()
        owner.remember("The treasure is in the cellar.")
        plugin = TallyPlugin(owner, strict=True, budget=900)
        requests: list[Any] = []
        made = agent(
            Scripted(script=script),
            tools=[look],
            before_model_callback=lambda callback_context, llm_request: requests.append(
                [each.model_copy() for each in llm_request.contents]
            ),
        )
        words = [f"Is the treasure in room {number}?" for number in range(6)]
        conversation = await talk(made, *words, plugins=[plugin])
        session = await conversation.sessions.get_session(app_name="desk", **conversation.named)

    assert session is not None
    assert len(session.events) == 24
    assert "tallystick-context" not in str(session.events)
    assert "in the cellar" in script.sent[-1]
    assert "room 0 is empty. room 0" not in script.sent[-1]
    for contents in requests:
        parts = [part for content in contents for part in content.parts]
        calls = [part.function_call.name for part in parts if part.function_call]
        results = [part.function_response.name for part in parts if part.function_response]
        assert calls == results
        assert contents[-1].role == "user"


async def test_memories_alone_leave_the_rest_of_a_request_as_it_is(
    open_sqlite: OpenTally,
) -> None:
    script = Script("In the cellar.", "Yes.")
    with open_sqlite() as tally:
        owner = tally.bind()
        owner.remember("The treasure is in the cellar.")
        plugin = TallyPlugin(owner, strict=True, context="memory")
        made = agent(Scripted(script=script))
        await talk(made, "Where is the treasure?", "In the cellar?", plugins=[plugin])

    assert script.sent[0].count("The treasure is in the cellar.") == 1
    assert "Where is the treasure?\nIn the cellar." in script.sent[1]


def test_a_denied_call_does_not_run_and_the_model_reads_why(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        script = paying({"to": "ben", "euros": 13}, {"to": "zoe", "euros": 5})
        outcome = ADK().run(script, bank.tools, ruled=bound, recorded=bound)

        assert (outcome.text, bank.paid) == ("done", [("zoe", 5)])
        ran, denied = sorted(outcome.tools, key=lambda result: result.failed)
        assert (ran.failed, denied.failed) == (False, True)
        assert "stopped by rule deny-tool_call" in denied.text
        [run] = bound.recordings.runs()
        assert {kind for kind, _, _ in checks_of(tally)} == {"tool_call"}
        statuses = sorted((kind, status) for kind, _, status in steps_of(bound, run))
        assert statuses == [
            ("model_call", "completed"),
            ("model_call", "completed"),
            ("tool_call", "completed"),
            ("tool_call", "failed"),
        ]
        assert bound.recordings.verify(run.id).ok


def test_a_rule_that_nobody_enforces_stops_the_call(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        plugin = TallyPlugin(bound, rules=False, context=False)
        made = agent(paying_model({"to": "ben", "euros": 13}), tools=bank.tools)
        with pytest.raises(RuntimeError) as raised:
            asyncio.run(talk(made, "Pay.", plugins=[plugin], user="anna"))
        assert isinstance(raised.value.__cause__, ActionDenied)
        assert raised.value.__cause__.reason == "not_enforced"
        assert bank.paid == []


async def test_a_tool_outside_of_any_invocation_goes_by_the_rules(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[DENY]) as tally:
        bank, plugin = Bank(), TallyPlugin(tally.bind(BOT))
        made = agent(paying_model({"to": "ben", "euros": 13}), tools=bank.tools)

        class Forgetful(BasePlugin):
            async def before_model_callback(self, **_: Any) -> None:
                await plugin.close()

        plugins = [plugin, Forgetful("forgetful")]
        conversation = await talk(made, "Pay.", plugins=plugins, user="anna")

        assert bank.paid == []
        assert "stopped by rule" in str(conversation.events)


def test_a_call_that_a_person_confirms_runs_once_with_exactly_its_arguments(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound, person, bank = tally.bind(BOT), tally.bind(ANNA), Bank()

        def approve(question: Question) -> bool:
            [pending] = person.approvals.list()
            assert (question.name, question.approval) == ("pay", pending.id)
            assert question.arguments.items() >= PAY.items()
            assert bank.paid == []
            return True

        outcome = ADK().run(paying(PAY), bank.tools, ruled=bound, recorded=bound, answers=approve)

        assert (outcome.text, bank.paid) == ("done", [("ben", 5)])
        [approval] = person.approvals.list(state=None)
        assert (approval.state, approval.decided_by) == (
            "used",
            {"user": "anna", "role": "member"},
        )
        resumed, asked = bound.recordings.runs()
        assert (asked.status, resumed.status) == ("blocked", "completed")
        assert steps_of(bound, asked)[-1] == ("tool_call", "pay", "blocked")
        assert ("tool_call", "pay", "completed") in steps_of(bound, resumed)


def test_a_person_may_refuse_and_the_model_reads_the_reason(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bound, bank = tally.bind(BOT), Bank()
        why = "Ben has enough."
        refused = ADK().run(paying(PAY), bank.tools, ruled=bound, answers=lambda question: why)
        another = paying({**PAY, "euros": 6})
        waiting = ADK().run(another, bank.tools, ruled=bound, recorded=bound)

        assert (refused.text, bank.paid) == ("done", [])
        assert why in refused.tools[0].text
        assert [each.name for each in waiting.waiting] == ["pay"]


def test_redaction_cleans_the_arguments_and_the_result(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("redact", tool=("pay",))]) as tally:
        bank = Bank()
        outcome = ADK().run(paying({**PAY, "note": KEY}), bank.tools, ruled=tally.bind(BOT))

        assert bank.notes[0].startswith("[redacted:")
        assert KEY not in outcome.tools[0].text


def test_a_request_that_a_rule_denies_is_answered_by_an_error(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[rule("deny", "model_call")]) as tally:
        bound = tally.bind(BOT)
        script = Script("Never.")
        outcome = ADK().run(script, ruled=bound, recorded=bound)
        [run] = bound.recordings.runs()

        assert script.sent == []
        assert "denied_by_rule" in outcome.tools[-1].text
        assert steps_of(bound, run)[0] == ("model_call", "scripted", "failed")


async def test_a_turn_is_remembered_once_by_the_plugin_and_the_memory_of_adk(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        memory = TallyMemoryService(tally)
        sessions = TallySessionService(tally)
        plugin = TallyPlugin(tally, strict=True, capture="both")
        made = agent(scripted("Noted.", "Noted."))
        services: dict[str, Any] = {"sessions": sessions, "memory_service": memory, "user": "ann"}
        conversation = await talk(
            made, "My boat is red.", "My boat is red.", plugins=[plugin], **services
        )
        session = await sessions.get_session(app_name="desk", **conversation.named)
        assert session is not None
        await memory.add_session_to_memory(session)

        async def remember(callback_context: Any) -> None:
            await callback_context.add_session_to_memory()

        again = agent(scripted("It is red."), after_agent_callback=remember)
        conversation = Conversation(again, plugin, **services)
        await conversation.say("What colour is my boat?")
        turns = [each.content for each in tally.bind(ANN).memories()]

    assert turns[::-1] == [
        *("My boat is red.", "Noted.", "My boat is red.", "Noted."),
        *("What colour is my boat?", "It is red."),
    ]


async def test_a_conversation_on_a_tally_goes_on_after_a_question(open_sqlite: OpenTally) -> None:
    with open_sqlite(rules=[ASK]) as tally:
        bank, person = Bank(), {"user": "anna"}
        plugin = TallyPlugin(tally, strict=True, capture="both")
        services = {"sessions": TallySessionService(tally), **person}
        made = agent(paying_model(PAY), tools=bank.tools)
        conversation = await talk(made, "Pay Ben.", plugins=[plugin], **services)
        [asked] = asked_in(conversation.events)
        await conversation.confirm(conversation.events, True)

        assert asked.args is not None
        assert (words_of(conversation.events), bank.paid) == ("done", [("ben", 5)])
        kept = [each.content for each in tally.user("anna").memories(kinds=("turn",))]
        assert sorted(kept) == ["Pay Ben.", "done"]
        with pytest.raises(RuntimeError) as raised:
            await talk(made, "Pay Ben.", plugins=[TallyPlugin(tally.bind(ANN))], user="anna")
        assert isinstance(raised.value.__cause__, Denied)


def paying_model(*payments: dict[str, Any]) -> Scripted:
    return Scripted(script=paying(*payments))
