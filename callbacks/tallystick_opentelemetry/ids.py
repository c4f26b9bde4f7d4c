"""Ids of spans, derived from runs and steps: what is exported twice has the same ids twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

from opentelemetry import trace
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tallystick.records import JsonObject, RunRecord

TRACEPARENT = "traceparent"
"""The key of a run's metadata with the span that it was started in, as W3C Trace Context has it."""


def current_trace() -> JsonObject:
    """Return the span under way as metadata of a run, empty where there is none: a run that was
    started with it is exported as a part of that trace.

    For example `bound.run("coder", metadata=current_trace())`.
    """
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return {TRACEPARENT: carrier[TRACEPARENT]} if TRACEPARENT in carrier else {}


def caller_of(run: RunRecord) -> SpanContext | None:
    """Return the span that a run was started in; None where none was recorded."""
    recorded = run.metadata.get(TRACEPARENT)
    if not isinstance(recorded, str):
        return None
    context = TraceContextTextMapPropagator().extract({TRACEPARENT: recorded})
    caller = trace.get_current_span(context).get_span_context()
    return caller if caller.is_valid else None


def context_of(run: RunRecord, kind: str, record_id: str) -> SpanContext:
    """Return the context of the span of a `run` or of a `step` of it: in its caller's trace, else
    in one of its own.
    """
    caller = caller_of(run)
    trace_id = caller.trace_id if caller is not None else _digest("trace", run.id, 16)
    return SpanContext(trace_id, _digest(kind, record_id, 8), False, TraceFlags(1))


def _digest(kind: str, record_id: str, size: int) -> int:
    number = int.from_bytes(
        sha256(f"tallystick {kind} {record_id}".encode()).digest()[:size], "big"
    )
    return number or 1


class RecordedIds(IdGenerator):
    """Gives the ids of the record that is being exported by this thread."""

    def __init__(self) -> None:
        self._next = threading.local()

    @contextmanager
    def of(self, context: SpanContext) -> Iterator[None]:
        """Give the ids of `context` inside of the block."""
        self._next.context = context
        try:
            yield
        finally:
            del self._next.context

    def generate_trace_id(self) -> int:
        """Return the trace of the record that is being exported."""
        return int(self._next.context.trace_id)

    def generate_span_id(self) -> int:
        """Return the span of the record that is being exported."""
        return int(self._next.context.span_id)
