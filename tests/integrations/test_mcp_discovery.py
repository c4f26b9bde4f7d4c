"""The descriptions of the tools lead to the right one, by their words alone."""

from __future__ import annotations

from tests.benchmarks.discovery import Router, load_tasks, route_all

from tallystick_mcp.server import TOOLS
from tallystick_mcp.surface import EXPLORE, MANAGE


def test_a_router_that_knows_words_alone_finds_the_tool_and_its_mode() -> None:
    outcome = route_all(Router(), load_tasks())

    assert outcome.total == 60
    assert outcome.discovered >= 55, outcome
    assert outcome.selected >= 52, outcome


def test_the_tasks_are_about_what_the_tools_take() -> None:
    modes = {"explore": {*EXPLORE, "policy"}, "manage": {*MANAGE}}
    for task in load_tasks():
        fields = TOOLS[task["tool"]].arguments.model_fields
        assert set(task["arguments"]) <= set(fields), task
        assert task["mode"] in modes.get(task["tool"], {None}), task


def test_each_mode_and_action_is_described() -> None:
    for tool, modes in (("explore", [*EXPLORE, "policy"]), ("manage", list(MANAGE))):
        for mode in modes:
            assert f"{mode}: " in TOOLS[tool].description, mode
