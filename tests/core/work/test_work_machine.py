"""Whatever is started, blocked, linked, completed or cancelled, in any order: the promises hold.

The model knows of each task its state, its version and its links, by its own few lines. After every
step the task says what the model says, and at the end nothing depends on itself, each completed
task has its episode, and the journal verifies.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tallystick.errors import InvalidInput, StateConflict, TallystickError, VersionConflict
from tallystick.records import Actor
from tallystick.tally import Tally
from tallystick_work import Work

WAYS = {
    "start": ("todo", "doing"),
    "block": ("doing", "blocked"),
    "unblock": ("blocked", "doing"),
    "submit": ("doing", "review"),
    "complete": ("review", "done"),
}
STATES = ("todo", "doing", "blocked", "review", "done", "cancelled")
NUMBERS = itertools.count()


@dataclass
class Known:
    """What the model knows of a task."""

    status: str = "todo"
    version: int = 1
    needs: set[str] = field(default_factory=set)
    mentions: set[str] = field(default_factory=set)
    episode: str | None = None
    archived: bool = False


class WorkMachine(RuleBasedStateMachine):
    """The tasks of one scope of an open tally."""

    tally: Tally

    @initialize()
    def begin(self) -> None:
        self.mine = self.tally.bind(Actor(user=f"u{next(NUMBERS)}"))
        self.work = Work(self.mine)
        self.known: dict[str, Known] = {}
        for _ in range(3):
            self.add()

    @precondition(lambda self: len(self.known) < 8)
    @rule()
    def add(self) -> None:
        stored = self.mine.remember(
            f"Task {len(self.known)}.", kind="task", attributes={"project": "apollo"}
        )
        self.known[stored.id] = Known()

    @rule(which=st.integers(0, 7), step=st.sampled_from(sorted(WAYS)), stale=st.booleans())
    def take_step(self, which: int, step: str, stale: bool) -> None:
        task_id, known = self._task(which)
        since, status = WAYS[step]
        call: Any = getattr(self.work, step)
        arguments: dict[str, Any] = {"if_version": known.version - 1} if stale else {}
        if step == "block":
            arguments["blocker"] = "words"
        if stale:
            self._refused(task_id, VersionConflict, lambda: call(task_id, **arguments))
        elif known.status != since:
            self._refused(task_id, StateConflict, lambda: call(task_id, **arguments))
        else:
            answer = call(task_id, **arguments)
            known.status, known.version = status, known.version + 1
            if step == "complete":
                known.episode = answer.episode_id
        self._check(task_id)

    @rule(which=st.integers(0, 7))
    def cancel(self, which: int) -> None:
        task_id, known = self._task(which)
        if known.status == "cancelled":
            self._refused(task_id, StateConflict, lambda: self.work.cancel(task_id, reason="r"))
        else:
            self.work.cancel(task_id, reason="r")
            known.status, known.version = "cancelled", known.version + 1
        self._check(task_id)

    @rule(which=st.integers(0, 7))
    def archive(self, which: int) -> None:
        task_id, known = self._task(which)
        if known.status not in ("done", "cancelled"):
            self._refused(task_id, StateConflict, lambda: self.work.archive(task_id))
        else:
            self.work.archive(task_id)
            known.version += not known.archived
            known.archived = True
        self._check(task_id)

    @rule(which=st.integers(0, 7), status=st.sampled_from(STATES))
    def write_status(self, which: int, status: str) -> None:
        """A change by the other verb keeps to the same ways."""
        task_id, known = self._task(which)
        may = (known.status, status) in WAYS.values() or status == "cancelled"

        def write() -> None:
            self.mine.modify(task_id, attributes={"status": status}, reason="r")

        if not may and status != known.status:
            self._refused(task_id, StateConflict, write)
        else:
            write()
            # The state that it has by default is written down by the first change that names it.
            known.version = self.mine.get(task_id).version
            known.status = status
        self._check(task_id)

    @rule(which=st.integers(0, 7), other=st.integers(0, 7), hard=st.booleans())
    def link(self, which: int, other: int, hard: bool) -> None:
        (task_id, known), (other_id, _) = self._task(which), self._task(other)
        name, linked = ("depends_on", known.needs) if hard else ("related_to", known.mentions)
        change: dict[str, Any] = {name: {"add": [other_id]}}

        def write() -> None:
            self.mine.modify(task_id, reason="r", **change)

        if other_id == task_id and other_id not in linked:
            self._refused(task_id, InvalidInput, write)
        elif hard and self._leads(other_id, task_id):
            self._refused(task_id, StateConflict, write)
        else:
            write()
            known.version += other_id not in linked
            linked.add(other_id)
        self._check(task_id)

    @rule(which=st.integers(0, 7), other=st.integers(0, 7), hard=st.booleans())
    def unlink(self, which: int, other: int, hard: bool) -> None:
        (task_id, known), (other_id, _) = self._task(which), self._task(other)
        name, linked = ("depends_on", known.needs) if hard else ("related_to", known.mentions)
        change: dict[str, Any] = {name: {"remove": [other_id]}}
        if other_id not in linked:
            self._refused(
                task_id, InvalidInput, lambda: self.mine.modify(task_id, reason="r", **change)
            )
        else:
            self.mine.modify(task_id, reason="r", **change)
            linked.discard(other_id)
            known.version += 1
        self._check(task_id)

    def teardown(self) -> None:
        if not hasattr(self, "known"):
            return
        assert self.work.cycles() == ()
        listed = {task.id: task for archived in (False, True) for task in self._list(archived)}
        assert {name: task.status for name, task in listed.items()} == {
            name: known.status for name, known in self.known.items()
        }
        over = {name for name, known in self.known.items() if known.status in ("done", "cancelled")}
        for name, known in self.known.items():
            assert {*listed[name].waits_for} == known.needs - over
            if known.episode is not None:
                links = self.mine.inspect(known.episode).affected.links
                assert any(link.kind == "DERIVED_FROM" and link.memory_id == name for link in links)
            versions = [entry.version for entry in self.mine.history(name)]
            assert versions == sorted(versions)
            assert versions[-1] == known.version
        first_waiting = [
            bool(each.task.waits_for) or each.task.status == "blocked"
            for each in self.work.prioritize()
        ]
        assert first_waiting == sorted(first_waiting)

    def _list(self, archived: bool) -> list[Any]:
        return self.work.list(archived=archived)

    def _task(self, which: int) -> tuple[str, Known]:
        return list(self.known.items())[which % len(self.known)]

    def _leads(self, start: str, end: str) -> bool:
        ahead, seen = [start], {start}
        while ahead:
            name = ahead.pop()
            if name == end:
                return True
            ahead += [each for each in self.known[name].needs if each not in seen]
            seen |= self.known[name].needs
        return False

    def _refused(
        self, task_id: str, error: type[TallystickError], call: Callable[[], object]
    ) -> None:
        before = self.mine.get(task_id)
        with pytest.raises(error):
            call()
        assert self.mine.get(task_id) == before

    def _check(self, task_id: str) -> None:
        known, memory = self.known[task_id], self.mine.get(task_id)
        links = self.mine.inspect(task_id).affected.links
        out = {(link.kind, link.memory_id) for link in links if link.direction == "to"}
        assert (memory.attributes.get("status", "todo"), memory.version) == (
            known.status,
            known.version,
        )
        assert out == {("DEPENDS_ON", each) for each in known.needs} | {
            ("REFERENCES", each) for each in known.mentions
        }


def _play(tally: Tally, examples: int, steps: int) -> None:
    class Machine(WorkMachine):
        pass

    Machine.tally = tally
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_random_steps_and_links_keep_what_is_promised(open_tally: Callable[..., Tally]) -> None:
    with open_tally() as tally:
        _play(tally, examples=6, steps=40)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_ten_thousand_random_steps_and_links_keep_what_is_promised(
    open_tally: Callable[..., Tally],
) -> None:
    with open_tally() as tally:
        _play(tally, examples=100, steps=100)
