"""What recording costs an agent beside no callbacks, LangChain's own tracer and, where installed,
OpenInference.

Run it with `make bench-recorder`. The agent is LangChain's `create_agent` with a scripted model:
four model calls and three tool calls on a prompt of 4 kB and one of 80 kB. Each arm runs in a
process of its own, where it takes turns with no callbacks at all; what counts is the median of how
much more a turn takes than the one before it. CPU is that of all threads of the process, with what
is still waiting at the end of the turn written; nothing leaves the machine: LangChain's tracer
posts to a server on the loopback that answers and forgets, in another process. Then one agent's
chat grows, and a run of many steps is listed, shown, compared and verified.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from tests.benchmarks.recorder_sdk import print_tables

from tallystick.tally.services import services_of

_WORDS = (
    "ledger",
    "refund",
    "account",
    "policy",
    "shipment",
    "invoice",
    "region",
    "quarter",
    "margin",
    "customer",
)
_SIZES = {"4 kB": (9, 400), "80 kB": (81, 1_000)}
"""Messages before the last, and characters of each."""
_PLAN = ("search", "read", "add")
_CALLS = 1 + 2 * len(_PLAN)
_SINK = "BENCH_RECORDER_SINK"
_WARM = 3
"""Turns before those that count."""


def _text(seed: int, size: int) -> str:
    words = (_WORDS[(7 * place + seed) % len(_WORDS)] for place in range(size))
    return " ".join(words)[:size]


def _prompt(count: int, size: int) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    kinds = (HumanMessage, AIMessage)
    turns = [kinds[place % 2](_text(place, size)) for place in range(count - 1)]
    return [SystemMessage(_text(99, size)), *turns, HumanMessage("Compare the three regions.")]


def _agent() -> Any:
    from langchain.agents import create_agent
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
            return self.bind(
                tools=[{"type": "function", "function": {"name": one.name}} for one in tools]
            )

        def _generate(
            self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
        ) -> ChatResult:
            done = sum(isinstance(message, ToolMessage) for message in messages)
            usage: Any = {"input_tokens": 900, "output_tokens": 40, "total_tokens": 940}
            calls: list[Any] = []
            if done < len(_PLAN):
                calls = [{"name": _PLAN[done], "args": {"text": "north"}, "id": f"call_{done}"}]
            message = AIMessage(
                "" if calls else _text(3, 300), tool_calls=calls, usage_metadata=usage
            )
            return ChatResult(generations=[ChatGeneration(message=message)])

    @tool
    def search(text: str) -> str:
        """Search orders in a region."""
        return json.dumps(
            [{"id": place, "region": text, "total": 10 * place} for place in range(12)]
        )

    @tool
    def read(text: str) -> str:
        """Read a policy by name."""
        return _text(5, 250)

    @tool
    def add(text: str) -> str:
        """Count the letters of a text."""
        return str(len(text))

    return create_agent(Scripted(), [search, read, add])


@dataclass(frozen=True)
class _Arm:
    """What watches the agent."""

    callbacks: list[Any]
    flush: Callable[[], Any] = lambda: None
    """Writes all that waits."""
    kept: Callable[[], int] = lambda: 0
    """How many bytes are kept."""
    switch: Callable[[bool], None] = lambda on: None
    """Turns on and off what is no callback."""


def _tally(folder: Path, retention: Any) -> _Arm:
    from tallystick import Tally
    from tallystick.settings import Settings
    from tallystick_langchain import TallyCallbackHandler

    settings = Settings.read().model_copy(update={"retention": retention})
    tally = Tally.open(folder / "tally", background=False, settings=settings)
    return _Arm(
        [TallyCallbackHandler(tally)],
        services_of(tally).store.database.flush,
        lambda: _size(tally),
    )


def _size(tally: Any) -> int:
    import sqlite3

    services_of(tally).store.database.flush()
    file = str(services_of(tally).store.database.url.database)
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return os.path.getsize(file)


def _langsmith(folder: Path) -> _Arm:
    from langchain_core.tracers.langchain import LangChainTracer
    from langsmith import Client

    client = Client(api_url=os.environ[_SINK], api_key="not-a-key", info={})
    return _Arm([LangChainTracer(client=client, project_name="bench")], client.flush)


def _openinference(folder: Path) -> _Arm:
    instrumentation = import_module("openinference.instrumentation.langchain")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = instrumentation.LangChainInstrumentor()

    def switch(on: bool) -> None:
        if on:
            instrumentor.instrument(tracer_provider=provider)
        else:
            instrumentor.uninstrument()

    return _Arm([], exporter.clear, switch=switch)


ARMS: dict[str, Callable[[Path], _Arm]] = {
    "tallystick": lambda folder: _tally(folder, "redacted_payloads"),
    "tallystick, metadata_only": lambda folder: _tally(folder, "metadata_only"),
    "LangChain's tracer (LangSmith)": _langsmith,
    "OpenInference, in memory": _openinference,
}


def _child(name: str, size: str, runs: int, turns: int) -> None:
    """Let one arm and no callbacks take turns; print the CPU and wall seconds that a run takes more
    with it.
    """
    agent, prompt = _agent(), _prompt(*_SIZES[size])

    def turn(callbacks: list[Any], flush: Callable[[], Any]) -> tuple[float, float]:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(runs):
            agent.invoke({"messages": prompt}, config={"callbacks": callbacks})
        wall = time.perf_counter() - wall
        flush()
        return (time.process_time() - cpu) / runs, wall / runs

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        arm = ARMS[name](Path(folder))
        found: list[tuple[float, float]] = []
        before = 0
        for place in range(-_WARM, turns):
            before = arm.kept() if place == 0 else before
            bare = turn([], lambda: None)
            arm.switch(True)
            with_it = turn(arm.callbacks, arm.flush)
            arm.switch(False)
            if place >= 0:
                found.append((with_it[0] - bare[0], with_it[1] - bare[1]))
        kept = (arm.kept() - before) / (turns * runs)
        print(json.dumps([*(median(values) for values in zip(*found, strict=True)), kept]))
        sys.stdout.flush()
        os._exit(0)


class _Sink(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    do_GET = do_POST = do_PATCH = do_PUT = _answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def sink_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Sink)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def _measured(size: str, runs: int, turns: int, rounds: int, sink: str) -> dict[str, list[float]]:
    found: dict[str, list[list[float]]] = {}
    environment = {**os.environ, _SINK: sink, "LANGSMITH_TRACING": "false"}
    arms = [
        arm
        for arm in ARMS
        if not arm.startswith("OpenInference") or find_spec("openinference") is not None
    ]
    for _ in range(rounds):
        for arm in arms:
            command = [
                sys.executable,
                "-m",
                "tests.benchmarks.recorder",
                "--arm",
                arm,
                "--size",
                size,
            ]
            done = subprocess.run(
                [*command, "--runs", str(runs), "--turns", str(turns)],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            )
            found.setdefault(arm, []).append(json.loads(done.stdout.splitlines()[-1]))
    return {arm: [median(values) for values in zip(*of, strict=True)] for arm, of in found.items()}


def _cost(console: Console, runs: int, turns: int, rounds: int) -> None:
    with sink_server() as sink:
        for size in _SIZES:
            measured = _measured(size, runs, turns, rounds, sink)
            table = Table(
                title=f"Recording an agent on a prompt of {size}",
                title_justify="left",
                box=box.MARKDOWN,
            )
            for name in ("", "CPU per call, ms", "wall per call, ms", "kept per run, kB"):
                table.add_column(name, justify="right" if name else "left")
            for arm, (cpu, wall, kept) in measured.items():
                table.add_row(
                    arm,
                    f"{1_000 * cpu / _CALLS:.2f}",
                    f"{1_000 * wall / _CALLS:.2f}",
                    f"{kept / 1_000:.1f}" if kept else "",
                )
            console.print(table)


def _growth(console: Console, lengths: Sequence[int]) -> None:
    from tallystick import Tally

    table = Table(
        title="A chat that grows by 500 characters a step", title_justify="left", box=box.MARKDOWN
    )
    for name in ("steps", "kept per step, kB", "prompts in full, kB per step"):
        table.add_column(name, justify="right")
    for length in lengths:
        with (
            tempfile.TemporaryDirectory() as folder,
            Tally.open(Path(folder) / "t", background=False) as tally,
        ):
            bound, history, full = tally.bind(), [], 0
            with bound.run("chat") as run:
                for place in range(length):
                    history.append({"role": "user", "content": _text(place, 500)})
                    full += sum(len(one["content"]) for one in history)
                    step = run.step("model_call", name="model")
                    step.record("request", {"messages": list(history), "model": "m"})
                    step.record("response", {"text": _text(place, 100)})
                    step.end(wait=False)
            table.add_row(
                str(length), f"{_size(tally) / length / 1_000:.2f}", f"{full / length / 1_000:.1f}"
            )
    console.print(table)


def _p95(call: Callable[[int], Any], often: int) -> str:
    times = []
    for place in range(often):
        began = time.perf_counter()
        call(place)
        times.append(1_000 * (time.perf_counter() - began))
    return f"{sorted(times)[int(0.95 * often)]:.1f} ms"


def _long(console: Console, steps: int) -> None:
    from tallystick import Tally

    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "t", background=False) as tally,
    ):
        bound, ids = tally.bind(), []
        with bound.run("long") as run:
            history: list[dict[str, str]] = []
            for place in range(steps):
                history = [*history[-40:], {"role": "user", "content": _text(place, 500)}]
                step = run.step("model_call", name="model")
                step.record("request", {"messages": history, "model": "m"})
                step.record("response", {"text": _text(place, 100)})
                step.end(wait=False)
                ids.append(step.id)
        recorder = bound.recordings
        table = Table(title=f"A run of {steps:,} steps", title_justify="left", box=box.MARKDOWN)
        table.add_column("what")
        table.add_column("p95", justify="right")
        some = [ids[place * steps // 40] for place in range(40)]
        table.add_row("list the newest runs", _p95(lambda _: bound.recordings.runs(), 40))
        table.add_row(
            "a page of 100 steps",
            _p95(lambda n: recorder.steps(run.id, after=n * steps // 41, limit=100), 40),
        )
        table.add_row(
            "show a step with its payloads", _p95(lambda n: recorder.entries(some[n]), 40)
        )
        table.add_row("its receipt", _p95(lambda n: recorder.receipt(some[n]), 40))
        table.add_row("compare two steps", _p95(lambda n: recorder.diff(some[n], some[n - 1]), 40))
        began = time.perf_counter()
        verified = recorder.verify(run.id)
        took = time.perf_counter() - began
        assert verified.ok, verified
        table.add_row("verify", f"{took:.1f} s, {steps / took:,.0f} receipts a second")
        console.print(table)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=8, help="of the agent in a turn")
    parser.add_argument(
        "--turns", type=int, default=20, help="of each arm and of no callbacks in a process"
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes of each arm")
    parser.add_argument("--steps", type=int, default=10_000, help="of the long run")
    parser.add_argument("--arm", choices=list(ARMS), help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=list(_SIZES), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.arm:
        _child(given.arm, given.size, given.runs, given.turns)
    console = Console(width=120)
    _cost(console, given.runs, given.turns, given.rounds)
    print_tables(console, given.runs, given.turns)
    _growth(console, (10, 100, 1_000))
    _long(console, given.steps)


if __name__ == "__main__":
    main()
