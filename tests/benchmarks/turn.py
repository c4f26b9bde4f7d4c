"""What one turn of an agent costs in each runtime, beside the runtime bare and beside what a user
would assemble instead: a saver on SQLite, a tracer, and a vector store with the same embedder.

Run it with `make bench-turn`. Each arm runs in a process of its own, the arms of a line one after
another and again for each round; a figure is the median of the turns, the least of the rounds. CPU
is that of all threads of the process with what is still waiting at the end of the turn done;
`before` is what the user waits for until the first model call, `after` what follows the last one.
`--beside FOLDER` runs the same turns on another checkout as well, such as that of an earlier
commit, so that each bar is a ratio within one run. Counts are taken in a pass of their own, at
borders that every release has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from tests.benchmarks.recorder import sink_server
from tests.benchmarks.turn_arms import RUNTIMES, SINK

Figures = dict[str, float]
_HERE = Path(__file__).resolve().parents[2]
_ROOTS = ("core", "checkpointers", "callbacks", "integrations")
_COUNTS = ("recalls", "embeddings", "analyses", "redactions", "reads", "commits")
PIECES = ("recall", "compile", "record", "checkpoint", "capture", "remember", "policy")
_TEXT = 300 + 600 + 2_000
"""Characters that a turn adds: the message, the answer, and the result of the tool."""


def _figures(
    checkout: Path, runtime: str, way: str, memories: int, options: Sequence[str], sink: str
) -> Figures:
    # The product of the checkout, and these turns.
    roots = os.pathsep.join(map(str, [*(checkout / root for root in _ROOTS), _HERE]))
    inherited = os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{roots}{os.pathsep}{inherited}",
        SINK: sink,
        "LANGSMITH_TRACING": "false",
    }
    command = [sys.executable, "-m", "tests.benchmarks.turn_child", runtime, way]
    done = subprocess.run(
        [*command, "--memories", str(memories), *options],
        capture_output=True,
        text=True,
        env=environment,
        cwd=_HERE,
    )
    if done.returncode:
        raise SystemExit(f"{runtime}, {way}: {done.stderr[-2_000:]}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def _least(rounds: Sequence[Figures]) -> Figures:
    # Other work on the machine only adds to a figure.
    names = {name for figures in rounds for name in figures}
    return {name: min(figures.get(name, 0.0) for figures in rounds) for name in names}


def measured(
    runtime: str, memories: int, given: argparse.Namespace, sink: str, users: int = 0
) -> dict[str, Figures]:
    """Return the figures of each arm of a line."""
    arms = {"bare": (_HERE, "bare"), "tallystick": (_HERE, "tallystick")}
    if given.beside:
        arms["beside"] = (Path(given.beside).resolve(), "tallystick")
    if runtime != "http" and not given.alone:
        arms["assembled"] = (_HERE, "assembled")
    options = ["--sessions", str(given.sessions), *(["--users", str(users)] if users else [])]
    found: dict[str, list[Figures]] = {}
    for _ in range(given.rounds):
        for arm, (checkout, way) in arms.items():
            figures = _figures(checkout, runtime, way, memories, options, sink)
            found.setdefault(arm, []).append(figures)
    return {arm: _least(rounds) for arm, rounds in found.items()}


def _table(console: Console, title: str, columns: Sequence[str], rows: Sequence[Any]) -> None:
    table = Table(title=title, title_justify="left", box=box.MARKDOWN)
    for name in columns:
        table.add_column(name, justify="left" if name in ("", "arm") else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _ratio(of: Figures, to: Figures | None, *names: str) -> str:
    if to is None:
        return ""
    return f"{sum(of[name] for name in names) / max(sum(to[name] for name in names), 0.001):.2f}"


def _line(runtime: str, found: dict[str, Figures]) -> list[list[str]]:
    rows = []
    for arm, figures in found.items():
        counts = [f"{figures.get(f'{name} a turn', 0):.1f}" for name in _COUNTS]
        rows.append(
            [
                runtime if arm == "bare" else "",
                arm,
                f"{figures['cpu']:.1f}",
                f"{figures['before cpu']:.1f}",
                f"{figures['after cpu']:.1f}",
                f"{figures['before wall']:.1f}",
                f"{figures['after wall']:.1f}",
                f"{figures['bytes a turn'] / _TEXT:.1f}" if figures["bytes a turn"] else "",
                *(counts if f"{_COUNTS[0]} a turn" in figures else [""] * len(counts)),
            ]
        )
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", default="0,10000", help="sizes, separated by commas")
    parser.add_argument("--only", default=",".join(RUNTIMES), help="runtimes")
    parser.add_argument("--beside", help="another checkout, to be measured in the same run")
    parser.add_argument("--alone", action="store_true", help="without what would be assembled")
    parser.add_argument("--sessions", type=int, default=6, help="of five turns each")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each arm")
    parser.add_argument("--users", type=int, default=50, help="turns at once; 0 leaves them out")
    given = parser.parse_args()
    console = Console(width=160)
    columns = ["", "arm", "CPU ms", "before", "after", "before wall", "after wall", "disk × text"]
    with sink_server() as sink:
        for memories in map(int, given.memories.split(",")):
            rows, bars = [], []
            pieces: tuple[list[str], list[list[str]]] = (["", *PIECES], [])
            for runtime in given.only.split(","):
                found = measured(runtime, memories, given, sink)
                rows += _line(runtime, found)
                taken = found["tallystick"]
                pieces[1].append(
                    [runtime, *(f"{taken.get(f'piece {piece}', 0):.1f}" for piece in PIECES)]
                )
                ours, beside = found["tallystick"], found.get("beside")
                bars.append(
                    [
                        runtime,
                        _ratio(ours, beside, "cpu"),
                        _ratio(ours, beside, "before cpu"),
                        _ratio(ours, found.get("assembled"), "cpu"),
                        f"{ours['resident MB per 1,000']:.0f}",
                    ]
                )
            title = f"A turn at {memories:,} memories"
            _table(console, title, [*columns, *_COUNTS], rows)
            names = ["", "CPU / beside", "before / beside", "CPU / assembled", "MB per 1,000"]
            _table(console, "Ratios", names, bars)
            _table(console, "Pieces of a turn, CPU ms by the tally's own counters", *pieces)
        if given.users:
            rows = []
            for runtime in given.only.split(","):
                for arm, figures in measured(runtime, 0, given, sink, given.users).items():
                    rows.append(
                        [
                            runtime if arm == "bare" else "",
                            arm,
                            f"{figures['cpu']:.1f}",
                            f"{figures['wall']:.0f}",
                        ]
                    )
            title = f"{given.users} turns at once"
            _table(console, title, ["", "arm", "CPU ms a turn", "wall ms, median"], rows)


if __name__ == "__main__":
    main()
