"""The time to the first byte of each page of the dashboard: `make bench-dashboard`.

The tally has 100,000 memories, and runs of 1,000 and 10,000 steps.

The server is made ready in the background, as `tally ui` does while the browser opens. Then each
page is asked for over HTTP: once as the first of its kind, then again and again. It exits with 1
where the first of a page, or the median of the others, is above the bar.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx2

from tallystick import Actor, Tally
from tallystick.records import ContextItem
from tallystick.tally import BoundTally
from tallystick_server import serve_in_background
from tallystick_server.dashboard import make_ready_in_background
from tallystick_server.guard import COOKIE

BAR = 100.0
"""Milliseconds to the first byte at most."""
_BATCH = 1_000
_OWNER = Actor(user="ada", role="operator")
_COMPILED_EACH = 10
"""One step in so many compiles a context."""
_WORDS = ("heron", "reed", "lantern", "ferry", "ledger", "canal", "granite", "meadow", "printer")


class Timed(NamedTuple):
    """The times to the first byte of a page, milliseconds."""

    page: str
    first: float
    median: float
    size: int
    """Bytes of the page."""


def main() -> int:
    """Fill a tally, time each page, print a table; return 1 above the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--memories", type=int, default=100_000)
    parser.add_argument("--steps", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--often", type=int, default=7)
    parser.add_argument("--tally", type=Path, help="a folder that is filled once and then kept")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = chosen.tally or Path(folder) / "tally"
        if not place.exists():
            _fill(place, chosen.memories, chosen.steps)
        print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n")
        print(f"{'page':44} {'first':>9} {'median':>9} {'kB':>7}")
        slow = 0
        for row in timed_pages(place, chosen.often):
            worse = max(row.first, row.median)
            above = "" if worse <= BAR else f"  above {BAR:.0f}"
            slow += worse > BAR
            print(
                f"{row.page:44} {row.first:7.1f}ms {row.median:7.1f}ms {row.size / 1e3:7.1f}{above}"
            )
    return 1 if slow else 0


def _fill(place: Path, memories: int, runs: list[int]) -> None:
    """Write a tally with memories in one scope, and a run of each number of steps."""
    with Tally.open(place, owner=_OWNER, background=False) as tally:
        bound = tally.bind(_OWNER)
        for start in range(0, memories, _BATCH):
            bound.remember_many(
                [
                    f"Note {n}: the {_WORDS[n % 9]} and the {_WORDS[n % 7]} of pond {n % 997}."
                    for n in range(start, min(start + _BATCH, memories))
                ]
            )
        bound.recall("heron")  # makes the segment, as the background of a tally in use has done
        for count in runs:
            _record(bound, count)
        for number in range(40):
            bound.run(f"agent {number % 3}", goal=f"Do thing {number}.").end()


def _record(bound: BoundTally, count: int) -> None:
    with bound.run(f"{count} steps", goal="Walk around the ponds.") as run:
        for number in range(count):
            if number % _COMPILED_EACH:
                run.step("tool_call", name=f"look at pond {number}").end(wait=False)
                continue
            with run.step("model_call", name=f"decide {number}") as step:
                if number < 20 * _COMPILED_EACH:
                    items = [
                        ContextItem(id=f"note{n}", kind="file", content=f"Pond {n} has herons.")
                        for n in range(200)
                    ]
                    asked = ContextItem(id="task", kind="user_msg", content="Which pond is next?")
                    bound.compile([asked, *items], budget=4_000)
                step.record(
                    "response",
                    {"answer": {"role": "assistant", "content": f"Pond {number}."}},
                    summary={
                        "model": "owl-1",
                        "usage": {"input_tokens": 1_000 + number, "output_tokens": 20},
                        "cost": {"amount": "0.0021", "currency": "USD"},
                    },
                )


def timed_pages(place: Path, often: int) -> Iterator[Timed]:
    """Serve a tally and yield the times of its pages."""
    with (
        Tally.open(place, owner=_OWNER, background=False) as tally,
        serve_in_background(tally, port=0) as (base,),
        httpx2.Client(base_url=base, trust_env=False, timeout=120) as http,
    ):
        bound = tally.bind(_OWNER)
        made = bound.tokens.make("bench", token_class="session")
        headers = {"cookie": f"{COOKIE}={made.secret}", "sec-fetch-site": "same-origin"}
        began = time.perf_counter()
        make_ready_in_background(bound).join()
        print(
            f"{'(made ready in the background)':44} {1_000 * (time.perf_counter() - began):7.1f}ms"
        )
        for path in _pages(bound):
            times, size = [], 0
            for _ in range(often + 1):
                began = time.perf_counter()
                with http.stream("GET", f"/ui{path}", headers=headers) as response:
                    chunks = response.iter_bytes()
                    size = len(next(chunks))
                    times.append(1_000 * (time.perf_counter() - began))
                    size += sum(map(len, chunks))
                    assert response.status_code == 200, path
            yield Timed(_name(path), times[0], statistics.median(times[1:]), size)


def _name(path: str) -> str:
    parts = [part[-8:] if len(part) > 30 else part for part in path.split("/")]
    return "/".join(parts)[:44]


def _pages(bound: BoundTally) -> list[str]:
    """Return the addresses of the pages, which are looked for in a tally of `_fill`."""
    memory = bound.memories(limit=1)[0]
    [source] = bound.inspect(memory.id).sources
    pages = [
        "/overview",
        "/reads",
        "/diary",
        "/reviews",
        "/memory",
        "/memory?state=hidden",
        "/memory?q=heron of pond 12",
        f"/memories/{memory.id}",
        f"/memories/{memory.id}/hide",
        f"/sources/{source}",
        "/spaces",
        "/spaces?user=ada",
        "/export",
        "/approvals",
        "/policy",
        "/health",
        "/runs",
        "/runs?q=pond",
    ]
    runs = [run for run in bound.recordings.runs(limit=100) if run.agent_name.endswith(" steps")]
    for run in runs:
        steps = bound.recordings.steps(run.run_id, limit=200)
        step = next(step for step in steps if step.step_kind == "model_call")
        pages += [
            f"/runs/{run.run_id}",
            f"/runs/{run.run_id}?after=800",
            f"/runs/{run.run_id}/totals",
            f"/runs/{run.run_id}/conversation",
            f"/steps/{step.step_id}",
            f"/steps/{step.step_id}/items/6",
            f"/steps/{step.step_id}/replay",
        ]
    return pages


if __name__ == "__main__":
    sys.exit(main())
