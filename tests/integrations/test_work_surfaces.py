"""Tasks are the same over HTTP, through its client, and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.terminals import run_piped

from tallystick import Tally
from tallystick.errors import InvalidInput, StateConflict
from tallystick.records import NewMemory
from tallystick.settings import Settings
from tallystick_server import RemoteTally

from .served import ADA, served


def test_a_task_goes_its_way_through_the_client(tmp_path: Path) -> None:
    with (
        served(tmp_path) as there,
        RemoteTally.connect(there.tcp, token=there.token(ADA)) as remote,
    ):
        first = remote.remember("Read the grammar.", kind="task").id
        task = remote.remember(
            "Mend the parser.",
            kind="task",
            attributes={"priority": "high", "due_at": "2026-12-01T09:00:00Z"},
        ).id
        change = remote.modify(
            task,
            attributes={"priority": "low", "area": "core"},
            depends_on={"add": [first]},
            reason="sorted",
        )
        assert change.version == 2

        assert remote.work.start(task, assignee="ann").status == "doing"
        with pytest.raises(StateConflict, match="review, blocked, cancelled"):
            remote.work.complete(task)
        remote.work.submit(task, commits=["a1"])
        done = remote.work.complete(task, hours=2, learnings=["Tabs are tokens."])

        assert done.task.hours == 2
        assert [each.id for each in remote.work.list(statuses=["done", "doing"])] == [task]
        assert [each.id for each in remote.work.list(assignees=["ann"])] == [task]
        assert remote.work.list(due_before="2026-11-01") == []
        with pytest.raises(InvalidInput, match="Did you mean 'done'"):
            remote.work.list(statuses=["doen"])
        assert [each.task.id for each in remote.work.prioritize()] == [first]
        assert remote.work.cycles() == ()
        remote.modify(task, attributes={"hours": 3}, replace_attributes=False, reason="counted")
        assert remote.get(task).attributes["priority"] == "low"
        pack = remote.wake(project="apollo")
        assert pack.items == ()


async def test_the_same_verbs_are_awaited_through_the_client(tmp_path: Path) -> None:
    with (
        served(tmp_path) as there,
        RemoteTally.connect(there.tcp, token=there.token(ADA)) as remote,
    ):
        task = remote.remember("Mend it.", kind="task").id
        assert (await remote.aio.work.start(task)).status == "doing"
        assert await remote.aio.graph.aliases() == []


def test_a_task_goes_its_way_on_the_command_line(tmp_path: Path) -> None:
    where = ("--tally", str(tmp_path / "tally"))

    def run(*arguments: str, code: int = 0) -> str:
        ended, output, errors = run_piped(*arguments, *where)
        assert ended == code, (output, errors)
        return output + errors

    def made(*arguments: str) -> str:
        _, output, _ = run_piped("remember", *arguments, *where, "--json")
        return str(json.loads(output)["id"])

    first = made("Read the grammar.", "--kind", "task")
    task = made("Mend it.", "--kind", "task", "--attribute", "priority=high", "--attribute", "n=1")
    run("modify", task, "--attribute", "n=null", "--depends-on", first[-8:], "--reason", "r")
    assert "doing" in run("task", "start", task[-8:], "--assignee", "ann")
    assert "may become review" in run("task", "complete", task, code=2)
    run("task", "block", task, "It rains.")
    assert "blocked" in run("task", "list", "--status", "blocked", "--status", "todo")
    run("task", "unblock", task)
    run("task", "submit", task, "--commit", "a1")
    assert "episode" in run("task", "complete", task, "--hours", "2", "--learning", "Rain falls.")
    assert "Read the grammar." in run("task", "next")
    assert "Nothing depends on itself." in run("task", "cycles")
    assert "Did you mean" in run("task", "list", "--status", "dnoe", code=2)
    run("modify", task, "--independent-of", first, "--reason", "r")
    with Tally.open(tmp_path / "tally", background=False) as tally:
        kept = tally.bind().get(task)
        assert kept.attributes["priority"] == "high"
        assert "n" not in kept.attributes


def test_a_merge_is_looked_at_and_forbidden_on_the_command_line(tmp_path: Path) -> None:
    place = tmp_path / "tally"
    with Tally.open(place, settings=Settings(graph=True), background=False) as tally:
        tally.bind().remember_many(
            [
                NewMemory(
                    content="The European Space Agency (ESA) hires.",
                    entities=("European Space Agency", "ESA"),
                )
            ]
        )
        tally.drain()
    _, listed, _ = run_piped("aliases", "--tally", str(place))
    assert "ESA" in listed
    assert "stated acronym" in listed
    code, _, errors = run_piped(
        "keep-apart", "ESA", "European Space Agency", "--reason", "r", "--tally", str(place)
    )
    assert (code, errors) == (0, "")
    _, listed, _ = run_piped("aliases", "--tally", str(place))
    assert "No name stands for another one." in listed


def test_a_plan_is_shown_and_goes_on_and_tasks_are_listed_by_who_does_them(tmp_path: Path) -> None:
    place = tmp_path / "t"
    with Tally.open(place, background=False) as tally:
        steps: list[JsonValue] = ["buy paint", "climb"]
        plan = tally.bind().remember("Paint it.", kind="plan", attributes={"steps": steps}).id
        tally.bind().remember("Mend it.", kind="task", attributes={"assignee": "ann"})

    def run(*arguments: str) -> str:
        code, output, errors = run_piped(*arguments, "--tally", str(place))
        assert code == 0, errors
        return output

    assert "todo  buy paint" in run("plan", plan)
    assert "done  buy paint" in run("plan", plan, "--number", "1")
    for action in ("list", "next"):
        assert "Mend it." in run("task", action, "--assignee", "ann")
        assert "Mend it." not in run("task", action, "--assignee", "bob")
