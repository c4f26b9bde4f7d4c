"""The two ways by which vectors of a large scope on PostgreSQL propose candidates, by their signs
and by an HNSW index of pgvector, beside the exact one: what each costs, and how far its ten best
are those of the exact way.

Turns are as in `scale_recall`, questions those of `bench-recall`. Every way is measured in a
process of its own, in turn, three times, the exact one once; the median is told. Agreement is the
part of the ten best of the exact way that the other one gives too.

    python -m tests.benchmarks.scale_hnsw [--sizes 100000] [--at postgresql://…]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.benchmarks.recall import queries, turns
from tests.benchmarks.resident import resident
from tests.benchmarks.scale_recall import _analyzed, _places, fill

from tallystick import Actor, Tally
from tallystick.settings import Settings

WAYS = ("auto", "hnsw", "exact")
_ASKED, _WRITTEN, _ROUNDS = 100, 200, 3
_LIMIT = 10


@contextmanager
def _opened(where: str, way: str) -> Iterator[Tally]:
    settings = Settings.read(vector_search=way, exact_scan_limit=10**9)
    with Tally.open(where, background=False, settings=settings) as tally:
        yield tally


def measure(where: str, way: str) -> dict[str, Any]:
    """Recall and write in a process of its own."""
    asked = queries(turns(2_000, seed=2), _ASKED)
    with _opened(where, way) as tally:
        tally.bind(Actor(user="few")).recall("what about nothing")
        bound, before = tally.bind(Actor(user="many")), resident()
        start = time.perf_counter()
        found = bound.recall(asked[0])
        cold = time.perf_counter() - start
        warm, hits = list[float](), list[list[str]]()
        for query in asked:
            start = time.perf_counter()
            found = bound.recall(query, limit=_LIMIT)
            warm.append(time.perf_counter() - start)
            hits.append([hit.memory.id for hit in found])
        grown = resident() - before
        writes = list[float]()
        for number in range(_WRITTEN):
            start = time.perf_counter()
            kept = bound.remember(f"note {number} of {time.time_ns()} about {asked[number % 100]}")
            writes.append(time.perf_counter() - start)
            bound.forget(kept.id, reason="measured")
        return {
            "path": found.path,
            "cold": cold,
            "warm": statistics.median(warm),
            "p95": sorted(warm)[int(0.95 * (len(warm) - 1))],
            "grown": grown,
            "write": statistics.median(writes),
            "hits": hits,
        }


def _in_process(where: str, way: str) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name, "--measure", where, way]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _filled(where: str) -> tuple[int, float]:
    """Fill the index; return the number of memories that came in, and the seconds it took."""
    with _opened(where, "hnsw") as tally:
        tally.bind(Actor(user="many")).recall("what about nothing")
        start = time.perf_counter()
        return tally.drain().indexed, time.perf_counter() - start


def compare(where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each way with its figures; its first recall ever is not among them."""
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for number in range(_ROUNDS):
        for way in WAYS:
            if way != "exact" or number == 0:
                rounds[way].append(_in_process(where, way))
    exact = rounds["exact"][0]["hits"]
    for way in WAYS:
        names = ("cold", "warm", "p95", "grown", "write")
        got = {name: statistics.median(each[name] for each in rounds[way]) for name in names}
        shared = [
            len(set(one) & set(other)) / max(len(other), 1)
            for one, other in zip(rounds[way][0]["hits"], exact, strict=True)
        ]
        yield way, {**got, "path": rounds[way][0]["path"], "agreement": statistics.mean(shared)}


def main(argv: Sequence[str]) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sizes", default="100000", help="numbers of memories, with commas")
    parser.add_argument("--at", help="a tally that is filled, whose user `many` has the memories")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given, _ = parser.parse_known_args(argv)
    if given.measure:
        print(json.dumps(measure(*given.measure)))
        return 0
    console = Console()
    for size in [0] if given.at else [int(size) for size in given.sizes.split(",")]:
        with _places("postgres") as place:
            where = given.at or place
            if not given.at:
                with _opened(where, "auto") as tally:
                    tally.bind(Actor(user="few")).remember_many(turns(10))
                    # One more than `large_scope`, so that the database is read.
                    fill(tally, Actor(user="many"), size + 1, seed=2)
                _analyzed(where)
            count, seconds = _filled(where)
            table = Table(
                *("way", "path", "cold s", "warm ms", "p95 ms", "MB", "remember ms"),
                "of the exact ten",
                title=f"{count:,} memories into the index in {seconds:.0f} s",
            )
            for way, got in compare(where):
                table.add_row(
                    way,
                    got["path"],
                    f"{got['cold']:.2f}",
                    *(f"{1_000 * got[name]:.0f}" for name in ("warm", "p95")),
                    f"{got['grown']:.0f}",
                    f"{1_000 * got['write']:.1f}",
                    f"{got['agreement']:.3f}",
                )
            console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
