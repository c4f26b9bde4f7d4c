"""Summaries of memories: what a compile wishes is made by a job, used by the next compile, and goes
with its text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select
from tests.core.memory.test_correct import corrected

from tallystick import Actor, Tally
from tallystick.kit import RequestCompiler, RequestParts
from tallystick.records import CompileConfig, ContextItem, PolicyRule, ProviderDeclaration
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.tally.services import services_of

OpenTally = Callable[..., Tally]
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
ROOT = Actor(user="root", role="operator")
SHIP = "The Seeadler sailed from Hamburg in May. " + " ".join(
    f"On day {day} Anna wrote of wind, of rain and of the long watch at the helm."
    for day in range(60)
)
CARGO = "The Seeadler carried amber. " + " ".join(
    f"Barrel {number} held amber for the merchants, weighed and sealed by the mate."
    for number in range(60)
)
QUESTION = "What did the Seeadler carry, and when did the Seeadler sail from Hamburg?"
SMALL: dict[str, Any] = {"budget": 400, "query": QUESTION, "compaction": "summary"}


class Scribe:
    """A summarizer that keeps what it was given."""

    def __init__(self, *, local: bool = True) -> None:
        self.declaration = ProviderDeclaration(name="scribe", model="s-1", local=local)
        self.texts: list[str] = []

    def summarize(self, text: str, *, max_tokens: int) -> str:
        self.texts.append(text)
        return f"Summary {len(self.texts)} of the voyage."


def rows_of(tally: Tally) -> list[tuple[str, str]]:
    query = select(tables.item_summaries.c.summary, tables.item_summaries.c.made_by)
    with services_of(tally).store.database.read() as connection:
        return [(row[0], row[1]) for row in connection.execute(query)]


def jobs_of(tally: Tally) -> list[Any]:
    return [job for job in tally.bind(ROOT).jobs.list() if job.kind == "summarize_item"]


def summarize(tally: Tally, bound: Any) -> None:
    """Compile what does not fit, and let its wishes be answered."""
    assert bound.compile(bound.memories(), **SMALL).wishes
    tally.drain()


def shown(bound: Any, **changes: Any) -> dict[str, str]:
    """Return the texts of a compile that summaries stand for, by id."""
    compiled = bound.compile(bound.memories(), **{**SMALL, **changes})
    return {
        item.id: item.content
        for item in compiled.selected_items
        if compiled.decision(item.id).reason_code == "compressed_summary"
    }


def test_a_wish_is_answered_by_a_job_and_used_by_the_next_compile(open_tally: OpenTally) -> None:
    scribe = Scribe()
    with open_tally(summarizer=scribe) as tally:
        anna = tally.bind(ANNA)
        ids = {anna.remember(text).id for text in (SHIP, CARGO)}
        summarize(tally, anna)
        assert sorted(scribe.texts) == sorted([SHIP, CARGO])
        assert {job.state for job in jobs_of(tally)} == {"done"}
        texts = shown(anna)
        assert texts
        assert set(texts) <= ids
        assert all(text.startswith("Summary") for text in texts.values())
        [step] = anna.recordings.steps(anna.recordings.runs()[0].id)
        assert step.name == "summarize_item"

        anna.compile(anna.memories(), **SMALL)
        tally.drain()
        assert len(scribe.texts) == 2


def test_without_a_summarizer_a_text_is_shortened_by_its_own_sentences(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember(SHIP)
        anna.remember(CARGO)
        summarize(tally, anna)
        made = rows_of(tally)
        assert {made_by for _, made_by in made} == {"extractive"}
        assert {summary.split(". ")[0] for summary, _ in made} == {
            "The Seeadler sailed from Hamburg in May",
            "The Seeadler carried amber",
        }
        with services_of(tally).store.database.read() as connection:
            assert connection.execute(select(tables.outbound_calls)).all() == []


def test_cut_makes_no_job_and_uses_no_summary(open_sqlite: OpenTally) -> None:
    with open_sqlite(summarizer=Scribe()) as tally:
        anna = tally.bind(ANNA)
        anna.remember(SHIP)
        anna.remember(CARGO)
        before = anna.compile(anna.memories(), budget=400, query=QUESTION)
        assert before.wishes
        tally.drain()
        assert jobs_of(tally) == []
        summarize(tally, anna)
        after = anna.compile(anna.memories(), budget=400, query=QUESTION)
        assert [item.content for item in after.selected_items] == [
            item.content for item in before.selected_items
        ]


@pytest.mark.parametrize(
    "change",
    [
        lambda anna, memory_id: anna.forget(memory_id, reason="not needed"),
        lambda anna, memory_id: anna.modify(memory_id, content=CARGO, reason="corrected"),
        lambda anna, memory_id: corrected(anna, memory_id, "hide"),
    ],
    ids=["forget", "modify", "hide"],
)
def test_a_summary_goes_in_the_transaction_in_which_its_text_goes(
    open_tally: OpenTally, change: Callable[[Any, str], object]
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        memory_id = anna.remember(SHIP).id
        summarize(tally, anna)
        assert len(rows_of(tally)) == 1
        change(anna, memory_id)
        assert rows_of(tally) == []


def test_an_erasure_reaches_summaries_and_proves_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna, root = tally.bind(ANNA), tally.bind(ROOT)
        memory_id = anna.remember(SHIP).id
        anna.remember(CARGO)
        summarize(tally, anna)
        assert len(rows_of(tally)) == 2
        anna.forget(memory_id, reason="not needed")
        preview = root.operator.erase(memory_id, reason="asked for")
        done = root.operator.erase(
            memory_id, reason="asked for", mode="apply", confirm_token=preview.confirm_token
        )
        assert all(proof.holds for proof in done.proofs)
        assert [summary.split(".")[0] for summary, _ in rows_of(tally)] == [
            "The Seeadler carried amber"
        ]


def test_one_text_of_two_memories_is_summarized_once(open_sqlite: OpenTally) -> None:
    scribe = Scribe()
    with open_sqlite(summarizer=scribe) as tally:
        anna = tally.bind(ANNA)
        ids = [anna.remember(SHIP, conversation="log").id for _ in range(2)]
        for memory_id in ids:
            anna.compile([anna.get(memory_id)], **SMALL)
            tally.drain()
        assert (len(scribe.texts), len(rows_of(tally))) == (1, 2)
        anna.forget(ids[0], reason="not needed")
        assert len(rows_of(tally)) == 1


def test_the_word_of_a_person_stands_before_that_of_a_model(open_tally: OpenTally) -> None:
    scribe = Scribe()
    with open_tally(summarizer=scribe) as tally:
        anna = tally.bind(ANNA)
        memory_id = anna.remember(SHIP).id
        summarize(tally, anna)
        approved: Any = {
            "kind": "summary",
            "derived_from": [memory_id],
            "source": {"source_type": "human_approval"},
        }
        claimed = tally.bind(Actor(user="anna", agent="pilot")).remember(
            "The pilot says so.", **approved
        )
        source = [anna.get(memory_id)]
        compile_ = {**SMALL, "budget": 100}
        [first] = anna.compile(source, **compile_).selected_items
        assert first.content.startswith("Summary 1")

        written = anna.remember("Hamburg, in May, with the Seeadler.", **approved)
        [item] = anna.compile(source, **compile_).selected_items
        assert item.content == "Hamburg, in May, with the Seeadler."

        anna.modify(claimed.id, content="Anna says it now.", reason="said better")
        [item] = anna.compile(source, **compile_).selected_items
        assert item.content in ("Hamburg, in May, with the Seeadler.", "Anna says it now.")
        anna.forget(written.id, reason="not needed")
        [item] = anna.compile(source, **compile_).selected_items
        assert item.content == "Anna says it now."

        anna.modify(memory_id, content=f"{SHIP} The end.", reason="more was said")
        [item] = anna.compile([anna.get(memory_id)], **compile_).selected_items
        assert item.content not in ("Anna says it now.", "Summary 1 of the voyage.")


def test_what_stays_here_is_shortened_here_and_secrets_are_not_sent(
    open_sqlite: OpenTally,
) -> None:
    scribe = Scribe(local=False)
    with open_sqlite(
        settings=Settings(secrets_in_memory="keep", redact_pii=False), summarizer=scribe
    ) as tally:
        anna = tally.bind(ANNA)
        anna.remember(SHIP, attributes={"local_only": True})
        anna.remember(f"Write to anna.schmidt@example.org. {CARGO}")
        summarize(tally, anna)
        [sent] = scribe.texts
        assert "carried amber" in sent
        assert "anna.schmidt@example.org" not in sent
        assert sorted(made_by for _, made_by in rows_of(tally)) == ["extractive", "scribe:s-1"]


def test_who_may_not_write_leaves_no_job(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        anna.remember(SHIP)
        [memory] = anna.memories()
        assert tally.bind(BEN).compile([memory], **SMALL).wishes
        assert jobs_of(tally) == []


def test_what_a_rule_redacts_is_never_summarized(open_sqlite: OpenTally) -> None:
    rule = PolicyRule(id="amber", name="amber", applies_to="memory", effect="redact")
    with open_sqlite(rules=[rule]) as tally:
        anna = tally.bind(ANNA)
        anna.remember(SHIP)
        anna.compile(anna.memories(), **SMALL)
        assert jobs_of(tally) == []


def test_a_request_of_a_runtime_uses_what_is_there_and_never_waits(
    open_sqlite: OpenTally,
) -> None:
    scribe = Scribe()
    with open_sqlite(summarizer=scribe) as tally:
        anna = tally.bind(ANNA)
        anna.remember(SHIP)
        anna.remember(CARGO)
        items = [ContextItem(id="q", kind="user_msg", content=QUESTION)]
        parts = RequestParts(items=items, text=QUESTION)
        options: Any = {"memory_budget": 300, "compile_config": CompileConfig(relevance_floor=0)}
        RequestCompiler(**options).compile(anna, parts)
        assert jobs_of(tally) == []
        compiler = RequestCompiler(compaction="summary", **options)
        compiler.compile(anna, parts)
        assert scribe.texts == []
        tally.drain()
        compiled = compiler.compile(anna, parts)
        assert "compressed_summary" in {each.reason_code for each in compiled.decisions}


def test_the_doctor_removes_summaries_of_what_is_not_shown(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna, root = tally.bind(ANNA), tally.bind(ROOT)
        anna.remember(SHIP)
        summarize(tally, anna)
        hide = tables.memories.update().values(state="hidden")
        services_of(tally).store.database.write(lambda tx: tx.execute(hide), name="damage")
        findings = {each.check: each.status for each in root.operator.doctor()}
        assert findings["item summaries"] == "problem"
        root.operator.doctor(repair=True, reason="r")
        assert rows_of(tally) == []
