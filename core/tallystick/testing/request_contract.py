"""RequestContract: the golden agent, whose receipts are the same in every runtime.

Subclass it in a test module whose name pytest collects, with a fixture `open_tally` and a `play`
that runs the agent below in the runtime. What is compiled, what changed from step to step, what a
changed replay holds and what surfaces show equal those of direct calls of BoundTally.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from tallystick.kit import RequestCompiler, RequestParts, ToolCall, record_tool_call
from tallystick.kit.rendering import record_tool_result
from tallystick.records import Actor, ContextItem, StepRecord, ToolSpec
from tallystick.tally import BoundTally
from tallystick.testing.tally_contract import OpenTally

AGENT = Actor(user="alice", agent="pilot")
SYSTEM = "You help at the harbour."
MEMORY = "The key of the boat hangs on the hook by the door."
PROMPTS = ("Good morning.", "Where is the key of the boat, and how deep is the harbour?")
DEPTH = "harbour: four metres"
TOOL_NAME, PLACE = "depth", "harbour"
ANSWERS: tuple[str | None, ...] = (
    "Good morning at the harbour.",
    None,
    "It hangs on the hook, and it is four metres deep.",
)
"""The words of the model at each of its calls; None is a call of the tool for the place."""
_SMALL = 400
"""Tokens of the changed replay."""


def depth(place: str) -> str:
    """Depth of a place."""
    return f"{place}: four metres"


class StepFacts(NamedTuple):
    """A model step as its receipt has it, without ids, numbers and names of the runtime."""

    coverage: str | None
    knew: list[tuple[str, str, str, str]]
    """Of each item in the order of the prompt its kind, text, decision and reason."""
    unseen: list[tuple[str, str]]
    """Of each item that was left out its kind and the reason."""
    prefix: str | None
    """How the prompt follows the one before it in the run."""


class RequestContract:
    """The behaviour of every adapter that compiles the requests of its runtime."""

    def play(self, bound: BoundTally) -> None:
        """Run the golden agent, recorded: instructions SYSTEM, the tool `depth`, the requests
        PROMPTS in one conversation, and a model that answers with ANSWERS.
        """
        raise NotImplementedError

    def pages(self, bound: BoundTally, step: StepRecord) -> Mapping[str, str]:
        """Return what surfaces show of a step, by their names; none by default."""
        return {}

    def test_every_request_is_compiled_whole_as_by_direct_calls(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            direct, played = self._both(tally.bind(AGENT))
            expected = [_facts(tally.bind(AGENT), step) for step in direct]
            assert [_facts(tally.bind(AGENT), step) for step in played] == expected
            assert [facts.coverage for facts in expected] == ["whole"] * len(ANSWERS)
            kinds = [kind for kind, *_ in expected[-1].knew]
            assert {"system", "tool_schema", "memory", "user_msg", "tool_result"} <= set(kinds)

    def test_what_changed_from_step_to_step_is_what_changes_in_direct_calls(
        self, open_tally: OpenTally
    ) -> None:
        with open_tally() as tally:
            bound = tally.bind(AGENT)
            changes = []
            for steps in self._both(bound):
                names = _names(bound, steps)
                diffs = [
                    bound.recordings.diff(before.id, after.id).compile
                    for before, after in pairwise(steps)
                ]
                changes.append(
                    [
                        {
                            kind: sorted(names[change.item_id] for change in getattr(diff, kind))
                            for kind in ("added", "removed", "changed", "policy")
                        }
                        for diff in diffs
                        if diff is not None
                    ]
                )
            assert changes[0] == changes[1]
            assert len(changes[0]) == len(ANSWERS) - 1

    def test_a_changed_replay_holds_the_latest_request(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = tally.bind(AGENT)
            requests = []
            for steps in self._both(bound):
                again: Any = bound.recordings.replay(steps[-1].id, token_budget=_SMALL)
                assert again.warnings == ()
                requests.append([_shown(item) for item in again.request["items"]])
            assert requests[0] == requests[1]
            assert ("user_msg", PROMPTS[-1]) in requests[0]

    def test_surfaces_show_what_they_show_of_direct_calls(self, open_tally: OpenTally) -> None:
        with open_tally() as tally:
            bound = tally.bind(AGENT)
            pages = []
            for steps in self._both(bound):
                blanks = sorted({*_names(bound, steps), "system"}, key=len, reverse=True)
                shown = self.pages(bound, steps[-1])
                pages.append({name: _blanked(page, blanks) for name, page in shown.items()})
            assert pages[0] == pages[1]

    def _both(self, bound: BoundTally) -> tuple[list[StepRecord], list[StepRecord]]:
        """Return the model steps of direct calls, and of the runtime, oldest first."""
        bound.remember(MEMORY)
        play_directly(bound)
        direct = _model_steps(bound)
        self.play(bound)
        return direct, _model_steps(bound)[len(direct) :]


def play_directly(bound: BoundTally) -> None:
    """Run the golden agent by direct calls."""
    schema: Any = {"type": "object", "properties": {"place": {"type": "string"}}}
    tool = ToolSpec(name=TOOL_NAME, description=depth.__doc__ or "", parameters=schema)
    compiler, answers = RequestCompiler(), iter(ANSWERS)
    items = [ContextItem(id="system", kind="system", content=SYSTEM)]

    def add(kind: Any, content: str, **fields: Any) -> None:
        name = f"message-{len(items)}"
        items.append(ContextItem(id=name, kind=kind, content=content, **fields))

    for prompt in PROMPTS:
        add("user_msg", prompt)
        with bound.run("pilot", goal=prompt) as run:
            words: str | None = None
            while words is None:
                with run.step("model_call", name="model") as step:
                    parts = RequestParts(items=items, tools=[tool], text=prompt, turn=run.id)
                    compiler.compile(bound, parts)
                    step.record("request", {"messages": []})
                    words = next(answers)
                    step.record("response", {"answer": words})
                if words is None:
                    call: Any = {"id": "c1", "name": TOOL_NAME, "args": {"place": PLACE}}
                    calls = {"tool_call_ids": ("c1",), "metadata": {"tool_calls": [call]}}
                    add("assistant_msg", "", **calls)
                    with run.step("tool_call", name=TOOL_NAME) as tool_step:
                        record_tool_call(tool_step, ToolCall(TOOL_NAME, {"place": PLACE}, "c1"))
                        record_tool_result(tool_step, depth(PLACE))
                    add("tool_result", depth(PLACE), tool_call_id="c1")
                else:
                    add("assistant_msg", words)


def _model_steps(bound: BoundTally) -> list[StepRecord]:
    return [
        step
        for run in reversed(bound.recordings.runs())
        for step in bound.recordings.steps(run.id)
        if step.step_kind == "model_call"
    ]


def _facts(bound: BoundTally, step: StepRecord) -> StepFacts:
    request, compiled = bound.recordings.compiled(step.id)
    assert request.coverage == compiled.coverage
    chosen: list[tuple[str, str, str, str]] = [
        (*_shown(item), decision.decision, decision.reason_code)
        for item in compiled.selected_items
        for decision in (compiled.decision(item.id),)
    ]
    left = [(item.kind, compiled.decision(item.id).reason_code) for item in compiled.excluded_items]
    prefix: Any = next(
        entry.summary.get("prefix")
        for entry in bound.recordings.entries(step.id)
        if entry.kind == "compiled"
    )
    return StepFacts(compiled.coverage, chosen, sorted(left), prefix and prefix["cause"])


def _shown(item: Any) -> tuple[str, str]:
    """Return the kind and the text of an item; a schema has a form in each runtime."""
    fields = item if isinstance(item, Mapping) else item.model_dump()
    is_tool = fields["kind"] == "tool_schema"
    return fields["kind"], TOOL_NAME if is_tool else fields["content"]


def _names(bound: BoundTally, steps: list[StepRecord]) -> dict[str, str]:
    """Return each item of these steps by its id: its kind and text."""
    return {
        item.id: ": ".join(_shown(item))
        for step in steps
        for item in bound.recordings.compiled(step.id).compiled.selected_items
    }


def _blanked(page: str, ids: list[str]) -> str:
    """Return a page without ids, which some surfaces cut, and without numbers."""
    for name in ids:
        page = re.sub(rf"(?<!\w)({re.escape(name)}|…{re.escape(name[-8:])})(?!\w)", "item", page)
    return re.sub(r"\d+", "#", re.sub(r"[0-9a-f]{8,}(-[0-9a-f]+)*", "id", page))
