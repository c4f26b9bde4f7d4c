"""What a call through a surface costs beside the same call in Python: `make bench-surfaces`.

One function for each surface returns its rows. Overheads are differences of medians of calls that
alternate, so that a busy machine slows both alike; memory is the resident set of an idle server, of
one that has answered, and of a process that has loaded nothing but the libraries of the surface.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mcp import Client, StdioServerParameters
from tests.benchmarks.resident import resident

from tallystick.tally import BoundTally, Tally
from tallystick_hooks.handling import handle
from tallystick_mcp import serve
from tallystick_server import RemoteTally

_MEMORIES = 1_000
_RUN = "from tallystick_cli import main; main()"
_RULES = """
[[rules]]
id = "no-force"
name = "Nothing is pushed by force"
effect = "deny"
applies_to = "tool_call"
conditions = { tool = ["force_push"] }
"""


class Row(NamedTuple):
    """One figure, with its bar where the project has set one."""

    surface: str
    what: str
    value: float
    unit: str
    bar: float | None = None


def main() -> None:
    """Measure the surfaces that are named, by default all, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("surfaces", nargs="*", metavar="|".join(SURFACES))
    parser.add_argument("--calls", type=int, default=200)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load:.1f}\n")
    for name in chosen.surfaces or SURFACES:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "tally"
            with Tally.open(place, background=False) as tally:
                tally.bind().remember_many(
                    [f"Note {n}: the staging server {n % 7} is heron." for n in range(_MEMORIES)]
                )
                tally.drain()  # so that an idle server has nothing to do
            for row in SURFACES[name](place, chosen.calls):
                bar = "" if row.bar is None else f" (bar {row.bar:g})"
                print(f"{row.surface:12} {row.what:44} {row.value:9.2f} {row.unit}{bar}")


# MCP


def mcp_rows(place: Path, calls: int) -> list[Row]:
    """Measure MCP: overhead in memory and over standard input, and the memory of an idle server."""
    return asyncio.run(_mcp_rows(place, calls))


async def _mcp_rows(place: Path, calls: int) -> list[Row]:
    rows: list[Row] = []
    with Tally.open(place, background=False) as tally:
        bound = tally.bind().on("mcp")
        for era, mode in (("modern", "auto"), ("legacy", "legacy")):
            async with Client(serve(tally), mode=mode) as client:
                for what, direct, over in _pairs(bound, client):
                    overhead = await _overhead(direct, over, calls)
                    rows.append(
                        Row("mcp", f"{what}, {era}, in memory: overhead", overhead, "ms", 5)
                    )
        tally.drain()  # so that the server has nothing to index beside its answers
        arguments = ["-c", _RUN, "mcp", "--tally", str(place)]
        async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
            for what, direct, over in _pairs(bound, client):
                overhead = await _overhead(direct, over, calls)
                rows.append(Row("mcp", f"{what}, over standard input: overhead", overhead, "ms", 5))
    return [*rows, *_memory_over_stdio(arguments)]


_Direct = Callable[[int], Any]
_Over = Callable[[int], Awaitable[Any]]


def _pairs(bound: BoundTally, client: Client) -> list[tuple[str, _Direct, _Over]]:
    return [
        (
            "search",
            lambda n: bound.recall(f"staging server {n}", limit=5),
            lambda n: client.call_tool("search", {"query": f"staging server {n}"}),
        ),
        (
            "add",
            lambda n: bound.remember(f"A new note in Python, {n} {time.monotonic_ns()}."),
            lambda n: client.call_tool(
                "add", {"content": f"A new note {n} {time.monotonic_ns()}."}
            ),
        ),
    ]


def _new_text(number: int) -> str:
    return f"A new note, {number} at {time.monotonic_ns()}."


async def _overhead(direct: _Direct, over: _Over, calls: int) -> float:
    """Return the difference of the medians of alternating calls, milliseconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(calls + 10):
        started = time.perf_counter()
        await asyncio.to_thread(direct, number)
        between = time.perf_counter()
        result = await over(number)
        ended = time.perf_counter()
        assert not result.is_error
        if number >= 10:  # the first calls read what the later ones have
            times[0].append(between - started)
            times[1].append(ended - between)
    return 1_000 * (statistics.median(times[1]) - statistics.median(times[0]))


def _memory_over_stdio(command: list[str]) -> list[Row]:
    """Measure a server that has answered hello and its lists, then a call, then a search."""
    libraries = "import mcp.server.stdio, pydantic, sqlalchemy"
    rows = [Row("mcp", "the libraries alone, resident", _resident_after(libraries), "MB")]
    process = subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    _ask(process, "initialize", hello)
    _tell(process, {"method": "notifications/initialized"})
    for listed in ("tools", "prompts", "resources", "resources/templates"):
        _ask(process, f"{listed}/list", {})
    time.sleep(1)
    rows.append(Row("mcp", "idle server, resident", resident(process.pid), "MB", 90))
    for what, tool, arguments in (
        ("after a first call, resident", "explore", {"mode": "scopes"}),
        ("after a search, resident", "search", {"query": "staging server"}),
    ):
        result = _ask(process, "tools/call", {"name": tool, "arguments": arguments})
        assert not result.get("isError"), result
        time.sleep(1)
        rows.append(Row("mcp", what, resident(process.pid), "MB"))
    process.communicate(timeout=60)
    return rows


def _ask(process: subprocess.Popen[bytes], method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return the result of one request to a server over standard input."""
    _tell(process, {"id": 1, "method": method, "params": params})
    assert process.stdout is not None
    for line in process.stdout:
        message = json.loads(line)
        if message.get("id") == 1:
            result: dict[str, Any] = message["result"]
            return result
    raise EOFError(f"The server ended before it answered {method}.")


def _tell(process: subprocess.Popen[bytes], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


# HTTP


def http_rows(place: Path, calls: int) -> list[Row]:
    """Measure HTTP on a Unix socket: the memory of a server that is idle and of one that has
    answered, what the first request for a route of `/v1` takes, and the overhead over the same call
    in Python.
    """
    command = [sys.executable, "-c", _RUN, "serve", "--tally", str(place), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    while not (place / "serve.sock").exists():
        time.sleep(0.05)
    time.sleep(1)
    libraries = "import fastapi, uvicorn, pydantic, sqlalchemy"
    idle = resident(process.pid)
    rows = [
        Row("http", "the libraries alone, resident", _resident_after(libraries), "MB"),
        Row("http", "idle server, resident", idle, "MB", 90),
    ]
    with (
        Tally.open(place, background=False) as tally,
        RemoteTally.connect(f"unix:{place / 'serve.sock'}") as remote,
    ):
        bound = tally.bind()
        first, second = _time_of(remote.whoami), _time_of(remote.whoami)
        rows.append(Row("http", "first request for a route: more", first - second, "ms"))
        rows.append(Row("http", "its routes, resident", resident(process.pid) - idle, "MB"))
        pairs: list[tuple[str, _Direct, _Direct]] = [
            ("nothing but who calls", lambda n: bound.actor, lambda n: remote.whoami()),
            (
                "recall",
                lambda n: bound.recall(f"staging server {n}", limit=5),
                lambda n: remote.recall(f"staging server {n}", limit=5),
            ),
            (
                "remember, with a key",
                lambda n: bound.remember(_new_text(n), idempotency_key=_new_text(n)),
                lambda n: remote.remember(_new_text(n)),
            ),
        ]
        for what, direct, over in pairs:
            difference = _difference(direct, over, calls)
            rows.append(Row("http", f"{what}, on the socket: overhead", difference, "ms", 3))
        what = f"after {calls + 10} recalls and remembers, resident"
        rows.append(Row("http", what, resident(process.pid), "MB"))
    process.terminate()
    process.communicate(timeout=60)
    return rows


def _difference(direct: _Direct, over: _Direct, calls: int) -> float:
    """Return the difference of the medians of alternating calls, milliseconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(calls + 10):
        started = time.perf_counter()
        direct(number)
        between = time.perf_counter()
        over(number)
        ended = time.perf_counter()
        if number >= 10:  # the first calls read what the later ones have
            times[0].append(between - started)
            times[1].append(ended - between)
    return 1_000 * (statistics.median(times[1]) - statistics.median(times[0]))


def _time_of(call: Callable[[], Any]) -> float:
    """Return the time of one call, milliseconds."""
    started = time.perf_counter()
    call()
    return 1_000 * (time.perf_counter() - started)


def _resident_after(statement: str) -> float:
    """Return the resident set of a Python process that has run one statement, megabytes."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{statement}; print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    size = resident(process.pid)
    process.communicate(b"\n", timeout=60)
    return size


# Hooks


def hook_rows(place: Path, calls: int) -> list[Row]:
    """Measure hooks: answered in a process that is warm, and as a process of their own."""
    prompt = {"session": "s1", "prompt": "What is the staging server 3 called?"}
    tool = {"session": "s1", "tool": "ls", "arguments": {"path": "."}, "result": "a b"}
    rows = []
    with Tally.open(place, background=False) as tally:
        bound = tally.bind()
        for event, payload in (("prompt", prompt), ("after-tool", tool), ("session-start", prompt)):
            times = []
            for _ in range(max(calls // 2, 20)):
                started = time.perf_counter()
                handle(bound, event, payload)
                times.append(1_000 * (time.perf_counter() - started))
            rows.append(Row("hook", f"{event}, warm: p95", _p95(times), "ms"))

    def process(event: str, bar: float) -> _Process:
        payload = json.dumps(tool if event.endswith("-tool") else prompt).encode()
        return _Process(event, bar, ["hook", event, "--tally", str(place)], payload)

    bare = _cpu(["-c", "pass"])
    rows.append(Row("hook", "python -c pass: processor", bare, "s"))
    rules = place.parent / "rules.toml"
    rules.write_text(_RULES)
    ruled = process("before-tool", 0.7)
    alone = [
        process("prompt", 0.7),
        ruled._replace(
            what="before-tool with rules", arguments=[*ruled.arguments, "--rules", str(rules)]
        ),
        process("before-tool", 0.15),
        process("after-tool", 0.15),
    ]
    rows += _processor_rows("hook", bare, *alone)
    server = subprocess.Popen(
        [sys.executable, "-c", _RUN, "serve", "--tally", str(place), "--json"],
        stdout=subprocess.PIPE,
    )
    while not (place / "serve.sock").exists():
        time.sleep(0.05)
    time.sleep(1)
    beside = [process(event, 0.1) for event in ("prompt", "before-tool", "after-tool")]
    rows += _processor_rows(
        "hook", bare, *(each._replace(what=f"{each.what} beside a server") for each in beside)
    )
    server.terminate()
    server.communicate(timeout=60)
    return rows


def round_trip_rows(place: Path, calls: int) -> list[Row]:
    """Measure what an agent waits for: a hook, by itself and beside a server, and a call of a tool
    over standard input, beside the start of a plain process in the same run. They take turns.
    """
    return asyncio.run(_round_trip_rows(place, calls))


async def _round_trip_rows(place: Path, calls: int) -> list[Row]:
    prompt = {"session": "s1", "prompt": "What is the staging server 3 called?"}
    tool = {"session": "s1", "tool": "ls", "arguments": {"path": "."}, "result": "a b"}
    plain, mark = "python -c pass", "beside a server"
    times: dict[str, list[float]] = defaultdict(list)

    async def take(what: str, *arguments: str, payload: dict[str, Any] | None = None) -> None:
        text = json.dumps(payload or {}).encode()
        command = [sys.executable, "-c", *arguments]
        started = time.perf_counter()
        await asyncio.to_thread(
            subprocess.run, command, input=text, stdout=subprocess.DEVNULL, check=True
        )
        times[what].append(1_000 * (time.perf_counter() - started))

    async def take_hooks(place: Path, end: str) -> None:
        for event, payload in (("prompt", prompt), ("before-tool", tool), ("after-tool", tool)):
            line = ("hook", event, "--tally", str(place), "--via", "user-plugin")
            await take(f"hook {event}{end}", _RUN, *line, payload=payload)

    alone = place.with_name("alone")
    with Tally.open(alone, background=False) as tally:
        tally.bind().remember_many([f"Note {n}: the server is heron." for n in range(_MEMORIES)])
    server = subprocess.Popen(
        [sys.executable, "-c", _RUN, "serve", "--tally", str(place), "--json"],
        stdout=subprocess.PIPE,
    )
    while not (place / "serve.sock").exists():
        await asyncio.sleep(0.05)
    arguments = ["-c", _RUN, "mcp", "--tally", str(alone)]
    async with Client(StdioServerParameters(command=sys.executable, args=arguments)) as client:
        for number in range(max(calls // 4, 20) + 1):
            if number == 1:
                times.clear()  # the first calls read what the later ones have
            await take(plain, "pass")
            await take_hooks(place, f" {mark}")
            await take_hooks(alone, "")
            started = time.perf_counter()
            found = await client.call_tool("search", {"query": f"staging server {number}"})
            times["tool search"].append(1_000 * (time.perf_counter() - started))
            assert not found.is_error
    server.terminate()
    server.communicate(timeout=60)
    return [
        Row("round-trip", f"{what}: {name}", value(each), "ms")
        for what, each in times.items()
        for name, value in (("median", statistics.median), ("p95", _p95))
    ]


def _p95(times: list[float]) -> float:
    return sorted(times)[int(0.95 * (len(times) - 1))]


# Commands


def command_rows(place: Path, calls: int) -> list[Row]:
    """Measure what a command takes of the processor, and how often `python -c pass` would do."""
    bare, recall = _cpu(["-c", "pass"]), ["recall", "staging server 3", "--tally", str(place)]
    return [
        Row("command", "python -c pass: processor", bare, "s"),
        *_processor_rows(
            "command",
            bare,
            _Process("tally --version", 0.25, ["--version"]),
            _Process("tally memories", 0.6, ["memories", "--tally", str(place)]),
            _Process("tally recall", 0.6, recall),
        ),
    ]


class _Process(NamedTuple):
    """A command, with its bar in seconds of the processor."""

    what: str
    bar: float
    arguments: list[str]
    text: bytes = b""
    """Its standard input."""


def _processor_rows(surface: str, bare: float, *processes: _Process) -> Iterator[Row]:
    """Yield what processes take of the processor, in seconds and in times of `python -c pass`."""
    for what, bar, arguments, text in processes:
        took = _cpu(["-c", _RUN, *arguments], text)
        yield Row(surface, f"{what}: processor", took, "s", bar)
        yield Row(surface, f"{what}: of python -c pass", took / bare, "times")


def _cpu(arguments: list[str], text: bytes = b"") -> float:
    """Return the time of the processor that a process of Python takes, seconds; the least of
    five.
    """

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    took = []
    for _ in range(5):
        before = spent()
        command = [sys.executable, *arguments]
        subprocess.run(command, input=text, stdout=subprocess.DEVNULL, check=True)
        took.append(spent() - before)
    return min(took)


SURFACES: dict[str, Callable[[Path, int], list[Row]]] = {
    "http": http_rows,
    "mcp": mcp_rows,
    "hook": hook_rows,
    "round-trip": round_trip_rows,
    "command": command_rows,
}
"""By name."""

if __name__ == "__main__":
    main()
