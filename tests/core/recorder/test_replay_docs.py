"""The test that docs/replay.md shows runs under pytest, with the plugin, and says what the page
says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.records import ReplayRecipe

DOCS = Path(__file__).parents[3] / "docs"
PAGE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("replay.md", "tapes.md"))
_BLOCKS: list[str] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)


def test_every_change_of_a_recipe_stands_on_the_page() -> None:
    """What is left is what identifies a recipe."""
    changes = set(ReplayRecipe.model_fields) - {
        "id",
        "source_run_id",
        "source_step_id",
        "schema_version",
    }

    assert [name for name in sorted(changes) if f"`{name}`" not in PAGE] == []


_IMPORTS = """
from tallystick.errors import TapeDiverged
from tallystick.recorder import write_tape
from tallystick_langchain import TapeChatModel, tape_tools

write_tape(ada.recordings.tape(run.id), "orders.json")
tally.close()

"""
_OTHERS = """

def clerk_who_is_brief(model, tools):
    return create_agent(model, tools, system_prompt="You help with orders, briefly.")


def test_an_agent_that_never_asks(tape):
    tape("orders.json")


def test_the_manner_of_the_prompt_does_not_matter_here(tape):
    player = tape("orders.json", ignore=["orders(, briefly)?[.]"])
    agent = clerk_who_is_brief(TapeChatModel(player), tape_tools(player, [find_order]))
    agent.invoke({"messages": [("user", "Where is order 7?")]})


def test_a_mistake_of_its_own(tape):
    try:
        tape("orders.json").model({"messages": []})
    except TapeDiverged:
        assert False, "a mistake of its own"
"""


@pytest.mark.slow
def test_the_test_on_the_page_passes_and_shows_a_diff_once_the_agent_asks_otherwise(
    tmp_path: Path,
) -> None:
    (test,) = (block for block in _BLOCKS if "def test_" in block)
    otherwise = test.replace("still_asks_the_same", "asks_otherwise").replace(
        "= clerk(", "= clerk_who_is_brief("
    )
    (tmp_path / "test_clerk.py").write_text(
        "\n\n".join([_BLOCKS[0], _IMPORTS, test, otherwise, _OTHERS])
    )
    (shown,) = re.findall(r"the test would say .*?```text\n(.*?)```", PAGE, re.S)

    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:asyncio",
        "-p",
        "no:xdist",
    ]
    at_a_desk = {
        name: value for name, value in os.environ.items() if name not in {"CI", "BUILD_NUMBER"}
    }
    process = subprocess.run(
        [*command, "test_clerk.py"],
        cwd=tmp_path,
        env=at_a_desk,
        capture_output=True,
        text=True,
        check=False,
    )

    report = _told(process.stdout)
    assert "2 failed, 3 passed, 2 errors" in report, process.stdout + process.stderr
    assert _told(shown) in report
    assert report.count("You help with orders, briefly.") == 1
    assert "langgraph/pregel" not in report
    assert "the agent ended before 3 of 3 recorded calls" in report
    assert "a mistake of its own" in report


def _told(text: str) -> str:
    return re.sub(r"\b[0-9a-f]{8}\b", "…", text)
