"""The descriptions of the tools lead to the right one, by their words alone."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from tests.benchmarks.discovery import Choice, ModelRouter, Router, load_tasks, main, route_all

from tallystick_mcp.routes import EXPLORE, MANAGE
from tallystick_mcp.server import TOOLS


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


class _Model:
    """Answers each task with its gold call, but calls nothing for the first and guesses a mode for
    another.
    """

    def bind_tools(self, tools: list[dict[str, Any]]) -> _Model:
        self.tools = {tool["function"]["name"]: tool["function"] for tool in tools}
        return self

    def invoke(self, text: str) -> AIMessage:
        tasks = load_tasks()
        task = next(task for task in tasks if task["task"] == text)
        if text == tasks[0]["task"]:
            return AIMessage("I do not know.")
        field = {"explore": "mode", "manage": "action"}.get(task["tool"])
        mode = {} if field is None else {field: task["mode"]}
        if task["mode"] == "history":
            mode = {"mode": "runs"}
        call = {"name": task["tool"], "args": task["arguments"] | mode, "id": "1"}
        return AIMessage("", tool_calls=[call])


def test_a_model_is_given_the_tools_of_the_server_and_its_first_call_counts() -> None:
    model, tasks = _Model(), load_tasks()
    outcome = route_all(ModelRouter(model), tasks)
    history = sum(task["mode"] == "history" for task in tasks)

    assert history > 0
    assert (outcome.discovered, outcome.selected) == (59, 59 - history)
    assert outcome.called == outcome.selected, outcome.misses
    assert list(model.tools) == list(TOOLS)
    assert "action" in model.tools["manage"]["parameters"]["properties"]


@pytest.mark.parametrize(
    ("said", "arguments"),
    [
        ("another word for the query", {"query": "the dark theme of the editor"}),
        ("no query", {}),
        ("an argument that there is none of", {"query": "dark mode", "colour": "dark"}),
        ("a limit that is no number", {"query": "dark mode", "limit": "many"}),
    ],
)
def test_a_call_of_the_right_tool_with_wrong_arguments_is_no_whole_call(
    said: str, arguments: dict[str, Any]
) -> None:
    [task] = [task for task in load_tasks() if "dark mode" in task["task"]][:1]

    outcome = route_all(_Says(arguments), [task])
    right = {"query": "what the user said of the dark mode"}
    assert (outcome.selected, outcome.called) == (1, int(said == "another word for the query"))
    assert route_all(_Says(right), [task]).called == 1


class _Says:
    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments

    def route(self, task: str) -> Choice:
        return Choice("search", None, self._arguments)


def test_without_a_model_it_says_that_none_was_run(capsys: pytest.CaptureFixture[str]) -> None:
    main([])

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("BM25: discovery ")
    assert lines[1].startswith("labels of discovery_tasks: ")
    assert lines[2].startswith("A model: not run.")
