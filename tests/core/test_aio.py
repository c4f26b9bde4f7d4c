"""The lane: asynchronous calls that are carried out together, each with its own context, answer and
failure.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from tallystick.aio import Lane

_who: ContextVar[str] = ContextVar("who", default="nobody")


async def test_calls_of_tasks_that_wait_together_are_begun_before_any_is_waited_for() -> None:
    told: list[str] = []

    def begin(name: str) -> Callable[[], str]:
        told.append(f"begin {name}")

        def end() -> str:
            told.append(f"end {name}")
            return name

        return end

    lane = Lane(lambda: told.append("all begun"))
    answers = await asyncio.gather(*(lane.run(lambda name=name: begin(name)) for name in "abc"))  # type: ignore[misc]

    assert (answers, told) == (
        ["a", "b", "c"],
        ["begin a", "begin b", "begin c", "all begun", "end a", "end b", "end c"],
    )


async def test_each_call_has_its_callers_context_and_its_own_failure() -> None:
    def fails() -> Callable[[], str]:
        raise ValueError("mine")

    def ends_badly() -> None:
        raise StopIteration

    async def named(name: str) -> str:
        _who.set(name)
        return await lane.run(lambda: lambda: _who.get())

    lane = Lane(lambda: None)
    found = await asyncio.gather(
        named("ann"),
        lane.run(fails),
        named("bea"),
        lane.run(lambda: ends_badly),
        return_exceptions=True,
    )

    assert (found[0], found[2]) == ("ann", "bea")
    assert [type(one) for one in (found[1], found[3])] == [ValueError, RuntimeError]


async def test_a_cancelled_task_hinders_nobody_and_its_call_is_carried_out() -> None:
    lane, go, done = Lane(lambda: None), threading.Event(), threading.Event()

    def slow() -> None:
        go.wait(30)
        done.set()

    waits = asyncio.create_task(lane.run(lambda: slow))
    after = asyncio.create_task(lane.run(lambda: lambda: "after"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    go.set()

    assert await after == "after"
    assert done.is_set()


def test_loops_of_several_threads_share_a_lane() -> None:
    lane = Lane(lambda: None)

    async def many(number: int) -> list[int]:
        return [await lane.run(lambda turn=turn: lambda: number * turn) for turn in range(50)]  # type: ignore[misc]

    found: dict[int, list[int]] = {}

    def play(number: int) -> None:
        found[number] = asyncio.run(many(number))

    threads = [threading.Thread(target=play, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == {number: [number * turn for turn in range(50)] for number in range(4)}
