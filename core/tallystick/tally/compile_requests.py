"""The requests behind compiled contexts, for as long as somebody holds these."""

from __future__ import annotations

import weakref

from tallystick.records import CompilationRequest, CompiledContext


class CompileRequests:
    """The requests of compiled contexts that somebody still holds, so that one can be compiled
    again with another budget. Thread-safe.
    """

    def __init__(self) -> None:
        self._by_id: dict[int, CompilationRequest] = {}

    def note(self, compiled: CompiledContext, request: CompilationRequest) -> None:
        """Note the request of a context, for as long as that context lives."""
        key = id(compiled)
        self._by_id[key] = request
        weakref.finalize(compiled, self._by_id.pop, key, None).atexit = False

    def of(self, compiled: CompiledContext) -> CompilationRequest | None:
        """Return the request of a context, or None for one that was not compiled here."""
        return self._by_id.get(id(compiled))
