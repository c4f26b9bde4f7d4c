"""`bound.aio` has the verbs of a bound tally, awaited: the same names, arguments and effects."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from tallystick import Tally
from tallystick.errors import InvalidInput, RecorderError
from tallystick.memory import WorkingMemory
from tallystick.recorder import Run
from tallystick.tally import (
    BoundApprovals,
    BoundRecordings,
    BoundSpaces,
    BoundTally,
    Corrections,
    Jobs,
    Operator,
    Reviews,
)
from tallystick.tally.async_view import (
    AsyncApprovals,
    AsyncBoundTally,
    AsyncCorrections,
    AsyncJobs,
    AsyncOperator,
    AsyncRecordings,
    AsyncReviews,
    AsyncRun,
    AsyncSpaces,
    AsyncWorkingMemory,
)
from tallystick_learning import AsyncLearning, Learning

FACES: dict[type, type] = {
    BoundTally: AsyncBoundTally,
    Operator: AsyncOperator,
    BoundApprovals: AsyncApprovals,
    BoundRecordings: AsyncRecordings,
    BoundSpaces: AsyncSpaces,
    Corrections: AsyncCorrections,
    Jobs: AsyncJobs,
    Reviews: AsyncReviews,
    Learning: AsyncLearning,
    WorkingMemory: AsyncWorkingMemory,
}
NOT_AWAITED = {
    "aio": "itself",
    "items": "the store of a runtime, whose adapter awaits it",
    "join_run": "for adapters",
    "on": "another view, made without waiting",
    "pack_items": "for packs",
    "require_record": "guards an open run, for servers",
    "start_run": "for adapters; `run` is awaited",
    "steps_saying": "for the page of a run",
    "subscribe": "returns at once",
    "tally": "the tally",
    "threads": "the checkpoints of a runtime, whose adapter awaits them",
    "run_id": "a plain attribute",
    "thread": "a plain attribute",
}


@pytest.mark.parametrize("sync", FACES)
def test_every_verb_is_awaited_under_its_own_name(sync: type) -> None:
    face = FACES[sync]
    verbs = {
        name
        for name, member in inspect.getmembers(sync)
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
    }
    if sync is WorkingMemory:
        verbs -= {"items"}
    awaited = {name for name, _ in inspect.getmembers(face) if not name.startswith("_")}

    assert verbs - awaited <= set(NOT_AWAITED)
    assert awaited - verbs <= {"actor", "scope", "sync"}
    for name in sorted(awaited & verbs):
        own = inspect.getattr_static(face, name)
        verb = getattr(own, "verb", None)
        if verb is not None:
            assert inspect.unwrap(verb) is inspect.unwrap(getattr(sync, name))


async def test_memory_is_written_and_read_without_blocking_the_loop(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t") as tally:
        mine = tally.bind().aio
        stored = await asyncio.gather(
            *(mine.remember(f"The heron has {count} chicks.") for count in range(5))
        )
        hits = await mine.recall("how many chicks has the heron?")

        assert {hit.memory.id for hit in hits} == {one.id for one in stored}
        assert (mine.actor, mine.scope) == (tally.bind().actor, tally.bind().scope)
        with pytest.raises(InvalidInput, match="takes a list"):
            await mine.remember("x", tags="style")


async def test_what_is_awaited_in_a_run_is_recorded_in_its_steps(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t") as tally:
        mine = tally.bind().aio

        async def agent(number: int) -> tuple[str, str]:
            async with mine.run(f"agent {number}", goal="count chicks") as run:
                async with run.step("model_call") as step:
                    step.record("request", {"number": number})
                    await mine.recall("chicks")
                return run.id, step.id

        pairs = await asyncio.gather(*(agent(number) for number in range(4)))
        for run_id, step_id in pairs:
            entries = await mine.recordings.entries(step_id)
            assert [entry.kind for entry in entries] == ["request", "memory_read"]
            assert (await mine.recordings.verify(run_id)).ok
            assert (await mine.recordings.run(run_id)).status == "completed"


async def test_a_step_that_raises_has_failed_and_its_run_too(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t") as tally:
        mine = tally.bind().aio
        run: Any = mine.run("agent")
        with pytest.raises(ZeroDivisionError):
            async with run, run.step("tool_call", name="divide"):
                _ = 1 / 0
        [step] = await mine.recordings.steps(run.id)

        assert step.status == "failed"
        assert (await mine.recordings.run(run.id)).status == "failed"


async def test_a_run_that_its_scope_cancels_is_cancelled_with_its_steps(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t") as tally:
        mine = tally.bind().aio
        with anyio.CancelScope() as scope:
            async with mine.run("agent") as run, run.step("tool_call"):
                scope.cancel()
                await anyio.sleep_forever()
        [step] = await mine.recordings.steps(run.id)

        assert step.status == "cancelled"
        assert (await mine.recordings.run(run.id)).status == "cancelled"


async def test_a_run_whose_caller_is_cancelled_while_it_begins_is_cancelled(
    tmp_path: Path,
) -> None:
    with Tally.open(tmp_path / "t") as tally:
        bound, begins, goes_on = tally.bind(), threading.Event(), threading.Event()

        def begin() -> Run:
            begins.set()
            goes_on.wait(60)
            return bound.run("agent")

        async def agent() -> None:
            async with AsyncRun(begin):
                raise AssertionError("It was cancelled before.")

        task = asyncio.create_task(agent())
        await asyncio.to_thread(begins.wait, 60)
        task.cancel()
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        while not (ended := [each for each in bound.recordings.runs() if each.ended_at]):
            await asyncio.sleep(0.01)

        assert [each.status for each in ended] == ["cancelled"]


def test_a_run_begins_with_its_block(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "t") as tally, pytest.raises(RecorderError, match="async with"):
        _ = tally.bind().aio.run("agent").id
