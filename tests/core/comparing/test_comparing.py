"""A candidate configuration of recall beside that of the settings: compared on a sample, promoted
after green runs, taken back by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import func, select

from tallystick.errors import Denied, InvalidInput, StateConflict
from tallystick.memory.recalled import Recalled
from tallystick.records import Actor, Comparison
from tallystick.settings import Settings
from tallystick.storage.engine import tables
from tallystick.storage.rows import journal
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder, StepClock
from tallystick_comparing import Comparing
from tallystick_comparing.comparer import Comparer, comparer_of
from tallystick_comparing.comparisons import BREACH, RUN, STREAM, save
from tallystick_steward import Steward

OpenTally = Callable[..., Tally]
ADA, BOB = Actor(user="ada"), Actor(user="bob")
ROOT = Actor(user="root", role="operator")
NOTES = (
    "The gym opens at seven.",
    "The heron nests at the weir.",
    "The ledger moved to SQLite in May.",
    "Backups are kept for thirty days.",
    "The stork sleeps on the chimney.",
)
WORSE: dict[str, Any] = {
    "recall_weights": {"text": -1.0, "vector": -1.0, "words": -1.0, "neighbours": 0.0}
}
"""A candidate that finds the worst first."""
OTHER: dict[str, Any] = {"embedder": "static"}
SAME: dict[str, Any] = {"recall_weights": {"vector": 0.41}}


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


def _remember(tally: Tally) -> None:
    for note in NOTES:
        tally.bind(ADA).remember(note)


@pytest.fixture
def tally(open_tally: OpenTally, clock: StepClock) -> Iterator[Tally]:
    with open_tally(embedder="static", clock=clock, background=False) as tally:
        _remember(tally)
        yield tally


def _start(tally: Tally, candidate: dict[str, Any], percent: int = 100) -> Comparison:
    started = Comparing(tally.bind(ROOT)).compare(
        "start", candidate=candidate, sample_percent=percent, reason="better recall?"
    )
    assert started is not None
    _taking(tally, old=1_000, new=1_000)
    return started


def _taking(tally: Tally, *, old: int, new: int) -> Comparer:
    """Let answers take so many microseconds: those of the candidate are found by its context."""
    comparer = comparer_of(services_of(tally).memory)
    turn = {"new": False}

    def took(found: Recalled) -> int:
        turn["new"] = not turn["new"]
        return old if turn["new"] else new

    comparer.took = took
    return comparer


def _ask(tally: Tally, count: int = RUN, actor: Actor = ADA) -> list[tuple[str, ...]]:
    bound = tally.bind(actor)
    return [
        tuple(hit.memory.id for hit in bound.recall(NOTES[number % len(NOTES)], limit=1))
        for number in range(count)
    ]


def _report(tally: Tally) -> Comparison:
    report = Comparing(tally.bind(ROOT)).compare()
    assert report is not None
    return report


def _asked(tally: Tally) -> list[dict[str, Any]]:
    with services_of(tally).store.database.read() as connection:
        entries = journal.entries(connection, STREAM)
        return [dict(each.details) for each in entries if each.event == "compare.asked"]


def _events(tally: Tally) -> list[str]:
    with services_of(tally).store.database.read() as connection:
        events = [each.event for each in journal.entries(connection, "tally")]
    assert "compare.asked" not in events, "what is asked would bury alerts and repairs"
    return [each for each in events if each.startswith("compare.")]


def _counted(tally: Tally) -> tuple[int, int]:
    """The entries of the access log, and how often memories were recalled."""
    services_of(tally).gate.flush()
    with services_of(tally).store.database.read() as connection:
        reads = connection.execute(select(func.count()).select_from(tables.access_log)).scalar_one()
        recalled = connection.execute(select(func.sum(tables.memories.c.access_count)))
        return int(reads), int(recalled.scalar_one() or 0)


def test_callers_get_what_the_settings_find_and_the_candidate_is_asked_afterwards(
    tally: Tally,
) -> None:
    before = _ask(tally)
    _start(tally, WORSE)
    assert _ask(tally) == before
    counted = _counted(tally)
    assert _asked(tally) == []

    report = _report(tally)

    assert _counted(tally) == counted, "what is asked once more is not counted as recalled"
    [run] = report.runs
    assert (run.questions, report.green, report.skipped) == (RUN, 0, 0)
    assert run.wrong == report.reasons["target_lost"] > 0
    assert {tuple(each["old"]) for each in _asked(tally)} == set(before)


def test_one_question_in_twenty_is_compared_unless_told_otherwise(tally: Tally) -> None:
    Comparing(tally.bind(ROOT)).compare("start", candidate=SAME, reason="r")
    _ask(tally, 41)
    report = _report(tally)
    assert (report.sample_percent, report.run.questions) == (5, 2)


def test_the_journal_has_ids_counts_and_codes_of_what_the_asker_may_read(tally: Tally) -> None:
    secret = tally.bind(BOB).remember("The gym of Bob opens at nine.").id
    _start(tally, SAME)
    _ask(tally, 5)
    _report(tally)
    asked = _asked(tally)
    assert len(asked) == 5
    for each in asked:
        assert each.keys() == {"comparison", "old", "new", "old_us", "new_us", "reasons"}
        assert secret not in (*each["old"], *each["new"])
    with services_of(tally).store.database.read() as connection:
        streams = [*journal.entries(connection, "tally"), *journal.entries(connection, STREAM)]
        stored = str(streams)
    assert not any(note in stored for note in NOTES)


def test_a_candidate_with_another_embedder_gets_vectors_of_its_own(
    open_tally: OpenTally,
) -> None:
    with open_tally(embedder=HashEmbedder(), background=False) as tally:
        _remember(tally)
        _start(tally, OTHER)
        _ask(tally, 5)
        report = _report(tally)
        assert (report.run.questions, report.reasons) == (5, {})
        with services_of(tally).store.database.read() as connection:
            name = tables.vectors.c.fingerprint
            query = select(name, func.count()).group_by(name)
            assert sorted(count for _, count in connection.execute(query)) == [5, 5]


def _made_green(tally: Tally, candidate: dict[str, Any]) -> Comparison:
    _start(tally, candidate)
    comparing = Comparing(tally.bind(ROOT))
    _report(tally)
    for green in range(3):
        with pytest.raises(StateConflict, match=f"{green} green runs in a row"):
            comparing.compare("promote", reason="it is better")
        _ask(tally)
        assert _report(tally).green == green + 1
    promoted = comparing.compare("promote", reason="it is better")
    assert promoted is not None
    return promoted


def test_three_green_runs_in_a_row_let_it_be_promoted_and_a_red_one_begins_anew(
    tally: Tally,
) -> None:
    _start(tally, SAME)
    _ask(tally, 2 * RUN)
    assert _report(tally).green == 2
    _taking(tally, old=1_000, new=1_201)
    _ask(tally)
    assert _report(tally).green == 0
    Comparing(tally.bind(ROOT)).compare("stop", reason="another one")

    assert _made_green(tally, SAME).state == "promoted"
    assert _events(tally).count("compare.promoted") == 1


def _path_of(tally: Tally) -> str:
    """The embedder whose vectors answer."""
    from tallystick.memory.recall import serving

    return serving(services_of(tally).memory).embedder.fingerprint


def test_a_promoted_candidate_answers_after_a_restart_too(
    open_tally: OpenTally, clock: StepClock
) -> None:
    with open_tally(embedder=HashEmbedder(), clock=clock, background=False) as tally:
        _remember(tally)
        own = _path_of(tally)
        _made_green(tally, OTHER)
        promoted = _path_of(tally)
        assert promoted != own
    with open_tally(embedder=HashEmbedder(), clock=clock, background=False) as tally:
        assert _path_of(tally) == promoted
        assert tally.bind(ADA).recall("When does the gym open?")[0].content == NOTES[0]
        Comparing(tally.bind(ROOT)).compare("stop", reason="back")
        assert _path_of(tally) == own


@pytest.mark.parametrize(("breach", "why"), [("slow", ("latency",)), ("wrong", ("wrong_targets",))])
def test_a_promoted_candidate_that_breaches_for_15_minutes_is_taken_back_by_itself(
    tally: Tally, clock: StepClock, breach: str, why: tuple[str, ...]
) -> None:
    _made_green(tally, SAME)
    if breach == "slow":
        _taking(tally, old=1_000, new=1_300)
    else:
        services = services_of(tally)
        comparer = comparer_of(services.memory)
        comparer._candidate = services.memory.with_settings(
            Settings.read(recall_weights=WORSE["recall_weights"]), None
        )
    _ask(tally)
    report = _report(tally)
    assert (report.state, report.breach_since is not None) == ("promoted", True)
    clock.advance(seconds=BREACH / 1_000_000 - 60)
    assert _report(tally).state == "promoted"
    clock.advance(seconds=61)

    report = _report(tally)

    assert (report.state, report.breach) == ("reverted", why)
    assert _events(tally)[-1] == "compare.reverted"
    assert [each.name for each in Steward(tally.bind(ROOT)).alerts()] == ["candidate_reverted"]
    assert _path_of(tally) == services_of(tally).memory.embedder.fingerprint
    _start(tally, SAME)
    assert Steward(tally.bind(ROOT)).alerts() == []


@pytest.mark.parametrize("embedder", ["model2vec:/nowhere", "fastembed:not-installed"])
def test_where_a_promoted_candidate_cannot_be_made_the_settings_answer(
    tally: Tally, monkeypatch: pytest.MonkeyPatch, embedder: str
) -> None:
    monkeypatch.setitem(sys.modules, "fastembed", None)
    services = services_of(tally)
    promoted = _made_green(tally, SAME).replace(candidate={"embedder": embedder})
    services.store.database.write(lambda tx: save(tx, promoted), name="another process")
    services.memory.held.clear()

    assert tally.bind(ADA).recall("When does the gym open?")[0].content == NOTES[0]
    assert _path_of(tally) == services.memory.embedder.fingerprint


def test_text_in_the_memory_of_a_candidate_is_dropped_with_an_erasure(
    open_tally: OpenTally,
) -> None:
    with open_tally(embedder=HashEmbedder(), background=False) as tally:
        _remember(tally)
        _start(tally, OTHER)
        _ask(tally, 1)
        _report(tally)
        candidate = comparer_of(services_of(tally).memory)._candidate
        assert candidate is not None
        assert candidate.corpora._entries
        services_of(tally).drop_caches()
        assert not candidate.corpora._entries


def test_a_breach_that_passes_takes_nothing_back(tally: Tally, clock: StepClock) -> None:
    _made_green(tally, SAME)
    _taking(tally, old=1_000, new=1_300)
    _ask(tally)
    assert _report(tally).breach_since is not None
    _taking(tally, old=1_000, new=1_000)
    _ask(tally)
    assert _report(tally).breach_since is None
    clock.advance(seconds=BREACH / 1_000_000 + 1)
    assert _report(tally).state == "promoted"


def test_a_candidate_is_of_settings_that_recall_reads(tally: Tally) -> None:
    comparing = Comparing(tally.bind(ROOT))
    unfit: list[tuple[dict[str, Any], str]] = [
        ({}, "changes one or more of embedder"),
        ({"retention": "none"}, "and not retention"),
        ({"embedder": "openai:text-embedding-3-small"}, "OPENAI_API_KEY|remote_allow"),
        ({"vector_search": "magic"}, "vector_search"),
    ]
    for candidate, said in unfit:
        with pytest.raises(InvalidInput, match=said):
            comparing.compare("start", candidate=candidate, reason="r")
    for nothing in (None, "", " "):
        with pytest.raises(InvalidInput, match="why"):
            comparing.compare("start", candidate=SAME, reason=nothing)
    with pytest.raises(InvalidInput, match="of start"):
        comparing.compare("stop", candidate=SAME, reason="r")
    assert comparing.compare() is None
    _start(tally, SAME)
    with pytest.raises(StateConflict, match="before another one"):
        comparing.compare("start", candidate=SAME, reason="r")
    with pytest.raises(Denied):
        Comparing(tally.bind(ADA)).compare()


def test_what_was_forgotten_since_is_not_compared_and_no_wrong_target(tally: Tally) -> None:
    _start(tally, SAME)
    ada = tally.bind(ADA)
    found = ada.recall(NOTES[0])
    for hit in found:
        ada.forget(hit.memory.id, reason="gone")
    report = _report(tally)
    assert (report.reasons, report.run.questions) == ({}, 1)
    [asked] = _asked(tally)
    assert not {hit.memory.id for hit in found} & {*asked["old"], *asked["new"]}
