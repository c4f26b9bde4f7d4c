"""Exact scan beside Chroma, by the size of the scope: where the default of `large_scope` comes
from.

Run it with `make bench-vectors`. Vectors are those of 256 numbers that a mixture of 400 themes
gives, so that some are near and most are far, as embedded text is. Each way answers the same
questions for the same scope, which holds half of all vectors: the exact scan in memory, a Chroma
collection of the scope's own, and a collection shared with the other half and filtered by scope.
Chroma's time includes the exact re-scoring of its 200 proposals; `found` is the share of the exact
ten best that it proposed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tallystick import Tally
from tallystick.ranking import Corpus, Entry, cosines, indexed_words
from tallystick.storage import ChromaIndex
from tallystick.storage.index.chroma import IndexState, Layout, VectorPoint
from tallystick.tally.services import services_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_DIMENSION, _THEMES, _PROPOSED, _PAGE = 256, 400, 200, 5_000


def vectors(count: int, *, seed: int) -> Floats:
    """Unit vectors around common themes, shape (count, 256)."""
    themes = np.random.default_rng(0).normal(size=(_THEMES, _DIMENSION))
    chance = np.random.default_rng(seed)
    made = themes[chance.integers(0, _THEMES, count)] + 1.2 * chance.normal(
        size=(count, _DIMENSION)
    )
    unit: Floats = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
    return unit


def _corpus(said: Floats) -> Corpus:
    words = indexed_words("nothing")
    entries = [
        Entry(
            doc,
            words,
            0,
            None,
            "fact",
            None,
            None,
            None,
            None,
            vector.astype(np.float16).tobytes(),
            None,
        )
        for doc, vector in enumerate(said)
    ]
    return Corpus.empty().update(entries, dimension=_DIMENSION)


def _by_chroma(index: ChromaIndex, state: IndexState, said: Floats, query: Floats) -> list[int]:
    proposed = index.propose(query, [1], most=_PROPOSED, state=state)
    docs = [doc for doc in proposed if doc < len(said)]
    scores = cosines(query, said[docs])
    return [docs[place] for place in np.argsort(-scores)[:10]]


def _timed(work: Callable[[Floats], object], queries: Floats) -> str:
    """p50 / p95, milliseconds, after one question to warm up."""
    work(queries[0])
    times = []
    for query in queries:
        began = time.perf_counter()
        work(query)
        times.append((time.perf_counter() - began) * 1_000)
    return f"{statistics.median(times):.1f} / {statistics.quantiles(times, n=20)[-1]:.1f}"


def measure(count: int, asked: int) -> None:
    """Print the line of one size."""
    said, others, queries = vectors(count, seed=1), vectors(count, seed=2), vectors(asked, seed=3)
    corpus = _corpus(said)
    exact = [
        set(np.argsort(-corpus.nearness(query), kind="stable")[:10].tolist()) for query in queries
    ]
    times, found, built = [_timed(corpus.nearness, queries)], [], []
    for layout in (Layout(own=frozenset({1})), Layout()):
        with tempfile.TemporaryDirectory() as folder, Tally.open(Path(folder) / "tally") as tally:
            database = services_of(tally).store.database
            index = ChromaIndex("bench", database=database, folder=Path(folder), layout=layout)
            began = time.perf_counter()
            for start in range(0, count, _PAGE):
                for scope, rows, first in ((1, said, 0), (2, others, count)):
                    if scope == 2 and layout.own:
                        continue
                    part = rows[start : start + _PAGE]
                    index.upsert(
                        [
                            VectorPoint(first + start + place, scope, 1, vector)
                            for place, vector in enumerate(part)
                        ]
                    )
            built.append(time.perf_counter() - began)
            state = index.stamp(IndexState(upcoming="filled", layout=layout))
            answer = partial(_by_chroma, index, state, said)
            times.append(_timed(answer, queries))
            shares = [
                len(best & set(answer(query))) / 10
                for best, query in zip(exact, queries, strict=True)
            ]
            found.append(statistics.mean(shares))
            index.close()
    print(
        f"{count:>9,}{times[0]:>18}{times[1]:>18}{found[0]:>7.1%}{times[2]:>20}{found[1]:>7.1%}{built[0]:>9.0f}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 20_000, 30_000, 50_000])
    parser.add_argument("--queries", type=int, default=100)
    chosen = parser.parse_args()
    print(
        f"{'vectors':>9}{'exact ms':>18}{'own Chroma ms':>18}{'found':>7}"
        f"{'shared Chroma ms':>20}{'found':>7}"
        f"{'built s':>9}"
    )
    for size in chosen.sizes:
        measure(size, chosen.queries)


if __name__ == "__main__":
    main()
