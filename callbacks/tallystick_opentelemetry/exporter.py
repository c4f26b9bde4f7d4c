"""Export: runs that are recorded, as spans; those of the past once, those of now as they end."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial
from typing import Any, Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode

from tallystick.errors import InvalidInput, require
from tallystick.kit.rendering import text_for_model
from tallystick.logs import get_logger
from tallystick.recorder import RecordingEvent
from tallystick.records import Receipt, RunRecord, StepRecord
from tallystick.tally import BoundTally
from tallystick_opentelemetry.content import content_of
from tallystick_opentelemetry.ids import RecordedIds, caller_of, context_of
from tallystick_opentelemetry.metrics import Metrics
from tallystick_opentelemetry.spans import SpanFacts, run_facts, step_facts

_SCOPE = "tallystick.receipts"
_NANOSECONDS = 1_000
_PAGE = 200
_PATIENCE = 5.0
"""Seconds for which `close` waits for what was recorded before it."""


def export_run(
    bound: BoundTally, run_id: str, provider: TracerProvider, *, content: bool = False
) -> int:
    """Export a run that has ended, with its steps, to the processors of `provider`; return the
    number of spans.

    Ids of traces and spans follow from those of the run and its steps: a run that is exported twice
    has the same ids twice, in every process. With `content` messages, arguments and results go
    along, as the recorder kept them: redacted. Raises NotFound, Denied, InvalidInput for a run that
    has not ended.
    """
    run = bound.recordings.run(run_id)
    if run.ended_at is None:
        raise InvalidInput(f"Run {run_id} has not ended: export it then, or follow it by Exporter.")
    return _Spans(bound, provider, content=content).run(run)


def export_runs(
    bound: BoundTally, provider: TracerProvider, *, since: int = 0, content: bool = False
) -> int:
    """Export the runs of the bound scope that ended at `since` (microseconds UTC) or later, newest
    first; return the number of spans. The same as `export_run` for each.
    """
    spans = _Spans(bound, provider, content=content)
    count = 0
    before: str | None = None
    while page := bound.recordings.runs_of([bound.scope], limit=_PAGE, before=before):
        count += sum(
            spans.run(run) for run in page if run.ended_at is not None and run.ended_at >= since
        )
        before = page[-1].id
        if len(page) < _PAGE:
            break
    return count


class Exporter:
    """Exports steps as they are committed and runs as they end, until it is closed.

    Nothing is sent but to the `provider` or the `endpoint` that is given. `meter_provider` receives
    the metrics of the conventions too. `content=True` adds messages, arguments and results, secrets
    redacted. Thread-safe.
    """

    def __init__(
        self,
        bound: BoundTally,
        provider: TracerProvider | None = None,
        *,
        endpoint: str | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
    ) -> None:
        """Follow what `bound` may inspect. `endpoint` is the address of an OTLP collector, such as
        `http://localhost:4318/v1/traces`. Raises InvalidInput unless one of both is given.
        """
        if (provider is None) == (endpoint is None):
            raise InvalidInput("Give a `provider` of spans or the `endpoint` of a collector.")
        self._own = None if endpoint is None else _provider_for(endpoint)
        chosen = provider if self._own is None else self._own
        assert chosen is not None
        metrics = None if meter_provider is None else Metrics(meter_provider)
        self._spans = _Spans(bound, chosen, content=content, metrics=metrics)
        self._bound = bound
        self._exported: dict[str, set[str]] = {}
        self._guard = threading.Lock()
        self._subscription = bound.recordings.subscribe(self._on_event)

    @property
    def missed(self) -> int:
        """Number of events that came too fast. The steps among them are exported when their run
        ends.
        """
        return self._subscription.missed

    @property
    def failures(self) -> int:
        """Number of events whose export raised; the log has the errors."""
        return self._subscription.failures

    def close(self) -> None:
        """Export what was recorded before, and stop. Closing twice is allowed."""
        # Adapters end their steps without waiting for the commit, which the subscription follows.
        self._bound.tally.flush()
        self._subscription.close(wait_seconds=_PATIENCE)
        if self._own is not None:
            self._own.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_event(self, event: RecordingEvent) -> None:
        run = event.run
        with self._guard:
            if event.kind == "step_ended" and event.step is not None:
                receipt = self._bound.recordings.receipt(event.step.id)
                self._spans.step(run, event.step, receipt)
                # Afterwards: one that failed is exported with its run.
                self._exported.setdefault(run.id, set()).add(event.step.id)
            elif event.kind == "run_ended":
                exported = self._exported.pop(run.id, set())
                # With what came too fast for this listener.
                self._spans.run(run, besides=exported)


class _Spans:
    """Makes spans of records."""

    def __init__(
        self,
        bound: BoundTally,
        provider: TracerProvider,
        *,
        content: bool,
        metrics: Metrics | None = None,
    ) -> None:
        self._bound, self._content, self._metrics = bound, content, metrics
        tracer: Any = provider.get_tracer(_SCOPE)
        if not hasattr(tracer, "id_generator"):
            raise InvalidInput(
                "`provider` makes no spans: give a TracerProvider of the SDK, switched on."
            )
        if not isinstance(tracer.id_generator, RecordedIds):
            tracer.id_generator = RecordedIds()
        self._tracer = tracer

    def run(self, run: RunRecord, *, besides: Iterable[str] = ()) -> int:
        """Export a run and those of its steps that are not named; return the number of spans."""
        exported = set(besides)
        receipts = {receipt.step_id: receipt for receipt in self._bound.recordings.receipts(run.id)}
        steps = self._bound.recordings.steps(run.id)
        count = 1
        for step in steps:
            if step.id in receipts and step.id not in exported:
                self.step(run, step, receipts[step.id])
                count += 1
        facts = run_facts(run, list(receipts.values()))
        self._make(facts, context_of(run, "run", run.id), caller_of(run), {})
        if self._metrics is not None:
            kinds = [step.step_kind for step in steps]
            self._metrics.count(facts)
            self._metrics.count_calls(
                facts, inferences=kinds.count("model_call"), tools=kinds.count("tool_call")
            )
        return count

    def step(self, run: RunRecord, step: StepRecord, receipt: Receipt) -> None:
        """Export one step."""
        parent = (
            context_of(run, "run", run.id)
            if step.parent_step_id is None
            else context_of(run, "step", step.parent_step_id)
        )
        facts = step_facts(run, step, receipt)
        content = self._content_of(step.id) if self._content else {}
        self._make(facts, context_of(run, "step", step.id), parent, content)
        if self._metrics is not None:
            self._metrics.count(facts)

    def _content_of(self, step_id: str) -> dict[str, str]:
        return content_of(
            self._bound.recordings.entries(step_id), partial(text_for_model, self._bound)
        )

    def _make(
        self,
        facts: SpanFacts,
        context: SpanContext,
        parent: SpanContext | None,
        content: dict[str, str],
    ) -> None:
        # An empty context for a root: it has no place in the trace of whoever exports it.
        within = Context()
        if parent is not None:
            within = trace.set_span_in_context(NonRecordingSpan(parent), within)
        with self._tracer.id_generator.of(context):
            span = self._tracer.start_span(
                facts.name,
                context=within,
                kind=facts.kind,
                attributes={**facts.attributes, **content},
                start_time=facts.start * _NANOSECONDS,
            )
        for event in facts.events:
            span.add_event(event.name, event.attributes, timestamp=facts.end * _NANOSECONDS)
        if facts.error is not None:
            span.set_status(Status(StatusCode.ERROR, facts.error))
        span.end(end_time=facts.end * _NANOSECONDS)


def _provider_for(endpoint: str) -> TracerProvider:
    require("opentelemetry.exporter.otlp.proto.http", extra="opentelemetry")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    get_logger("opentelemetry").info("export.begins", endpoint=endpoint)
    provider = TracerProvider(resource=Resource.create({"service.name": "tallystick"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider
