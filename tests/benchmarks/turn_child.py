"""The figures of one arm of `turn.py`, in a process of its own: times, and in a second pass counts,
which are taken at borders that every release has. Printed as JSON.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import signal
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.benchmarks.resident import resident
from tests.benchmarks.turn_arms import (
    ANSWERED,
    ASKED,
    CALL,
    RUNTIMES,
    TURNS,
    Arm,
    Marks,
    history_of,
    said,
)


class Counts:
    """What a tally does in a turn, counted at its own borders. Works on any release."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()
        self.words: Counter[int] = Counter()
        self.redactions: Counter[int] = Counter()
        self._count()

    def _count(self) -> None:
        from tallystick.embedding.guard import GuardedEmbedder
        from tallystick.policy import redaction
        from tallystick.ranking import words
        from tallystick.storage.engine import database, group_commit

        self._around(database.Database, "read", "reads")
        self._around(group_commit, "_commit", "commits")
        recall = import_module("tallystick.memory.recall")
        self._around(recall, "_recall", "recalls")
        self._around(GuardedEmbedder, "_embed_checked", "embeddings")
        self._texts(words, "_tokens", self.words)
        self._texts(words, "_surfaces", self.words)
        # An earlier release had the gate elsewhere.
        gate = getattr(redaction, "_Gate", None) or import_module("tallystick.policy.gates").Gate
        self._texts(gate, "opens", self.redactions, place=1)

    def _around(self, owner: Any, name: str, counted: str) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.of[counted] += 1
            return inner(*args, **kwargs)

        setattr(owner, name, call)

    def _texts(self, owner: Any, name: str, counted: Counter[int], place: int = 0) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args[place]) >= 100:
                counted[hash(args[place])] += 1
            return inner(*args, **kwargs)

        setattr(owner, name, call)

    def take(self) -> dict[str, float]:
        """Return the counts since the last time: `analyses` is how often a text of a sentence and
        more is split into words, `redactions` how often it is looked at for secrets.
        """
        found: dict[str, float] = {**self.of}
        for name, counted in (("analyses", self.words), ("redactions", self.redactions)):
            found[name] = sum(counted.values()) / len(counted) if counted else 0
            counted.clear()
        self.of.clear()
        return found


# A measurement


def _folder_bytes(folder: Path) -> int:
    for file in folder.rglob("*.db"):
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _pieces() -> dict[str, int]:
    """Return the microseconds of each piece of a turn, as the tally has counted them; none of a
    release that does not count.
    """
    try:
        costs = import_module("tallystick.costs")
    except ImportError:
        return {}
    return {piece: cost.cpu_us for piece, cost in costs.totals().items()}


def _sessions(arm: Arm, sessions: int, turns: int, prefix: str) -> Iterator[tuple[str, str, str]]:
    for number in range(sessions):
        session = f"{prefix}-{number}"
        arm.prime(session, history_of(session))
        arm.flush()
        for place in range(turns):
            seed = f"{session} turn {place}"
            yield session, said(seed, ASKED), said(f"answer to {seed}", ANSWERED)


def _carry_out(arm: Arm, session: str, asked: str, answered: str) -> Marks:
    CALL.set((asked, answered))
    marks = Marks()
    Marks.current.set(marks)
    arm.turn(session, asked, answered)
    return marks


def measure(arm: Arm, folder: Path, sessions: int, counts: Counts | None) -> dict[str, Any]:
    """Return the medians of one arm over the turns of some sessions, after one to warm up."""
    # Texts of another pass in this process would be known already.
    prefix = "timed" if counts is None else "counted"
    for turn in _sessions(arm, 1, 2, f"{prefix}-warm"):
        _carry_out(arm, *turn)
    arm.flush()
    if counts is not None:
        counts.take()
    began_with, rss = _folder_bytes(folder), resident()
    rows: list[dict[str, float]] = []
    counted: list[dict[str, float]] = []
    gc.collect()
    pieces = _pieces()
    for turn in _sessions(arm, sessions, TURNS, prefix):
        if counts is not None:
            counts.take()
        began = time.process_time()
        spent = _carry_out(arm, *turn).spent()
        arm.flush()
        row = {
            f"{name} {kind}": spent[name][place]
            for name in spent
            for place, kind in enumerate(("cpu", "wall"))
        }
        rows.append({**row, "cpu": time.process_time() - began})
        if counts is not None:
            counted.append(counts.take())
    figures = {name: 1_000 * statistics.median(row[name] for row in rows) for name in rows[0]}
    for name in {name for row in counted for name in row}:
        figures[f"{name} a turn"] = statistics.mean(row.get(name, 0) for row in counted)
    for piece, cost in _pieces().items():
        figures[f"piece {piece}"] = (cost - pieces.get(piece, 0)) / 1_000 / len(rows)
    figures["resident MB per 1,000"] = 1_000 * (resident() - rss) / len(rows)
    arm.close()
    figures["bytes a turn"] = (_folder_bytes(folder) - began_with) / len(rows)
    return figures


def at_once(arm: Arm, users: int) -> dict[str, float]:
    """Return the CPU of a turn, and the median wall time of one, where so many come together."""
    turns = list(_sessions(arm, users, 1, "together"))
    for turn in _sessions(arm, 1, 1, "warm"):
        _carry_out(arm, *turn)

    def one(turn: tuple[str, str, str]) -> float:
        began = time.perf_counter()
        _carry_out(arm, *turn)
        return time.perf_counter() - began

    began = time.process_time()
    with ThreadPoolExecutor(users) as pool:
        times = list(pool.map(one, turns))
    arm.flush()
    cpu = (time.process_time() - began) / users
    arm.close()
    return {"cpu": 1_000 * cpu, "wall": 1_000 * statistics.median(times)}


def main() -> None:
    """Measure one arm; print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=list(RUNTIMES))
    parser.add_argument("way", choices=("bare", "tallystick", "assembled"))
    parser.add_argument("--memories", type=int, default=0)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--users", type=int, default=0, help="turns at once, instead")
    parser.add_argument("--profile", help="write the profile of the turns to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        # Counting costs time of its own: it is done in a second pass.
        arm = RUNTIMES[given.runtime](folder / "timed", given.memories, given.way)
        if given.users:
            print(json.dumps(at_once(arm, given.users)))
        elif given.profile:
            _profile(arm, given.sessions, given.profile)
        else:
            figures = measure(arm, folder / "timed", given.sessions, None)
            if given.way == "tallystick":
                counts = Counts()
                again = RUNTIMES[given.runtime](folder / "counted", given.memories, given.way)
                counted = measure(again, folder / "counted", 2, counts)
                figures |= {name: value for name, value in counted.items() if "a turn" in name}
            print(json.dumps(figures))
        sys.stdout.flush()
        os._exit(0)


_IDLE = {"wait", "_worker", "select", "get", "_wait_for_tstate_lock", "run_forever", "take"}


def _profile(arm: Arm, sessions: int, path: str) -> None:
    """Write where the processor is while turns are carried out, as a list of functions with the
    share of the samples that each is under way in.
    """
    shares: Counter[str] = Counter()
    samples = 0

    def sample(_: int, frame: Any) -> None:
        nonlocal samples
        samples += 1
        names = set()
        if frame is not None and frame.f_code.co_name == "wait":
            # Another thread works meanwhile.
            others = [
                other
                for number, other in sys._current_frames().items()
                if number != threading.get_ident() and other.f_code.co_name not in _IDLE
            ]
            frame = others[0] if others else frame
            names.add("another thread")
        while frame is not None:
            code = frame.f_code
            names.add(f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}")
            frame = frame.f_back
        shares.update(names)

    signal.signal(signal.SIGPROF, sample)
    for place, turn in enumerate(_sessions(arm, sessions, TURNS, "session")):
        if place >= TURNS:
            signal.setitimer(signal.ITIMER_PROF, 0.001, 0.001)
        _carry_out(arm, *turn)
        signal.setitimer(signal.ITIMER_PROF, 0)
    rows = [f"{100 * count / samples:6.2f} {name}" for name, count in shares.most_common()]
    Path(path).write_text("\n".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
