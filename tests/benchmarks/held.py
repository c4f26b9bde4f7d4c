"""Whether a model selects the tools of the MCP server rightly, and completes workflows with them,
on a set that was frozen after their descriptions.

    python -m tests.benchmarks.held --model openai:gpt-5

The set is held apart (tests/fixtures/held): no description is changed after a look at its misses.
A workflow is played on a tally of its own with the tools of the real server, turn by turn, and is
judged by what is stored at the end and by strings of the last answer; no model judges. Only a real
model says anything: without one it is not run.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from tests.benchmarks.discovery import ModelRouter, route_all, tool_schemas
from tests.benchmarks.measures import Measure, figure, least, lines, missed

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick_mcp import serve
from tallystick_mcp.server import TOOLS, TallyServer

SET = Path(__file__).parents[1] / "fixtures" / "held" / "tools.json"
MODEL = "TALLYSTICK_BENCH_MODEL"
"""The variable that names a model for the gate, as LangChain does: `openai:gpt-5`."""
SELECTED, COMPLETED = 85, 95
"""Percent of the tasks and of the workflows of which more have to be right."""
_USER = Actor(user="ann")
_MOST_CALLS = 12
"""Calls in one turn, after which it is given up."""
_INSTRUCTIONS = "You keep the long-term memory of the user with these tools."


def load() -> dict[str, Any]:
    """Return the set, as it was frozen."""
    data: dict[str, Any] = json.loads(SET.read_text(encoding="utf-8"))
    return data


def descriptions_digest() -> str:
    """Return the digest of the descriptions that a model is given."""
    text = json.dumps({name: tool.description for name, tool in TOOLS.items()}, sort_keys=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def model_name() -> str:
    """Return the model that is to be measured; empty where none is named."""
    return os.environ.get(MODEL, "")


def reasons_not_to_run() -> Iterator[str]:
    """Yield what is needed to run with the model that is named."""
    if not model_name():
        yield f"not run: no model; name one: {MODEL}=openai:gpt-5, with its key in the environment"
        return
    try:
        model_of(model_name())
    except Exception as error:  # noqa: BLE001 - each provider raises errors of its own
        yield f"not run: {str(error).splitlines()[0]}"


def model_of(name: str) -> Any:
    """Return a chat model by its name. Raises what the provider does without package or key."""
    return importlib.import_module("langchain.chat_models").init_chat_model(name, temperature=0)


def more_than(percent: int, total: int) -> int:
    """Return the least number of `total` that is more than so many percent."""
    return total * percent // 100 + 1


def measures(model: Any, most_tasks: int, most_workflows: int) -> Iterator[Measure]:
    """Yield what a model selects and completes."""
    held = load()
    tasks, workflows = held["tasks"][:most_tasks], held["workflows"][:most_workflows]
    outcome = route_all(ModelRouter(model), tasks)
    yield figure(f"tool alone, right in {len(tasks)} tasks", outcome.discovered, "wrong tool")
    yield least(
        f"tool and mode, right in {len(tasks)} tasks",
        outcome.selected,
        more_than(SELECTED, len(tasks)),
        "wrong tool",
        f"more than {SELECTED} percent",
    )
    done = [complete(workflow, model) for workflow in workflows]
    yield least(
        f"workflows completed of {len(workflows)}",
        sum(done),
        more_than(COMPLETED, len(workflows)),
        "not completed",
        f"more than {COMPLETED} percent",
    )
    is_changed = held["descriptions"] != descriptions_digest()
    yield figure("descriptions changed since the set was frozen", is_changed, "held apart")


def complete(workflow: Mapping[str, Any], model: Any) -> bool:
    """Play a workflow on a tally of its own; return True if it was completed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Tally.open(Path(folder) / "tally", background=False) as tally,
    ):
        bound = tally.bind(_USER)
        ids = [bound.remember(each["content"], kind=each["kind"]).id for each in workflow["before"]]
        for content in workflow.get("others", ()):
            tally.bind(Actor(user="bo")).remember(content)
        tally.drain()
        server = serve(tally, actor=_USER, approval="elsewhere")
        answer, called = anyio.run(_play, server, model.bind_tools(tool_schemas()), workflow["say"])
        return _holds(workflow["check"], bound, ids, answer, called)


async def _play(server: TallyServer, model: Any, said: Sequence[str]) -> tuple[str, set[str]]:
    """Say the turns of a user; return the last answer, and the tools that were called."""
    messages: list[Any] = [SystemMessage(_INSTRUCTIONS)]
    called: set[str] = set()
    for text in said:
        messages.append(HumanMessage(text))
        for _ in range(_MOST_CALLS):
            answer = await model.ainvoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                break
            for call in answer.tool_calls:
                called.add(call["name"])
                messages.append(ToolMessage(await _call(server, call), tool_call_id=call["id"]))
    return str(messages[-1].text), called


async def _call(server: TallyServer, call: Mapping[str, Any]) -> str:
    """Return the answer of a tool as a client of the protocol shows it to a model."""
    try:
        result: Any = await server.call_tool(call["name"], call["args"])
    except Exception as error:  # noqa: BLE001 - whatever the protocol answers, a model reads it
        return f"Error: {error}"
    return "\n".join(each.text for each in result.content if each.type == "text")


def _holds(
    check: Mapping[str, Any], bound: BoundTally, ids: Sequence[str], answer: str, called: set[str]
) -> bool:
    """Return True if what is stored, said and called is what a workflow asks for."""
    active = bound.memories(limit=100)

    def texts(of: Sequence[Any]) -> str:
        return "\n".join(each.content for each in of).casefold()

    def has(part: str, name: str, value: Any) -> bool:
        found = [each for each in active if part.casefold() in each.content.casefold()]
        return bool(found) and all(
            value in held if isinstance(held := getattr(each, name), tuple) else value == held
            for each in found
        )

    pinned = [each for each in active if each.pinned]
    events = [each.event for memory_id in ids for each in bound.history(memory_id)]
    return all(
        (
            all(part.casefold() in texts(active) for part in check.get("active", ())),
            not any(part.casefold() in texts(active) for part in check.get("gone", ())),
            all(part.casefold() in texts(pinned) for part in check.get("pinned", ())),
            all(has(part, "kind", kind) for part, kind in check.get("kinds", {}).items()),
            all(has(part, "tags", tag) for part, tag in check.get("tags", {}).items()),
            all(part.casefold() in answer.casefold() for part in check.get("answer", ())),
            not any(part.casefold() in answer.casefold() for part in check.get("answer_not", ())),
            check.get("count") in (None, len(active)),
            set(check.get("events", ())) <= set(events),
            set(check.get("called", ())) <= called,
        )
    )


def main() -> int:
    """Print every figure; return 1 where a bar is missed, or where nothing was run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="a real model, as LangChain names it: openai:gpt-5")
    if chosen := parser.parse_args().model:
        os.environ[MODEL] = chosen
    if reasons := list(reasons_not_to_run()):
        print(*reasons, sep="\n")
        return 1
    held = load()
    found = list(measures(model_of(model_name()), len(held["tasks"]), len(held["workflows"])))
    print(*lines(found), sep="\n")
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
