"""The fixture `tape` in a user's own tests: in a process of its own, with the plugin as pytest
loads it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tallystick import Tally
from tallystick.recorder import write_tape

AGENT = """
from tallystick.errors import TapeDiverged

PROMPT = "You refund orders."


def agent(player, prompt=PROMPT, order=7, day="2026-11-20", stubborn=False):
    asked = {"messages": [{"role": "system", "content": f"{prompt} Today is {day}."},
                          {"role": "user", "content": f"Refund order {order}."}]}
    try:
        said = player.model(asked)["answer"]
    except TapeDiverged:
        if not stubborn:
            raise
        said = "a tool failed"
    if said == "refund":
        return player.tool("refund", {"arguments": {"order": order}})
    return said
"""

TESTS = """
from agents import agent


def test_it_asks_the_same(tape):
    assert agent(tape("refund.json")) == "done"


def test_it_asks_the_same_on_another_day(tape):
    assert agent(tape("refund.json", ignore=[r"\\d{4}-\\d\\d-\\d\\d"]), day="2027-01-01") == "done"


def test_it_asks_otherwise(tape):
    agent(tape("refund.json"), prompt="You keep the money.")


def test_it_takes_the_error_for_its_own(tape):
    assert agent(tape("refund.json"), order=8, stubborn=True) == "a tool failed"


def test_it_never_asks(tape):
    tape("refund.json")


def test_it_asks_otherwise_among_other_tasks(tape):
    try:
        agent(tape("refund.json"), prompt="You keep the money.")
    except Exception as error:
        raise ExceptionGroup("tasks failed", [ValueError("another task"), error])


def test_there_is_no_such_tape(tape):
    tape("absent.json")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project with an agent, its tests and a tape of it."""
    request = {
        "messages": [
            {"role": "system", "content": "You refund orders. Today is 2026-11-20."},
            {"role": "user", "content": "Refund order 7."},
        ]
    }
    with Tally.open(tmp_path / "tally", background=False) as tally:
        with tally.bind().run("clerk") as run:
            with run.step("model_call") as step:
                step.record("request", request)
                step.record("response", {"answer": "refund"})
            with run.step("tool_call", name="refund") as step:
                step.record("tool_call", {"name": "refund", "arguments": {"order": 7}})
                step.record("tool_result", {"result": "done"})
        write_tape(tally.recordings.tape(run.id), tmp_path / "project" / "refund.json")
    (tmp_path / "project" / "agents.py").write_text(AGENT)
    (tmp_path / "project" / "test_clerk.py").write_text(TESTS)
    return tmp_path / "project"


def _pytest(project: Path, *options: str) -> str:
    """What pytest says, told of the plugin where no installation tells it."""
    installed = any(entry.name == "tallystick" for entry in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "tallystick.testing.plugin"]
    alone = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-p",
        "no:xdist",
        "-p",
        "no:inline_snapshot",
    ]
    process = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *alone, *options],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not process.stderr, process.stderr
    return process.stdout


@pytest.mark.slow
def test_a_users_test_passes_on_the_same_agent_and_shows_a_diff_on_another(project: Path) -> None:
    output = _pytest(project, "-q")

    # What went wrong only at the end of a test is an error of its fixture.
    assert "3 failed, 4 passed, 2 errors" in output
    assert {
        line.partition(" - ")[0]
        for line in output.splitlines()
        if line.startswith(("FAILED ", "ERROR "))
    } == {
        "FAILED test_clerk.py::test_it_asks_otherwise",
        "ERROR test_clerk.py::test_it_takes_the_error_for_its_own",
        "ERROR test_clerk.py::test_it_never_asks",
        "FAILED test_clerk.py::test_it_asks_otherwise_among_other_tasks",
        "FAILED test_clerk.py::test_there_is_no_such_tape",
    }
    assert '-      "content": "You refund orders. Today is 2026-11-20.",' in output
    assert '+      "content": "You keep the money. Today is 2026-11-20.",' in output
    assert '-      "content": "Refund order 7.",' in output
    assert '+      "content": "Refund order 8.",' in output
    assert "the agent ended before 2 of 2 recorded calls; the next was model call" in output
    assert (
        "There is no tape at absent.json. `tally tape RUN --out absent.json` writes one." in output
    )
    # Of the way there only where it is asked for.
    assert "recorder/tape.py" not in output
    assert "recorder/tape.py" in _pytest(project, "-q", "--full-trace", "-k", "asks_otherwise")


def test_the_fixture_is_listed_with_what_it_does(project: Path) -> None:
    assert "Load a tape, named from the folder of the test" in _pytest(project, "--fixtures", "-q")


@pytest.mark.smoke
def test_loading_the_plugin_imports_nothing_but_pytest() -> None:
    code = """
import json, sys, pytest
before = set(sys.modules)
import tallystick.testing.plugin
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )

    assert set(json.loads(process.stdout)) <= {"tallystick", "importlib", "typing"}
