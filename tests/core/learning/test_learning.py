"""Learning: what is remembered is kept first, then read by a model, and what the model proposes
waits for a person.
"""

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
    ModelFailed,
    ModelUnavailable,
    NotFound,
    SettingsError,
)
from tallystick.ports import StructuredAnswer
from tallystick.recorder.outbound import Outbound, OutboundSubject, note_answer
from tallystick.records import (
    ExtractedEntity,
    ExtractedFact,
    ExtractedRelation,
    Extraction,
    FactChange,
    JsonObject,
    KnownFact,
    LearningBudget,
    LearningRequest,
    Memory,
    MemoryState,
    OutboundCall,
    Proposal,
    ProviderDeclaration,
    SourceRef,
)
from tallystick.settings import Settings
from tallystick.storage.rows import edges, journal, memories, outbound_calls, proposals
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder, ScriptedLearner

OpenTally = Callable[..., Tally]
Change = Callable[[ExtractedFact, Sequence[KnownFact]], list[ExtractedFact]]
ANNA = Actor(user="anna", role="operator")
BOB = Actor(user="bob")
FAR = ProviderDeclaration(name="far", model="m-1", timeout_ms=2_000)


class Scripted:
    """A learner that answers what it is told to, and writes down what it saw."""

    def __init__(
        self,
        facts: Sequence[str] = (),
        change: Change | None = None,
        *,
        declaration: ProviderDeclaration = FAR,
        error: BaseException | None = None,
    ) -> None:
        self.declaration = declaration
        self.facts, self.change, self.error = list(facts), change, error
        self.texts: list[str] = []
        self.known: list[list[KnownFact]] = []

    def learn(self, request: LearningRequest) -> Extraction:
        self.texts += [turn.text for turn in request.new_turns]
        self.known.append(list(request.known))
        if self.error is not None:
            raise self.error
        facts = [
            ExtractedFact(content=each, confidence=90, turn=turn.id, span=turn.text)
            for turn in request.new_turns
            for each in self.facts or [turn.text]
        ]
        if self.change is not None:
            facts = [one for fact in facts for one in self.change(fact, request.known)]
        return Extraction(facts=tuple(facts))


def changing(change: FactChange, content: str | None = None) -> Change:
    """A learner's answer that changes the best known fact, or the one with these words."""

    def answer(fact: ExtractedFact, known: Sequence[KnownFact]) -> list[ExtractedFact]:
        targets = [each.id for each in known if content is None or each.text == content]
        if not targets:
            return [fact]
        return [fact.model_copy(update={"change": change, "target": targets[0]})]

    return answer


def opened(open_tally: OpenTally, **options: Any) -> Tally:
    settings = Settings(learning="review", **options.pop("settings", {}))
    return open_tally(settings=settings, owner=ANNA, **{"learning_model": Scripted(), **options})


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


@pytest.mark.parametrize("setting", ["learning", "reflection"])
def test_learning_without_a_model_is_refused(open_sqlite: OpenTally, setting: str) -> None:
    settings = Settings.read(**{setting: "review"})
    with pytest.raises(
        SettingsError,
        match=r"Without a model, or an agent's own proposal, nothing is learned.*`learning_model`",
    ):
        open_sqlite(owner=ANNA, settings=settings)
    with pytest.raises(SettingsError, match=f"`{setting}` to off"):
        open_sqlite(owner=ANNA, settings=settings)
    open_sqlite(owner=ANNA, settings=settings, learning_model=Scripted()).close()


def test_a_learner_that_nothing_would_call_is_refused(open_sqlite: OpenTally) -> None:
    with pytest.raises(SettingsError, match="`learning` and `reflection` are off"):
        open_sqlite(owner=ANNA, learning_model=Scripted())


@pytest.mark.parametrize("mode", ["auto", "async"])
def test_what_is_remembered_is_recallable_before_anything_is_drawn_from_it(
    open_sqlite: OpenTally, mode: Any
) -> None:
    model = Scripted(["I live in Berlin.", "I love coffee."])
    with opened(open_sqlite, learning_model=model) as tally:
        anna = tally.bind()
        stored = anna.remember("I live in Berlin. I love coffee.", mode=mode)

        assert stored.processing == "queued"
        assert stored_of(tally, stored.id).memory.extraction_status == "pending"
        assert [hit.memory.id for hit in anna.recall("where do I live?")] == [stored.id]

        tally.drain()

        job = anna.jobs.get(stored.job_id or "")
        proposed = [each.id for each in anna.reviews.list()]
        assert (job.state, job.result) == (
            "done",
            {
                "waiting": 2,
                "read": 1,
                "facts": 2,
                "provider": "far",
                "proposals": proposed,
                "warnings": [],
            },
        )
        assert stored_of(tally, stored.id).memory.extraction_status == "done"
        assert set(by_content(tally)) == {"I live in Berlin. I love coffee."}
        assert [
            (each.content and each.content.content) for each in anna.reviews.list()
        ] == model.facts


def test_sync_waits_for_the_model_and_raw_leaves_no_job(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, learning_model=Scripted(["I love coffee."])) as tally:
        anna = tally.bind()
        learned = anna.remember("I live in Berlin. I love coffee.", mode="sync")
        raw = anna.remember("I work at Siemens. I love tea.", mode="raw")
        tally.drain()

        assert (learned.processing, raw.processing, raw.job_id) == ("processed", "raw_saved", None)
        assert [each.derived_from for each in anna.reviews.list()] == [(learned.id,)]


def test_a_process_without_a_model_leaves_the_work_to_one_that_has_it(
    open_sqlite: OpenTally,
) -> None:
    with opened(open_sqlite, learning_model=Scripted(["I love coffee."])) as tally:
        job_id = tally.bind().remember("I live in Berlin. I love coffee.").job_id or ""
    with open_sqlite() as tally:
        tally.drain()
        assert tally.bind().jobs.get(job_id).state == "pending"
    with opened(open_sqlite, learning_model=Scripted(["I love coffee."])) as tally:
        tally.drain()
        assert len(tally.bind().reviews.list()) == 1


def test_sync_comes_back_in_time_where_a_model_does_not(open_sqlite: OpenTally) -> None:
    released = threading.Event()

    class Slow(Scripted):
        def learn(self, request: LearningRequest) -> Extraction:
            released.wait(20)
            return super().learn(request)

    with opened(open_sqlite, learning_model=Slow()) as tally:
        stored = tally.bind().remember("I live in Berlin.", mode="sync", timeout_ms=50)
        released.set()

        assert stored.processing == "queued"
        assert stored.warnings == ("what is learned from it comes later",)
        assert [hit.memory.id for hit in tally.bind().recall("Berlin")] == [stored.id]


def test_what_a_person_accepts_names_its_text_and_who_drew_it(open_tally: OpenTally) -> None:
    near = FAR.model_copy(update={"name": "near", "local": True})
    model = Scripted(["I live in Berlin."], declaration=near)
    with opened(open_tally, learning_model=model) as tally:
        anna = tally.bind()
        source = anna.remember(
            "I live in Berlin. I love coffee.",
            attributes={"sensitivity": "restricted", "note": "mine"},
            confidence=70,
            speaker="Anna",
            tags=["home"],
        )
        tally.drain()
        [proposal] = anna.reviews.list()
        assert (proposal.state, proposal.reason, proposal.provider, proposal.model) == (
            "pending",
            "sensitive",
            "near",
            "m-1",
        )
        accepted = anna.reviews.decide(proposal.id, "accept", reason="so it is")

        fact = anna.get(accepted.made or "")
        assert (fact.content, fact.kind, fact.confidence) == ("I live in Berlin.", "fact", 70)
        assert (fact.speaker, fact.tags) == ("Anna", ("home",))
        assert fact.attributes == {"sensitivity": "restricted"}
        assert fact.extraction_model == "near:m-1"
        origin = stored_of(tally, source.id).memory
        assert set(origin.sources) <= set(fact.sources)
        with services_of(tally).store.database.read() as connection:
            kinds = {edge.kind for edge in edges.of(connection, stored_of(tally, fact.id).doc)}
        assert kinds == {"DERIVED_FROM"}


def test_a_text_without_facts_is_empty_and_not_done(open_sqlite: OpenTally) -> None:
    class Silent(Scripted):
        def learn(self, request: LearningRequest) -> Extraction:
            return Extraction()

    with opened(open_sqlite, learning_model=Silent()) as tally:
        stored = tally.bind().remember("Hi there! How are you?")
        tally.drain()

        assert tally.bind().jobs.get(stored.job_id or "").state == "empty"
        assert stored_of(tally, stored.id).memory.extraction_status == "empty"


def test_a_replacement_changes_nothing_until_a_person_accepts_it(open_tally: OpenTally) -> None:
    with opened(open_tally, learning_model=Scripted(change=changing("replaces"))) as tally:
        anna = tally.bind()
        old = anna.remember("I live in Berlin.", mode="raw")
        new = anna.remember("I moved to Hamburg.")
        tally.drain()

        assert {each.state for each in by_content(tally).values()} == {"active"}
        assert "review_needed" in events(tally, old.id)
        [proposal] = anna.reviews.list()
        assert (proposal.action, proposal.target, proposal.reason) == (
            "UPDATE",
            old.id,
            "contradiction",
        )
        anna.reviews.decide(proposal.id, "accept", reason="she moved")
        assert by_content(tally)["I live in Berlin."].state == "superseded"
        hits = anna.recall("where do I live?", states=("active", "superseded"))
        replaced = [hit.replaced_by for hit in hits if hit.memory.id == old.id]
        assert replaced == [anna.reviews.get(proposal.id).proposal.made]
        assert replaced == [new.id], "the text is the fact"


@pytest.mark.parametrize("facts", [[], ["It is Hamburg where I live.", "I like Hamburg."]])
def test_a_contradiction_changes_no_memory_and_is_told_once_a_person_accepts_it(
    open_tally: OpenTally, facts: list[str]
) -> None:
    learner = Scripted(facts, changing("contradicts"))
    with opened(open_tally, learning_model=learner) as tally:
        anna = tally.bind()
        old = anna.remember("I live in Berlin.", mode="raw", pinned=True).id
        text = anna.remember("I live in Hamburg.").id
        tally.drain()

        proposal = anna.reviews.list()[0]
        assert (proposal.action, proposal.target) == ("CONTRADICTS", old)
        assert "review_needed" in events(tally, old)
        assert anna.inspect(old).contradicted_by == ()
        before = anna.get(old)
        made = anna.reviews.decide(proposal.id, "accept", reason="both are signed").made
        assert anna.get(old) == before
        assert made is not None
        assert (made == text) == (not facts), "a text that is nothing but its fact is that fact"
        assert anna.inspect(old).contradicted_by == (made,)
        assert anna.inspect(made).contradicted_by == (old,)


def test_a_contradiction_with_no_memory_that_was_shown_is_discarded(open_sqlite: OpenTally) -> None:
    def change(fact: ExtractedFact, known: Sequence[KnownFact]) -> list[ExtractedFact]:
        return [fact.model_copy(update={"change": "contradicts"})]

    with opened(open_sqlite, learning_model=Scripted(change=change)) as tally:
        tally.bind().remember("I live in Berlin.", mode="raw")
        tally.bind().remember("I moved to Hamburg.")
        tally.drain()
        [proposal] = rows(tally)
        assert (proposal.state, proposal.reason) == ("discarded", "invalid_target")


def test_two_facts_of_one_text_about_its_subject_do_not_contradict_one_another(
    open_tally: OpenTally,
) -> None:
    facts = ["Anna moved to Kiel in May.", "The flat has a view of the port."]
    with opened(open_tally, learning_model=Scripted(facts)) as tally:
        anna = tally.bind()
        anna.remember("Anna moved to Kiel in May. The flat sees the port.", subject="home")
        tally.drain()
        made = [
            anna.reviews.decide(each.id, "accept", reason="so it is").made
            for each in anna.reviews.list()
        ]
        assert [anna.get(str(each)).subject for each in made] == ["home", "home"]
        assert [anna.inspect(str(each)).contradicted_by for each in made] == [(), ()]


def test_what_ends_waits_and_then_holds_no_longer_and_can_be_brought_back(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally, learning_model=Scripted(change=changing("ends"))) as tally:
        anna = tally.bind()
        old = anna.remember("My dog is called Rex.", mode="raw")
        anna.remember("I have no dog any more.")
        tally.drain()

        assert anna.get(old.id).valid_until is None
        [proposal] = anna.reviews.list()
        anna.reviews.decide(proposal.id, "accept", reason="there is no dog")
        ended = anna.get(old.id)
        assert (ended.state, ended.valid_until is not None) == ("active", True)
        assert old.id not in [hit.memory.id for hit in anna.recall("What is my dog called?")]
        anna.reviews.decide(proposal.id, "undo", reason="I do have a dog.")
        assert anna.get(old.id).valid_until is None


def test_a_fact_that_is_remembered_already_is_not_proposed(open_sqlite: OpenTally) -> None:
    facts = ["I live in Berlin.", "I love tea."]

    def change(fact: ExtractedFact, known: Sequence[KnownFact]) -> list[ExtractedFact]:
        return changing("same_as", facts[0])(fact, known) if fact.content == facts[0] else [fact]

    with opened(open_sqlite, learning_model=Scripted(facts, change)) as tally:
        anna = tally.bind()
        first = anna.remember("I live in Berlin.", mode="raw")
        anna.remember("I love tea.", kind="fact", mode="raw")
        second = anna.remember("I still live in Berlin, and I love tea.")
        tally.drain()

        assert rows(tally) == []
        assert len(stored_of(tally, first.id).memory.sources) == 1, "a model merges nothing"
        assert [entry.reason for entry in anna.history(second.id) if entry.event == "NONE"] == [
            "NONE by far",
            "ADD by far: it is remembered already",
        ]


def test_a_memory_that_is_a_fact_may_replace_another(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, learning_model=Scripted(change=changing("replaces"))) as tally:
        anna = tally.bind()
        old = anna.remember("I prefer tea.", kind="preference", mode="raw")
        new = anna.remember("I prefer coffee.", kind="preference")
        tally.drain()

        [proposal] = anna.reviews.list()
        assert anna.reviews.decide(proposal.id, "accept", reason="yes").made == new.id
        assert (anna.get(old.id).state, anna.get(new.id).state) == ("superseded", "active")


def test_what_protects_a_memory_is_the_reason_of_its_proposal(open_sqlite: OpenTally) -> None:
    with opened(
        open_sqlite, learning_model=(learner := Scripted(change=changing("replaces")))
    ) as tally:
        anna = tally.bind()
        pinned = anna.remember("I live in Berlin.", pinned=True, mode="raw")
        locked = anna.remember("My favourite colour is red.", mode="raw")
        anna.modify(
            locked.id, content="My favourite colour is green.", reason="So.", manual_override=True
        )
        read = anna.remember("The sea is green.", mode="raw")
        for target, text, source in (
            ("I live in Berlin.", "I moved to Hamburg.", None),
            ("My favourite colour is green.", "My favourite colour is blue now.", None),
            ("The sea is green.", "The sea is blue.", SourceRef(source_type="tool")),
        ):
            learner.change = changing("replaces", target)
            anna.remember(text, source=source, mode="sync", timeout_ms=30_000)

        assert {each.state for each in by_content(tally).values()} == {"active"}
        assert {row.target: row.reason for row in rows(tally)} == {
            pinned.id: "pinned_memory",
            locked.id: "manual_override",
            read.id: "foreign_text",
        }


def test_two_changes_of_one_memory_say_so(open_sqlite: OpenTally) -> None:
    def twice(fact: ExtractedFact, known: Sequence[KnownFact]) -> list[ExtractedFact]:
        change = "ends" if "Bremen" in fact.content else "replaces"
        return [fact.model_copy(update={"change": change, "target": known[0].id})]

    model = Scripted(["I moved to Hamburg.", "I moved to Bremen."], twice)
    with opened(open_sqlite, learning_model=model) as tally:
        anna = tally.bind()
        anna.remember("I live in Berlin.", mode="raw")
        anna.remember("I moved to Hamburg. Sorry, I moved to Bremen.")
        tally.drain()

        assert [(row.action, row.state, row.reason) for row in rows(tally)] == [
            ("UPDATE", "pending", "contradiction_in_batch"),
            ("END", "pending", "contradiction_in_batch"),
        ]


def test_a_target_that_changed_since_it_was_looked_at_says_so(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, learning_model=(learner := Scripted())) as tally:
        anna = tally.bind()
        old = anna.remember("I live in Berlin.", mode="raw")

        def change(fact: ExtractedFact, known: Sequence[KnownFact]) -> list[ExtractedFact]:
            anna.modify(old.id, content="I live in Potsdam.", reason="Moved.")
            return changing("replaces")(fact, known)

        learner.change = change
        anna.remember("I moved to Hamburg.")
        tally.drain()

        assert stored_of(tally, old.id).memory.state == "active"
        [row] = rows(tally)
        assert (row.state, row.reason) == ("pending", "target_changed")


def test_an_older_text_proposes_nothing_against_a_later_one(open_sqlite: OpenTally) -> None:
    learner = Scripted(change=changing("replaces"))
    with opened(open_sqlite, learning_model=learner) as tally:
        anna = tally.bind()
        anna.remember("I live in Berlin.", mode="raw")
        anna.remember("I moved to Hamburg.", occurred_at=tally.now() - 365 * 86_400_000_000)
        tally.drain()
        assert learner.known == [[]]
        assert [(row.action, row.target) for row in rows(tally)] == []


def test_a_target_that_nobody_was_shown_is_discarded_and_noted(open_sqlite: OpenTally) -> None:
    def change(fact: ExtractedFact, known: Sequence[KnownFact]) -> list[ExtractedFact]:
        targets = (foreign.id, "k7", "")
        return [
            fact.model_copy(update={"change": "ends", "target": each, "content": f"No {number}."})
            for number, each in enumerate(targets)
        ]

    with opened(open_sqlite, learning_model=Scripted(change=change)) as tally:
        foreign = tally.bind(BOB).remember("I live in Rome.", mode="raw")
        anna = tally.bind()
        anna.remember("I live in Berlin.", mode="raw")
        anna.remember("I moved to Hamburg.")
        tally.drain()

        assert stored_of(tally, foreign.id).memory.state == "active"
        assert [(row.state, row.reason, row.target) for row in rows(tally)] == [
            ("discarded", "invalid_target", None)
        ] * 3


def test_nothing_of_another_user_reaches_a_learner(open_sqlite: OpenTally) -> None:
    learner = Scripted()
    with opened(open_sqlite, learning_model=learner) as tally:
        tally.bind(BOB).remember("I live in Rome with my secret heron.", mode="raw")
        hidden = tally.bind().remember("I live in Paris with a secret cat.", mode="raw")
        tally.bind().forget(hidden.id, reason="No.")
        private: JsonObject = {"local_only": True}
        tally.bind().remember("I live in Oslo in secret.", mode="raw", attributes=private)
        tally.bind().remember("I live in Berlin.", mode="raw")
        tally.bind().remember("I moved to Hamburg.")
        tally.drain()

        shown = [each.text for known in learner.known for each in known]
        assert "I live in Berlin." in shown
        assert not any("secret" in text for text in (*shown, *learner.texts))


def test_a_failure_is_failed_after_its_attempts_and_the_text_stays(
    open_sqlite: OpenTally,
) -> None:
    with opened(open_sqlite, learning_model=Scripted(error=ExtractionError("No JSON."))) as tally:
        stored = tally.bind().remember("I live in Berlin.")
        for _ in range(5):
            tally.drain()

        job = tally.bind().jobs.get(stored.job_id or "")
        assert (job.state, job.error_code) == ("failed", "extraction_error")
        assert stored_of(tally, stored.id).memory.extraction_status == "failed"
        assert [hit.memory.id for hit in tally.bind().recall("Berlin")] == [stored.id]


def test_an_outage_waits_without_end_and_is_made_up_for_in_order(open_sqlite: OpenTally) -> None:
    learner = Scripted(error=ModelUnavailable())
    with opened(open_sqlite, learning_model=learner) as tally:
        anna = tally.bind()
        jobs = [anna.remember(f"I have {number} boats.").job_id or "" for number in range(3)]
        for _ in range(7):
            with pytest.raises(ModelUnavailable):
                tally.drain()
        learner.error, learner.texts = None, []
        tally.drain()

        assert learner.texts == [f"I have {number} boats." for number in range(3)]
        assert {anna.jobs.get(job_id).state for job_id in jobs} == {"done"}


def test_the_next_provider_is_asked_where_the_preferred_one_is_away(
    open_sqlite: OpenTally,
) -> None:
    away = Scripted(error=ModelUnavailable())
    second = Scripted(declaration=FAR.model_copy(update={"name": "second"}))
    with opened(open_sqlite, learning_model=[away, second]) as tally:
        stored = tally.bind().remember("I live in Berlin.")
        tally.drain()

        result = tally.bind().jobs.get(stored.job_id or "").result
        assert result is not None
        assert result["provider"] == "second"


def test_a_budget_stops_at_the_call_that_reaches_it(open_sqlite: OpenTally) -> None:
    budget = LearningBudget(calls_per_day=2)
    learner = Scripted()
    with opened(open_sqlite, learning_model=learner, settings={"learning_budget": budget}) as tally:
        anna = tally.bind()
        stored = [anna.remember(f"I have {number} boats.") for number in range(4)]
        [held] = tally.drain().failed
        assert (held.code, "calls_per_day" in held.text) == ("budget_spent", True)

        states = [anna.jobs.get(each.job_id or "").state for each in stored]
        assert len(learner.texts) == 2
        assert states == ["done", "done", "retry_scheduled", "pending"]
        with pytest.raises(BudgetSpent, match="calls_per_day"):
            tally.drain()


def test_tokens_are_exceeded_by_one_call_at_most(open_tally: OpenTally) -> None:
    class Model:
        declaration = FAR
        calls = 0

        def answer(self, instructions: str, text: str, schema: Any) -> StructuredAnswer:
            self.calls += 1
            return StructuredAnswer({"facts": []}, "m-2", input_tokens=60, output_tokens=5)

    model = Model()
    budget = LearningBudget(tokens_per_scope_and_day=100)
    with opened(open_tally, learning_model=model, settings={"learning_budget": budget}) as tally:
        anna = tally.bind()
        for number in range(4):
            anna.remember(f"I have {number} boats.")
        assert [each.code for each in tally.drain().failed] == ["budget_spent"]

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
            outbound.call("learn", FAR, subject, "sent", function, originals={})
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
    with opened(
        open_tally, learning_model=Scripted(), settings={"learning_budget": budget}
    ) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).outbound
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
    with opened(open_tally, learning_model=Scripted(), settings=settings) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).outbound
        assert calls_at_once(outbound, stored, 8, fifty_tokens) == (3, 5)
        assert sum(each.input_tokens + each.output_tokens for each in logged_calls(tally)) == 150


def test_calls_far_from_a_limit_do_not_wait_for_one_another(open_tally: OpenTally) -> None:
    budget = LearningBudget(tokens_per_day=1_000_000)
    with opened(
        open_tally, learning_model=Scripted(), settings={"learning_budget": budget}
    ) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).outbound
        # Each ends once all have begun.
        all_began = threading.Barrier(3)
        assert calls_at_once(outbound, stored, 3, lambda: all_began.wait(20)) == (3, 0)


def test_a_call_of_a_process_that_died_holds_up_no_other(open_sqlite: OpenTally) -> None:
    soon = FAR.model_copy(update={"timeout_ms": 300})
    budget = LearningBudget(tokens_per_day=1_000)
    with opened(
        open_sqlite, learning_model=Scripted(declaration=soon), settings={"learning_budget": budget}
    ) as tally:
        stored = stored_of(tally, tally.bind().remember("I have 3 boats.", mode="raw").id)
        outbound = services_of(tally).outbound
        subject = OutboundSubject(ANNA, stored.memory, stored.scope_id)

        def die() -> None:
            raise SystemExit

        # As a killed process leaves it: begun, and never ended.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outbound_calls, "finish", lambda *_, **__: None)
            with pytest.raises(ModelFailed):
                outbound.call("learn", soon, subject, "sent", die, originals={})
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
    with opened(open_sqlite, learning_model=model, settings={"learning_budget": budget}) as tally:
        tally.bind().remember("I have 3 boats.")
        with pytest.raises(BudgetSpent, match="calls_per_day"):
            tally.drain()
        assert (model.calls, len(logged_calls(tally))) == (1, 1)


def test_each_answer_of_a_model_is_logged_and_recorded_by_itself(open_sqlite: OpenTally) -> None:
    model = Prose()
    with opened(open_sqlite, learning_model=model) as tally:
        anna = tally.bind()
        anna.remember("I have 3 boats.")
        services_of(tally).background.runner.run(["learn"])
        assert model.calls == 2
        assert len(logged_calls(tally)) == 2
        [run] = anna.recordings.runs()
        assert [step.name for step in anna.recordings.steps(run.id)] == ["learn"] * 2
        assert all(each.input_tokens and each.output_tokens for each in logged_calls(tally))


@pytest.mark.parametrize("error", [None, ModelUnavailable(), ExtractionError("No record.")])
def test_tokens_that_are_not_reported_are_estimated_and_held_to_the_limit(
    open_sqlite: OpenTally, error: BaseException | None
) -> None:
    learner = Scripted(error=error)
    budget = LearningBudget(tokens_per_day=3)
    with opened(open_sqlite, learning_model=learner, settings={"learning_budget": budget}) as tally:
        for number in range(4):
            tally.bind().remember(f"I have {number} boats in the harbour of Hamburg.")
        runner = services_of(tally).background.runner
        runner.run(["learn"])
        runner.run(["learn"])
        assert len(learner.texts) == 1
        [call] = logged_calls(tally)
        assert call.input_tokens > 3


def test_a_limit_of_money_is_refused_for_a_model_whose_price_is_not_known(
    open_sqlite: OpenTally,
) -> None:
    budget = {"learning_budget": LearningBudget(micros_per_day=100)}
    with pytest.raises(SettingsError, match=r"price of far:m-1 is not known"):
        opened(open_sqlite, learning_model=Scripted(), settings=budget)
    near = Scripted(declaration=FAR.model_copy(update={"local": True}))
    opened(open_sqlite, learning_model=near, settings=budget).close()


@pytest.mark.parametrize("longest", [30, 200])
def test_a_learner_is_sent_no_more_than_it_takes_and_the_job_says_what_was_left_out(
    open_sqlite: OpenTally, longest: int
) -> None:
    learner = Scripted(declaration=FAR.model_copy(update={"longest_text": longest}))
    with opened(open_sqlite, learning_model=learner) as tally:
        anna = tally.bind()
        for number in range(12):
            anna.remember(f"My boat number {number} lies in the harbour.", mode="raw")
        stored = anna.remember("My boat number 99 lies in the harbour.")
        tally.drain()

        [text], [known] = learner.texts, learner.known
        assert len(text) + sum(len(each.text) for each in known) <= longest
        assert (len(known) > 0) == (longest > 30)
        result = anna.jobs.get(stored.job_id or "").result
        assert result is not None
        assert f"far takes {longest} characters" in str(result["warnings"])


def test_a_scope_that_spent_its_budget_holds_no_other_scope_back(open_tally: OpenTally) -> None:
    learner = Scripted()
    budget = LearningBudget(calls_per_scope_and_day=2)
    with opened(open_tally, learning_model=learner, settings={"learning_budget": budget}) as tally:
        anna, bob = tally.bind(), tally.bind(BOB)
        hers = [anna.remember(f"I have {number} boats.") for number in range(30)]
        his = [bob.remember(f"I have {number} kites.") for number in range(2)]
        runner = services_of(tally).background.runner
        first = runner.run(["learn"])
        states = [each.state for each in (anna.jobs.get(one.job_id or "") for one in hers)]
        assert [anna.jobs.get(one.job_id or "").state for one in his] == ["done", "done"]
        assert states.count("done") == 2
        assert isinstance(first.outage, BudgetSpent)

        later = bob.remember("I have a new kite.")
        runner.run(["learn"])
        assert anna.jobs.get(later.job_id or "").state == "retry_scheduled"
        cora = tally.bind(Actor(user="cora"))
        other = cora.remember("I have a canoe.")
        runner.run(["learn"])
        assert anna.jobs.get(other.job_id or "").state == "done"
        assert len(learner.texts) == 5


def test_a_job_that_spent_its_own_budget_fails_and_goes_on_when_the_limit_is_raised(
    open_sqlite: OpenTally,
) -> None:
    budget = LearningBudget(calls_per_job=1)
    unread = Scripted(error=ExtractionError("Nothing readable came back."))
    with opened(open_sqlite, learning_model=unread, settings={"learning_budget": budget}) as tally:
        job_id = tally.bind().remember("I have 3 boats.").job_id or ""
        tally.drain()
        tally.drain()
        job = tally.bind().jobs.get(job_id)
        assert (job.state, job.error_code, len(unread.texts)) == ("failed", "budget_spent", 1)

    raised = LearningBudget(calls_per_job=9)
    with opened(
        open_sqlite, learning_model=Scripted(), settings={"learning_budget": raised}
    ) as tally:
        tally.bind().jobs.retry([job_id], reason="r")
        tally.drain()
        assert tally.bind().jobs.get(job_id).state == "done"


def test_what_stays_here_is_given_to_no_provider_far_away(open_sqlite: OpenTally) -> None:
    far = Scripted()
    with opened(open_sqlite, learning_model=far) as tally:
        kept = tally.bind().remember("I live in Berlin.", attributes={"local_only": True})
        tally.drain()

        job = tally.bind().jobs.get(kept.job_id or "")
        assert (job.state, job.error_code, far.texts) == ("failed", "egress_denied", [])

    near = Scripted(declaration=FAR.model_copy(update={"local": True, "name": "near"}))
    with opened(open_sqlite, learning_model=[far, near]) as tally:
        tally.bind().remember("I live in Rome.", attributes={"local_only": True})
        tally.drain()
        assert (far.texts, near.texts) == ([], ["I live in Rome."])


def test_secrets_leave_as_placeholders_and_come_back_as_they_were(
    open_sqlite: OpenTally,
) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    far = Scripted()
    kept = {"secrets_in_memory": "keep"}
    with opened(open_sqlite, learning_model=far, settings=kept) as tally:
        anna = tally.bind()
        anna.remember(f"The build key is {key} for now.", conversation="c")
        tally.drain()

        assert key not in far.texts[0]
        [proposal] = tally.bind().reviews.list()
        assert proposal.content is not None
        assert proposal.content.content == f"The build key is {key} for now."
        assert proposal.reason == "sensitive"
        [call] = logged_calls(tally)
        assert (call.provider, call.redacted, call.local) == ("far", 1, False)


def test_who_said_it_leaves_as_a_placeholder_too(open_sqlite: OpenTally) -> None:
    far, address = ScriptedLearner(local=False), "anna@example.org"
    with open_sqlite(settings=Settings(learning="review"), learning_model=far) as tally:
        tally.bind(Actor(user=address)).remember("I live in Kiel.", speaker=address)
        tally.drain()
    [request] = far.requests
    assert address not in request.dumps()
    assert request.author == request.turns[0].speaker


def test_the_outbound_log_is_read_in_pages_and_by_those_who_may_read_the_scope(
    open_tally: OpenTally,
) -> None:
    with opened(open_tally, learning_model=Scripted()) as tally:
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
        assert anna.operator.outbound_calls(purpose="summarize") == []

        [own] = [call for call in everything if call.subject_id == stored.id][:1]
        assert (own.purpose, own.provider, own.model) == ("learn", "far", "m-1")
        assert (own.outcome, own.local, own.characters > 0) == ("answered", False, True)
        assert text not in str([call.dump() for call in everything])

        for hidden in (own.id, "no such call"):
            with pytest.raises(NotFound):
                bob.operator.outbound_calls(before=hidden)
        with pytest.raises(Denied):
            tally.bind(BOB, scope=anna.scope).operator.outbound_calls()


def test_a_call_is_a_recorded_step_with_its_receipt(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, learning_model=Scripted()) as tally:
        anna = tally.bind()
        anna.remember("I live in Berlin.", conversation="c")
        tally.drain()

        [run] = anna.recordings.runs()
        assert run.agent_name == "tallystick-extract"
        assert [step.name for step in anna.recordings.steps(run.id)] == ["learn"]
        assert anna.recordings.verify(run.id).ok
        [row] = rows(tally)
        assert (row.state, row.run_id) == ("pending", run.id)


def test_consent_given_in_code_is_journaled(open_sqlite: OpenTally) -> None:
    with opened(open_sqlite, learning_model=Scripted()) as tally:
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
        job = anna.jobs.get(stored.job_id or "")
        assert (job.state, job.error_code) == ("retry_scheduled", "autonomy_frozen")
        anna.modify(stored.id, importance=80, reason="A person may still change it.")

        anna.operator.thaw(reason="Looked.", what="autonomy")
        later = anna.remember("I live in Rome. I love tea.")
        tally.drain()
        assert anna.jobs.get(later.job_id or "").state == "done"


class NamingScripted(Scripted):
    """A learner that finds names and how they are related."""

    def learn(self, request: LearningRequest) -> Extraction:
        return Extraction(
            entities=(
                ExtractedEntity(name="maria", kind="person"),
                ExtractedEntity(name="north sea", kind="ocean"),
                ExtractedEntity(name="Rasputin", kind="person"),
            ),
            relations=(ExtractedRelation(source="maria", relation="lives_by", target="north sea"),),
        )


def test_the_graph_gets_the_names_that_a_model_found_in_the_text(open_tally: OpenTally) -> None:
    """What the text does not name is left out; a second look of the graph changes nothing."""
    with opened(open_tally, learning_model=NamingScripted(), settings={"graph": True}) as tally:
        anna = tally.bind()
        memory = anna.remember("maria has a house by the north sea", mode="sync", timeout_ms=30_000)
        tally.drain()
        for _ in range(2):
            links = anna.explore(memory.id).links
            named = [anna.get(link.to_id) for link in links if link.kind == "MENTIONS"]
            assert {each.content: each.attributes["type"] for each in named} == {
                "maria": "person",
                "north sea": "name",
            }
            about = anna.explore("maria", mode="about")
            assert "lives_by" in {each.relation for each in about.relations}
            anna.modify(memory.id, importance=80, reason="the graph reads the new version")
            tally.drain()
        assert all(each.status != "problem" for each in anna.operator.doctor())
