"""`tally --as` works on every tally; an operator's look at what others recorded is journaled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import HumanMessage
from tests.terminals import invoke

from tallystick import Actor, Tally
from tallystick.records import NewMemory
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_langgraph import TallySaver

Run = Callable[..., tuple[int, str]]
ADA = Actor(user="ada")
SECRET = "The code word is heliotrope."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A tally of an owner on which ada's agent has run."""
    with Tally.open(tmp_path / "tally", background=False) as tally:
        ada = tally.bind(ADA)
        ada.remember_many([NewMemory(content=SECRET, kind="fact")])
        tally.bind().remember("The owner's own note.")

        agent: Any = create_agent(
            GenericFakeChatModel(messages=iter(["ok"])),
            [],
            middleware=[TallyMiddleware(ada)],
            checkpointer=TallySaver(ada),
        )
        agent.invoke(
            {"messages": [HumanMessage("What is the code word?")]},
            {"configurable": {"thread_id": "1"}, "callbacks": [TallyCallbackHandler(ada)]},
        )
    return tmp_path / "tally"


@pytest.fixture
def run(place: Path) -> Run:
    def run(*arguments: str) -> tuple[int, str]:
        result = invoke(list(arguments), env={"TALLYSTICK_TALLY": str(place)})
        return result.exit_code, f"{result.output}{result.exception or ''}"

    return run


def _step(place: Path) -> str:
    with Tally.open(place, background=False) as tally:
        recordings = tally.bind(ADA).recordings
        steps = [
            step
            for record in tally.bind(ADA).recordings.runs()
            for step in recordings.steps(record.id)
            if step.step_kind == "model_call"
        ]
        return steps[0].id


def test_a_user_of_an_embedded_tally_is_named_with_as(run: Run) -> None:
    assert SECRET in run("--as", "ada", "memories")[1]
    assert SECRET in run("--as", "ada", "recall", "code word")[1]
    assert SECRET not in run("memories")[1]
    assert SECRET not in run("--as", "bob", "recall", "code word")[1]
    assert "owner's own" in run("--as", "local", "memories")[1]


def test_who_is_named_with_as_operates_nothing_where_the_tally_has_an_owner(run: Run) -> None:
    code, output = run("--as", "ada", "freeze", "--reason", "no")
    assert (code, "missing_permission" in output) == (1, True), output
    assert run("--as", "local", "freeze", "--reason", "audit")[0] == 0


def test_show_why_and_trace_decide_alike_and_each_look_is_journaled(place: Path, run: Run) -> None:
    step = _step(place)
    for arguments in (("show", step), ("why", step), ("trace", step, "code word")):
        code, output = run(*arguments, "--json")
        assert (code, "heliotrope" in output) == (0, True), output
    with Tally.open(place, background=False) as tally:
        with services_of(tally).store.database.read() as connection:
            looks = [
                entry
                for entry in journal.entries(connection, "scope:private:ada")
                if entry.event == "recording.read"
            ]
        assert [(look.actor["user"], look.surface, look.subject_id) for look in looks] == [
            ("local", "cli", step)
        ] * 3


def test_memories_of_another_are_closed_until_they_are_opened(place: Path, run: Run) -> None:
    step = _step(place)
    for command in ("show", "why"):
        closed, opened = run(command, step)[1], run(command, step, "--open")[1]
        assert "heliotrope" not in closed
        assert "a memory of ada" in closed
        assert "heliotrope" in opened
        assert "heliotrope" in run("--as", "ada", command, step)[1]
    run("show", step, "--json")
    with Tally.open(place, background=False) as tally:
        ada = tally.user("ada")
        [memory] = [each.id for each in ada.memories() if "heliotrope" in each.content]
        with services_of(tally).store.database.read() as connection:
            journaled = [
                (entry.subject_id, entry.actor["user"], entry.details["step"])
                for entry in journal.entries(connection, "scope:private:ada")
                if entry.event == "memory.opened"
            ]
    assert journaled == [(memory, "local", step)] * 3


def test_a_look_at_a_recording_lets_nobody_read_the_memory(place: Path, run: Run) -> None:
    shown = json.loads(run("trace", _step(place), "code word", "--json")[1])
    assert {origin["raw"] for origin in shown} == {None}
    assert SECRET not in run("recall", "code word")[1]
    assert run("state", "1")[1].count("heliotrope") == 0


def test_what_one_has_recorded_oneself_is_read_without_an_entry(place: Path, run: Run) -> None:
    assert "heliotrope" in run("--as", "ada", "show", _step(place))[1]
    with Tally.open(place, background=False) as tally:
        with services_of(tally).store.database.read() as connection:
            events = [e.event for e in journal.entries(connection, "scope:private:ada")]
        assert "recording.read" not in events
