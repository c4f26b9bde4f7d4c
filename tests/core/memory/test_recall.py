"""Recall: what is found, by which signals, and what never changes it, however vectors are
searched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dateparser.date import DateDataParser  # type: ignore[import-untyped,unused-ignore]
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.openers import EITHER_WAY, OpenTally, opener

from tallystick import Actor, BoundTally, Tally
from tallystick.errors import NotFound
from tallystick.ranking import (
    QUERY_READ,
    Corpus,
    Entry,
    RecallWeights,
    Span,
    ask,
    indexed_words,
    slices,
    spans,
)
from tallystick.ranking.dates import _read
from tallystick.records import NewMemory, Scope, SourceRef, SpaceMember
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder, StepClock

NOW = int(datetime(2023, 8, 24, 12, tzinfo=UTC).timestamp()) * 1_000_000
DAY = 24 * 3600 * 1_000_000
ANNA, BEN = Actor(user="anna"), Actor(user="ben")
ROOT = Actor(user="root", role="operator")

WORDS = [
    "heron",
    "reed",
    "stone",
    "boat",
    "river",
    "nest",
    "walked",
    "walking",
    "painted",
    "museum",
    "kids",
    "trip",
]


@pytest.fixture(params=EITHER_WAY)
def open_tally(request: pytest.FixtureRequest) -> OpenTally:
    """Opens a store on each database, and one that is searched by Chroma."""
    return opener(request.param, request)


sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


def _talk(
    bound: BoundTally, *turns: tuple[str, str], conversation: str = "talk", at: int = NOW
) -> list[str]:
    results = bound.remember_many(
        NewMemory(
            content=text,
            speaker=who,
            kind="turn",
            conversation=conversation,
            occurred_at=at + place,
        )
        for place, (who, text) in enumerate(turns)
    )
    return [result.id for result in results]


def _texts(hits: Sequence[object]) -> list[str]:
    return [hit.memory.content for hit in hits]  # type: ignore[attr-defined]


# Structure


def test_an_answer_is_found_by_the_words_of_its_question(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _talk(
            anna,
            ("Mia", "Which instrument do you practise?"),
            ("Leo", "The cello, every evening."),
            ("Mia", "Lovely!"),
        )
        _talk(
            anna,
            ("Mia", "The bakery opens at six."),
            ("Leo", "Good to know."),
            conversation="other",
        )
        hits = anna.recall("Which instrument is practised?")
        assert "The cello, every evening." in _texts(hits[:2])
        answer = next(hit for hit in hits if hit.memory.content.startswith("The cello"))
        assert answer.signals["neighbours"] > 0


def test_the_one_who_is_named_is_heard_first(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _talk(anna, ("Mia", "I adore sailing on the lake."), conversation="one")
        _talk(anna, ("Leo", "I adore sailing on the lake!"), conversation="two")
        (first, *_) = anna.recall("Does Leo adore sailing?")
        assert first.memory.speaker == "Leo"
        assert first.signals["speaker"] == 1.0


def test_of_several_who_are_named_the_subject_is_heard(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _talk(anna, ("Mia", "The shop is doing well."), conversation="one")
        _talk(anna, ("Leo", "The shop is doing well!"), conversation="two")
        assert anna.recall("What did Mia say of Leo's shop?")[0].memory.speaker == "Mia"
        both = anna.recall("What do Mia and Leo say of the shop?")
        assert all("speaker" not in hit.signals for hit in both)


def test_an_alias_names_the_speaker_who_goes_by_it(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _talk(anna, ("Melanie", "I adore sailing on the lake."), conversation="one")
        _talk(anna, ("Leo", "I adore sailing on the lake!"), conversation="two")
        assert "speaker" not in anna.recall("Does Mel adore sailing?")[0].signals
        alias = anna.remember(
            "Melanie goes by Mel.",
            kind="entity",
            subject="Melanie",
            attributes={"aliases": ["Mel", "Mellie"]},
        )
        first = anna.recall("Does Mel adore sailing?", kinds=["turn"])[0]
        assert (first.memory.speaker, first.signals["speaker"]) == ("Melanie", 1.0)
        anna.forget(alias.id, reason="test")
        assert "speaker" not in anna.recall("Does Mel adore sailing?")[0].signals


def test_a_speakers_name_still_finds_what_nobody_said(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        _talk(anna, ("Leo", "Hello there."))
        anna.remember("Leo's birthday is the third of March.")
        anna.remember("Zoe's birthday is the fifth of May.")
        assert anna.recall("When is Leo's birthday?")[0].memory.content.startswith("Leo")


def test_loose_notes_have_no_signals_of_position(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(
            ["The heron nests in March.", "Is the boat painted?", "We indent with tabs."]
        )
        for hit in anna.recall("Where does the heron nest?"):
            assert not {"neighbours"} & set(hit.signals)


def test_turns_may_be_appended_out_of_order(open_tally: OpenTally) -> None:
    turns = [
        ("Mia", "Which instrument do you practise?"),
        ("Leo", "The cello."),
        ("Mia", "And in summer?"),
        ("Leo", "Tennis."),
    ]
    orders = ([0, 1, 2, 3], [3, 1, 0, 2])
    answers = []
    with open_tally() as tally:
        for number, order in enumerate(orders):
            bound = tally.bind(Actor(user=f"user{number}"))
            for place in order:
                who, text = turns[place]
                bound.remember(
                    text,
                    speaker=who,
                    kind="turn",
                    conversation="c",
                    position=place,
                    occurred_at=NOW,
                )
            answers.append(
                {
                    hit.memory.content: (hit.score, hit.signals)
                    for hit in bound.recall("Which instrument is practised?")
                }
            )
    assert answers[0] == answers[1]


def test_a_long_text_is_found_by_any_of_its_slices(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        filler = "The committee met again and adjourned without a result. " * 40
        anna.remember(filler + "The vault code is 7314. " + filler)
        anna.remember("The committee met.")
        assert "7314" in anna.recall("vault code")[0].memory.content


def test_a_caption_finds_the_turn_it_came_with(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("Look at this!", attributes={"caption": "a lighthouse at dusk"})
        anna.remember("Look at that!")
        assert anna.recall("lighthouse")[0].memory.content == "Look at this!"


# Time


def test_a_day_that_is_named_brings_its_turns(open_tally: OpenTally) -> None:
    """They share no word with the question, which others share among hundreds."""
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(
            NewMemory(content=f"We did things and more things, {number}.", occurred_at=NOW)
            for number in range(400)
        )
        day = NOW - 100 * DAY
        said = anna.remember("Sourdough, at last!", occurred_at=day).id
        date = f"{datetime.fromtimestamp(day // 1_000_000, tz=UTC):%d %B %Y}"
        found = anna.recall(f"What things did we do on {date}?", limit=400, asked_at=NOW)
        dated = {hit.memory.id: hit.signals["date"] for hit in found if "date" in hit.signals}
        assert dated[said] == 1.0


def _log(lines: int) -> str:
    return "".join(
        f"2023-08-{line % 28 + 1:02d} {line % 24:02d}:10:07 INFO worker[{line}] took {line} ms\n"
        for line in range(lines)
    )


LONG = {
    "a log": _log(2_000),
    "a table of years": "".join(f"{n},{1950 + n % 90},{n % 12 + 1}/3/2021\n" for n in range(5_000)),
    "mails": "".join(
        f"On {n % 28 + 1} March {2000 + n % 30}, Bob wrote:\n> since May, last week\n"
        for n in range(2_000)
    ),
    "last week": "last week " * 10_000,
    "years": "2019 " * 20_000,
    "days": "1 1/1/2020 3 days ago " * 5_000,
    "先週": "先週の会議" * 20_000,
    "на прошлой неделе": "на прошлой неделе " * 6_000,
    "words of dates": "the the in last " * 6_000,
    "signs": "[(\u200b\u0301 -" * 15_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_query_costs_a_bounded_number_of_dates_and_words(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    given_to = DateDataParser.get_date_data

    def count(parser: DateDataParser, phrase: str, *rest: Any) -> object:
        calls.append(phrase)
        return given_to(parser, phrase, *rest)

    monkeypatch.setattr(DateDataParser, "get_date_data", count)
    _read.cache_clear()
    question = ask(LONG[name], [], NOW)
    assert len(calls) <= 8
    assert sum(map(len, calls)) <= 1_000
    assert len(question.text) <= QUERY_READ + 10
    assert len(question.words) <= 500


def test_a_question_before_or_after_a_pasted_log_is_read() -> None:
    log = _log(2_000)
    may = Span(*(int(datetime(2022, 5, day, tzinfo=UTC).timestamp()) * 1_000_000 for day in (7, 8)))
    assert spans(f"What was on 7 May 2022?\n{log}", NOW)[0] == may
    for query in (f"Which heron failed?\n{log}", f"{log}\nWhich heron failed?"):
        assert {"heron", "failed"} <= set(ask(query, [], NOW).words)


def test_recall_says_that_it_read_the_ends_of_a_long_query(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The heron is at the river.")
        found = anna.recall(f"{_log(500)} Where is the heron?")
        assert found[0].content == "The heron is at the river."
        assert any("of a query of" in warning for warning in found.warnings)
        assert anna.recall("Where is the heron?").warnings == ()


def test_a_date_is_seen_from_the_querys_own_clock(open_tally: OpenTally) -> None:
    with open_tally(clock=StepClock(NOW)) as tally:
        anna = tally.bind(ANNA)
        anna.remember("We repaired the roof.", occurred_at=NOW - 7 * DAY)
        anna.remember("We repaired the fence.", occurred_at=NOW - 70 * DAY)
        assert anna.recall("What was repaired last week?")[0].memory.content.endswith("roof.")
        earlier = anna.recall("What was repaired last week?", asked_at=NOW - 63 * DAY)
        assert earlier[0].memory.content.endswith("fence.")


# Filters and budgets


def test_filters_keep_what_passes_all_of_them(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember("The heron is grey.", tags=["bird", 'o"dd'], occurred_at=NOW, kind="fact")
        anna.remember("The heron is patient.", tags=["bird"], occurred_at=NOW - 10 * DAY)
        source = anna.remember("The heron is not a stork.").source_id
        assert _texts(anna.recall("heron", tags=["bird", 'o"dd'])) == ["The heron is grey."]
        assert _texts(anna.recall("heron", tags=["bir"])) == []
        assert _texts(anna.recall("heron", kinds=["fact"])) == ["The heron is grey."]
        assert _texts(anna.recall("heron", since=NOW - 20 * DAY, until=NOW)) == [
            "The heron is patient."
        ]
        assert _texts(anna.recall("heron", source=source)) == ["The heron is not a stork."]


def test_what_nobody_dated_was_said_when_it_was_remembered(open_tally: OpenTally) -> None:
    clock = StepClock(NOW)
    with open_tally(clock=clock) as tally:
        anna = tally.bind(ANNA)
        anna.remember("The heron is grey.")
        clock.advance(days=10)
        anna.remember("The heron is patient.")

        assert _texts(anna.recall("heron", since=timedelta(days=3))) == ["The heron is patient."]
        assert _texts(anna.recall("heron", until=NOW + DAY)) == ["The heron is grey."]


def test_a_budget_of_tokens_is_filled_and_never_passed(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(
            [f"The heron of pond {number} is grey and very patient." for number in range(40)]
        )
        packed = anna.recall("grey heron", budget_tokens=120)
        spent = sum(tally.count_tokens(f": {hit.memory.content}") for hit in packed)
        assert 5 <= len(packed) < 40
        assert spent <= 120


class _Slow:
    def rerank(self, query: str, texts: Sequence[str], *, deadline_ms: int) -> Sequence[float]:
        time.sleep(deadline_ms / 1_000 * 5)
        return [0.0] * len(texts)


class _Backwards:
    def rerank(self, query: str, texts: Sequence[str], *, deadline_ms: int) -> Sequence[float]:
        return list(range(len(texts)))


class _Broken:
    def rerank(self, query: str, texts: Sequence[str], *, deadline_ms: int) -> Sequence[float]:
        raise ZeroDivisionError


@pytest.mark.parametrize("reranker", [_Slow(), _Broken()], ids=["slow", "broken"])
def test_a_reranker_that_does_not_answer_changes_nothing(tmp_path: Path, reranker: object) -> None:
    texts = ["The heron is grey.", "The heron nests.", "A boat."]
    answers = []
    for name, chosen in (("with", reranker), ("without", None)):
        with Tally.open(tmp_path / name, reranker=chosen, background=False) as tally:  # type: ignore[arg-type]
            tally.bind().remember_many(texts)
            answers.append(tally.bind().recall("heron"))
    assert _texts(answers[0]) == _texts(answers[1])
    assert any("reranker was not used" in warning for warning in answers[0].warnings)


def test_a_reranker_orders_anew(tmp_path: Path) -> None:
    with Tally.open(tmp_path, reranker=_Backwards(), background=False) as tally:
        tally.bind().remember_many(["The heron is grey.", "The heron nests on grey stone."])
        first = tally.bind().recall("grey heron")[0]
        assert "rerank" in first.signals


def _ones(bound: BoundTally, query: str, signal: str, **options: object) -> list[str]:
    """What a boost speaks for, with that boost alone at work; each must come first."""
    hits = bound.recall(query, weights=RecallWeights(**{signal: 9.0}), **options)  # type: ignore[arg-type]
    boosted = [hit.memory.content for hit in hits if hit.signals.get(signal)]
    assert _texts(hits[: len(boosted)]) == boosted
    return boosted


def test_boosts_put_first_what_they_speak_for(open_tally: OpenTally) -> None:
    """Recent, often recalled, of the run under way, of the project at hand, of the source that is
    named.
    """
    with open_tally(clock=StepClock(start=NOW)) as tally:
        anna = tally.bind(ANNA)
        old, new = "The heron nests in reeds.", "The heron nests in March."
        notes = SourceRef(source_type="file", uri="notes/birds.md")
        anna.remember_many(
            [
                NewMemory(content=old, occurred_at=NOW - 900 * DAY, source=notes),
                NewMemory(content=new, occurred_at=NOW - DAY),
            ]
        )
        assert _ones(anna, "Where does the heron nest?", "freshness") == [new]
        assert _ones(anna, "What does birds.md say of the heron?", "source") == [old]
        assert _ones(anna, "What does the bird say of the heron?", "source") == []
        for _ in range(5):
            anna.recall("reeds", limit=1)
        services_of(tally).gate.flush()
        (often, *_) = anna.recall("Where does the heron nest?", weights=RecallWeights(access=9.0))
        assert (often.memory.content, often.signals["access"] > 0.5) == (old, True)
        with anna.run("birds"):
            anna.remember("The heron nests on rocks.")
            assert _ones(anna, "Where does the heron nest?", "task") == [
                "The heron nests on rocks."
            ]
        assert _ones(anna, "Where does the heron nest?", "task") == []


def test_what_belongs_to_the_project_at_hand_can_be_put_first(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        both = Actor(user="anna", projects=frozenset({"pond", "lake"}))
        scopes = [Scope.parse(f"project:{name}") for name in both.projects]
        for scope in scopes:
            tally.bind(both, scope=scope).remember(f"The heron nests at the {scope.key}.")
        for scope in scopes:
            boosted = _ones(
                tally.bind(both, scope=scope),
                "Where does the heron nest?",
                "project",
                scopes=scopes,
            )
            assert boosted == [f"The heron nests at the {scope.key}."]


def test_an_embedder_far_away_holds_no_reader(tmp_path: Path) -> None:
    """While the query is embedded, as many recalls wait as like, and the database is still read."""

    class FarAway(HashEmbedder):
        waiting = threading.Barrier(21)

        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            if list(texts) == ["heron nests"]:
                self.waiting.wait(timeout=60)
            return super().embed(texts)

    settings = Settings.read(readers=1)
    with Tally.open(
        tmp_path / "tally", embedder=FarAway(), settings=settings, background=False
    ) as tally:
        anna = tally.bind(ANNA)
        memory_id = anna.remember("The heron nests in March.").id
        with ThreadPoolExecutor(20) as threads:
            futures = [threads.submit(anna.recall, "heron nests") for _ in range(20)]
            assert anna.get(memory_id) is not None
            FarAway.waiting.wait(timeout=60)
            assert all(
                _texts(future.result()) == ["The heron nests in March."] for future in futures
            )


def test_weights_are_the_users(tmp_path: Path) -> None:
    with Tally.open(tmp_path, background=False) as tally:
        bound = tally.bind()
        bound.remember("The heron is old news.", occurred_at=NOW - 400 * DAY)
        bound.remember("The heron is fresh news!", occurred_at=tally.now())
        fresh = bound.recall("heron news", weights=RecallWeights(freshness=5.0))
        assert fresh[0].memory.content == "The heron is fresh news!"
        assert fresh[0].signals["freshness"] > 0.9
        assert all("freshness" not in hit.signals for hit in bound.recall("heron news"))


# What never happens


@hypothesis_settings(max_examples=15, deadline=None)
@given(st.lists(sentences, min_size=1, max_size=6), st.lists(sentences, max_size=12), sentences)
def test_what_others_hold_changes_no_result_and_no_score(
    tmp_path_factory: pytest.TempPathFactory, mine: list[str], theirs: list[str], query: str
) -> None:
    answers = []
    for others in ([], theirs):
        with Tally.open(tmp_path_factory.mktemp("tally"), background=False) as tally:
            tally.bind(BEN).remember_many(others)
            anna = tally.bind(ANNA)
            anna.remember_many(mine)
            tally.bind(BEN).remember_many([f"{text} too" for text in others])
            answers.append(
                [(hit.memory.content, hit.score, hit.signals) for hit in anna.recall(query)]
            )
    assert answers[0] == answers[1]


def test_a_forgotten_memory_leaves_at_once_and_a_recovered_one_comes_back(
    open_tally: OpenTally,
) -> None:
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        stored = anna.remember("The heron nests in March.")
        assert anna.recall("heron")
        anna.forget(stored.id, reason="test")
        assert not anna.recall("heron")
        anna.recover(stored.id, reason="test")
        assert anna.recall("heron")


def test_another_opened_tally_finds_what_was_written_since(tmp_path: Path) -> None:
    with (
        Tally.open(tmp_path, background=False) as first,
        Tally.open(tmp_path, background=False) as two,
    ):
        assert not two.bind().recall("heron")
        stored = first.bind().remember("The heron nests in March.")
        assert _texts(two.bind().recall("heron")) == ["The heron nests in March."]
        first.bind().modify(stored.id, content="The stork nests in April.", reason="test")
        assert _texts(two.bind().recall("stork")) == ["The stork nests in April."]
        assert not any("heron" in text for text in _texts(two.bind().recall("heron")))


# The corpus


def _entry(doc: int, text: str | None, place: int = 0) -> Entry:
    words = None if text is None else indexed_words([text])
    return Entry(doc, words, 0, None, "note", f"c{doc % 3}", place, None, None, None)


changes = st.lists(st.tuples(st.integers(0, 12), st.none() | sentences), min_size=1, max_size=40)


@given(changes, st.data())
def test_a_corpus_brought_up_step_by_step_is_the_one_made_at_once(
    steps: list[tuple[int, str | None]], data: st.DataObject
) -> None:
    corpus, standing = Corpus.empty(), dict[int, str | None]()
    for start in range(0, len(steps), 3):
        part = dict(steps[start : start + 3])
        standing |= part
        corpus = corpus.update([_entry(doc, text, doc) for doc, text in sorted(part.items())])
    whole = Corpus.empty().update(
        [_entry(doc, text, doc) for doc, text in sorted(standing.items())]
    )
    weights: dict[str, float] = dict.fromkeys(["heron", "walk", "paint", "boat"], 1.5)

    def seen(corpus: Corpus) -> dict[int, tuple[float, tuple[int, ...], tuple[str, ...]]]:
        rows = corpus.rows_of(sorted(doc for doc, text in standing.items() if text is not None))
        scores = corpus.text_scores(weights, average=4.0)
        docs = corpus.column("doc")
        beside = corpus.beside(rows, (-2, -1, 1, 2))
        word_rows = []
        for row in rows.tolist():
            words, _ = corpus.words_of(rows[rows == row])
            word_rows.append(
                tuple(sorted(corpus.vocabulary.spelled[number] for number in words.tolist()))
            )
        return {
            int(docs[row]): (
                float(scores[row]),
                tuple(int(docs[other[place]]) if other[place] >= 0 else -1 for other in beside),
                word_rows[place],
            )
            for place, row in enumerate(rows.tolist())
        }

    assert seen(corpus) == seen(whole)
    assert (len(corpus), corpus.size) == (len(whole), whole.size)
    assert [corpus.frequency(term) for term in weights] == [
        whole.frequency(term) for term in weights
    ]


@given(st.text(max_size=3_000), st.integers(2, 900))
def test_slices_are_the_text_again_and_short(text: str, most: int) -> None:
    parts = slices(text, most=most)
    assert "".join(parts) == text
    assert all(len(part) <= most for part in parts)


def test_threads_may_remember_and_recall_at_once(tmp_path: Path) -> None:
    with Tally.open(tmp_path, background=False) as tally:
        bound = tally.bind()

        def work(number: int) -> list[str]:
            missing = []
            for count in range(20):
                text = f"speaker{number} saw heron{number * 100 + count}"
                bound.remember(
                    text, speaker=f"Person{number}x{count}", conversation=f"c{number}", kind="turn"
                )
                if text not in _texts(bound.recall(f"heron{number * 100 + count}")):
                    missing.append(text)
            return missing

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(work, range(4))) == [[], [], [], []]


def test_cached_corpora_that_were_not_used_for_longest_go_and_come_back(tmp_path: Path) -> None:
    with Tally.open(tmp_path, settings=Settings.read(recall_cache_mb=1), background=False) as tally:
        bounds = [tally.bind(Actor(user=f"user{number}")) for number in range(3)]
        for number, bound in enumerate(bounds):
            bound.remember_many([f"heron {number} {place} {'reed ' * 20}" for place in range(600)])
        for _ in range(2):
            for number, bound in enumerate(bounds):
                assert bound.recall(f"heron {number} 599")[0].memory.content.startswith(
                    f"heron {number} 599"
                )


# What changes between the two snapshots of a recall


class _Interrupted(HashEmbedder):
    """An embedder at which something else happens, once, while it embeds a query."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], object] | None = None

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().embed(texts)


def _close(tally: Tally, memory_id: str) -> None:
    tally.bind(ROOT).spaces.update("team:red", state="closed", reason="over")


def _dismiss(tally: Tally, memory_id: str) -> None:
    members = [SpaceMember(principal_id="ben", role="steward")]
    tally.bind(ROOT).spaces.update("team:red", members=members, reason="left")


def _forget(tally: Tally, memory_id: str) -> None:
    tally.bind(BEN, scope="team:red").forget(memory_id, reason="wrong")


def _hide(tally: Tally, memory_id: str) -> None:
    ben = tally.bind(BEN, scope="team:red")
    token = ben.corrections.make(memory_id, "hide", reason="wrong").confirm_token
    ben.corrections.make(memory_id, "hide", reason="wrong", mode="apply", confirm_token=token)


def _expire(tally: Tally, memory_id: str) -> None:
    tally.bind(BEN, scope="team:red").modify(memory_id, expires_at=NOW - DAY, reason="over")


@pytest.mark.parametrize("meanwhile", [_close, _dismiss, _forget, _hide, _expire])
def test_nothing_is_recalled_that_was_taken_away_while_the_query_was_embedded(
    open_tally: OpenTally, meanwhile: Callable[[Tally, str], None]
) -> None:
    embedder = _Interrupted()
    with open_tally(embedder=embedder, clock=StepClock(NOW)) as tally:
        members = [SpaceMember(principal_id=name, role="steward") for name in ("anna", "ben")]
        tally.bind(ROOT).spaces.create("team:red", name="Red", members=members, reason="start")
        note = tally.bind(BEN, scope="team:red").remember("The heron nests in March.")
        anna = tally.bind(ANNA, scope="team:red")
        assert _texts(anna.recall("heron nests")) == ["The heron nests in March."]

        embedder.meanwhile = lambda: meanwhile(tally, note.id)
        assert _texts(anna.recall("where does the heron nest in March?")) == []
        assert embedder.meanwhile is None


def test_what_has_expired_takes_no_place_from_what_has_not(open_tally: OpenTally) -> None:
    clock = StepClock(NOW)
    with open_tally(clock=clock) as tally:
        anna = tally.bind(ANNA)
        anna.remember("A heron was here.")
        anna.remember_many(
            [
                NewMemory(content=f"The heron nests in March {day}.", expires_at=NOW + DAY)
                for day in range(20)
            ]
        )
        assert len(anna.recall("the heron nests in March", limit=30)) == 21
        clock.advance(days=2)

        recalled = anna.recall("the heron nests in March", limit=1)
        assert (_texts(recalled), recalled.candidates) == (["A heron was here."], 1)


def test_no_other_read_gives_what_has_expired(open_tally: OpenTally) -> None:
    clock = StepClock(NOW)
    with open_tally(clock=clock) as tally:
        anna = tally.bind(ANNA)
        old = anna.remember("The office is in Graz.", kind="preference")
        new = anna.remember("The office is in Linz.", expires_at=NOW + DAY, kind="preference")
        token = anna.corrections.make(old.id, "supersede", by=new.id, reason="r").confirm_token
        anna.corrections.make(
            old.id,
            "supersede",
            by=new.id,
            reason="r",
            mode="apply",
            confirm_token=token,
        )
        assert anna.inspect(new.id).shown
        assert [item.id for item in anna.wake().items] == [new.id]
        clock.advance(days=2)

        assert not anna.inspect(new.id).shown
        assert anna.inspect(old.id).freshness.replaced_by is None
        assert anna.wake().items == ()
        assert anna.spaces.preview_access().scopes[0].hidden == {"expired": 1, "superseded": 1}
        assert _texts(anna.recall("office")) == []
        with pytest.raises(NotFound):
            anna.get(old.id)
