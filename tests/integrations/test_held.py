"""The held set of tools and workflows can be solved, and not by saying nothing; no scripted model
passes its gate.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from tests.benchmarks import held
from tests.benchmarks.discovery import load_tasks

from tallystick_mcp.routes import EXPLORE, MANAGE
from tallystick_mcp.server import TOOLS

WORKFLOWS = held.load()["workflows"]


class _Scripted:
    """Makes the calls that a workflow names, turn by turn, with the ids that it was shown; then says
    what it read, and `answer`.
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
            hit["id"]
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
