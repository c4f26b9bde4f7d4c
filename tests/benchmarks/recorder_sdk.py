"""What a tally costs an agent of the OpenAI Agents SDK and of Google ADK, beside the session that
each brings in a file.

They are tables of `make bench-recorder`: four model calls and three tool calls a run, in a session
that goes on. Each arm takes turns with the bare runner in one process; what counts is the median of
how much more CPU and time a run takes, with what waits at the end of a turn written.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
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
Arms = dict[str, Callable[[int], Run]]
ASKED, ANSWER = "Compare the three regions.", "The north leads. " * 18


def search(text: str) -> str:
    """Search orders in a region."""
    return "north: 120 orders, " * 12


def read(text: str) -> str:
    """Read a policy by name."""
    return "The policy says so. " * 12


def add(text: str) -> str:
    """Count the letters of a text."""
    return str(len(text))


def _openai_agent() -> Any:
    from agents import Agent, Model, ModelResponse, Usage, function_tool
    from agents.testing import assistant_message, function_call

    class Scripted(Model):
        async def get_response(self, **request: Any) -> ModelResponse:  # type: ignore[override]
            asked = request["input"]
            users = [place for place, item in enumerate(asked) if item.get("role") == "user"]
            since = asked[users[-1] :]
            done = sum(item.get("type") == "function_call_output" for item in since)
            output: Any = assistant_message(ANSWER)
            if done < len(_PLAN):
                call_id = f"call_{len(asked)}_{done}"
                output = function_call(_PLAN[done], {"text": "north"}, call_id=call_id)
            usage = Usage(requests=1, input_tokens=900, output_tokens=40, total_tokens=940)
            return ModelResponse(output=[output], usage=usage, response_id=None)

        def stream_response(self, **request: Any) -> Any:  # type: ignore[override]
            raise NotImplementedError

    tools: list[Any] = [function_tool(each) for each in (search, read, add)]
    return Agent("clerk", instructions="You compare regions.", model=Scripted(), tools=tools)


def _openai_arms(folder: Path, tally: Tally) -> Arms:
    """Return for each arm what makes a run of a turn; a turn is a session of its own."""
    from agents import RunConfig, Runner, SQLiteSession

    from tallystick_openai_agents import TallyRunner, TallySession

    agent, quiet = _openai_agent(), RunConfig(tracing_disabled=True)
    recorder = TallyRunner(tally, context=False, rules=False)
    whole = TallyRunner(tally)

    def with_(run: Any, session: Callable[[str], Any]) -> Callable[[int], Run]:
        def turn(place: int) -> Run:
            kept = session(f"turn {place}")
            return lambda: run(agent, ASKED, session=kept, run_config=quiet)

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


def _adk_arms(folder: Path, tally: Tally) -> Arms:
    """Same as `_openai_arms`, for ADK."""
    from google.adk.agents import LlmAgent
    from google.adk.apps import App
    from google.adk.models import BaseLlm, LlmResponse
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.adk.sessions.sqlite_session_service import SqliteSessionService
    from google.genai import types

    from tallystick_adk import TallyPlugin, TallySessionService

    class Scripted(BaseLlm):  # type: ignore[misc]
        model: str = "scripted"

        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            parts = [part for each in llm_request.contents for part in each.parts or []]
            texts = [place for place, part in enumerate(parts) if part.text == ASKED]
            done = sum(part.function_response is not None for part in parts[texts[-1] :])
            part = types.Part(text=ANSWER)
            if done < len(_PLAN):
                asked = types.FunctionCall(name=_PLAN[done], args={"text": "north"})
                part = types.Part(function_call=asked)
            usage = types.GenerateContentResponseUsageMetadata(
                prompt_token_count=900, candidates_token_count=40, total_token_count=940
            )
            said = types.Content(role="model", parts=[part])
            yield LlmResponse(content=said, usage_metadata=usage)

    agent = LlmAgent(
        name="clerk",
        instruction="You compare regions.",
        model=Scripted(),
        tools=[search, read, add],
    )
    message = types.Content(role="user", parts=[types.Part(text=ASKED)])

    def with_(service: Any, *plugins: Any, suffix: str = "") -> Callable[[int], Run]:
        app = App(name="desk", root_agent=agent, plugins=[*plugins])
        runner = Runner(app=app, session_service=service, auto_create_session=True)

        def turn(place: int) -> Run:
            async def run() -> None:
                named = {"user_id": "local", "session_id": f"turn {place}{suffix}"}
                async for _ in runner.run_async(new_message=message, **named):
                    pass

            return run

        return turn

    memory = InMemorySessionService
    file = str(folder / "adk.db")
    return {
        "bare": with_(memory()),
        "SqliteSessionService": with_(SqliteSessionService(file)),
        "TallySessionService": with_(TallySessionService(tally), suffix=" a"),
        "TallyPlugin, receipts alone": with_(
            memory(), TallyPlugin(tally, context=False, rules=False)
        ),
        "TallyPlugin, whole, with TallySessionService": with_(
            TallySessionService(tally), TallyPlugin(tally), suffix=" b"
        ),
    }


async def _measured(
    arms_of: Callable[[Path, Tally], Arms], runs: int, turns: int
) -> dict[str, tuple[float, float]]:
    """Return the CPU and wall seconds that each arm adds to a run; of the bare one its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        folder = Path(place)
        with Tally.open(folder / "tally", background=False) as tally:
            arms = arms_of(folder, tally)
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


RUNTIMES: dict[str, tuple[str, Callable[[Path, Tally], Arms]]] = {
    "the OpenAI Agents SDK": ("agents", _openai_arms),
    "Google ADK": ("google.adk", _adk_arms),
}


def print_tables(console: Console, runs: int, turns: int) -> None:
    """Measure the runtimes that are installed, and print a table of each."""
    for runtime, (package, arms_of) in RUNTIMES.items():
        if not _is_installed(package):
            continue
        title = f"An agent of {runtime}: its own cost, and what each adds"
        table = Table(title=title, title_justify="left", box=box.MARKDOWN)
        for name in ("", "CPU per call, ms", "wall per call, ms"):
            table.add_column(name, justify="right" if name else "left")
        for arm, (cpu, wall) in asyncio.run(_measured(arms_of, runs, turns)).items():
            table.add_row(arm, f"{1_000 * cpu / _CALLS:.2f}", f"{1_000 * wall / _CALLS:.2f}")
        console.print(table)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def main() -> None:
    """Print the tables alone: in the environment of a runtime that has one of its own."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--runs", type=int, default=8, help="of the agent in a turn")
    parser.add_argument("--turns", type=int, default=20, help="of each arm")
    given = parser.parse_args()
    print_tables(Console(width=120), given.runs, given.turns)


if __name__ == "__main__":
    main()
