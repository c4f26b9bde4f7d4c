"""Learning: what is remembered is kept first, then drawn from, and nothing of it is ever lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tallystick import Actor, Tally
from tallystick.errors import (
    BudgetSpent,
    Denied,
    ExtractionError,
    ModelUnavailable,
    NotFound,
    SettingsError,
)
from tallystick.pipeline import RuleExtractor
from tallystick.pipeline.outbound import Outbound, OutboundSubject, note_answer
from tallystick.pipeline.statements import compare
from tallystick.ports import StructuredAnswer
from tallystick.records import (
    DecisionCandidate,
    ExtractedEntity,
    ExtractedFact,
    ExtractedRelation,
    Extraction,
    JsonObject,
    LearningBudget,
    Memory,
    MemoryDecision,
    MemoryState,
    OutboundCall,
    Proposal,
    ProviderDeclaration,
    SourceRef,
)
from tallystick.settings import Settings
from tallystick.storage import edges, journal, memories, outbound_calls, proposals
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna", role="operator")
BOB = Actor(user="bob")
FAR = ProviderDeclaration(name="far", model="m-1", timeout_ms=2_000)


class Scripted:
    """An extractor and decider that answers what it is told to, and writes down what it saw."""

    def __init__(
        self,
        facts: Sequence[ExtractedFact] = (),
        decide: Callable[[Sequence[Any], Sequence[Sequence[DecisionCandidate]]], Any] | None = None,
        *,
        declaration: ProviderDeclaration = FAR,
        error: BaseException | None = None,
    ) -> None:
        self.declaration = declaration
        self.facts, self._decide, self.error = list(facts), decide, error
        self.texts: list[str] = []
        self.candidates: list[list[DecisionCandidate]] = []

    def extract(self, text: str) -> Extraction:
        self.texts.append(text)
        if self.error is not None:
            raise self.error
        facts = self.facts or [ExtractedFact(content=text, kind="fact", confidence=90)]
        return Extraction(facts=tuple(facts))

    def decide(
        self, facts: Sequence[ExtractedFact], candidates: Sequence[Sequence[DecisionCandidate]]
    ) -> Any:
        self.texts += [fact.content for fact in facts]
        self.candidates += [list(choices) for choices in candidates]
        self.texts += [each.content for choices in candidates for each in choices]
        if self.error is not None:
            raise self.error
        assert self._decide is not None
        return self._decide(facts, candidates)


def opened(open_tally: OpenTally, mode: str = "full", **options: Any) -> Tally:
    settings = Settings(learning=mode, **options.pop("settings", {}))  # type: ignore[arg-type]
    return open_tally(settings=settings, owner=ANNA, **options)


def rows(tally: Tally, actor: Actor = ANNA) -> list[Proposal]:
    with services_of(tally).store.database.read() as connection:
        return [
            each.record for each in proposals.of_scope(connection, actor.private_scope, limit=99)
        ]


def events(tally: Tally, subject: str) -> list[str]:
    with services_of(tally).store.database.read() as connection:
        return [entry.event for entry in journal.about(connection, subject)]


def by_content(tally: Tally, actor: Actor = ANNA) -> dict[str, Memory]:
    states: tuple[MemoryState, ...] = ("active", "superseded", "hidden")
    return {each.content: each for each in tally.bind(actor).memories(states=states, limit=99)}


def stored_of(tally: Tally, memory_id: str) -> memories.Stored:
    with services_of(tally).store.database.read() as connection:
        stored = memories.get(connection, memory_id)
    assert stored is not None
    return stored


def test_a_tally_learns_nothing_unless_it_was_told_to(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=ANNA) as tally:
        anna = tally.bind()
        stored = anna.remember("I live in Berlin. I love coffee.")
        waited = anna.remember("I live in Rome. I love tea.", mode="sync")
        tally.drain()

        assert (stored.processing, stored.job_id, stored.warnings) == ("raw_saved", None, ())
        assert waited.processing == "raw_saved"
        assert waited.warnings == ("nothing was learned: the setting `learning` is off",)
        assert len(by_content(tally)) == 2


def test_an_extractor_that_nothing_would_call_is_refused(open_sqlite: OpenTally) -> None:
    with pytest.raises(SettingsError, match="`learning` is off"):
        open_sqlite(owner=ANNA, extractor=Scripted())


@pytest.mark.parametrize("mode", ["auto", "async"])
def test_what_is_remembered_is_recallable_before_anything_is_drawn_from_it(
    open_sqlite: OpenTally, mode: Any
) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        stored = anna.remember("I live in Berlin. I love coffee.", mode=mode)

        assert stored.processing == "queued"
        assert stored_of(tally, stored.id).memory.extraction_status == "pending"
        assert [hit.memory.id for hit in anna.recall("where do I live?")] == [stored.id]

        tally.drain()

        job = anna.operator.job(stored.job_id or "")
        assert (job.state, job.result) == (
            "done",
            {"added": 2, "facts": 2, "provider": "rules", "warnings": []},
        )
        assert stored_of(tally, stored.id).memory.extraction_status == "done"
        found = by_content(tally)
        assert {text: found[text].kind for text in ("I live in Berlin.", "I love coffee.")} == {
            "I live in Berlin.": "fact",
            "I love coffee.": "preference",
        }


def test_sync_waits_for_what_is_learned_and_raw_leaves_no_job(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        learned = anna.remember("I live in Berlin. I love coffee.", mode="sync")
        raw = anna.remember("I work at Siemens. I love tea.", mode="raw")
        tally.drain()

        assert (learned.processing, raw.processing, raw.job_id) == ("processed", "raw_saved", None)
        assert "I love coffee." in by_content(tally)
        assert "I love tea." not in by_content(tally)


def test_sync_comes_back_in_time_where_a_model_does_not(open_sqlite: OpenTally) -> None:
    released = threading.Event()

    class Slow(Scripted):
        def extract(self, text: str) -> Extraction:
            released.wait(20)
            return super().extract(text)

    with opened(open_sqlite, extractor=Slow()) as tally:
        stored = tally.bind().remember("I live in Berlin.", mode="sync", timeout_ms=50)
        released.set()

        assert stored.processing == "queued"
        assert stored.warnings == ("what is learned from it comes later",)
        assert [hit.memory.id for hit in tally.bind().recall("Berlin")] == [stored.id]


def test_a_conclusion_names_its_text_and_says_who_drew_it(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        source = anna.remember(
            "I live in Berlin. I love coffee.",
            attributes={"local_only": True, "note": "mine"},
            confidence=70,
        )
        tally.drain()

        fact = by_content(tally)["I live in Berlin."]
        origin = stored_of(tally, source.id).memory
        assert stored_of(tally, fact.id).memory.sources == origin.sources
        assert (fact.confidence, fact.attributes) == (70, {"local_only": True})
        assert (fact.extraction_model, fact.prompt_version) == ("rules:rules-1", "1")
        [added] = anna.history(fact.id)
        assert (added.event, added.decision, added.provider, added.model) == (
            "ADD",
            "ADD",
            "rules",
            "rules-1",
        )
        with services_of(tally).store.database.read() as connection:
            kinds = {edge.kind for edge in edges.of(connection, stored_of(tally, fact.id).doc)}
        assert kinds == {"DERIVED_FROM"}


def test_a_text_without_facts_is_empty_and_not_done(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        stored = tally.bind().remember("Hi there! How are you?")
        tally.drain()

        assert tally.bind().operator.job(stored.job_id or "").state == "empty"
        assert stored_of(tally, stored.id).memory.extraction_status == "empty"


def test_a_new_value_replaces_the_old_one_which_stays_as_history(open_tally: OpenTally) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        old = anna.remember("I live in Berlin.")
        new = anna.remember("I moved to Hamburg.")
        tally.drain()

        assert by_content(tally)["I live in Berlin."].state == "superseded"
        [first, *rest] = anna.recall("where do I live?")
        assert (first.memory.id, [hit.replaced_by for hit in rest]) == (new.id, [new.id])
        update = anna.history(old.id)[-1]
        assert (update.event, update.decision, update.confidence) == ("CORRECT", "UPDATE", 92)
        restored = anna.correct(old.id, "restore", reason="It was a holiday.")
        anna.correct(
            old.id,
            "restore",
            reason="It was a holiday.",
            mode="apply",
            confirm_token=restored.confirm_token,
        )
        assert by_content(tally)["I live in Berlin."].state == "active"


def test_what_is_taken_back_becomes_a_tombstone_that_can_be_recovered(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        old = anna.remember("My dog is called Rex.")
        anna.remember("Forget what I said about my dog Rex.")
        tally.drain()

        assert stored_of(tally, old.id).memory.state == "deleted"
        assert anna.history(old.id)[-1].decision == "DELETE"
        anna.recover(old.id, reason="I do have a dog.")
        assert by_content(tally)["My dog is called Rex."].state == "active"


def test_the_same_in_other_words_adds_nothing_and_is_kept_as_a_source(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally) as tally:
        anna = tally.bind()
        first = anna.remember("I live in Berlin.")
        second = anna.remember("Nice weather today! I currently live in Berlin. Bye")
        tally.drain()

        assert len(by_content(tally)) == 2
        assert len(stored_of(tally, first.id).memory.sources) == 2
        assert anna.history(first.id)[-1].event == "MERGE"
        assert anna.history(second.id)[-1].event == "NONE"


@pytest.mark.parametrize("mode", ["shadow", "add_only"])
def test_below_full_nothing_is_replaced(open_sqlite: OpenTally, mode: str) -> None:
    with opened(open_sqlite, mode) as tally:
        anna = tally.bind()
        anna.remember("I live in Berlin. I love coffee.")
        tally.drain()
        anna.remember("I moved to Hamburg. I play the cello.")
        tally.drain()

        found = by_content(tally)
        assert {memory.state for memory in found.values()} == {"active"}
        added = {"I play the cello.", "I live in Berlin.", "I love coffee."}
        assert added & set(found) == (set() if mode == "shadow" else added)
        waiting = [row for row in rows(tally) if row.state == "pending"]
        assert {row.reason for row in waiting} == {f"{mode}_mode"}
        if mode == "add_only":
            [update] = waiting
            assert (update.action, update.target) == ("UPDATE", found["I live in Berlin."].id)
            assert "review_needed" in events(tally, update.target or "")


def test_whatever_protects_a_memory_keeps_both_sides_and_asks_a_person(
    open_sqlite: OpenTally,
) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        pinned = anna.remember("I live in Berlin.", pinned=True)
        locked = anna.remember("My favourite colour is red.")
        anna.modify(
            locked.id, content="My favourite colour is green.", reason="So.", manual_override=True
        )
        anna.remember("I moved to Hamburg.")
        anna.remember("My favourite colour is blue now.")
        tally.drain()

        found = by_content(tally)
        assert {each.state for each in found.values()} == {"active"}
        waiting = {row.target: row.reason for row in rows(tally) if row.state == "pending"}
        assert waiting == {pinned.id: "pinned_memory", locked.id: "manual_override"}
        for memory_id in (pinned.id, locked.id):
            assert "review_needed" in events(tally, memory_id)
            with services_of(tally).store.database.read() as connection:
                around = edges.of(connection, stored_of(tally, memory_id).doc)
            assert [edge.kind for edge in around] == ["CONTRADICTS"]


def test_a_text_that_contradicts_itself_replaces_nothing(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        old = anna.remember("I live in Berlin.")
        anna.remember("I moved to Hamburg. Sorry, I moved to Bremen.")
        tally.drain()

        assert stored_of(tally, old.id).memory.state == "active"
        assert {row.reason for row in rows(tally) if row.target == old.id} == {
            "contradiction_in_batch"
        }


def test_text_of_a_tool_replaces_nothing_that_somebody_said(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        old = anna.remember("I live in Berlin.")
        anna.remember("I moved to Hamburg.", source=SourceRef(source_type="tool"))
        tally.drain()

        assert stored_of(tally, old.id).memory.state == "active"
        assert [row.reason for row in rows(tally) if row.target == old.id] == ["foreign_text"]


def test_a_target_that_changed_since_it_was_looked_at_is_left_alone(
    open_sqlite: OpenTally,
) -> None:
    with opened(open_sqlite, decider=(decider := Scripted(declaration=FAR))) as tally:
        anna = tally.bind()
        old = anna.remember("I live in Berlin.", mode="raw")

        def decide(facts: Any, candidates: Any) -> Any:
            anna.modify(old.id, content="I live in Potsdam.", reason="Moved.")
            return [MemoryDecision(fact=0, action="UPDATE", target=old.id, confidence=99)]

        decider._decide = decide
        anna.remember("I moved to Hamburg.")
        tally.drain()

        assert stored_of(tally, old.id).memory.state == "active"
        [row] = [row for row in rows(tally) if row.target == old.id]
        assert (row.state, row.reason) == ("pending", "target_changed")


def test_a_target_that_nobody_was_shown_is_discarded_and_noted(open_sqlite: OpenTally) -> None:
    def decide(facts: Any, candidates: Any) -> Any:
        return [
            MemoryDecision(fact=0, action="DELETE", target=foreign.id, confidence=100),
            MemoryDecision(fact=7, action="ADD", confidence=100),
        ]

    with opened(open_sqlite, decider=Scripted(decide=decide)) as tally:
        foreign = tally.bind(BOB).remember("I live in Rome.", mode="raw")
        anna = tally.bind()
        anna.remember("I live in Berlin.", mode="raw")
        anna.remember("I moved to Hamburg.")
        tally.drain()

        assert stored_of(tally, foreign.id).memory.state == "active"
        assert {(row.state, row.reason, row.target) for row in rows(tally)} == {
            ("discarded", "invalid_target", None)
        }


def test_nothing_of_another_user_reaches_a_decider(open_sqlite: OpenTally) -> None:
    decider = Scripted(decide=lambda facts, candidates: [])
    with opened(open_sqlite, decider=decider) as tally:
        tally.bind(BOB).remember("I live in Rome with my secret heron.", mode="raw")
        hidden = tally.bind().remember("I live in Paris with a secret cat.", mode="raw")
        tally.bind().forget(hidden.id, reason="No.")
        private: JsonObject = {"local_only": True}
        tally.bind().remember("I live in Oslo in secret.", mode="raw", attributes=private)
        tally.bind().remember("I live in Berlin.", mode="raw")
        tally.bind().remember("I moved to Hamburg.")
        tally.drain()

        assert decider.texts
        assert not any("secret" in text for text in decider.texts)


def test_a_failure_is_failed_after_its_attempts_and_the_text_stays(
    open_sqlite: OpenTally,
) -> None:
    with opened(open_sqlite, extractor=Scripted(error=ExtractionError("No JSON."))) as tally:
        stored = tally.bind().remember("I live in Berlin.")
        for _ in range(5):
            tally.drain()

        job = tally.bind().operator.job(stored.job_id or "")
        assert (job.state, job.error_code) == ("failed", "extraction_error")
        assert stored_of(tally, stored.id).memory.extraction_status == "failed"
        assert [hit.memory.id for hit in tally.bind().recall("Berlin")] == [stored.id]


def test_an_outage_waits_without_end_and_is_made_up_for_in_order(open_sqlite: OpenTally) -> None:
    extractor = Scripted(error=ModelUnavailable())
    with opened(open_sqlite, extractor=extractor) as tally:
        anna = tally.bind()
        jobs = [anna.remember(f"I have {number} boats.").job_id or "" for number in range(3)]
        for _ in range(7):
            with pytest.raises(ModelUnavailable):
                tally.drain()
        extractor.error, extractor.texts = None, []
        tally.drain()

        assert extractor.texts == [f"I have {number} boats." for number in range(3)]
        assert {anna.operator.job(job_id).state for job_id in jobs} == {"done"}


def test_the_next_provider_is_asked_where_the_preferred_one_is_away(
    open_sqlite: OpenTally,
) -> None:
    away = Scripted(error=ModelUnavailable())
    second = Scripted(declaration=FAR.model_copy(update={"name": "second"}))
    with opened(open_sqlite, extractor=[away, second]) as tally:
        stored = tally.bind().remember("I live in Berlin.")
        tally.drain()

        result = tally.bind().operator.job(stored.job_id or "").result
        assert result is not None
        assert result["provider"] == "second"


def test_a_budget_stops_at_the_call_that_reaches_it(open_sqlite: OpenTally) -> None:
    budget = LearningBudget(calls_per_day=2)
    extractor = Scripted()
    with opened(open_sqlite, extractor=extractor, settings={"learning_budget": budget}) as tally:
        anna = tally.bind()
        stored = [anna.remember(f"I have {number} boats.") for number in range(4)]
        with pytest.raises(BudgetSpent, match="calls_per_day"):
            tally.drain()

        states = [anna.operator.job(each.job_id or "").state for each in stored]
        assert len(extractor.texts) == 2
        assert states == ["done", "done", "retry_scheduled", "retry_scheduled"]


def test_tokens_are_exceeded_by_one_call_at_most(open_tally: OpenTally) -> None:
    class Model:
        declaration = FAR
        calls = 0

        def answer(self, instructions: str, text: str, schema: Any) -> StructuredAnswer:
            self.calls += 1
            return StructuredAnswer({"facts": []}, "m-2", input_tokens=60, output_tokens=5)

    model = Model()
    budget = LearningBudget(tokens_per_scope_and_day=100)
    with opened(open_tally, extractor=model, settings={"learning_budget": budget}) as tally:
        anna = tally.bind()
        for number in range(4):
            anna.remember(f"I have {number} boats.")
        with pytest.raises(BudgetSpent):
            tally.drain()

        assert model.calls == 2
        calls = logged_calls(tally)
        assert [(each.model, each.input_tokens, each.outcome) for each in calls] == [
            ("m-2", 60, "answered")
        ] * 2


def logged_calls(tally: Tally) -> list[OutboundCall]:
    return tally.bind().operator.outbound_calls(limit=99)


def calls_at_once(
    outbound: Outbound, stored: memories.Stored, count: int, function: Callable[[], Any]
) -> tuple[int, int]:
    """Make so many calls from as many threads; return how many were answered and refused."""
    answered: list[int] = []
    refused: list[BudgetSpent] = []
    together = threading.Barrier(count)

    def call() -> None:
        subject = OutboundSubject(ANNA, stored.memory, stored.scope_id)
        together.wait(20)
        try:
            outbound.call("extract", FAR, subject, "sent", function)
            answered.append(1)
        except BudgetSpent as error:
            refused.append(error)
        subject.close()

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(answered), len(refused)


def test_calls_at_the_same_moment_do_not_share_the_last_one(open_tally: OpenTally) -> None:
    budget = LearningBudget(calls_per_day=1)
    with opened(open_tally, extractor=Scripted(), settings={"learning_budget": budget}) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).learning.outbound
        assert calls_at_once(outbound, stored, 6, list) == (1, 5)


def fifty_tokens() -> None:
    time.sleep(0.05)
    note_answer(StructuredAnswer({}, "m-1", input_tokens=10, output_tokens=40))


@pytest.mark.parametrize("unit", ["tokens", "micros"])
def test_answers_at_the_same_moment_exceed_a_limit_by_one_call_at_most(
    open_tally: OpenTally, tmp_path: Path, unit: str
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('dated = "2026-11-01"\n[models."far:m-1"]\ninput = 1\noutput = 1\n')
    # A token costs a millionth.
    budget = LearningBudget(**{f"{unit}_per_scope_and_day": 120})
    settings = {"learning_budget": budget, "prices": prices}
    with opened(open_tally, extractor=Scripted(), settings=settings) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).learning.outbound
        assert calls_at_once(outbound, stored, 8, fifty_tokens) == (3, 5)
        assert sum(each.input_tokens + each.output_tokens for each in logged_calls(tally)) == 150


def test_calls_far_from_a_limit_do_not_wait_for_one_another(open_tally: OpenTally) -> None:
    budget = LearningBudget(tokens_per_day=1_000_000)
    with opened(open_tally, extractor=Scripted(), settings={"learning_budget": budget}) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).learning.outbound
        # Each ends once all have begun.
        all_began = threading.Barrier(3)
        assert calls_at_once(outbound, stored, 3, lambda: all_began.wait(20)) == (3, 0)


def test_a_call_of_a_process_that_died_holds_up_no_other(open_sqlite: OpenTally) -> None:
    soon = FAR.model_copy(update={"timeout_ms": 300})
    budget = LearningBudget(tokens_per_day=1_000)
    with opened(
        open_sqlite, extractor=Scripted(declaration=soon), settings={"learning_budget": budget}
    ) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).learning.outbound
        subject = OutboundSubject(ANNA, stored.memory, stored.scope_id)

        def die() -> None:
            raise SystemExit

        # As a killed process leaves it: begun, and never ended.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outbound_calls, "finish", lambda *_, **__: None)
            with pytest.raises(SystemExit):
                outbound.call("extract", soon, subject, "sent", die)
        assert [each.outcome for each in logged_calls(tally)] == ["started"]
        assert calls_at_once(outbound, stored, 2, fifty_tokens) == (2, 0)


class Prose:
    """A model that never answers with a record, and reports no usage."""

    declaration = FAR
    calls = 0

    def answer(self, instructions: str, text: str, schema: Any) -> StructuredAnswer:
        self.calls += 1
        return StructuredAnswer("Sure, boats!")


def test_a_model_that_is_asked_once_more_makes_a_call_that_the_budget_holds(
    open_sqlite: OpenTally,
) -> None:
    model, budget = Prose(), LearningBudget(calls_per_day=1)
    with opened(open_sqlite, extractor=model, settings={"learning_budget": budget}) as tally:
        tally.bind().remember("I have 3 boats.")
        with pytest.raises(BudgetSpent, match="calls_per_day"):
            tally.drain()
        assert (model.calls, len(logged_calls(tally))) == (1, 1)


def test_each_answer_of_a_model_is_logged_and_recorded_by_itself(open_sqlite: OpenTally) -> None:
    model = Prose()
    with opened(open_sqlite, extractor=model) as tally:
        anna = tally.bind()
        anna.remember("I have 3 boats.")
        services_of(tally).background.runner.run(["extract"])
        assert model.calls == 2
        assert len(logged_calls(tally)) == 2
        [run] = anna.runs()
        assert [step.name for step in anna.recordings.steps(run.run_id)] == ["extract"] * 2
        assert all(each.input_tokens and each.output_tokens for each in logged_calls(tally))


@pytest.mark.parametrize("error", [None, ModelUnavailable(), ExtractionError("No record.")])
def test_tokens_that_are_not_reported_are_estimated_and_held_to_the_limit(
    open_sqlite: OpenTally, error: BaseException | None
) -> None:
    extractor = Scripted(error=error)
    budget = LearningBudget(tokens_per_day=3)
    with opened(open_sqlite, extractor=extractor, settings={"learning_budget": budget}) as tally:
        for number in range(4):
            tally.bind().remember(f"I have {number} boats in the harbour of Hamburg.")
        runner = services_of(tally).background.runner
        runner.run(["extract"])
        runner.run(["extract"])
        assert len(extractor.texts) == 1
        [call] = logged_calls(tally)
        assert call.input_tokens > 3


def test_a_limit_of_money_is_refused_for_a_model_whose_price_is_not_known(
    open_sqlite: OpenTally,
) -> None:
    budget = {"learning_budget": LearningBudget(micros_per_day=100)}
    with pytest.raises(SettingsError, match=r"price of far:m-1 is not known"):
        opened(open_sqlite, extractor=Scripted(), settings=budget)
    near = Scripted(declaration=FAR.model_copy(update={"local": True}))
    opened(open_sqlite, extractor=near, settings=budget).close()


@pytest.mark.parametrize("longest", [200, 900])
def test_a_decider_is_sent_no_more_than_it_takes_and_the_job_says_what_was_left_out(
    open_sqlite: OpenTally, longest: int
) -> None:
    def decide(facts: Sequence[ExtractedFact], shown: Any) -> list[MemoryDecision]:
        return [MemoryDecision(fact=0, action="ADD", confidence=90, reason="New.")]

    decider = Scripted(decide=decide, declaration=FAR.model_copy(update={"longest_text": longest}))
    with opened(open_sqlite, decider=decider) as tally:
        anna = tally.bind()
        for number in range(12):
            anna.remember(f"My boat number {number} lies in the harbour.", mode="raw")
        stored = anna.remember("My boat number 99 lies in the harbour.")
        tally.drain()

        assert all(each.characters <= longest for each in logged_calls(tally))
        assert len(logged_calls(tally)) == (longest > 200)
        result = anna.operator.job(stored.job_id or "").result
        assert result is not None
        assert f"far takes {longest} characters" in str(result["warnings"])


def test_a_scope_that_spent_its_budget_holds_no_other_scope_back(open_tally: OpenTally) -> None:
    extractor = Scripted()
    budget = LearningBudget(calls_per_scope_and_day=2)
    with opened(open_tally, extractor=extractor, settings={"learning_budget": budget}) as tally:
        anna, bob = tally.bind(), tally.bind(BOB)
        hers = [anna.remember(f"I have {number} boats.") for number in range(30)]
        his = [bob.remember(f"I have {number} kites.") for number in range(2)]
        runner = services_of(tally).background.runner
        first = runner.run(["extract"])
        states = [each.state for each in (anna.operator.job(one.job_id or "") for one in hers)]
        assert [anna.operator.job(one.job_id or "").state for one in his] == ["done", "done"]
        assert states.count("done") == 2
        assert isinstance(first.outage, BudgetSpent)

        later = bob.remember("I have a new kite.")
        runner.run(["extract"])
        assert anna.operator.job(later.job_id or "").state == "retry_scheduled"
        cora = tally.bind(Actor(user="cora"))
        other = cora.remember("I have a canoe.")
        runner.run(["extract"])
        assert anna.operator.job(other.job_id or "").state == "done"
        assert len(extractor.texts) == 5


def test_a_job_that_spent_its_own_budget_fails_and_goes_on_when_the_limit_is_raised(
    open_sqlite: OpenTally,
) -> None:
    budget = LearningBudget(calls_per_job=1)
    unread = Scripted(error=ExtractionError("Nothing readable came back."))
    with opened(open_sqlite, extractor=unread, settings={"learning_budget": budget}) as tally:
        job_id = tally.bind().remember("I have 3 boats.").job_id or ""
        tally.drain()
        tally.drain()
        job = tally.bind().operator.job(job_id)
        assert (job.state, job.error_code, len(unread.texts)) == ("failed", "budget_spent", 1)

    raised = LearningBudget(calls_per_job=9)
    with opened(open_sqlite, extractor=Scripted(), settings={"learning_budget": raised}) as tally:
        tally.bind().operator.retry_jobs([job_id])
        tally.drain()
        assert tally.bind().operator.job(job_id).state == "done"


def test_what_stays_here_is_given_to_no_provider_far_away(open_sqlite: OpenTally) -> None:
    far = Scripted()
    with opened(open_sqlite, extractor=far) as tally:
        kept = tally.bind().remember("I live in Berlin.", attributes={"local_only": True})
        tally.drain()

        job = tally.bind().operator.job(kept.job_id or "")
        assert (job.state, job.error_code, far.texts) == ("failed", "egress_denied", [])

    near = Scripted(declaration=FAR.model_copy(update={"local": True, "name": "near"}))
    with opened(open_sqlite, extractor=[far, near]) as tally:
        tally.bind().remember("I live in Rome.", attributes={"local_only": True})
        tally.drain()
        assert (far.texts, near.texts) == ([], ["I live in Rome."])


def test_secrets_leave_as_placeholders_and_come_back_as_they_were(
    open_sqlite: OpenTally,
) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    far = Scripted()
    with opened(open_sqlite, extractor=far) as tally:
        anna = tally.bind()
        anna.remember(f"The build key is {key} for now.", conversation="c")
        tally.drain()

        assert key not in far.texts[0]
        assert f"The build key is {key} for now." in by_content(tally)
        [call] = logged_calls(tally)
        assert (call.provider, call.redacted, call.local) == ("far", 1, False)


def test_the_outbound_log_is_read_in_pages_and_by_those_who_may_read_the_scope(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally, extractor=Scripted()) as tally:
        anna, bob = tally.bind(), tally.bind(BOB)
        text = "I have a heron called Sigurd."
        stored = anna.remember(text)
        bob.remember("I have a bicycle.", mode="sync")
        tally.drain()

        seen = bob.operator.outbound_calls(limit=99)
        assert {call.scope for call in seen} == {bob.scope}
        everything = anna.operator.outbound_calls(limit=99)
        assert {call.scope for call in everything} == {anna.scope, bob.scope}
        assert everything == sorted(everything, key=lambda call: (call.at, call.id), reverse=True)
        [first, *rest] = everything
        assert anna.operator.outbound_calls(limit=99, before=first.id) == rest
        assert anna.operator.outbound_calls(purpose="decide") == []

        [own] = [call for call in everything if call.subject_id == stored.id][:1]
        assert (own.purpose, own.provider, own.model) == ("extract", "far", "m-1")
        assert (own.outcome, own.local, own.characters > 0) == ("answered", False, True)
        assert text not in str([call.dump() for call in everything])

        for hidden in (own.id, "no such call"):
            with pytest.raises(NotFound):
                bob.operator.outbound_calls(before=hidden)
        with pytest.raises(Denied):
            tally.bind(BOB, scope=anna.scope).operator.outbound_calls()


def test_a_call_is_a_recorded_step_with_its_receipt(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, extractor=Scripted()) as tally:
        anna = tally.bind()
        anna.remember("I live in Berlin.", conversation="c")
        tally.drain()

        [run] = anna.runs()
        assert run.agent_name == "tallystick-extract"
        assert [step.name for step in anna.recordings.steps(run.run_id)] == ["extract"]
        assert anna.verify(run.run_id).ok
        [row] = rows(tally)
        assert row.state == "applied"


def test_consent_given_in_code_is_journaled(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, extractor=Scripted()) as tally:
        with services_of(tally).store.database.read() as connection:
            entries = [
                entry.details
                for entry in journal.entries(connection, "tally")
                if entry.event == "egress.consent"
            ]
        assert entries == [{"providers": ["far:m-1"]}]


class FarReranker:
    """A reranker that says nothing of where it is."""

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        return [0.0 for _ in texts]


def test_consent_covers_an_embedder_and_a_reranker_that_may_be_far_away(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite(
        embedder=HashEmbedder(local=False), reranker=FarReranker(), owner=ANNA
    ) as tally:
        with services_of(tally).store.database.read() as connection:
            [consent] = [
                entry.details
                for entry in journal.entries(connection, "tally")
                if entry.event == "egress.consent"
            ]
        embedder = HashEmbedder(local=False).fingerprint
        assert consent == {"providers": [f"embedder:{embedder}", "reranker:FarReranker"]}


def test_autonomous_work_is_suspended_at_once_and_goes_on_later(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        anna.operator.freeze(reason="Look first.", what="autonomy")
        stored = anna.remember("I live in Berlin. I love coffee.")
        tally.drain()
        job = anna.operator.job(stored.job_id or "")
        assert (job.state, job.error_code) == ("retry_scheduled", "autonomy_frozen")
        anna.modify(stored.id, importance=80, reason="A person may still change it.")

        anna.operator.thaw(reason="Looked.", what="autonomy")
        later = anna.remember("I live in Rome. I love tea.")
        tally.drain()
        assert anna.operator.job(later.job_id or "").state == "done"


def test_erasing_a_text_erases_what_was_proposed_from_it(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, "shadow") as tally:
        anna = tally.bind()
        stored = anna.remember("My secret heron is called Ada. I love coffee a lot.")
        tally.drain()
        assert all(row.content is not None for row in rows(tally))

        preview = anna.operator.erase([stored.id], reason="She asked.")
        result = anna.operator.erase(
            [stored.id], reason="She asked.", mode="apply", confirm_token=preview.confirm_token
        )

        assert all(proof.holds for proof in result.proofs)
        assert {(row.state, row.content) for row in rows(tally)} == {("discarded", None)}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The standup starts at 9:45 every morning.", "The standup was pushed back to 10:30."),
        ("Der Kurs findet im Raum 12 statt.", "Der Kurs ist in Raum 30 umgezogen."),
        ("La reunión es el lunes a las 10.", "La reunión se pasó al miércoles a las 10."),
        ("Le budget est de 20 000 euros.", "Le budget a été réduit à 15 000 euros."),
        ("O orçamento é de 20 mil euros.", "O orçamento desceu para 15 mil euros."),
        ("会议在周一上午十点。", "会议改到周三上午十点了。"),
        ("Our CI runs on Jenkins.", "We migrated our CI from Jenkins to GitHub Actions."),
        ("Lisa leitet den Vertrieb.", "Den Vertrieb leitet jetzt Jonas."),
        ("Mi médico es el doctor Ruiz.", "He cambiado de médico, ahora voy a la doctora Vega."),
    ],
)
def test_another_value_of_one_topic_is_a_change(before: str, after: str) -> None:
    assert compare(after, before).relation == "changed"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The limit for free users is 100.", "The limit for paid users was raised to 500."),
        ("My gym is open until 22:00.", "My gym now costs 36 euros."),
        ("Ticket OPS-12 is due on Monday.", "Ticket OPS-13 was postponed to Friday."),
        ("I work for Redis Labs.", "We replaced Redis with Valkey for session caching."),
        ("Mi hermano trabaja en Correos.", "Mi hermana ya no trabaja en Correos."),
        ("Our dentist is Dr. Blum.", "My cousin changed dentists, hers is Dr. Roth now."),
        ("I paid 30 euros for lunch.", "I paid 40 euros for lunch."),
        ("北京办公室有四十人。", "上海办公室现在有五十人。"),
        # Where it is kept is not what is taken back.
        ("Release notes are in British English.", "Please remove my weight from your notes."),
        ("The records are kept in the cellar.", "I want my old address out of your records."),
        ("Die Notizen liegen im Keller.", "Lösch bitte mein Gewicht aus deinen Notizen."),
        ("Les notes sont dans le placard.", "Efface mon poids de tes notes."),
        ("Las notas están en el cajón.", "Borra mi peso de tus notas."),
    ],
)
def test_a_change_of_something_else_is_none(before: str, after: str) -> None:
    assert compare(after, before).relation == "unrelated"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("My weight is 82 kilos.", "I'd like you to remove my weight from your notes."),
        ("Mein Gewicht ist 82 Kilo.", "Lösch bitte mein Gewicht aus deinen Notizen."),
        ("Mi peso es de 82 kilos.", "Borra mi peso de tus notas."),
        ("我的体重是八十二公斤。", "把我的体重从你的记录里删掉。"),
        ("The release notes are in the wiki.", "Forget what I said about the release notes."),
    ],
)
def test_what_is_taken_back_is_named_in_the_request(before: str, after: str) -> None:
    assert compare(after, before).relation == "retracted"


def replaced_by_a_model(open_tally: OpenTally, before: str, after: str, action: str) -> str:
    """Return the state of a memory after a model, sure of itself, replaced or withdrew it."""

    def decide(facts: Sequence[Any], candidates: Sequence[Sequence[DecisionCandidate]]) -> Any:
        target = next(each.id for each in candidates[0] if each.content == before)
        return [MemoryDecision(fact=0, action=action, target=target, confidence=99)]  # type: ignore[arg-type]

    with opened(open_tally, extractor=Scripted(), decider=Scripted(decide=decide)) as tally:
        anna = tally.bind()
        stored = anna.remember(before, mode="raw")
        anna.remember(after, mode="sync", timeout_ms=30_000)
        tally.drain()
        return anna.get(stored.id).state


@pytest.mark.parametrize(
    ("before", "after", "action"),
    [
        ("The Berlin office has 40 desks.", "The Hamburg office now has 25 desks.", "UPDATE"),
        ("The test suite takes 12 minutes.", "The test suite now has 900 tests.", "UPDATE"),
        ("Le magasin de Lyon ouvre à 9h.", "Le magasin de Nice ouvre désormais à 10h.", "UPDATE"),
        ("My left knee hurts.", "My right knee hurts now too.", "UPDATE"),
        ("Maria ordered twelve chairs.", "Maria has now ordered six tables.", "UPDATE"),
        ("Tengo un gato.", "Mi hermana ya no tiene gato.", "DELETE"),
        ("Ben stopped smoking.", "Tom stopped smoking.", "DELETE"),
        ("Helen runs the book club.", "Ruth runs the chess club now.", "UPDATE"),
        ("Our launch is in March.", "Forget what I said about the launch in March.", "UPDATE"),
    ],
)
def test_a_model_replaces_nothing_that_is_about_something_else(
    open_sqlite: OpenTally, before: str, after: str, action: str
) -> None:
    assert replaced_by_a_model(open_sqlite, before, after, action) == "active"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The kitchen walls are yellow.", "The kitchen walls have since turned out grey."),
        ("I commute by bus.", "My commute is by bike nowadays, no more bus."),
        ("Wir benutzen Slack für den Chat.", "Im Chat sind wir von Slack auf Zulip gewechselt."),
    ],
)
def test_a_model_replaces_what_a_sentence_says_anew(
    open_sqlite: OpenTally, before: str, after: str
) -> None:
    assert replaced_by_a_model(open_sqlite, before, after, "UPDATE") == "superseded"


def test_two_memories_that_a_change_may_mean_wait_for_a_person(
    open_sqlite: OpenTally,
) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        texts = ["The deadline of the grant is Friday.", "The deadline of the paper is Friday."]
        stored = [anna.remember(text, mode="raw") for text in texts]
        anna.remember("The deadline moved to Monday.", mode="sync", timeout_ms=30_000)
        tally.drain()

        assert {anna.get(each.id).state for each in stored} == {"active"}
        assert "ambiguous" in {each.reason for each in rows(tally) if each.state == "pending"}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Nothing beats a window seat for me.", "preference"),
        ("Ich stehe total auf Krimis.", "preference"),
        ("After a long debate we landed on Kafka.", "decision"),
        ("Al final nos quedamos con el piso pequeño.", "decision"),
        ("Visitors are only admitted with a badge.", "constraint"),
        ("禁止在周五部署。", "constraint"),
        ("If the build hangs, restart the agent.", "procedure"),
        ("The warehouse burned down in March.", "fact"),
        ("Mes parents vivent à la campagne.", "fact"),
    ],
)
def test_a_kind_is_read_by_the_grammar_of_a_sentence(text: str, kind: str) -> None:
    assert [fact.kind for fact in RuleExtractor().extract(text).facts] == [kind]


@pytest.mark.parametrize(
    "text", ["That makes sense.", "If only I had more time.", "Non lo so.", "On en reparle demain."]
)
def test_a_sentence_that_only_points_or_wishes_gives_nothing(text: str) -> None:
    assert RuleExtractor().extract(text).facts == ()


class NamingScripted(Scripted):
    """An extractor that finds names and how they are related."""

    def extract(self, text: str) -> Extraction:
        return Extraction(
            entities=(
                ExtractedEntity(name="maria", kind="person"),
                ExtractedEntity(name="north sea", kind="location"),
                ExtractedEntity(name="Rasputin", kind="person"),
            ),
            relations=(ExtractedRelation(source="maria", relation="lives_by", target="north sea"),),
        )


@pytest.mark.parametrize("mode", ["full", "add_only", "shadow"])
def test_the_graph_gets_the_names_that_a_model_found_in_the_text(
    open_tally: OpenTally, mode: str
) -> None:
    """What the text does not name is left out; a second look of the graph changes nothing."""
    with opened(open_tally, mode, extractor=NamingScripted(), settings={"graph": True}) as tally:
        anna = tally.bind()
        memory = anna.remember("maria has a house by the north sea", mode="sync", timeout_ms=30_000)
        tally.drain()
        links = anna.explore(memory.id).links
        names = {anna.get(link.to_id).content for link in links if link.kind == "MENTIONS"}
        assert names == (set() if mode == "shadow" else {"maria", "north sea"})
        if mode != "shadow":
            about = anna.explore("maria", mode="about")
            assert "lives_by" in {each.relation for each in about.relations}
        assert all(each.status != "problem" for each in anna.operator.doctor())


# Who says it, and when


@pytest.mark.parametrize(
    ("before", "said_by", "after", "said", "stays"),
    [
        ("I live in Berlin.", "Anna", "I moved to Hamburg.", "Bob", True),
        ("I live in Berlin.", "Anna", "I no longer live in Berlin.", "Bob", True),
        ("Vivo en Berlín.", "Anna", "Vivo en Hamburgo ahora.", "Bob", True),
        ("I live in Berlin.", None, "I moved to Hamburg.", "Bob", True),
        ("I live in Berlin.", None, "I moved to Hamburg.", "user", False),
        ("I live in Berlin.", "Anna", "I moved to Hamburg.", None, False),
        ("Clara lives in Berlin.", "Anna", "Clara moved to Hamburg.", "Bob", False),
        ("I live in Berlin.", None, "I moved to Hamburg.", "ai", True),
        ("Clara lives in Berlin.", None, "Clara moved to Hamburg.", "agent", True),
        ("Clara lives in Berlin.", None, "Clara moved to Hamburg.", "Model", True),
    ],
)
def test_nobody_speaks_for_another(
    open_sqlite: OpenTally,
    before: str,
    said_by: str | None,
    after: str,
    said: str | None,
    stays: bool,
) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        stored = anna.remember(before, speaker=said_by, mode="raw")
        anna.remember(after, speaker=said, mode="sync", timeout_ms=30_000)
        tally.drain()
        assert (anna.get(stored.id).state == "active") is stays


def test_a_fact_is_kept_where_a_model_says_that_another_memory_says_it(
    open_sqlite: OpenTally,
) -> None:
    def decide(facts: Sequence[Any], candidates: Sequence[Sequence[DecisionCandidate]]) -> Any:
        return [MemoryDecision(fact=0, action="NONE", target=candidates[0][0].id, confidence=99)]

    text = "Clara keeps two herons in the garden behind her house in Leiden."
    with opened(
        open_sqlite,
        extractor=Scripted([ExtractedFact(content=f"{text[:27]}.", confidence=90)]),
        decider=Scripted(decide=decide),
    ) as tally:
        anna = tally.bind()
        anna.remember("Clara's garden is in the north.", mode="raw")
        anna.remember(text, mode="sync", timeout_ms=30_000)
        tally.drain()
        assert f"{text[:27]}." in by_content(tally)


@pytest.mark.parametrize("confidence", [5, 99])
def test_an_invented_fact_replaces_nothing_whoever_extracted_it(
    open_sqlite: OpenTally, confidence: int
) -> None:
    def decide(facts: Sequence[Any], candidates: Sequence[Sequence[DecisionCandidate]]) -> Any:
        target = candidates[0][0].id
        return [MemoryDecision(fact=0, action="UPDATE", target=target, confidence=100)]

    invented = ExtractedFact(content="I am no longer allergic to nuts.", confidence=confidence)
    with opened(
        open_sqlite, extractor=Scripted([invented]), decider=Scripted(decide=decide)
    ) as tally:
        anna = tally.bind()
        stored = anna.remember("I am allergic to nuts.", mode="raw")
        anna.remember("Hello, what nice weather it is today.", mode="sync", timeout_ms=30_000)
        tally.drain()
        assert anna.get(stored.id).state == "active"
        reason = "low_confidence" if confidence == 5 else "not_in_text"
        assert {each.reason for each in rows(tally)} == {reason}


def test_history_says_why_nothing_was_added(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite) as tally:
        anna = tally.bind()
        anna.remember("I live in Utrecht.", mode="sync", timeout_ms=30_000)
        again = anna.remember("As I said, I live in Utrecht.", mode="sync", timeout_ms=30_000)
        tally.drain()
        reasons = [entry.reason for entry in anna.history(again.id)]
        assert "NONE by rules: The memory says the same." in reasons
