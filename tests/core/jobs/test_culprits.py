"""A failure has one owner: a text that its provider cannot take holds up no other one, and a
provider that is away costs no text an attempt.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import httpx2
import openai
import pytest
from tests.core.graph.naming import named
from tests.pages import every

from tallystick.errors import (
    EmbeddingError,
    ModelFailed,
    ModelUnavailable,
    TallystickError,
    TextRefused,
)
from tallystick.jobs import runner
from tallystick.jobs.culprits import Suspects, Tried, take_apart
from tallystick.records import (
    Actor,
    ExtractedFact,
    Extraction,
    Finding,
    LearningRequest,
    ProviderDeclaration,
)
from tallystick.settings import Settings
from tallystick.storage.rows import jobs
from tallystick.tally import Tally
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder
from tallystick_learning import Learning

OpenTally = Callable[..., Tally]
ROOT = Actor(user="root", role="operator")
SECOND = 1_000_000
REQUEST = httpx2.Request("POST", "https://models.example/v1")
AWAY: tuple[Callable[[], BaseException], ...] = (
    lambda: status(503),
    lambda: status(401),
    lambda: status(404),
    lambda: openai.APIConnectionError(request=REQUEST),
    lambda: openai.APITimeoutError(request=REQUEST),
    lambda: ValueError("<html>"),
)
"""Errors of a provider that answers nobody: away, a wrong key, a wrong model, a proxy's page."""


def status(code: int) -> Exception:
    response = httpx2.Response(code, request=REQUEST)
    return openai.OpenAI(api_key="k")._make_status_error_from_response(response)


class Clock:
    """The clock of the database and that of the rests, under the hand of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_700_000_000 * SECOND
        monkeypatch.setattr(jobs, "database_clock", lambda connection: self.now)
        seconds = SimpleNamespace(monotonic=lambda: self.now / SECOND)
        monkeypatch.setattr(runner, "time", seconds)

    def pass_(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Models:
    """An embedder, a learner and a summarizer that fail as a test tells them."""

    declaration = ProviderDeclaration(name="far", model="m-1", timeout_ms=2_000)

    def __init__(self) -> None:
        self.fault: Callable[[], BaseException] | None = None
        """The error that each text meets."""
        self.refused: Callable[[], BaseException] = lambda: status(400)
        """The error that a text with the word poison meets."""
        self.calls = 0
        self.embedder = _Embedder(self)

    def check(self, *texts: str) -> None:
        self.calls += 1
        if self.fault is not None:
            raise self.fault()
        if any("poison" in text for text in texts):
            raise self.refused()

    def learn(self, request: LearningRequest) -> Extraction:
        texts = [turn.text for turn in request.new_turns]
        self.check(*texts)
        return Extraction(
            facts=tuple(
                ExtractedFact(content=turn.text, confidence=90, turn=turn.id, span=turn.text)
                for turn in request.new_turns
            )
        )

    def summarize(self, text: str, *, max_tokens: int) -> str:
        self.check(text)
        return "They sail."


class _Embedder(HashEmbedder):
    def __init__(self, models: Models) -> None:
        super().__init__(local=False)
        self._models = models

    def embed(self, texts: Sequence[str]) -> Any:
        self._models.check(*texts)
        return super().embed(texts)


def states(tally: Tally, kind: str) -> dict[str, int]:
    listed = every(tally.bind(ROOT).jobs.list, kind=kind)
    return dict(Counter(job.state for job in listed))


def jobs_finding(tally: Tally) -> Finding:
    [finding] = [each for each in tally.bind(ROOT).operator.doctor() if each.check == "jobs"]
    return finding


# A failure taken apart


@pytest.mark.parametrize("count", [2, 3, 7, 16, 100, 200])
def test_one_culprit_costs_at_most_twice_the_logarithm_of_its_batch(count: int) -> None:
    for culprit in range(count):
        tries: list[Sequence[int]] = []

        def attempt(items: Sequence[int], culprit: int = culprit) -> Tried[int]:
            tries.append(items)  # noqa: B023 - called within this turn
            if culprit in items:
                return Tried(items, TextRefused(), is_proof=False)
            return Tried(())

        apart = take_apart(range(count), attempt, Suspects(), key=lambda item: item)
        assert [item for item, _ in apart.failed] == [culprit]
        assert len(tries) - 1 <= 2 * math.log2(count)


def test_every_culprit_is_found_and_all_else_is_done() -> None:
    done: list[int] = []

    def attempt(items: Sequence[int]) -> Tried[int]:
        if any(item % 7 == 3 for item in items):
            return Tried(items, TextRefused(), is_proof=False)
        done.extend(items)
        return Tried(())

    apart = take_apart(range(100), attempt, Suspects(), key=lambda item: item)
    assert sorted(item for item, _ in apart.failed) == list(range(3, 100, 7))
    assert sorted(done) == [item for item in range(100) if item % 7 != 3]


@pytest.mark.parametrize(("error", "most"), [(EmbeddingError(), 3), (ModelFailed(), 30)])
def test_a_provider_that_is_away_is_not_asked_for_each_item(
    error: TallystickError, most: int
) -> None:
    tries: list[int] = []

    def attempt(items: Sequence[int]) -> Tried[int]:
        tries.append(len(items))
        return Tried(items, error, is_proof=False)

    apart = take_apart(range(200), attempt, Suspects(), key=lambda item: item)
    assert apart.outage is error
    assert len(apart.failed) + len(apart.left) == 200
    assert len(tries) <= most


# One text among many


@pytest.mark.parametrize("code", [400, 503, 404])
@pytest.mark.parametrize("users", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_one_refused_text_of_many_holds_up_no_vector(
    open_sqlite: OpenTally, clock: Clock, code: int, users: int
) -> None:
    models = Models()
    models.refused = lambda: status(code)
    with open_sqlite(embedder=models.embedder) as tally:
        for user in range(users):
            texts = [f"note {user}.{number}" for number in range(20)]
            texts[7] += " poison" * (user == 3)
            tally.bind(Actor(user=f"user{user}")).remember_many(texts)
        drained = tally.drain()
        assert states(tally, "embed")["done"] == 20 * users - 1
        [failed] = drained.failed
        assert (failed.kind, failed.state) == (
            "embed",
            "retry_scheduled" if code == 503 else "dead",
        )
        assert models.calls - 5 <= 2 * math.log2(200)
        assert failed.id in jobs_finding(tally).text


@pytest.mark.parametrize("users", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_one_refused_text_of_many_holds_up_no_learning(
    open_sqlite: OpenTally, clock: Clock, users: int
) -> None:
    models = Models()
    settings = Settings(learning="review")
    with open_sqlite(settings=settings, learning_model=models) as tally:
        for user in range(users):
            bound = tally.bind(Actor(user=f"user{user}"))
            texts = [f"I have {number} boats of user {user}." for number in range(10)]
            texts[7] += " poison" * (user == 3)
            bound.remember_many(texts)
        [failed] = tally.drain().failed
        assert states(tally, "learn") == {"done": 10 * users - 1, "retry_scheduled": 1}
        assert models.calls == 10 * users

        # Others were answered for since, so that it is this text's own fault.
        [again] = tally.drain().failed
        assert (again.id, again.state, models.calls) == (failed.id, "dead", 10 * users + 1)
        culprit = tally.bind(ROOT).jobs.get(failed.id)
        memory = tally.bind(Actor(user="user3")).get(culprit.subject_id)
        assert memory.extraction_status == "failed"
        assert failed.id in jobs_finding(tally).text


def test_a_fifth_of_the_texts_refused_leaves_the_others_done_in_order(
    open_sqlite: OpenTally, clock: Clock
) -> None:
    models, settings = Models(), Settings(learning="review")
    with open_sqlite(settings=settings, learning_model=models) as tally:
        bound = tally.bind(Actor(user="alice"))
        bound.remember_many(
            [f"I have {each} boats.{' poison' * (each % 5 == 0)}" for each in range(20)]
        )
        for _ in range(20):
            services_of(tally).background.turn(lambda: False)
            clock.pass_(60)
        assert states(tally, "learn")["done"] == 16
        bound.remember("I have a canoe.")
        for _ in range(30):
            services_of(tally).background.turn(lambda: False)
            clock.pass_(600)
        assert states(tally, "learn") == {"done": 17, "dead": 4}


@pytest.mark.parametrize("exit_with", [SystemExit, MemoryError, GeneratorExit])
def test_a_provider_that_ends_its_thread_frees_its_lease_and_is_counted(
    open_sqlite: OpenTally, clock: Clock, exit_with: type[BaseException]
) -> None:
    models, settings = Models(), Settings(learning="review")
    models.refused = exit_with
    with open_sqlite(settings=settings, learning_model=models) as tally:
        bound = tally.bind(Actor(user="alice"))
        job_id = bound.remember("This is poison.").job_id or ""
        bound.remember("I have 3 boats.")
        for attempts in range(1, 6):
            tally.drain()
            job = tally.bind(ROOT).jobs.get(job_id)
            assert (job.attempts, job.error_code) == (attempts, "model_failed")
        assert states(tally, "learn") == {"done": 1, "dead": 1}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_whoever_ends_the_process_frees_its_leases_and_costs_no_attempt(
    open_sqlite: OpenTally, interruption: type[BaseException]
) -> None:
    models = Models()
    models.fault = interruption
    with open_sqlite(embedder=models.embedder) as tally:
        tally.bind(Actor(user="alice")).remember_many(["The heron nests.", "The tide turns."])
        with pytest.raises(interruption):
            tally.drain()
        listed = tally.bind(ROOT).jobs.list(kind="embed")
        assert [(job.state, job.attempts) for job in listed] == [("pending", 0)] * 2
        models.fault = None
        tally.drain()
        assert states(tally, "embed") == {"done": 2}


def test_a_timeout_of_one_text_is_that_texts(open_sqlite: OpenTally, clock: Clock) -> None:
    models, settings = Models(), Settings(learning="review")
    models.refused = lambda: _sleep_and_fail(0.3)
    models.declaration = models.declaration.model_copy(update={"timeout_ms": 100})
    with open_sqlite(settings=settings, learning_model=models) as tally:
        bound = tally.bind(Actor(user="alice"))
        slow = bound.remember("This is poison.").job_id or ""
        # Nobody else was asked: it may as well be the provider.
        tally.drain()
        assert tally.bind(ROOT).jobs.get(slow).attempts == 0
        for attempts in range(1, 6):
            bound.remember(f"I have {attempts} boats.")
            services_of(tally).background.runner.run(["learn"])
            [failed] = tally.drain().failed
            assert (failed.id, failed.code) == (slow, "model_failed")
            assert tally.bind(ROOT).jobs.get(slow).attempts == attempts
        assert states(tally, "learn") == {"done": 5, "dead": 1}


def _sleep_and_fail(seconds: float) -> BaseException:
    time.sleep(seconds)
    return ValueError()


def test_half_characters_of_an_answer_spoil_no_text(open_sqlite: OpenTally) -> None:
    class Broken(Models):
        def learn(self, request: LearningRequest) -> Extraction:
            facts = ("I have 3 boats \ud83d.", "I have 4 kites.")
            return Extraction(facts=tuple(ExtractedFact(content=each) for each in facts))

    with open_sqlite(settings=Settings(learning="review"), learning_model=Broken()) as tally:
        bound = tally.bind(Actor(user="alice"))
        bound.remember("I have 3 boats and 4 kites.")
        assert tally.drain().failed == ()
        contents = {each.content.content for each in bound.reviews.list() if each.content}
        assert contents == {"I have 3 boats \ufffd.", "I have 4 kites."}


# A provider that is away


def through_a_day(tally: Tally, clock: Clock, kind: str, expected: int) -> None:
    """Work once in each hour of a day, which ends no job of a kind."""
    for _ in range(24):
        services_of(tally).background.turn(lambda: False)
        clock.pass_(3_600)
    found = states(tally, kind)
    assert set(found) <= {"pending", "retry_scheduled"}
    assert sum(found.values()) == expected


def till_all_is_done(tally: Tally, clock: Clock, kind: str, expected: int) -> None:
    for _ in range(4):
        clock.pass_(300)
        services_of(tally).background.turn(lambda: False)
    assert states(tally, kind) == {"done": expected}


@pytest.mark.parametrize("away", AWAY, ids=range(len(AWAY)))
def test_an_outage_of_a_day_costs_no_vector(
    open_sqlite: OpenTally, clock: Clock, away: Callable[[], BaseException]
) -> None:
    models = Models()
    models.fault = away
    with open_sqlite(embedder=models.embedder) as tally:
        for user in range(3):
            texts = [f"note {user}.{number}" for number in range(5)]
            tally.bind(Actor(user=f"user{user}")).remember_many(texts)
        through_a_day(tally, clock, "embed", 15)
        with pytest.raises(EmbeddingError):
            tally.drain()
        models.fault = None
        till_all_is_done(tally, clock, "embed", 15)


@pytest.mark.parametrize("away", AWAY[::2], ids=range(len(AWAY[::2])))
def test_an_outage_of_a_day_costs_no_learning(
    open_sqlite: OpenTally, clock: Clock, away: Callable[[], BaseException]
) -> None:
    models, settings = Models(), Settings(learning="review")
    models.fault = away
    with open_sqlite(settings=settings, learning_model=models) as tally:
        for user in range(3):
            bound = tally.bind(Actor(user=f"user{user}"))
            for number in range(3):
                bound.remember(f"I have {number} boats.")
        through_a_day(tally, clock, "learn", 9)
        models.fault = None
        till_all_is_done(tally, clock, "learn", 9)


def test_an_outage_of_the_summarizer_costs_no_summary(open_sqlite: OpenTally, clock: Clock) -> None:
    models = Models()
    models.fault = lambda: status(503)
    texts = ("Anna Schmidt sails the Seeadler from Hamburg.",) * 5
    with open_sqlite(settings=Settings(graph=True), summarizer=models) as tally:
        alice = tally.bind(Actor(user="alice"))
        alice.remember_many(named(f"{text} {each}") for each, text in enumerate(texts))
        through_a_day(tally, clock, "summarize", 1)
        models.fault = None
        till_all_is_done(tally, clock, "summarize", 1)


def test_an_outage_of_the_learner_costs_no_reflection(open_sqlite: OpenTally, clock: Clock) -> None:
    models = Models()
    models.fault = lambda: status(503)
    settings = Settings(reflection="review")
    with open_sqlite(settings=settings, learning_model=models) as tally:
        alice = tally.bind(Actor(user="alice"))
        for day in ("monday", "tuesday"):
            alice.remember("We decided to launch in May.", kind="turn", conversation=day)
            Learning(alice).reflect(conversation=day, mode="async")
        through_a_day(tally, clock, "reflect", 2)
        models.fault = None
        till_all_is_done(tally, clock, "reflect", 2)


def test_one_refused_community_holds_up_no_other_summary(open_sqlite: OpenTally) -> None:
    models = Models()
    boats = "Anna Schmidt sails the Seeadler from Hamburg. poison"
    music = "Bob Miller plays cello with Clara Jones at Studio Nine."
    with open_sqlite(settings=Settings(graph=True), summarizer=models) as tally:
        alice = tally.bind(Actor(user="alice"))
        alice.remember_many(named(f"{text} {each}") for text in (boats, music) for each in range(5))
        [failed] = tally.drain().failed
        assert (failed.kind, failed.code) == ("summarize", "model_refused")
        summaries = [each.summary for each in alice.explore(mode="communities").communities]
        assert "They sail." in summaries


def test_the_doctor_names_what_no_text_gets_past(open_sqlite: OpenTally, clock: Clock) -> None:
    models, settings = Models(), Settings(learning="review")
    with open_sqlite(settings=settings, learning_model=models) as tally:
        bound = tally.bind(Actor(user="alice"))
        oldest = bound.remember("I have 3 boats.").job_id or ""
        models.fault = lambda: status(503)
        with pytest.raises(ModelUnavailable):
            tally.drain()
        finding = jobs_finding(tally)
        assert (finding.status, oldest in finding.text) == ("notice", True)

        models.fault = lambda: status(401)
        with pytest.raises(ModelUnavailable):
            tally.drain()
        finding = jobs_finding(tally)
        assert (finding.status, "status 401" in finding.text) == ("problem", True)

        models.fault = lambda: status(404)
        bound.remember("I have 4 boats.")
        tally.drain()
        finding = jobs_finding(tally)
        assert (finding.status, "status 404" in finding.text) == ("problem", True)
        assert oldest in finding.text


def test_one_text_that_fails_holds_up_no_vector_of_a_changed_embedder(
    open_sqlite: OpenTally, clock: Clock
) -> None:
    texts = [f"note {number}" for number in range(100)]
    texts[33] += " poison"
    with open_sqlite(embedder=HashEmbedder(32)) as tally:
        tally.bind(Actor(user="alice")).remember_many(texts)
    models = Models()
    models.refused = ValueError
    models.embedder.local = True
    with open_sqlite(embedder=models.embedder) as tally:
        for attempts in range(1, 6):
            [failed] = tally.drain().failed
            job = tally.bind(ROOT).jobs.get(failed.id)
            assert (job.attempts, job.error_code) == (attempts, "embedder_failed")
            assert len(tally.bind(Actor(user="alice")).recall("note 7")) > 0
        assert states(tally, "reembed") == {"dead": 1}
        assert models.calls - 1 <= 2 * math.log2(100) + 4
