"""The held set of tools and workflows can be solved, and not by saying nothing; no scripted model
passes its gate.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from tests.benchmarks import held
from tests.benchmarks.discovery import load_tasks
from tests.gates.__main__ import store_baseline
from tests.gates.catalogue import GATES
from tests.gates.running import run_gate

from tallystick.errors import InvalidInput
from tallystick_mcp.routes import EXPLORE, MANAGE
from tallystick_mcp.server import TOOLS

WORKFLOWS = held.load()["workflows"]


class _Scripted:
    """Makes the calls that a workflow names, turn by turn, with the ids that it was shown; then
    says what it read, and `answer`.
    """

    def __init__(self, workflow: Mapping[str, Any], answer: str) -> None:
        self._turns = iter(workflow["calls"])
        self._calls: Iterator[Sequence[Any]] = iter(())
        self._before, self._answer = workflow["before"], answer

    def bind_tools(self, tools: Any) -> _Scripted:
        assert [each["function"]["name"] for each in tools] == list(TOOLS)
        return self

    async def ainvoke(self, messages: Sequence[BaseMessage]) -> AIMessage:
        if messages[-1].type == "human":
            self._calls = iter(next(self._turns))
        read = "\n".join(each.text for each in messages if isinstance(each, ToolMessage))
        call = next(self._calls, None)
        if call is None:
            return AIMessage(f"{read}\n{self._answer}")
        name, arguments = call
        if place := re.fullmatch(r"\{(\d+)\}", arguments.get("id", "")):
            arguments = {**arguments, "id": self._id(read, int(place[1]))}
        return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": "1"}])

    def _id(self, read: str, place: int) -> str:
        answers = [json.loads(line) for line in read.splitlines() if line.startswith("{")]
        wanted = self._before[place]["content"]
        return next(
            str(hit["id"])
            for answer in answers
            for hit in answer.get("memories", ())
            if hit["text"] == wanted
        )


def _completed(workflow: Mapping[str, Any], answer: str) -> bool:
    return held.complete(workflow, _Scripted(workflow, answer))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=[each["name"] for each in WORKFLOWS])
def test_a_workflow_is_completed_by_its_calls_and_not_by_saying_nothing(
    workflow: Mapping[str, Any],
) -> None:
    wanted = " ".join(each for each in workflow["check"].get("answer", ()) if each.isupper())
    silent = {**workflow, "calls": [[] for _ in workflow["say"]]}

    assert _completed(workflow, wanted)
    assert not _completed(silent, "I do not know.")


def test_the_set_is_the_one_that_was_frozen_and_about_what_the_tools_take() -> None:
    sums = held.SET.with_name("SHA256SUMS").read_text(encoding="utf-8")
    assert f"{hashlib.sha256(held.SET.read_bytes()).hexdigest()}  {held.SET.name}" in sums
    frozen = held.load()
    modes = {"explore": {*EXPLORE, "policy"}, "manage": {*MANAGE}}
    for task in frozen["tasks"]:
        assert task["mode"] in modes.get(task["tool"], {None}), task
    sizes = GATES["agents"].whole
    assert (len(frozen["tasks"]), len(WORKFLOWS)) == (sizes["tasks"], sizes["workflows"])
    assert not {each["task"] for each in frozen["tasks"]} & {each["task"] for each in load_tasks()}


def test_more_than_85_and_95_percent_have_to_be_right() -> None:
    assert [held.more_than(85, total) for total in (40, 20, 7)] == [35, 18, 6]
    assert [held.more_than(95, total) for total in (21, 20)] == [20, 20]


@pytest.mark.parametrize(
    ("named", "said"),
    [("", "no model"), ("scripted:policy", "Unable to infer model provider")],
    ids=["no model", "a scripted one"],
)
def test_without_a_real_model_the_gate_is_held_and_stores_no_baseline(
    named: str, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(held.MODEL, named)
    evidence = run_gate("agents", GATES["agents"], baselines=tmp_path)

    assert (evidence.verdict, evidence.measures) == ("hold", ())
    assert evidence.missing[0].startswith("not run: ")
    assert said in evidence.missing[0]
    with pytest.raises(InvalidInput, match="did not measure everything"):
        store_baseline(evidence)
