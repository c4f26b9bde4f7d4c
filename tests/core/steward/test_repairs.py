"""Repairs: journaled before and after, within bounds; what is destructive waits for a person."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete
from tests.core.steward.jobs_of_tests import add_jobs

from tallystick.errors import Denied, InvalidInput, InvalidRecord, StateConflict
from tallystick.jobs import TALLY_ACTOR
from tallystick.records import Actor, ExtractedFact, Extraction, JournalEntry, Repair
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.rows import journal
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_steward import Steward
from tallystick_steward.repairs import Act, Repairs
from tallystick_steward.taking_back import Selection

OpenTally = Callable[..., Tally]
OPERATOR = Actor(user="olga", role="operator")
ADA = Actor(user="ada")


def _entries(tally: Tally, *events: str) -> list[JournalEntry]:
    with services_of(tally).store.database.read() as connection:
        found = list(journal.entries(connection, "tally"))
    return [entry for entry in found if entry.event in events]


def _remember(tally: Tally, actor: Actor, count: int) -> list[str]:
    texts = [f"Fact {number} of many." for number in range(count)]
    return [each.id for each in tally.bind(actor).remember_many(texts)]


def test_a_repair_is_in_the_journal_before_and_after_with_health(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ids = _remember(tally, ADA, 4)
        add_jobs(tally, ids, ADA, state="dead", error_code="lease_expired", due_at=None)
        done = Steward(tally.bind(OPERATOR)).repair("requeue", reason="the worker is back")
        before, after = _entries(tally, "repair.begin", "repair.end")
    assert (done.changed, done.before["queue"], done.after["queue"]) == (4, 50, 100)
    assert before.correlation_id == after.correlation_id == done.correlation_id
    assert (before.reason, before.actor["user"]) == ("the worker is back", "olga")
    assert before.details["health"]["queue"] == 50  # type: ignore[index,call-overload]
    assert (after.details["state"], after.details["changed"]) == ("done", 4)


def test_an_action_rests_and_says_until_when(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        steward = Steward(tally.bind(OPERATOR))
        steward.repair("check", reason="a look")
        with pytest.raises(StateConflict, match=r"done again at \d{4}-\d\d-\d\dT"):
            steward.repair("check", reason="a look")
        steward.repair("requeue", reason="another action does not rest")


def test_twenty_repairs_are_made_within_an_hour(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        steward = Steward(tally.bind(OPERATOR))
        for number in range(20):
            steward.repair("release_lease", target=f"job-{number}", reason="a test")
        with pytest.raises(StateConflict, match="20 repairs were made within an hour"):
            steward.repair("release_lease", target="one more", reason="a test")


def test_an_unknown_repair_names_the_right_ones(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally, pytest.raises((InvalidInput, InvalidRecord)) as refused:
        Steward(tally.bind(OPERATOR)).repair("reboot", reason="a test")  # type: ignore[arg-type]
    assert "'requeue', 'release_lease', 'check'" in str(refused.value)


def test_repairs_are_for_an_operator_and_what_destroys_for_a_person(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        with pytest.raises(Denied):
            Steward(tally.bind(ADA)).repair("requeue", reason="a test")
        agent = Actor(user="olga", role="operator", agent="bot")
        with pytest.raises(Denied):
            Steward(tally.bind(agent)).repair("purge", reason="a test")
        with pytest.raises(Denied) as refused:
            Steward(tally.bind(OPERATOR)).rollback("an act", mode="apply", reason="a test")
        assert refused.value.reason == "confirm_token_required"


@pytest.mark.parametrize(
    "action", ["forget_matching", "force", "purge", "rollback", "recover_many", "reindex"]
)
def test_what_forgets_forces_purges_or_rolls_back_is_never_allowed_unattended(action: str) -> None:
    with pytest.raises((InvalidInput, InvalidRecord, ValueError), match="unattended"):
        Settings(unattended=(action,))  # type: ignore[arg-type]


@pytest.mark.parametrize("action", ["purge", "rollback", "recover_many"])
def test_a_steward_that_asks_for_what_is_a_persons_is_refused_and_nothing_begins(
    open_sqlite: OpenTally, action: Any
) -> None:
    with open_sqlite(owner=OPERATOR) as tally:
        services = services_of(tally)
        repairs = Repairs(
            services.memory, services.background, services.windows, is_unattended=True
        )
        with pytest.raises(Denied) as refused:
            repairs.repair(Act(TALLY_ACTOR, action, "a test", selection=Selection(act="an act")))
        assert refused.value.reason == "person_required"
        assert _entries(tally, "repair.begin") == []


def test_a_lease_of_a_dead_process_is_released_and_that_of_a_living_one_is_not(
    open_sqlite: OpenTally,
) -> None:
    import os
    import socket
    import subprocess
    import sys

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with open_sqlite() as tally:
        now = services_of(tally).store.clock.now()
        later = now + 30 * 60 * 1_000_000
        [first, second] = _remember(tally, ADA, 2)
        held = f"{socket.gethostname()}:{gone.pid}-x:1"
        [leaked] = add_jobs(tally, [first], ADA, state="leased", leased_by=held, due_at=later)
        steward = Steward(tally.bind(OPERATOR))
        assert steward.repair("release_lease", reason="a dead worker").facts == {"jobs": [leaked]}
        held = f"{socket.gethostname()}:{os.getpid()}-x:1"
        add_jobs(tally, [second], ADA, state="leased", leased_by=held, due_at=later)
        assert steward.repair("release_lease", target="none", reason="a look").changed == 0


def test_reembed_makes_the_vectors_that_were_lost(open_sqlite: OpenTally) -> None:
    with open_sqlite(embedder="static") as tally:
        _remember(tally, ADA, 6)
        services = services_of(tally)
        services.store.database.write(lambda tx: tx.execute(delete(tables.vectors)), name="test")
        done = Steward(tally.bind(OPERATOR)).repair("reembed", reason="vectors were lost")
        assert (done.before["index"], done.after["index"], done.changed) == (80, 100, 6)


def _take_back(steward: Steward, **selection: Any) -> tuple[Repair, Repair]:
    seen = steward.recover_many(reason="a wrong sweep", **selection)
    done = steward.recover_many(
        reason="a wrong sweep", mode="apply", confirm_token=seen.confirm_token, **selection
    )
    return seen, done


def test_what_is_pinned_by_now_stays_and_hinders_taking_nothing_else_back(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        since = services_of(tally).store.clock.now()
        crawler = tally.bind(Actor(user="ada", agent="crawler"))
        kept, _ = [crawler.remember(f"The crawler was here {n}.").id for n in range(2)]
        tally.bind(ADA).modify(kept, pinned=True, reason="it is right")
        pinned = crawler.remember("A key fact.", pinned=True).id
        seen, done = _take_back(Steward(tally.bind(ADA)), by_actor="ada/crawler", since=since)
        assert seen.changed == done.changed == 1
        assert seen.facts == done.facts == {"forgotten": 1, "changed_since": 1, "refused": 1}
        assert {each.id for each in tally.bind(ADA).memories()} == {kept, pinned}


def test_a_forget_that_cannot_be_undone_hinders_taking_no_other_back(
    open_tally: OpenTally,
) -> None:
    clock = StepClock()
    with open_tally(clock=clock) as tally:
        ids = _remember(tally, ADA, 2)
        since = services_of(tally).store.clock.now()
        crawler = tally.bind(Actor(user="ada", agent="crawler"))
        crawler.forget(ids[0], reason="a sweep")
        clock.advance(days=31)
        crawler.forget(ids[1], reason="a sweep")
        twice = [crawler.remember("The crawler was here.", kind="fact").id]
        crawler.forget(twice[0], reason="a sweep")
        twice.append(crawler.remember("The crawler was here.", kind="fact").id)
        crawler.forget(twice[1], reason="a sweep")
        seen, done = _take_back(Steward(tally.bind(ADA)), by_actor="ada/crawler", since=since)
        assert (seen.facts["recovered"], seen.facts["refused"]) == (3, 1)
        assert (done.facts["recovered"], done.facts["refused"]) == (2, 2)
        assert [each.content for each in tally.bind(ADA).memories(states=["active"])] == [
            "The crawler was here.",
            "Fact 1 of many.",
        ]


def test_what_a_caller_did_is_previewed_and_taken_back_whole(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        ids = _remember(tally, ADA, 6)
        since = services_of(tally).store.clock.now()
        crawler = tally.bind(Actor(user="ada", agent="crawler"))
        for memory_id in ids[:3]:
            crawler.forget(memory_id, reason="a sweep")
        added = crawler.remember("The crawler was here.")
        crawler.modify(ids[3], content="Fact 3 is wrong.", reason="a sweep")
        crawler.modify(ids[4], content="Fact 4 is wrong.", reason="a sweep")
        tally.bind(ADA).modify(ids[4], content="Fact 4 is mine.", reason="a correction")
        seen, done = _take_back(Steward(tally.bind(ADA)), by_actor="ada/crawler", since=since)
        assert seen.changed == done.changed == 5
        assert seen.facts == {"recovered": 3, "forgotten": 1, "restored": 1, "changed_since": 1}
        texts = {each.id: each.content for each in tally.bind(ADA).memories()}
        acts = {
            entry.correlation_id
            for memory_id in ids[:4]
            for entry in tally.bind(ADA).history(memory_id)[-1:]
        }
    assert texts == {
        **{memory_id: f"Fact {number} of many." for number, memory_id in enumerate(ids)},
        ids[4]: "Fact 4 is mine.",
    }
    assert added.id not in texts
    assert acts == {done.correlation_id}


def test_who_never_remembered_anything_may_take_back_what_is_his_to_change(
    open_sqlite: OpenTally,
) -> None:
    project = "project:apollo"
    with open_sqlite() as tally:
        ada = tally.bind(Actor(user="ada", projects=frozenset({"apollo"})), scope=project)
        added = ada.remember("The crawler was here.")
        bob = tally.bind(Actor(user="bob", projects=frozenset({"apollo"})), scope=project)
        _, done = _take_back(Steward(bob), by_actor="ada", since=1)
        assert (done.changed, done.facts) == (1, {"forgotten": 1})
        assert added.id not in {each.id for each in bob.memories()}


def test_a_change_that_a_correction_followed_stays(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        [memory_id] = _remember(tally, ADA, 1)
        since = services_of(tally).store.clock.now()
        ada = tally.bind(ADA)
        crawler = tally.bind(Actor(user="ada", agent="crawler"))
        crawler.modify(memory_id, content="Fact 0 is wrong.", reason="a sweep")
        shown = ada.corrections.make(memory_id, "mark_sensitive", reason="it is nobody's business")
        ada.corrections.make(
            memory_id,
            "mark_sensitive",
            reason="it is nobody's business",
            mode="apply",
            confirm_token=shown.confirm_token,
        )
        seen = Steward(ada).recover_many(by_actor="ada/crawler", since=since, reason="a sweep")
    assert (seen.changed, seen.facts) == (0, {"changed_since": 1})


def test_scores_of_the_whole_tally_and_its_repairs_are_not_for_whoever_takes_back_his_own(
    open_sqlite: OpenTally, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick_steward.repairs.MOST_AN_HOUR", 1)
    with open_sqlite() as tally:
        ids = _remember(tally, ADA, 2)
        ada = tally.bind(ADA)
        for memory_id in ids:
            ada.forget(memory_id, reason="a sweep")
        _, done = _take_back(Steward(ada), by_actor="ada", since=1)
        assert (done.changed, done.before, done.after) == (2, {}, {})
        ada.forget(ids[0], reason="a sweep")
        with pytest.raises(StateConflict, match="1 repairs were made within an hour"):
            _take_back(Steward(ada), since=2)
        steward = Steward(tally.bind(OPERATOR))
        assert steward.repair("check", reason="a look").before["queue"] == 100


def test_an_act_is_rolled_back_by_its_correlation(open_sqlite: OpenTally) -> None:
    with open_sqlite(owner=OPERATOR) as tally:
        ids = _remember(tally, OPERATOR, 3)
        since = services_of(tally).store.clock.now()
        mine = tally.bind(OPERATOR)
        for memory_id in ids:
            mine.forget(memory_id, reason="a sweep")
        _, done = _take_back(Steward(mine), since=since)
        steward = Steward(mine)
        seen = steward.rollback(done.correlation_id, reason="on second thought")
        assert seen.facts == {}
        assert seen.changed == 0


def test_a_token_confirms_exactly_the_preview(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        ids = _remember(tally, ADA, 2)
        since = services_of(tally).store.clock.now()
        ada = tally.bind(ADA)
        ada.forget(ids[0], reason="a sweep")
        seen = Steward(ada).recover_many(by_actor="ada", since=since, reason="a test")
        ada.forget(ids[1], reason="a sweep")
        with pytest.raises(StateConflict):
            Steward(ada).recover_many(
                by_actor="ada",
                since=since,
                reason="a test",
                mode="apply",
                confirm_token=seen.confirm_token,
            )


def test_nobody_takes_back_what_others_did_in_scopes_that_are_closed_to_him(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        [memory_id] = _remember(tally, ADA, 1)
        tally.bind(ADA).forget(memory_id, reason="a sweep")
        bob = tally.bind(Actor(user="bob"))
        bob.remember("Bob is here.")
        seen = Steward(bob).recover_many(by_actor="ada", since=1, reason="a test")
        assert (seen.changed, seen.confirm_token) == (0, None)
        assert seen.facts == {}, "nor is he told how much there is"
        told = Steward(tally.bind(OPERATOR)).recover_many(by_actor="ada", since=1, reason="a test")
        assert (told.changed, told.facts) == (0, {"refused": 1, "changed_since": 1})


def test_an_older_tally_is_embedded_in_portions(open_sqlite: OpenTally) -> None:
    with open_sqlite(embedder="static") as tally:
        _remember(tally, ADA, 10)
        services = services_of(tally)
        services.store.database.write(lambda tx: tx.execute(delete(tables.vectors)), name="test")
        ada = Steward(tally.bind(ADA))
        told = ada.backfill("embed", portion=4, reason="a new embedder")
        assert (told.total, told.portion, told.enqueued) == (10, 4, 0)
        assert told.tokens > 0
        done = ada.backfill("embed", portion=4, reason="a new embedder", mode="apply")
        assert (done.enqueued, done.is_over) == (10, True)
        again = ada.backfill("embed", reason="a new embedder")
        assert (again.total, again.is_over) == (0, True)
        with pytest.raises(InvalidInput, match="learning"):
            ada.backfill("learn", reason="from before")


def test_an_older_tally_is_learned_in_portions_that_go_on(open_sqlite: OpenTally) -> None:
    from tallystick.testing import ScriptedLearner

    settings = Settings(learning="review")
    with open_sqlite(settings=settings, learning_model=ScriptedLearner({})) as tally:
        texts = [f"Fact {number} of many." for number in range(5)]
        tally.bind(ADA).remember_many(texts, mode="raw")
        ada = Steward(tally.bind(ADA))
        portions = [
            ada.backfill("learn", portion=2, reason="from before", mode="apply") for _ in range(3)
        ]
        assert [(each.enqueued, each.is_over) for each in portions] == [
            (2, False),
            (2, False),
            (1, True),
        ]
        assert len(tally.bind(ADA).jobs.list(kind="learn")) == 5


@pytest.mark.parametrize("conversation", [None, "chat"])
def test_what_was_remembered_before_the_tally_learned_is_learned_once(
    open_sqlite: OpenTally, conversation: str | None
) -> None:
    from tallystick.testing import ScriptedLearner

    said = "The gym opens at seven."
    drawn = Extraction(facts=(ExtractedFact(content="Its gym opens at 7."),))
    learner = ScriptedLearner({said: drawn})
    with open_sqlite(settings=Settings(learning="apply"), learning_model=learner) as tally:
        bound = tally.bind(ADA)
        bound.remember(said, mode="raw", conversation=conversation)
        ada = Steward(bound)
        ada.backfill("learn", reason="from before", mode="apply")
        tally.drain()
        [job] = bound.jobs.list(kind="learn")
        assert job.state == "done"
        left = ada.backfill("learn", reason="from before")
        assert (left.total, left.is_over) == (0, True)


@pytest.mark.parametrize("named", ["by_model", "by_job"])
def test_what_a_model_learned_in_a_stretch_of_time_is_taken_back_and_nothing_else_of_it(
    open_tally: OpenTally, named: str
) -> None:
    from tallystick.testing import ScriptedLearner

    said = {
        "My sister sings in a choir.": "Ada's sister sings in a choir.",
        "I moved to Ghent.": "Ada moved to Ghent.",
    }
    learner = ScriptedLearner(
        {text: Extraction(facts=(ExtractedFact(content=fact),)) for text, fact in said.items()}
    )
    with open_tally(settings=Settings(learning="apply"), learning_model=learner) as tally:
        bound, times = tally.bind(ADA), []
        for text in said:
            times.append(services_of(tally).store.clock.now())
            bound.remember(text, mode="raw")
            Steward(bound).backfill("learn", reason="from before", mode="apply")
            tally.drain()
        facts = {each.content: each for each in bound.memories(kinds=["fact"])}
        assert set(facts) == set(said.values())
        job = bound.jobs.list(kind="learn")[-1]
        name = {"by_model": facts["Ada moved to Ghent."].extraction_model, "by_job": job.id}[named]
        chosen: dict[str, Any] = {named: name, "since": times[0], "until": times[1]}
        seen, done = _take_back(Steward(bound), **chosen)
        assert seen.changed == done.changed == 1
        assert {each.content for each in bound.memories(kinds=["fact"])} == {"Ada moved to Ghent."}
        assert Steward(bound).recover_many(reason="a look", **chosen).changed == 0


def test_texts_that_the_graph_has_not_read_are_left_to_its_job(open_sqlite: OpenTally) -> None:
    with open_sqlite(settings=Settings(graph=True)) as tally:
        _remember(tally, ADA, 3)
        ada = Steward(tally.bind(ADA))
        assert ada.backfill("graph", reason="from before").total == 3
        ada.backfill("graph", reason="from before", mode="apply")
        tally.drain()
        assert ada.backfill("graph", reason="from before").is_over
