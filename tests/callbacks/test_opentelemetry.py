"""Recorded runs leave as spans of the GenAI conventions: the same twice, and nothing that was said
unless it is asked for.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from inline_snapshot import snapshot
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import ProxyTracerProvider, format_span_id, format_trace_id

from tallystick import Actor, ContextItem, Tally
from tallystick.errors import InvalidInput, NotFound
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick_opentelemetry import Exporter, current_trace, export_run, export_runs

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
PLAIN = ("gen_ai.tool.call.result", "gen_ai.memory.query.text", "gen_ai.retrieval.query.text")
"""Attributes whose texts are not put into JSON."""
SAID = "heron-nest-7341"
"""Stands in every text; no span has it unless content is asked for."""


def _collecting() -> tuple[TracerProvider, InMemorySpanExporter]:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return provider, spans


def _play(bound: BoundTally, **metadata: Any) -> str:
    """Record a run with a step of each kind; return its id."""
    with bound.run("coder", goal=SAID, metadata={"thread_id": "chat-1", **metadata}) as run:
        memory = bound.remember(f"The {SAID} is in the oak.")
        bound.recall(SAID)
        bound.modify(memory.id, content=f"The {SAID} is in the elm.", reason="moved")
        bound.compile(
            [ContextItem(id="ask", kind="user_msg", content=f"Where is {SAID}?")], budget=500
        )
        with run.step("model_call", name="gpt-x") as call:
            call.record(
                "request",
                {
                    "model": "gpt-x",
                    "instructions": "Be brief.",
                    "messages": [{"role": "user", "content": f"Where is {SAID}?"}],
                },
                summary={"model": "gpt-x", "provider": "openai"},
            )
            call.record(
                "response",
                {"answer": {"role": "assistant", "content": f"{SAID} is in the elm."}},
                summary={
                    "usage": {"input_tokens": 12, "output_tokens": 5, "cache_read_tokens": 4},
                    "model": "gpt-x-1",
                    "stop": "stop",
                    "stream": {"chunks": 3, "first_us": 250_000, "last_us": 900_000},
                },
            )
        with run.step("tool_call", name="look") as tool:
            tool.record(
                "tool_call",
                {"name": "look", "arguments": {"at": SAID}},
                summary={"tool": "look", "tool_call_id": "c1"},
            )
            with run.step("retrieval", name="Notes", parent=tool.id) as retrieval:
                retrieval.record("request", {"query": SAID}, summary={"retriever": "Notes"})
            tool.record("tool_result", {"result": f"{SAID}: seen"})
        failing = run.step("tool_call", name="fail")
        failing.record("tool_call", {"arguments": {}}, summary={"tool": "fail"})
        failing.fail(ValueError(SAID))
        bound.forget(memory.id, reason="over")
        with run.step("human_approval", name="deploy"):
            pass
        with run.step("event", name="noticed") as event:
            event.record("note", {"data": SAID}, summary={"event": "noticed"})
    return run.id


def _ids(span: ReadableSpan) -> tuple[str, str]:
    """The trace and the id of a span."""
    assert span.context is not None
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def _parent(span: ReadableSpan) -> str | None:
    return None if span.parent is None else format_span_id(span.parent.span_id)


def _told(span: ReadableSpan) -> dict[str, Any]:
    """What a span says, without what differs from run to run."""
    own = ("digest", "previous", ".id")
    attributes = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in (span.attributes or {}).items()
        if name in ("gen_ai.conversation.id", "gen_ai.memory.store.id")
        or name.startswith("gen_ai.tool")
        or not name.endswith(own)
    }
    told: dict[str, Any] = {"kind": span.kind.name, **attributes}
    if span.events:
        told["events"] = [event.name for event in span.events]
    if not span.status.is_ok:
        told["error"] = span.status.description
    return told


def test_each_kind_of_step_is_a_span_of_the_conventions(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        provider, spans = _collecting()
        assert export_run(bound, _play(bound), provider) == 12
        assert {span.name: _told(span) for span in spans.get_finished_spans()} == snapshot(
            {
                "upsert_memory": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "upsert_memory",
                    "gen_ai.memory.store.id": "private:anna",
                    "gen_ai.provider.name": "tallystick",
                    "gen_ai.memory.record.count": 1,
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 0,
                    "tallystick.step.kind": "memory_write",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "CHAIN",
                },
                "search_memory": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "search_memory",
                    "gen_ai.memory.store.id": "private:anna",
                    "gen_ai.provider.name": "tallystick",
                    "gen_ai.memory.record.count": 1,
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 1,
                    "tallystick.step.kind": "memory_read",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "RETRIEVER",
                },
                "update_memory": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "update_memory",
                    "gen_ai.memory.store.id": "private:anna",
                    "gen_ai.provider.name": "tallystick",
                    "gen_ai.memory.record.count": 1,
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 2,
                    "tallystick.step.kind": "memory_write",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "CHAIN",
                },
                "compile": {
                    "kind": "INTERNAL",
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 3,
                    "tallystick.step.kind": "compile",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "CHAIN",
                    "events": ["tallystick.compiled"],
                },
                "chat gpt-x": {
                    "kind": "CLIENT",
                    "gen_ai.operation.name": "chat",
                    "gen_ai.provider.name": "openai",
                    "gen_ai.request.model": "gpt-x",
                    "gen_ai.response.model": "gpt-x-1",
                    "gen_ai.response.finish_reasons": ["stop"],
                    "gen_ai.request.stream": True,
                    "gen_ai.response.time_to_first_chunk": 0.25,
                    "gen_ai.usage.cache_read.input_tokens": 4,
                    "gen_ai.usage.input_tokens": 12,
                    "gen_ai.usage.output_tokens": 5,
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 4,
                    "tallystick.step.kind": "model_call",
                    "tallystick.status": "completed",
                    "llm.model_name": "gpt-x",
                    "llm.token_count.prompt": 12,
                    "llm.token_count.completion": 5,
                    "openinference.span.kind": "LLM",
                },
                "execute_tool look": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "look",
                    "gen_ai.tool.type": "function",
                    "gen_ai.tool.call.id": "c1",
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 5,
                    "tallystick.step.kind": "tool_call",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "TOOL",
                },
                "retrieval Notes": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "retrieval",
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 6,
                    "tallystick.step.kind": "retrieval",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "RETRIEVER",
                },
                "execute_tool fail": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "fail",
                    "gen_ai.tool.type": "function",
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 7,
                    "tallystick.step.kind": "tool_call",
                    "tallystick.status": "failed",
                    "error.type": "ValueError",
                    "openinference.span.kind": "TOOL",
                    "error": "ValueError",
                },
                "delete_memory": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "delete_memory",
                    "gen_ai.memory.store.id": "private:anna",
                    "gen_ai.provider.name": "tallystick",
                    "gen_ai.memory.record.count": 1,
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 8,
                    "tallystick.step.kind": "memory_write",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "CHAIN",
                },
                "deploy": {
                    "kind": "INTERNAL",
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 9,
                    "tallystick.step.kind": "human_approval",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "CHAIN",
                },
                "noticed": {
                    "kind": "INTERNAL",
                    "gen_ai.conversation.id": "chat-1",
                    "tallystick.scope": "private:anna",
                    "tallystick.step.index": 10,
                    "tallystick.step.kind": "event",
                    "tallystick.status": "completed",
                    "openinference.span.kind": "CHAIN",
                    "events": ["tallystick.note"],
                },
                "invoke_agent coder": {
                    "kind": "INTERNAL",
                    "gen_ai.operation.name": "invoke_agent",
                    "gen_ai.agent.name": "coder",
                    "gen_ai.conversation.id": "chat-1",
                    "gen_ai.usage.input_tokens": 12,
                    "gen_ai.usage.output_tokens": 5,
                    "tallystick.scope": "private:anna",
                    "tallystick.status": "completed",
                    "tallystick.run.gaps": 0,
                    "llm.token_count.prompt": 12,
                    "llm.token_count.completion": 5,
                    "openinference.span.kind": "AGENT",
                },
            }
        )


def test_what_is_exported_twice_has_the_same_ids_and_its_parents(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        run_id = _play(bound)
        exports = []
        for _ in range(2):
            provider, spans = _collecting()
            export_run(bound, run_id, provider)
            exports.append(spans.get_finished_spans())
        first, second = (
            [(span.name, _ids(span), _parent(span), span.start_time) for span in export]
            for export in exports
        )
        assert first == second
        by_name = {span.name: span for span in exports[0]}
        root, tool = by_name["invoke_agent coder"], by_name["execute_tool look"]
        assert _parent(root) is None
        assert _parent(tool) == _ids(root)[1]
        assert _parent(by_name["retrieval Notes"]) == _ids(tool)[1]
        assert {_ids(span)[0] for span in exports[0]} == {_ids(root)[0]}
        run = bound.recordings.run(run_id)
        assert (root.start_time, root.end_time) == (
            run.started_at * 1_000,
            (run.ended_at or 0) * 1_000,
        )


def test_a_run_is_a_part_of_the_trace_that_it_was_started_in(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        provider, spans = _collecting()
        assert current_trace() == {}
        with provider.get_tracer("application").start_as_current_span("request") as outer:
            run_id = _play(bound, **current_trace())
        export_run(bound, run_id, provider)
        [root] = [span for span in spans.get_finished_spans() if span.name == "invoke_agent coder"]
        assert _parent(root) == format_span_id(outer.get_span_context().span_id)
        traces = {_ids(span)[0] for span in spans.get_finished_spans()}
        assert traces == {format_trace_id(outer.get_span_context().trace_id)}


class _Collector(ThreadingHTTPServer):
    """A collector of OTLP over HTTP that keeps the bytes it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receives)
        self.bodies: list[bytes] = []

    def spans(self) -> list[Any]:
        return [
            span
            for body in self.bodies
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Receives(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, _Collector)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        zipped = self.headers.get("Content-Encoding") == "gzip"
        self.server.bodies.append(gzip.decompress(body) if zipped else body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def _collector() -> Iterator[tuple[_Collector, str]]:
    with _Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server, f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
        finally:
            server.shutdown()


@pytest.mark.parametrize("content", [False, True])
def test_a_collector_receives_what_is_recorded_and_no_word_of_it_unless_asked(
    open_sqlite: OpenTally, content: bool
) -> None:
    with open_sqlite() as tally, _collector() as (collector, endpoint):
        bound = tally.bind(ANNA)
        with Exporter(bound, endpoint=endpoint, content=content) as exporter:
            run_id = _play(bound)
        assert exporter.missed == 0
        received = collector.spans()
        provider, spans = _collecting()
        export_run(bound, run_id, provider)
        sent_ids = {span.span_id.hex() for span in received}
        assert sent_ids == {_ids(span)[1] for span in spans.get_finished_spans()}
        assert len(received) == 12
        sent = b"".join(collector.bodies)
        assert (SAID.encode() in sent) is content


def test_content_is_in_the_form_of_the_conventions(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        provider, spans = _collecting()
        export_run(bound, _play(bound), provider, content=True)
        said = {
            name: value if name in PLAIN else json.loads(str(value))
            for span in spans.get_finished_spans()
            for name, value in (span.attributes or {}).items()
            if name
            in (
                "gen_ai.input.messages",
                "gen_ai.output.messages",
                "gen_ai.system_instructions",
                "gen_ai.tool.call.arguments",
                *PLAIN,
            )
            and "fail" not in span.name
        }
        assert said == {
            "gen_ai.input.messages": [
                {"role": "user", "parts": [{"type": "text", "content": f"Where is {SAID}?"}]}
            ],
            "gen_ai.output.messages": [
                {
                    "role": "assistant",
                    "parts": [{"type": "text", "content": f"{SAID} is in the elm."}],
                }
            ],
            "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
            "gen_ai.tool.call.arguments": {"at": SAID},
            "gen_ai.tool.call.result": f"{SAID}: seen",
            "gen_ai.memory.query.text": SAID,
            "gen_ai.retrieval.query.text": SAID,
        }


def test_what_was_recalled_is_exported_while_it_says_the_same(open_sqlite: OpenTally) -> None:
    def records(bound: BoundTally, run_id: str) -> Any:
        provider, spans = _collecting()
        export_run(bound, run_id, provider, content=True)
        [recall] = [span for span in spans.get_finished_spans() if span.name == "search_memory"]
        return json.loads(str((recall.attributes or {})["gen_ai.memory.records"]))

    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        memory = bound.remember(f"The {SAID} is in the oak.")
        with bound.run("coder") as run:
            [hit] = bound.recall(SAID)
        [before] = records(bound, run.id)
        bound.modify(memory.id, content="It is gone.", reason="moved")
        [after] = records(bound, run.id)

    assert before == {"id": memory.id, "score": hit.score, "content": f"The {SAID} is in the oak."}
    assert after == {"id": memory.id, "score": hit.score}


def test_the_result_of_a_tool_is_what_it_gave(open_sqlite: OpenTally) -> None:
    message = {"content": SAID, "tool_call_id": "c1", "artifact": None}
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        with bound.run("coder") as run, run.step("tool_call", name="look") as step:
            step.record("tool_result", {"result": message})
        provider, spans = _collecting()
        export_run(bound, run.id, provider, content=True)
        [tool, _] = spans.get_finished_spans()

    assert (tool.attributes or {})["gen_ai.tool.call.result"] == SAID


def test_a_closing_exporter_waits_for_steps_that_end_without_waiting(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        provider, spans = _collecting()
        with Exporter(bound, provider):
            run = bound.run("coder")
            for _ in range(20):
                run.step("event", name="noticed").end(wait=False)
            run.end(wait=False)

    assert len(spans.get_finished_spans()) == 21


def test_what_was_recorded_is_committed_after_a_flush(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        run = tally.bind(ANNA).run("coder")
        step = run.step("event", name="noticed")
        step.end(wait=False)
        run.end(wait=False)
        tally.flush()
        with services_of(tally).store.database.read() as connection:
            stored = connection.exec_driver_sql("select status from runs").scalar()

    assert stored == "completed"


def test_secrets_are_redacted_in_exported_content(open_sqlite: OpenTally) -> None:
    key = f"sk-proj-{'a' * 40}A1b2"
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        with bound.run("coder") as run, run.step("model_call") as step:
            step.record("request", {"messages": [{"role": "user", "content": f"My key: {key}"}]})
        provider, spans = _collecting()
        export_run(bound, run.id, provider, content=True)
        [call, _] = spans.get_finished_spans()
        attributes = dict(call.attributes or {})
        assert "[redacted:" in str(attributes["gen_ai.input.messages"])
        assert key not in str(attributes)
        assert attributes["tallystick.redacted"] == 1


def test_metrics_count_each_step_and_run_once(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        provider, _ = _collecting()
        reader = InMemoryMetricReader()
        with Exporter(bound, provider, meter_provider=MeterProvider([reader])):
            _play(bound)
        data = reader.get_metrics_data()
        assert data is not None
        counted = {
            metric.name: sum(
                int(getattr(point, "value", 0) or getattr(point, "count", 0))
                for point in metric.data.data_points
            )
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name.startswith("gen_ai")
        }
        assert counted == {
            "gen_ai.client.inference.duration": 1,
            "gen_ai.client.inference.time_to_first_chunk": 1,
            "gen_ai.client.inference.usage.cache_read.input_tokens": 4,
            "gen_ai.client.inference.usage.input_tokens": 12,
            "gen_ai.client.inference.usage.output_tokens": 5,
            "gen_ai.client.operation.duration": 5,
            "gen_ai.execute_tool.duration": 2,
            "gen_ai.invoke_agent.duration": 1,
            "gen_ai.invoke_agent.inference_calls": 1,
            "gen_ai.invoke_agent.tool_calls": 1,
        }


def test_only_runs_that_the_actor_may_inspect_are_exported(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        anna, bob = tally.bind(ANNA), tally.bind(Actor(user="bob"))
        provider, spans = _collecting()
        with Exporter(bob, provider):
            run_id = _play(anna)
        with pytest.raises(NotFound):
            export_run(bob, run_id, provider)
        assert export_runs(bob, provider) == 0
        assert spans.get_finished_spans() == ()
        ended = anna.recordings.run(run_id).ended_at or 0
        assert export_runs(anna, provider, since=ended + 1) == 0
        assert export_runs(anna, provider, since=ended) == 12


def test_what_cannot_be_exported_is_refused(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        provider, _ = _collecting()
        with pytest.raises(InvalidInput, match="endpoint"):
            Exporter(bound)
        with pytest.raises(InvalidInput, match="makes no spans"):
            Exporter(bound, ProxyTracerProvider())  # type: ignore[arg-type]
        with bound.run("coder") as run, pytest.raises(InvalidInput, match="has not ended"):
            export_run(bound, run.id, provider)


LANGFUSE = {
    "gen_ai.request.model": "model",
    "gen_ai.usage.input_tokens": "usageDetails.input",
    "gen_ai.usage.output_tokens": "usageDetails.output",
    "gen_ai.conversation.id": "sessionId",
    "gen_ai.input.messages": "input",
    "gen_ai.output.messages": "output",
}
"""What Langfuse documents that it reads, and as what."""


def test_langfuse_and_phoenix_read_it_by_their_documented_mappings(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(ANNA)
        provider, spans = _collecting()
        export_run(bound, _play(bound), provider, content=True)
        by_name = {span.name: dict(span.attributes or {}) for span in spans.get_finished_spans()}
        call = by_name["chat gpt-x"]
        assert {LANGFUSE[name]: name in call for name in LANGFUSE} == dict.fromkeys(
            LANGFUSE.values(), True
        )
        kinds = {name: told.get("openinference.span.kind") for name, told in by_name.items()}
        assert kinds["chat gpt-x"] == "LLM"
        assert kinds["execute_tool look"] == "TOOL"
        assert kinds["retrieval Notes"] == kinds["search_memory"] == "RETRIEVER"
        assert kinds["invoke_agent coder"] == "AGENT"
        assert kinds["compile"] == "CHAIN"
        assert call["llm.model_name"] == "gpt-x"
        assert (call["llm.token_count.prompt"], call["llm.token_count.completion"]) == (12, 5)
        assert {str(told["session.id"]) for told in by_name.values()} == {"chat-1"}
