"""What changing memory costs at 1,000, 10,000 and 100,000 memories, beside a bare SQLite update in
the same run.

Run it with `make bench-memory`. The bare update changes one row by its key and commits, under the
same settings (WAL, synchronous NORMAL), and once more with none of sqlite3's settings changed. "Its
rows alone" is sqlite3 writing the rows that such a change writes into a copy of the same database,
one commit each. With `--cpu` it counts the time of the processor, for a machine that other work
shares; waiting for the disk is then left out. The preview is that of forgetting 1,000 matches. The
share of policy is measured on recall.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from tests.benchmarks import rows

from tallystick import Actor, BoundTally, Tally
from tallystick.access import Gate

_BATCH = 1_000
_WORDS = (
    "heron",
    "reed",
    "lantern",
    "ferry",
    "ledger",
    "canal",
    "granite",
    "meadow",
    "printer",
    "saddle",
    "ribbon",
    "marble",
    "harbour",
    "kettle",
    "anchor",
    "cedar",
    "mirror",
    "needle",
    "pepper",
    "quartz",
)


_clock: Callable[[], float] = time.perf_counter


def _texts(count: int) -> list[str]:
    source = random.Random(5)
    return [f"number {place}: {' '.join(source.choices(_WORDS, k=12))}" for place in range(count)]


def _times(call: Callable[[int], Any], often: int) -> list[float]:
    found = []
    for place in range(often):
        began = _clock()
        call(place)
        found.append(1_000 * (_clock() - began))
    return sorted(found)


def _p(times: Sequence[float], share: float) -> float:
    return times[min(len(times) - 1, int(share * len(times)))]


def _bare(
    folder: Path, count: int, often: int, connect: Callable[[Path], sqlite3.Connection]
) -> list[float]:
    path = folder / "bare.db"
    connection = connect(path)
    connection.execute("CREATE TABLE notes (id TEXT PRIMARY KEY, body TEXT)")
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO notes VALUES (?, ?)", [(str(n), text) for n, text in enumerate(_texts(count))]
    )
    connection.execute("COMMIT")
    source = random.Random(6)

    def update(place: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "UPDATE notes SET body = ? WHERE id = ?",
            (f"changed {place}", str(source.randrange(count))),
        )
        connection.execute("COMMIT")

    found = _times(update, often)
    connection.close()
    path.unlink()
    return found


def _filled(tally: Tally, count: int) -> tuple[BoundTally, list[str]]:
    bound = tally.bind(Actor(user="ada", projects=frozenset({"apollo"})), scope="project:apollo")
    ids: list[str] = []
    texts = _texts(count)
    for start in range(0, count, _BATCH):
        ids += [one.id for one in bound.remember_many(texts[start : start + _BATCH])]
    return bound, ids


def _share_of_policy(bound: BoundTally, often: int) -> float:
    """The part of recall's time that is spent in decisions."""
    spent, inside = 0.0, False
    plain = {name: getattr(Gate, name) for name in ("require", "decide")}

    def timed(name: str) -> Callable[..., Any]:
        def call(self: Gate, *args: Any, **kwargs: Any) -> Any:
            nonlocal spent, inside
            outer, inside = inside, True
            began = time.perf_counter()
            try:
                return plain[name](self, *args, **kwargs)
            finally:
                inside = outer
                if not outer:
                    spent += time.perf_counter() - began

        return call

    for name in plain:
        setattr(Gate, name, timed(name))
    try:
        began = time.perf_counter()
        for place in range(often):
            bound.recall(f"{_WORDS[place % len(_WORDS)]} number {place}")
        return spent / (time.perf_counter() - began)
    finally:
        for name, method in plain.items():
            setattr(Gate, name, method)


def _changed(
    folder: Path,
    bound: BoundTally,
    name: str,
    change: Callable[[str, int], Any],
    ids: Sequence[str],
) -> list[tuple[str, list[float]]]:
    """Every second id changed as it is, the others noted and their rows written again by sqlite3
    alone.
    """
    ours = _times(lambda n: change(ids[2 * n], n), len(ids) // 2)
    operations: list[rows.Statements] = []
    copy = folder / "copy.db"
    rows.copied(bound.tally, copy)
    with rows.noted(operations) as begin:
        for place, memory_id in enumerate(ids[1::2]):
            begin()
            change(memory_id, place + len(ids))
    alone = sorted(rows.replayed(copy, operations, _clock))
    rows.same(bound.tally, copy)
    copy.unlink()
    return [(name, ours), ("  its rows alone", alone)]


def _measure(count: int, often: int) -> list[tuple[str, list[float]]]:
    with tempfile.TemporaryDirectory() as folder:
        bare = _bare(Path(folder), count, often, rows.bare)
        safe = _bare(Path(folder), count, often, partial(rows.bare, synchronous="FULL"))
        default = _bare(Path(folder), count, often, rows.as_it_comes)
        with Tally.open(Path(folder) / "tally", background=False) as tally:
            bound, ids = _filled(tally, count)
            chosen = random.Random(7).sample(ids, min(len(ids), 4 * often))
            first, second = chosen[: 2 * often], chosen[2 * often :] or chosen
            bound.recall("heron")
            found = [
                ("bare SQLite update", bare),
                ("same, synchronous=FULL", safe),
                ("same, sqlite3 as it comes", default),
            ]
            for name, change, changing in (
                (
                    "modify tags",
                    lambda one, n: bound.modify(one, tags=(f"t{n}",), reason="bench"),
                    first,
                ),
                (
                    "modify content",
                    lambda one, n: bound.modify(one, content=f"changed {n}", reason="bench"),
                    first,
                ),
                ("forget", lambda one, n: bound.forget(one, reason="bench"), second),
                ("recover", lambda one, n: bound.recover(one, reason="bench"), second),
            ):
                found += _changed(Path(folder), bound, name, change, changing)
            found.append(("history", _times(lambda n: bound.history(first[n]), often)))
            bound.recall("heron")
            found.append(
                (
                    "preview of 1,000",
                    _times(
                        lambda n: bound.corrections.forget_matching(
                            "number", reason="bench", threshold=0.0, limit=1_000
                        ),
                        5,
                    ),
                )
            )
            found.append(
                (
                    "preview of a correction",
                    _times(lambda n: bound.corrections.make(first[n], "hide", reason="b"), often),
                )
            )
            found.append(("policy, share of recall in %", [100 * _share_of_policy(bound, 50)]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--often", type=int, default=200)
    parser.add_argument(
        "--cpu", action="store_true", help="count the processor's time instead of the clock's"
    )
    chosen = parser.parse_args()
    if chosen.cpu:
        global _clock
        _clock = time.process_time
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        caption="milliseconds: median / p95 (times the bare p95)",
    )
    table.add_column("", no_wrap=True)
    found: dict[str, list[str]] = {}
    for size in chosen.sizes:
        table.add_column(f"{size:,}", justify="right", no_wrap=True)
        measured = _measure(size, min(chosen.often, size // 4))
        bare = _p(measured[0][1], 0.95)
        above = ""
        for line, times in measured:
            # The rows of a change stand below it.
            name = f"{line} ({above})" if line.startswith(" ") else line
            above = line
            cell = f"{times[0]:.1f}"
            if not name.endswith("%"):
                cell = (
                    f"{statistics.median(times):.2f} / {_p(times, 0.95):.2f} "
                    f"({_p(times, 0.95) / bare:.1f})"
                )
            found.setdefault(name, []).append(cell)
    for name, cells in found.items():
        table.add_row(name, *cells)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
