"""The bridge for asynchronous callers: one synchronous core, called from worker threads with a
limiter of our own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from anyio import CapacityLimiter
    from anyio.lowlevel import RunVar

T = TypeVar("T")
Completion = Callable[[], T]
"""Waits for the end of a call that was begun, and returns its result."""

_THREADS = 16
_AT_ONCE = 4
_END: Any = object()


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run `function` in a worker thread, in a copy of the caller's context; its errors are raised
    here.

    Our limiter is apart from the event loop's default one, so that a busy tally never starves other
    threads.
    """
    return await _run(function, arguments, "tallystick_limiter", _THREADS)


async def end_in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Same as `in_thread`, for the end of a block: a scope that is cancelled waits for it."""
    from anyio import CancelScope

    results: list[T] = []
    with CancelScope(shield=True):
        results.append(await in_thread(function, *arguments))
    return results[0]


async def begin_in_thread(begin: Callable[[], T], end: Callable[[T], object]) -> T:
    """Same as `in_thread`, for the begin of a block: what had begun for a caller who is cancelled
    meanwhile, `end` ends.
    """
    guard = threading.Lock()
    begun: list[T] = []
    is_left = False

    def work() -> T:
        result = begin()
        with guard:
            begun.append(result)
            ends = is_left
        if ends:
            end(result)
        return result

    def leave() -> None:
        nonlocal is_left
        with guard:
            is_left, left = True, list(begun)
        for result in left:
            end(result)

    try:
        return await in_thread(work)
    except BaseException:
        await end_in_thread(leave)
        raise


async def at_once(function: Callable[..., T], *arguments: Any) -> T:
    """Same as `in_thread`, for short work that must not wait behind that of others."""
    return await _run(function, arguments, "tallystick_limiter_at_once", _AT_ONCE)


async def _run(
    function: Callable[..., T],
    arguments: tuple[Any, ...],
    limiter_name: str,
    threads: int,
) -> T:
    # Loaded here: most processes that load this module have no event loop.
    from anyio import CapacityLimiter, to_thread

    limiters = _limiters(limiter_name)
    try:
        limiter = limiters.get()
    except LookupError:
        limiter = CapacityLimiter(threads)
        limiters.set(limiter)
    return await to_thread.run_sync(function, *arguments, limiter=limiter)


@cache
def _limiters(name: str) -> RunVar[CapacityLimiter]:
    """Return the variable that has the limiter of each event loop."""
    from anyio.lowlevel import RunVar

    return RunVar(name)


def on_event_loop() -> bool:
    """Return True on a thread that runs an event loop, where nothing may wait for a disk."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def iterate_in_thread(iterator: Iterator[T]) -> AsyncGenerator[T]:
    """Yield the items of a synchronous iterator, each taken in a worker thread."""

    def step() -> T:
        item: T = next(iterator, _END)
        return item

    while True:
        item = await in_thread(step)
        if item is _END:
            return
        yield item


class _Call:
    """One asynchronous call: what begins it, its caller's context and its future result."""

    __slots__ = ("answer", "begin", "context", "loop")

    def __init__(
        self, begin: Callable[[], Completion[Any]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.begin = begin
        self.context: Context = copy_context()
        self.loop = loop
        self.answer: asyncio.Future[Any] = loop.create_future()


class Lane:
    """Short calls of many tasks, carried out in turns by one worker thread.

    The calls that have arrived are begun one by one, then waited for, then answered at once: tasks
    that write at the same time share a commit and two changes of thread, where a worker for each
    would take turns for the interpreter. A task that is cancelled waits no longer; its call is
    carried out all the same.
    """

    def __init__(self, before_waiting: Callable[[], None]) -> None:
        """Create a lane; `before_waiting` is called after calls were begun and before they are
        waited for.
        """
        self._before_waiting = before_waiting
        self._guard = threading.Lock()
        self._waiting: list[_Call] = []
        self._ready: dict[asyncio.AbstractEventLoop, list[_Call]] = {}
        self._busy = False
        self._worker: ThreadPoolExecutor | None = None

    async def run(self, begin: Callable[[], Completion[T]]) -> T:
        """Return the result of `begin()()`, both called in the lane and in the caller's context;
        errors are raised here.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # another kind of loop, which anyio knows
            return await in_thread(lambda: begin()())
        call = _Call(begin, loop)
        ready = self._ready.get(loop)
        if ready is None:
            # Tasks that were woken together call one after the other: their calls are sent
            # together.
            self._ready[loop] = [call]
            loop.call_soon(self._send, loop)
        else:
            ready.append(call)
        result: T = await call.answer
        return result

    def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        calls = self._ready.pop(loop)
        with self._guard:
            self._waiting += calls
            if self._busy:
                return
            self._busy = True
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, thread_name_prefix="tallystick-lane")
        self._worker.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._guard:
                calls, self._waiting = self._waiting, []
                if not calls:
                    self._busy = False
                    return
            started = [(call, *_outcome(call, call.begin)) for call in calls]
            self._before_waiting()
            answers: defaultdict[asyncio.AbstractEventLoop, list[_Answer]] = defaultdict(list)
            for call, complete, failure in started:
                result, error = (None, failure) if failure is not None else _outcome(call, complete)
                answers[call.loop].append((call.answer, result, error))
            for loop, of_loop in answers.items():
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(_answer, of_loop)


_Answer = tuple["asyncio.Future[Any]", Any, BaseException | None]


def _outcome(call: _Call, function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return call.context.run(function), None
    except BaseException as error:  # noqa: BLE001 - handed to the task that waits for it
        return None, error


def _answer(answers: list[_Answer]) -> None:
    for answer, result, error in answers:
        if answer.done():
            continue
        if error is None:
            answer.set_result(result)
        elif isinstance(error, StopIteration):
            answer.set_exception(RuntimeError("A call in a worker thread raised StopIteration."))
        else:
            answer.set_exception(error)
