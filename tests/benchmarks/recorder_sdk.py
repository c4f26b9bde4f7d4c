"""What a tally costs an agent of the OpenAI Agents SDK, beside the SDK's own session in a file.

It is a table of `make bench-recorder`: four model calls and three tool calls a run, in a session
that goes on. Each arm takes turns with the bare runner in one process; what counts is the median of
how much more CPU and time a run takes, with what waits at the end of a turn written.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tallystick import Tally
from tallystick.tally.services import services_of

_PLAN = ("search", "read", "add")
_CALLS = 1 + 2 * len(_PLAN)
_WARM = 3

Run = Callable[[], Awaitable[Any]]


def _agent() -> Any:
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from agents.testing import assistant_message, function_call

    class Scripted(Model):
        async def get_response(self, **request: Any) -> ModelResponse:  # type: ignore[override]
            asked = request["input"]
            users = [place for place, item in enumerate(asked) if item.get("role") == "user"]
            since = asked[users[-1] :]
            done = sum(item.get("type") == "function_call_output" for item in since)
            output: Any = assistant_message("The north leads. " * 18)
            if done < len(_PLAN):
                call_id = f"call_{len(asked)}_{done}"
                output = function_call(_PLAN[done], {"text": "north"}, call_id=call_id)
            usage = Usage(requests=1, input_tokens=900, output_tokens=40, total_tokens=940)
            return ModelResponse(output=[output], usage=usage, response_id=None)

        def stream_response(self, **request: Any) -> Any:  # type: ignore[override]
            raise NotImplementedError

    def search(text: str) -> str:
        """Search orders in a region."""
        return "north: 120 orders, " * 12

    def read(text: str) -> str:
        """Read a policy by name."""
        return "The policy says so. " * 12

    def add(text: str) -> str:
        """Count the letters of a text."""
        return str(len(text))

    tools: list[Any] = [function_tool(each) for each in (search, read, add)]
    return Agent("clerk", instructions="You compare regions.", model=Scripted(), tools=tools)


def _arms(folder: Path, tally: Tally) -> dict[str, Callable[[int], Run]]:
    """Return for each arm what makes a run of a turn; a turn is a session of its own."""
    from agents import RunConfig, Runner, SQLiteSession

    from tallystick_openai_agents import TallyRunner, TallySession

    agent, quiet = _agent(), RunConfig(tracing_disabled=True)
    recorder = TallyRunner(tally, context=False, rules=False)
    whole = TallyRunner(tally)
    asked = "Compare the three regions."

    def with_(run: Any, session: Callable[[str], Any]) -> Callable[[int], Run]:
        def turn(place: int) -> Run:
            kept = session(f"turn {place}")
            return lambda: run(agent, asked, session=kept, run_config=quiet)

        return turn

    return {
        "bare": with_(Runner.run, lambda name: None),
        "SQLiteSession": with_(Runner.run, lambda name: SQLiteSession(name, folder / "s.db")),
        "TallySession": with_(Runner.run, lambda name: TallySession(tally, f"{name} a")),
        "TallyRunner, receipts alone": with_(recorder.run, lambda name: None),
        "TallyRunner, whole, with TallySession": with_(
            whole.run, lambda name: TallySession(tally, f"{name} b")
        ),
    }


async def _measured(runs: int, turns: int) -> dict[str, tuple[float, float]]:
    """Return the CPU and wall seconds that each arm adds to a run; of the bare one its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with Tally.open(folder / "tally", background=False) as tally:
            arms = _arms(folder, tally)
            flush = services_of(tally).store.database.flush
            found: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
            for number in range(-_WARM, turns):
                spent: dict[str, tuple[float, float]] = {}
                for arm, turn in arms.items():
                    run = turn(number)
                    cpu, wall = time.process_time(), time.perf_counter()
                    for _ in range(runs):
                        await run()
                    wall = time.perf_counter() - wall
                    flush()
                    spent[arm] = ((time.process_time() - cpu) / runs, wall / runs)
                bare = spent["bare"]
                for arm, (cpu, wall) in spent.items():
                    base = (0.0, 0.0) if arm == "bare" else bare
                    if number >= 0:
                        found[arm].append((cpu - base[0], wall - base[1]))
    return {
        arm: (median(cpu for cpu, _ in each), median(wall for _, wall in each))
        for arm, each in found.items()
    }


def print_table(console: Console, runs: int, turns: int) -> None:
    """Measure, and print a table."""
    title = "An agent of the OpenAI Agents SDK: its own cost, and what each adds"
    table = Table(title=title, title_justify="left", box=box.MARKDOWN)
    for name in ("", "CPU per call, ms", "wall per call, ms"):
        table.add_column(name, justify="right" if name else "left")
    for arm, (cpu, wall) in asyncio.run(_measured(runs, turns)).items():
        table.add_row(arm, f"{1_000 * cpu / _CALLS:.2f}", f"{1_000 * wall / _CALLS:.2f}")
    console.print(table)
