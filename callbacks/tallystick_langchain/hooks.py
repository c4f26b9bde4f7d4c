"""Hooks of LangChain's callbacks: how coroutines await one, and what a runnable begins with."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any, Generic, NamedTuple, ParamSpec, cast

from langchain_core.callbacks import AsyncCallbackManager, CallbackManager

from tallystick.aio import in_thread

P = ParamSpec("P")


class _Hook(Generic[P]):
    """A hook that a coroutine awaits and everybody else calls.

    A coroutine of LangChain gets the hook as a coroutine function: what may wait for a disk runs in
    a worker thread then, in a copy of the call's context. What is to be current in the call itself
    is set afterwards, on the loop. A synchronous call on a loop gets the plain hook, because
    LangChain would run a coroutine in another context.
    """

    def __init__(self, hook: Callable[P, None]) -> None:
        self._hook: Callable[..., None] = hook
        self.__doc__, self.__name__ = hook.__doc__, getattr(hook, "__name__", "hook")

    def __get__(self, handler: Any, owner: type) -> Callable[..., Any]:
        if handler is None:
            return self._hook
        plain = partial(self._hook, handler)
        if not sys._getframe(1).f_code.co_flags & inspect.CO_COROUTINE:
            return plain

        async def await_hook(*args: Any, **kwargs: Any) -> None:
            if not handler.may_wait(kwargs):
                plain(*args, **kwargs)
                return
            with _kept_for_thread():
                await in_thread(partial(plain, *args, **kwargs))
            handler.enter_context(kwargs)

        return await_hook


def awaitable(hook: Callable[P, None]) -> Callable[P, None]:
    """Return a hook as one that coroutines of LangChain await."""
    return cast(Callable[P, None], _Hook(hook))


class Start(NamedTuple):
    """What a runnable begins with."""

    config: Mapping[str, Any]
    context: Any
    """The runtime context that a graph is called with; inside of it the config has it."""


_STARTS = (CallbackManager.on_chain_start.__code__, AsyncCallbackManager.on_chain_start.__code__)
_MOST_FRAMES = 24
"""Frames between a hook and the runnable that begins, at most."""
_kept: ContextVar[Start | None] = ContextVar("tallystick_langchain_start", default=None)


def start_under_way() -> Start | None:
    """Return what the runnable begins with whose start a hook is told of; None in other hooks.

    LangChain tells a hook the metadata alone, and makes the config current only when the code of
    the runnable runs: where that calls no model and no tool, no hook ever sees it. But the caller
    of `on_chain_start` has it, as its variable `config`.
    """
    kept = _kept.get()
    frame: FrameType | None = sys._getframe(1) if kept is None else None
    for _ in range(_MOST_FRAMES):
        if frame is None or frame.f_code in _STARTS:
            break
        frame = frame.f_back
    else:
        return None
    caller = None if frame is None else frame.f_back
    config = None if caller is None else caller.f_locals.get("config")
    if caller is None or not isinstance(config, Mapping):
        return kept
    is_graph = str(caller.f_globals.get("__name__")).startswith("langgraph.pregel")
    return Start(config, caller.f_locals.get("context") if is_graph else None)


@contextmanager
def _kept_for_thread() -> Iterator[None]:
    """Keep what the runnable begins with for another thread, from which its frames are not seen."""
    token = _kept.set(start_under_way())
    try:
        yield
    finally:
        _kept.reset(token)
