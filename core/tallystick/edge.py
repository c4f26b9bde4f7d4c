"""The asynchronous edge: one synchronous core, called from worker threads with a limiter of our own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

__all__ = ["in_thread", "iterate_in_thread"]

T = TypeVar("T")

_THREADS = 16
_limiter: RunVar[CapacityLimiter] = RunVar("tallystick_limiter")
_END: Any = object()


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Run `function` in a worker thread, in a copy of the caller's context; its errors are raised here.

    Our limiter is apart from the event loop's default one, so that a busy tally never starves other threads.
    """
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(_THREADS)
        _limiter.set(limiter)
    return await to_thread.run_sync(function, *arguments, limiter=limiter)


async def iterate_in_thread(iterator: Iterator[T]) -> AsyncGenerator[T]:
    """Take the items of a synchronous iterator one by one, each in a worker thread."""

    def step() -> T:
        item: T = next(iterator, _END)
        return item

    while True:
        item = await in_thread(step)
        if item is _END:
            return
        yield item
