"""Speed of recall and of remembering at 1,000, 10,000 and 100,000 memories, beside FTS5 and Chroma
in the same run.

Run it with `make bench-recall`. Turns of 12 to 30 words drawn from 8,000 words by Zipf's law, in
conversations of 20. FTS5 does its half of the work: the same words by bm25, ten ids. Chroma does
its half: ten ids for the query's vector. Single texts are held against sqlite3 alone writing the
same rows into a copy of the same database, one commit each. A scope of every size is kept in memory
whole: `scale_recall` measures large ones.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks import rows

from tallystick import Actor, BoundTally, Tally
from tallystick.records import NewMemory
from tallystick.settings import Settings
from tallystick.tally.services import services_of

_BATCH = 1_000
_STEP_US = 60_000_000
_TURNS = 4

_IN_MEMORY = Settings.read(large_scope=100_000)


def _vocabulary() -> tuple[list[str], list[float]]:
    source = random.Random(1)
    letters = "bcdfghjklmnprstvwz"
    words: dict[str, None] = {}
    while len(words) < 8_000:
        words[
            "".join(
                source.choice(letters) + source.choice("aeiou") for _ in range(source.randint(2, 4))
            )
        ] = None
    return list(words), [1 / (place + 10) for place in range(len(words))]


def turns(count: int, *, seed: int = 2) -> list[NewMemory]:
    """Turns of two speakers in conversations of twenty."""
    source = random.Random(seed)
    words, weights = _vocabulary()
    return [
        NewMemory(
            content=" ".join(source.choices(words, weights, k=source.randint(12, 30))),
            kind="turn",
            speaker=("Anna", "Ben")[place % 2],
            conversation=f"c{seed}-{place // 20}",
            occurred_at=1_700_000_000_000_000 + place * _STEP_US,
        )
        for place in range(count)
    ]


def queries(said: Sequence[NewMemory], count: int) -> list[str]:
    """Four words of some turn, in a question."""
    source = random.Random(3)
    return [
        f"what about {' '.join(source.sample(source.choice(said).content.split(), 4))}"
        for _ in range(count)
    ]


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fts5(folder: Path, said: Sequence[NewMemory]) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "plain.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE VIRTUAL TABLE turns USING fts5(text, tokenize='porter unicode61')")
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO turns VALUES (?)", [(one.content,) for one in said])
    connection.execute("COMMIT")
    return connection


def _by_fts5(connection: sqlite3.Connection, query: str) -> list[int]:
    wanted = " OR ".join(f'"{word}"' for word in query.split()[2:])
    rows = connection.execute(
        "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT 10", (wanted,)
    )
    return [row[0] for row in rows]


def _chroma(folder: Path, tally: Tally, said: Sequence[NewMemory]) -> Any:
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(
        str(folder / "plain-chroma"), Settings(anonymized_telemetry=False)
    )
    collection = client.create_collection("turns", embedding_function=None)
    for start in range(0, len(said), _BATCH):
        part = said[start : start + _BATCH]
        vectors = services_of(tally).embedder.embed([one.content for one in part])
        collection.add(
            ids=[str(start + place) for place in range(len(part))], embeddings=list(vectors)
        )
    return client, collection


def _by_chroma(tally: Tally, collection: Any, query: str) -> list[str]:
    vector = services_of(tally).embedder.embed([query])[0]
    found: list[str] = collection.query(query_embeddings=[vector], n_results=10)["ids"][0]
    return found


_clock = time.perf_counter


def use_processor_time() -> None:
    """Count the time of the processor: for a machine that other work shares."""
    global _clock
    _clock = time.thread_time


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = _clock()
    work()
    return (_clock() - began) * 1_000


def spread(times: Sequence[float]) -> str:
    """p50 / p95, milliseconds."""
    return f"{statistics.median(times):.1f} / {statistics.quantiles(times, n=20)[-1]:.1f}"


def remember_all(bound: BoundTally, said: Sequence[NewMemory]) -> float:
    """Turns a second."""
    began = time.perf_counter()
    for start in range(0, len(said), _BATCH):
        bound.remember_many(said[start : start + _BATCH])
    return len(said) / (time.perf_counter() - began)


def _singles(
    folder: Path, bound: BoundTally, often: int
) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of `remember`, one text at a time, and of sqlite3 writing the same rows into a
    copy: with the settings of a tally, and as it comes.
    """
    ours: list[float] = []
    theirs: list[float] = []
    default: list[float] = []
    # In turns, because the machine is not the same from one second to the next.
    for turn in range(_TURNS):
        texts = [f"One more turn {turn}, {place}" for place in range(2 * often // _TURNS)]
        first, second = texts[::2], texts[1::2]
        ours += [timed(partial(bound.remember, text, conversation="new")) for text in first]
        operations: list[rows.Statements] = []
        copy, other = folder / f"raw-{turn}.db", folder / f"default-{turn}.db"
        rows.copied(bound.tally, copy)
        rows.copied(bound.tally, other)
        with rows.noted(operations) as begin:
            for text in second:
                begin()
                bound.remember(text, conversation="new")
        theirs += rows.replayed(copy, operations)
        default += rows.replayed(other, operations, connect=rows.as_it_comes)
        for one in (copy, other):
            rows.same(bound.tally, one)
            one.unlink()
    return ours, theirs, default


def working_sets(bound: BoundTally, questions: Sequence[str]) -> tuple[list[float], list[float]]:
    """Milliseconds of the working set at the first turn of sessions, and at their next three."""
    first, later = [], []
    for place, question in enumerate(questions[:-3]):
        session = partial(bound.working_set, conversation=f"session {place}")
        first.append(timed(partial(session, question, turn="0")))
        later += [
            timed(partial(session, questions[place + turn], turn=str(turn))) for turn in (1, 2, 3)
        ]
    return first, later


def measure(count: int, asked: int) -> None:
    """Print the lines of one size."""
    said = turns(count)
    questions = queries(said, asked)
    with (
        _folder() as folder,
        Tally.open(
            folder / "t", owner=Actor(user="anna"), settings=_IN_MEMORY, background=False
        ) as tally,
    ):
        bound = tally.bind()
        services_of(bound.tally).embedder.embed(["loaded before the clock runs"])
        rate = remember_all(bound, said)
        first = timed(partial(bound.recall, questions[0]))
        path = bound.recall(questions[0]).path
        plain = _fts5(folder, said)
        ours, theirs = [], []
        for question in questions:  # in turns, because the machine is not the same for long
            ours.append(timed(partial(bound.recall, question)))
            theirs.append(timed(partial(_by_fts5, plain, question)))
        begun, went_on = working_sets(bound, questions[: asked // 4])
        singles, raw, default = _singles(folder, bound, 200)
        client, collection = _chroma(folder, tally, said)
        chroma = [timed(partial(_by_chroma, tally, collection, question)) for question in questions]
        plain.close()
        client.close()
    print(
        f"{count:>9,} {rate:>10,.0f} {first:>9.0f} {spread(ours) + ' ' + path:>22} "
        f"{spread(theirs):>16} "
        f"{spread(chroma):>16} {statistics.median(singles):>9.2f} {statistics.median(raw):>8.2f} "
        f"{statistics.median(singles) / statistics.median(raw):>5.1f} "
        f"{statistics.median(default):>11.2f} {spread(begun):>14} {spread(went_on):>14}",
        flush=True,
    )


def measure_small_in_large(large: int, small: int, asked: int) -> None:
    """Print a small scope alone and among others' memories."""
    said, others = turns(small), turns(large, seed=9)
    questions = queries(said, asked)
    for name, more in (("alone", []), (f"inside {large:,} of others", others)):
        with _folder() as folder, Tally.open(folder / "t", background=False) as tally:
            remember_all(tally.bind(Actor(user="ben")), more) if more else None
            anna = tally.bind(Actor(user="anna"))
            remember_all(anna, said)
            anna.recall(questions[0])
            times = [timed(partial(anna.recall, question)) for question in questions]
        print(f"{small:,} memories {name}: {spread(times)} ms", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--cpu", action="store_true", help="count the time of the processor")
    chosen = parser.parse_args()
    if chosen.cpu:
        use_processor_time()
    print(
        f"{'memories':>9} {'import/s':>10} {'first ms':>9} {'recall p50/p95 ms':>22} "
        f"{'FTS5 ms':>16} "
        f"{'Chroma ms':>16} {'remember':>9} {'raw rows':>8} {'times':>5} {'as it comes':>11} "
        f"{'working set':>14} {'its next turn':>14}"
    )
    for size in chosen.sizes:
        measure(size, chosen.queries)
    measure_small_in_large(max(chosen.sizes), min(chosen.sizes), chosen.queries)


if __name__ == "__main__":
    main()
