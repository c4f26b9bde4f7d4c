"""The requests behind compiled contexts, for as long as somebody holds these, and the contexts
whose messages a runtime is about to send.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from tallystick.records import CompilationRequest, CompiledContext

_MOST_UNSENT = 16


class _Unsent(NamedTuple):
    messages: tuple[Any, ...]
    compiled: CompiledContext


class CompileRequests:
    """The requests of compiled contexts that somebody still holds, so that one can be compiled
    again with another budget. Thread-safe.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, CompilationRequest] = {}
        self._unsent: deque[_Unsent] = deque(maxlen=_MOST_UNSENT)

    def note(self, compiled: CompiledContext, request: CompilationRequest) -> None:
        """Note the request of a context, for as long as that context lives."""
        key = id(compiled)
        self._by_id[key] = request
        weakref.finalize(compiled, self._by_id.pop, key, None).atexit = False

    def of(self, compiled: CompiledContext) -> CompilationRequest | None:
        """Return the request of a context, or None for one that was not compiled here."""
        return self._by_id.get(id(compiled))

    def note_unsent(self, messages: Sequence[Any], compiled: CompiledContext) -> None:
        """Note the messages that were made of a context, until an observer sees them sent."""
        self._unsent.append(_Unsent(tuple(messages), compiled))

    def take_sent(self, messages: Sequence[Any]) -> CompiledContext | None:
        """Return, once, the context that these messages were made of, or None."""
        for unsent in list(self._unsent)[::-1]:
            if len(unsent.messages) == len(messages) and all(
                own is sent or bool(own == sent)
                for own, sent in zip(unsent.messages, messages, strict=True)
            ):
                with suppress(ValueError):
                    self._unsent.remove(unsent)
                return unsent.compiled
        return None
