"""The cache of recall: a scope is read once, and counts for what the process grows by."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tallystick import Actor, Tally
from tallystick.ranking.analyses import ANALYSES
from tallystick.ranking.vocabulary import Vocabulary, WordVectors
from tallystick.settings import Settings
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ABOVE_FIVE = Settings.read(large_scope=5)
CHROMA = Settings.read(vector_search="chroma")

GROWTH = """
import ctypes, gc, random
import numpy as np
from tallystick.ranking import Corpus, ask, indexed_words
from tallystick.ranking.corpus import Entry

COUNT, SIZE = 8_000, 256
chance = random.Random(3)
words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(8_000)]

def page(start):
    for doc in range(start, start + 2_000):
        text = " ".join(chance.choices(words, k=24))
        vector = np.full(SIZE, chance.random(), dtype=np.float16).tobytes()
        yield Entry(doc, indexed_words(text), 0, None, "fact", None, None, None, None, vector)

def resident():
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

warm = Corpus.empty().update(list(page(0)), dimension=SIZE)
warm.text_scores({}, average=1.0), warm.nearness(np.ones(SIZE, np.float32))
del warm
gc.collect()
before = resident()
corpus = Corpus.empty().update_by_pages(
    (list(page(start)) for start in range(0, COUNT, 2_000)), dimension=SIZE
)
corpus.text_scores({words[0]: 1.0}, average=24.0)
corpus.nearness(np.ones(SIZE, np.float32))
corpus.rows_of([1]), corpus.column("kind"), corpus.words_of(np.arange(50))
gc.collect()
print((resident() - before) / corpus.bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_corpus_counts_what_the_process_grows_by() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", GROWTH], check=True, capture_output=True, text=True
    )
    assert 0.75 < float(answer.stdout) < 1.25


def test_a_large_scope_without_chroma_is_read_once_and_says_how_it_is_searched(
    open_tally: OpenTally,
) -> None:
    """On SQLite another process has Chroma; on PostgreSQL there is none."""
    with open_tally(settings=CHROMA, embedder=HashEmbedder()) as first:
        first.drain()
        with open_tally(settings=ABOVE_FIVE, embedder=HashEmbedder()) as tally:
            owner = tally.bind(Actor(user="ann"))
            owner.remember_many([f"heron number {number}" for number in range(12)])
            for number in range(4):
                found = owner.recall(f"heron number {number}")
                assert found[0].content == f"heron number {number}"
                assert found.path == "database, 2000 by signs"
                assert "vectors were compared by their signs" in found.warnings[0]
            assert services_of(tally).memory.corpora.loads == 1


@pytest.mark.sqlite
def test_words_and_vectors_of_a_scope_are_one_entry(open_sqlite: OpenTally) -> None:
    with open_sqlite(settings=CHROMA, embedder=HashEmbedder()) as tally:
        owner = tally.bind()
        owner.remember_many([f"heron number {number}" for number in range(12)])
        tally.drain()
        assert owner.recall("heron").path == "chroma"
        corpora = services_of(tally).memory.corpora
        words = corpora.bytes
        assert (corpora.loads, len(corpora._entries)) == (1, 1)
        # A scan needs the vectors as well; afterwards the words come from the same entry.
        shutil.rmtree(Path(tally.location) / "chroma")
        assert owner.recall("heron number 3").path == "exact"
        tally.drain()
        assert owner.recall("heron number 3").path == "chroma"
        assert (corpora.loads, len(corpora._entries)) == (2, 1)
        assert corpora.bytes > words


def test_the_doctor_names_large_scopes_that_chroma_does_not_answer_for(
    open_tally: OpenTally,
) -> None:
    with open_tally(settings=ABOVE_FIVE, embedder=HashEmbedder()) as tally:
        operator = tally.bind(Actor(user="ann", role="operator"))
        operator.remember_many([f"heron number {number}" for number in range(12)])
        [finding] = [each for each in operator.operator.doctor() if each.check == "index"]
        assert finding.status == "notice"
        if services_of(tally).index is None:
            assert finding.text.startswith("1 scope has more than 5 memories")
        else:
            assert finding.text.startswith("Chroma is not filled with 1 large scope yet")


SMALL_SCOPES = """
import random, sys
from tallystick import Actor, Tally
from tallystick.tally.services import services_of

chance = random.Random(1)
words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(1_500)]

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

def text():
    return " ".join(chance.choices(words, k=24))

with Tally.open(sys.argv[1], background=False) as tally:
    users = [tally.bind(Actor(user=f"user{number}")) for number in range(8)]
    users[0].remember(text())
    users[0].recall(text())
    before = resident()
    for _ in range(60):
        for user in users:
            user.recall(text())
            user.remember(text())
    grown = resident() - before
    print(grown / 480, grown / services_of(tally).memory.corpora.bytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_memory_of_many_small_scopes_costs_eight_kilobytes(tmp_path: Path) -> None:
    """Each turn makes arrays anew: what it frees goes back, and a word has one vector for all."""
    script = [sys.executable, "-c", SMALL_SCOPES, str(tmp_path / "tally")]
    ended = subprocess.run(script, capture_output=True, text=True, check=True)
    of_a_memory, of_what_is_counted = map(float, ended.stdout.split())
    assert of_a_memory < 8_000
    assert of_what_is_counted < 3


def test_a_word_is_looked_up_once_for_all_scopes() -> None:
    asked: list[str] = []

    def embed(words: Sequence[str]) -> NDArray[np.float32]:
        asked.extend(words)
        return np.ones((len(words), 2), dtype=np.float32)

    vectors = WordVectors(embed)
    scopes = [Vocabulary(), Vocabulary()]
    for scope in scopes:
        for word in ("heron", "vault", "reed"):
            scope.surfaces[word]
        scope.catch_up()
    meant = np.ones((1, 2), dtype=np.float32)
    for scope in (*scopes, scopes[0]):
        cosines = scope.cosines(np.array([0, 2]), meant, vectors)
        assert cosines is not None
        assert cosines.tolist() == [[2.0, 2.0]]
    assert asked == ["heron", "reed"]


def test_vectors_of_words_count_in_the_cache_and_are_bounded_by_it(tmp_path: Path) -> None:
    settings = Settings.read(recall_cache_mb=1)
    with Tally.open(tmp_path, settings=settings, background=False) as tally:
        bounds = [tally.bind(Actor(user=f"user{number}")) for number in range(3)]
        for number, bound in enumerate(bounds):
            bound.remember_many([f"heron{place}{number} nests" for place in range(400)])
        for number in (0, 1, 2, 0, 1, 2):
            bounds[number].recall(" ".join(f"heron{place}{number}" for place in range(300)))
            vectors = services_of(tally).memory.word_vectors
            assert 0 < vectors.bytes < 512 * 1024
        corpora = services_of(tally).memory.corpora
        entries = sum(entry.corpus.bytes for entry in corpora._entries.values())
        analysed = min(ANALYSES.bytes, corpora.most_bytes // 8)
        assert corpora.bytes == entries + vectors.bytes + analysed
        assert services_of(tally).working_sets._word_vectors is vectors
        services_of(tally).drop_caches()
        assert corpora.bytes == 0


TURNS = """
import random, sys
from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint

chance = random.Random(1)
words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(3_000)]

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

def text():
    return " ".join(chance.choices(words, k=40))

def take_turn(turn):
    user, said = users[turn % 10], text()
    user.recall(text())
    user.remember(said, conversation=f"c{turn % 50}", kind="turn")
    with user.run("agent") as run, run.step("model_call") as step:
        step.record("request", {"messages": [said]})
        step.record("response", {"answer": text()})
    for part in "ab":
        body, value = Leaf("json", b"{}"), Leaf("json", text().encode())
        checkpoint = NewCheckpoint(
            id=f"{turn}{part}", namespace="", parent_id=None, metadata={}, body=body,
            values={"messages": value},
        )
        user.threads.put(f"t{turn % 50}", checkpoint)

with Tally.open(sys.argv[1]) as tally:
    users = [tally.bind(Actor(user=f"user{number}")) for number in range(10)]
    for turn in range(3_000):
        take_turn(turn)
    before = resident()
    for turn in range(3_000, 4_000):
        take_turn(turn)
    print(resident() / before)
"""


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_last_thousand_of_four_thousand_turns_add_three_percent_at_most(tmp_path: Path) -> None:
    script = [sys.executable, "-c", TURNS, str(tmp_path / "tally")]
    ended = subprocess.run(script, capture_output=True, text=True, check=True)
    assert float(ended.stdout) <= 1.03
