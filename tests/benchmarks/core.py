"""What the core costs, beside what it is built on or stands in for; everything measured in one run.

    python tests/benchmarks/core.py [--quick]

Times depend on the machine and on what else it does: read the two columns of a line against each
other.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, trim_messages
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from rich.console import Console
from rich.table import Table

from tallystick import ContextItem, Tally
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_langgraph import TallySaver

WORDS: tuple[str, ...] = (
    "account",
    "amber",
    "anchor",
    "apple",
    "bridge",
    "budget",
    "canal",
    "candle",
    "carbon",
    "cedar",
    "coffee",
    "copper",
    "cotton",
    "desert",
    "editor",
    "engine",
    "falcon",
    "ferry",
    "garden",
    "glacier",
    "granite",
    "harbour",
    "heron",
    "index",
    "invoice",
    "island",
    "kernel",
    "ladder",
    "lantern",
    "ledger",
    "library",
    "linen",
    "maple",
    "marble",
    "meadow",
    "meeting",
    "mirror",
    "mortar",
    "needle",
    "notebook",
    "orchard",
    "parser",
    "pepper",
    "planet",
    "printer",
    "quartz",
    "railway",
    "reactor",
    "recipe",
    "ribbon",
    "river",
    "saddle",
    "schema",
    "server",
    "silver",
)
VOCABULARY = WORDS + tuple(first + second for first in WORDS for second in WORDS)
COMMON = tuple(itertools.accumulate(1 / (rank + 10) for rank in range(len(VOCABULARY))))
"""Some three thousand words, few of them frequent and most of them rare, as in any language."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    imports: int
    singles: int
    queries: int
    memories: tuple[int, ...]
    candidates: tuple[int, ...]
    compiles: int
    steps: int
    checkpoints: int


FULL = Sizes(7, 200, 100, (1_000, 10_000), (100, 1_000, 10_000), 7, 200, 200)
QUICK = Sizes(3, 50, 30, (1_000,), (100, 1_000), 5, 50, 50)


@dataclass(frozen=True)
class Line:
    """One measurement: milliseconds of ours, and of what stands beside it."""

    what: str
    ours: str
    beside: str
    beside_what: str


def main() -> None:
    """Measure and print one table."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--quick", action="store_true", help="smaller sizes and fewer repeats")
    sizes = QUICK if options.parse_args().quick else FULL
    console = Console()
    table = Table(title="Milliseconds; p50 unless the line says otherwise", title_justify="left")
    for heading in ("what", "tallystick", "beside", "which is"):
        table.add_column(
            heading, justify="right" if heading in {"tallystick", "beside"} else "left"
        )
    for section in (imports, opening, remembering, recalling, compiling, recording, checkpointing):
        with console.status(f"{section.__name__} …"):
            for line in section(sizes):
                table.add_row(line.what, line.ours, line.beside, line.beside_what)
        table.add_section()
    console.print(table)
    console.print(_machine())


def imports(sizes: Sizes) -> Iterator[Line]:
    """Fresh processes; the clock runs inside the child, around the import alone."""
    pydantic = statistics.median(
        _child_ms("from pydantic import BaseModel") for _ in range(sizes.imports)
    )
    for code in ("import tallystick", "from tallystick import Tally"):
        ours = statistics.median(_child_ms(code) for _ in range(sizes.imports))
        yield Line(
            f"{code}, median of {sizes.imports}",
            _ms(ours),
            _ms(pydantic),
            "from pydantic import BaseModel",
        )


def opening(sizes: Sizes) -> Iterator[Line]:
    """Fresh processes again: a tally that is made, and one that is there."""
    with tempfile.TemporaryDirectory() as folder:
        ours, raw = [], []
        for place in range(sizes.imports):
            before = f"from tallystick import Tally; where = {os.path.join(folder, str(place))!r}"
            ours.append(
                [_child_ms("Tally.open(where, background=False)", before=before) for _ in range(2)]
            )
            before = f"import sqlite3; where = {os.path.join(folder, f'{place}.db')!r}"
            code = (
                "sqlite3.connect(where).execute('CREATE TABLE IF NOT EXISTS memories (doc "
                "INTEGER PRIMARY KEY, text)')"
            )
            raw.append([_child_ms(code, before=before) for _ in range(2)])
    for what, mine, other in zip(
        ("made", "there already"), zip(*ours, strict=True), zip(*raw, strict=True), strict=True
    ):
        beside = "sqlite3: connect, and one table"
        yield Line(
            f"open a tally, {what}",
            _ms(statistics.median(mine)),
            _ms(statistics.median(other)),
            beside,
        )


def remembering(sizes: Sizes) -> Iterator[Line]:
    """One text in a transaction of its own, then a thousand in one."""
    texts = _texts(sizes.singles, seed=1)
    many = _texts(1_000, seed=2)
    with _bound() as (bound, folder), closing(_plain_table(folder)) as plain:
        bound.remember("The embedder is loaded and the scope is there.")
        ours = [_timed(partial(bound.remember, text)) for text in texts]
        raw = [_timed(partial(_insert, plain, [text])) for text in texts]
        yield Line(
            "remember one text",
            _p50(ours),
            _p50(raw),
            "sqlite3: plain table and FTS5, one transaction",
        )
        all_ours = _timed(partial(bound.remember_many, many))
        all_raw = _timed(partial(_insert, plain, many))
        yield Line(
            "remember_many of 1,000, once",
            _ms(all_ours),
            _ms(all_raw),
            "the same texts in one transaction",
        )


def recalling(sizes: Sizes) -> Iterator[Line]:
    """Ten hits for three words of some memory; vectors are searched exactly at these sizes."""
    for count in sizes.memories:
        texts = _texts(count, seed=3)
        with _bound() as (bound, folder), closing(_plain_table(folder)) as plain:
            for start in range(0, count, 1_000):
                bound.remember_many(texts[start : start + 1_000])
                _insert(plain, texts[start : start + 1_000])
            source = random.Random(4)
            queries = [
                " ".join(source.sample(source.choice(texts).split()[1:], 3))
                for _ in range(sizes.queries)
            ]
            assert bound.recall(queries[0])
            assert _search(plain, queries[0])
            ours = [_timed(partial(bound.recall, query)) for query in queries]
            raw = [_timed(partial(_search, plain, query)) for query in queries]
        what = f"recall among {count:,}, p50 / p95"
        yield Line(what, _p50_p95(ours), _p50_p95(raw), "FTS5 MATCH of the same words, by bm25")


def compiling(sizes: Sizes) -> Iterator[Line]:
    """A budget of 4,000 tokens; the first compile also counts tokens and embeds, later ones find
    them counted.
    """
    for count in sizes.candidates:
        texts = _texts(count - 1, seed=5)
        items = [
            *(
                ContextItem(id=f"doc-{place}", kind="retrieval_doc", content=text)
                for place, text in enumerate(texts)
            ),
            ContextItem(
                id="ask", kind="user_msg", content="Which harbour does the ferry leave on monday?"
            ),
        ]
        messages = [HumanMessage(text) for text in texts] + [HumanMessage(items[-1].content)]
        with _bound() as (bound, _):
            services_of(bound.tally).embedder.embed(["loaded before the clock runs"])
            compiling_once = partial(bound.compile, items, budget=4_000)
            first = _timed(compiling_once)
            ours = [_timed(compiling_once) for _ in range(sizes.compiles)]
        trimming = partial(trim_messages, messages, max_tokens=4_000, token_counter="approximate")
        raw = [_timed(trimming) for _ in range(sizes.compiles)]
        what = f"compile {count:,} candidates (first time {_ms(first)})"
        yield Line(what, _p50(ours), _p50(raw), f"trim_messages of {count:,}, approximate count")


def recording(sizes: Sizes) -> Iterator[Line]:
    """A request of 3 kB and a response of 1 kB, acknowledged after the commit."""
    source = random.Random(6)
    request, response = ({"text": _sentence(source, size)} for size in (3_000, 1_000))

    def plain() -> None:
        _ = {"request": request, "response": response}

    with _bound() as (bound, _), bound.run("bench") as run:

        def step() -> None:
            with run.step("model_call") as open_step:
                open_step.record("request", request)
                open_step.record("response", response)

        step()
        ours = [_timed(step) for _ in range(sizes.steps)]
    raw = [_timed(plain) for _ in range(sizes.steps)]
    yield Line(
        "one recorded model step, 4 kB", _p50(ours), _p50(raw), "the same call, nothing recorded"
    )


def checkpointing(sizes: Sizes) -> Iterator[Line]:
    """A thread of 50 messages whose last one changes with each put."""
    with _bound() as (bound, _):
        ours = _puts(TallySaver(bound), sizes.checkpoints)
    raw = _puts(InMemorySaver(), sizes.checkpoints)
    yield Line(
        "checkpoint put at 50 messages", _p50(ours), _p50(raw), "InMemorySaver, nothing on disk"
    )


def _puts(saver: BaseCheckpointSaver[Any], count: int) -> list[float]:
    source = random.Random(7)
    earlier = [
        (HumanMessage if place % 2 == 0 else AIMessage)(_sentence(source, 120))
        for place in range(49)
    ]
    config: RunnableConfig = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
    times = []
    for number in range(1, count + 2):
        versions: dict[str, str | int | float] = {"messages": f"{number:032}"}
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": [*earlier, AIMessage(_sentence(source, 120))]}
        checkpoint["channel_versions"] = versions
        began = time.perf_counter()
        config = saver.put(
            config, checkpoint, {"source": "loop", "step": number, "parents": {}}, versions
        )
        times.append((time.perf_counter() - began) * 1_000)
    return times[1:]


@contextmanager
def _bound() -> Iterator[tuple[BoundTally, Path]]:
    """A fresh tally with its defaults, without the background thread, and the folder it lives
    in.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tallystick-bench-") as folder,
        Tally.open(Path(folder) / "tally", background=False) as tally,
    ):
        yield tally.bind(), Path(folder)


def _plain_table(folder: Path) -> sqlite3.Connection:
    """A table with its FTS5 index, at the durability that a tally has by default."""
    connection = sqlite3.connect(folder / "plain.db", isolation_level=None)
    connection.executescript(
        "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
        "CREATE TABLE texts (id INTEGER PRIMARY KEY, body TEXT NOT NULL);"
        "CREATE VIRTUAL TABLE found USING fts5(body, content='texts', content_rowid='id', "
        "tokenize='porter unicode61');"
    )
    return connection


def _insert(connection: sqlite3.Connection, texts: Sequence[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for text in texts:
        row = connection.execute("INSERT INTO texts (body) VALUES (?)", (text,)).lastrowid
        connection.execute("INSERT INTO found (rowid, body) VALUES (?, ?)", (row, text))
    connection.execute("COMMIT")


def _search(connection: sqlite3.Connection, query: str) -> list[tuple[int, str]]:
    match = " OR ".join(f'"{word}"' for word in query.split())
    statement = (
        "SELECT texts.id, texts.body FROM found JOIN texts ON texts.id = found.rowid "
        "WHERE found MATCH ? ORDER BY bm25(found) LIMIT 10"
    )
    return connection.execute(statement, (match,)).fetchall()


def _texts(count: int, *, seed: int) -> list[str]:
    """Distinct statements of some twenty words."""
    source = random.Random(seed)
    return [f"{number} {_sentence(source, 130)}" for number in range(count)]


def _sentence(source: random.Random, size: int) -> str:
    words = source.choices(VOCABULARY, cum_weights=COMMON, k=size // 5)
    return " ".join(words)[:size]


def _child_ms(code: str, *, before: str = "") -> float:
    """How long `code` takes in a process of its own, after what came `before`."""
    clock = "import time\nbegan = time.perf_counter()"
    child = f"{before}\n{clock}\n{code}\nprint((time.perf_counter() - began) * 1000)"
    return float(
        subprocess.run(
            [sys.executable, "-c", child], capture_output=True, text=True, check=True
        ).stdout
    )


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


def _p50(times: Sequence[float]) -> str:
    return _ms(statistics.median(times))


def _p50_p95(times: Sequence[float]) -> str:
    return f"{_p50(times)} / {_ms(statistics.quantiles(times, n=20)[-1])}"


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return (
        f"{cores} cores{load}, {platform.python_implementation()} {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {platform.system()} {platform.machine()}"
    )


if __name__ == "__main__":
    main()
