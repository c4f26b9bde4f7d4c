"""Spans: how a run and each kind of step is told in the GenAI conventions.

Made from receipts: ids, counts, names and digests, never what was said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.trace import SpanKind

from tallystick.records import Json, Receipt, ReceiptEntry, RunRecord, StepRecord
from tallystick_opentelemetry.names import (
    MEMORY_PROVIDER,
    PROVIDERS,
    GenAI,
    OpenInference,
    Operation,
    Ours,
)

Attributes = dict[str, str | bool | int | float | Sequence[str]]

_USAGE = {
    "input_tokens": GenAI.INPUT_TOKENS,
    "output_tokens": GenAI.OUTPUT_TOKENS,
    "cache_read_tokens": GenAI.CACHE_READ_TOKENS,
    "cache_write_tokens": GenAI.CACHE_WRITE_TOKENS,
}
_WRITES = {
    "ADD": Operation.CREATE_MEMORY,
    "created": Operation.CREATE_MEMORY,
    "DELETE": Operation.DELETE_MEMORY,
    "FORGET": Operation.DELETE_MEMORY,
}
_KINDS = {
    Operation.CHAT: "LLM",
    Operation.EXECUTE_TOOL: "TOOL",
    Operation.INVOKE_AGENT: "AGENT",
    Operation.RETRIEVAL: "RETRIEVER",
    Operation.SEARCH_MEMORY: "RETRIEVER",
}
_ALSO = {
    GenAI.CONVERSATION_ID: OpenInference.SESSION_ID,
    GenAI.REQUEST_MODEL: OpenInference.MODEL_NAME,
    GenAI.INPUT_TOKENS: OpenInference.PROMPT_TOKENS,
    GenAI.OUTPUT_TOKENS: OpenInference.COMPLETION_TOKENS,
}
_SECOND = 1_000_000


@dataclass(frozen=True)
class SpanEvent:
    """Something in a step, at an unknown time within it."""

    name: str
    attributes: Attributes


@dataclass(frozen=True)
class SpanFacts:
    """A span before it is made."""

    name: str
    kind: SpanKind
    start: int
    """Microseconds UTC."""
    end: int
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    """The type of the error with which it failed."""
    operation: str | None = None
    """The operation of the conventions; None for what they do not know."""


def run_facts(run: RunRecord, receipts: Sequence[Receipt]) -> SpanFacts:
    """Return the span of a run that has ended, with what its model calls used in all."""
    usage: Counter[str] = Counter()
    for receipt in receipts:
        usage.update(usage_in(receipt))
    attributes: Attributes = {
        GenAI.OPERATION_NAME: Operation.INVOKE_AGENT,
        GenAI.AGENT_NAME: run.agent_name,
        **_conversation(run),
        **{_USAGE[name]: usage[name] for name in ("input_tokens", "output_tokens") if usage[name]},
        Ours.RUN_ID: run.id,
        Ours.SCOPE: str(run.scope),
        Ours.STATUS: run.status,
        Ours.RUN_GAPS: run.gaps,
    }
    failed = run.status in ("failed", "interrupted")
    return SpanFacts(
        f"{Operation.INVOKE_AGENT} {run.agent_name}",
        SpanKind.INTERNAL,
        run.started_at,
        run.ended_at or run.started_at,
        _for_phoenix(attributes | ({GenAI.ERROR_TYPE: run.status} if failed else {})),
        error=run.status if failed else None,
        operation=Operation.INVOKE_AGENT,
    )


def step_facts(run: RunRecord, step: StepRecord, receipt: Receipt) -> SpanFacts:
    """Return the span of a step that has ended."""
    name, kind, operation, own = _as_operation(receipt)
    error = _error_of(receipt)
    attributes: Attributes = {
        **({} if operation is None else {GenAI.OPERATION_NAME: operation}),
        **own,
        **_conversation(run),
        Ours.RUN_ID: run.id,
        Ours.SCOPE: str(run.scope),
        Ours.STEP_ID: step.id,
        Ours.STEP_INDEX: receipt.step_index,
        Ours.STEP_KIND: receipt.step_kind,
        Ours.STATUS: receipt.status,
        Ours.RECEIPT_DIGEST: receipt.digest,
        Ours.RECEIPT_PREVIOUS: receipt.previous,
    }
    if receipt.step_kind in ("memory_read", "memory_write"):
        attributes[GenAI.MEMORY_STORE_ID] = str(run.scope)
        attributes[GenAI.PROVIDER_NAME] = MEMORY_PROVIDER
    redacted = sum(sum(entry.redactions.values()) for entry in receipt.entries)
    if redacted:
        attributes[Ours.REDACTED] = redacted
    if error is not None:
        attributes[GenAI.ERROR_TYPE] = error
    return SpanFacts(
        name,
        kind,
        receipt.started_at,
        receipt.ended_at,
        _for_phoenix(attributes),
        tuple(_events(receipt)),
        error,
        operation,
    )


def _for_phoenix(attributes: Attributes) -> Attributes:
    """Return attributes with what OpenInference calls the same."""
    operation = str(attributes.get(GenAI.OPERATION_NAME))
    also = {name: attributes[ours] for ours, name in _ALSO.items() if ours in attributes}
    return {**attributes, **also, OpenInference.SPAN_KIND: _KINDS.get(operation, "CHAIN")}


def usage_in(receipt: Receipt) -> dict[str, int]:
    """Return the tokens that the model calls of a step report, by our names."""
    usage: Counter[str] = Counter()
    for entry in receipt.entries:
        counts = entry.summary.get("usage")
        if entry.kind == "response" and isinstance(counts, dict):
            usage.update({name: count for name, count in counts.items() if isinstance(count, int)})
    return dict(usage)


def _as_operation(receipt: Receipt) -> tuple[str, SpanKind, str | None, Attributes]:
    """Return the name and kind of a step's span, its operation, and what that has to say."""
    summary = _merge_summaries(receipt)
    name = receipt.name or receipt.step_kind
    own: Attributes
    match receipt.step_kind:
        case "model_call":
            own = _model_call(receipt, summary)
            model = own.get(GenAI.REQUEST_MODEL) or receipt.name
            named = f"{Operation.CHAT} {model}" if model else Operation.CHAT
            return named, SpanKind.CLIENT, Operation.CHAT, own
        case "tool_call":
            tool = str(summary.get("tool") or name)
            own = {GenAI.TOOL_NAME: tool, GenAI.TOOL_TYPE: "function"}
            if isinstance(summary.get("tool_call_id"), str):
                own[GenAI.TOOL_CALL_ID] = summary["tool_call_id"]
            named = f"{Operation.EXECUTE_TOOL} {tool}"
            return named, SpanKind.INTERNAL, Operation.EXECUTE_TOOL, own
        case "retrieval":
            retriever = str(summary.get("retriever") or name)
            return (
                f"{Operation.RETRIEVAL} {retriever}",
                SpanKind.INTERNAL,
                Operation.RETRIEVAL,
                {GenAI.DATA_SOURCE_ID: retriever},
            )
        case "memory_read":
            return (
                Operation.SEARCH_MEMORY,
                SpanKind.INTERNAL,
                Operation.SEARCH_MEMORY,
                _memories(receipt, "memory_read"),
            )
        case "memory_write":
            operation = _write_operation(receipt)
            return operation, SpanKind.INTERNAL, operation, _memories(receipt, "memory_write")
        case _:
            return name, SpanKind.INTERNAL, None, {}


def _model_call(receipt: Receipt, summary: Mapping[str, Any]) -> Attributes:
    requested = _first(receipt, "request", "model")
    answered = _first(receipt, "response", "model")
    provider = summary.get("provider")
    model = requested or receipt.name
    attributes: Attributes = {
        # The conventions require one; a runtime does not always say which it asks.
        GenAI.PROVIDER_NAME: PROVIDERS.get(provider, provider)
        if isinstance(provider, str)
        else "unknown"
    }
    if isinstance(model, str):
        attributes[GenAI.REQUEST_MODEL] = model
    if isinstance(answered, str):
        attributes[GenAI.RESPONSE_MODEL] = answered
    if isinstance(summary.get("stop"), str):
        attributes[GenAI.FINISH_REASONS] = (summary["stop"],)
    times = summary.get("stream")
    if isinstance(times, dict) and isinstance(times.get("first_us"), int):
        attributes[GenAI.REQUEST_STREAM] = True
        attributes[GenAI.TIME_TO_FIRST_CHUNK] = times["first_us"] / _SECOND
    for name, count in usage_in(receipt).items():
        if name in _USAGE:
            attributes[_USAGE[name]] = count
    cost = summary.get("cost")
    if isinstance(cost, dict) and isinstance(cost.get("amount"), str):
        attributes[Ours.COST] = cost["amount"]
        attributes[Ours.COST_CURRENCY] = str(cost.get("currency", "USD"))
    return attributes


def _write_operation(receipt: Receipt) -> str:
    """Return what a write is by its events: one that chose itself between creating and updating is
    an upsert.
    """
    events = {
        str(change.get("event") or change.get("status"))
        for entry in receipt.entries
        if entry.kind == "memory_write"
        for change in _changes(entry)
    }
    operations = {_WRITES.get(event, Operation.UPDATE_MEMORY) for event in events}
    if receipt.name in ("remember", "remember_many") or len(operations) != 1:
        return Operation.UPSERT_MEMORY
    return operations.pop()


def _memories(receipt: Receipt, kind: str) -> Attributes:
    ids = [
        memory_id
        for entry in receipt.entries
        if entry.kind == kind
        for memory_id in _memory_ids(entry)
    ]
    attributes: Attributes = {GenAI.MEMORY_RECORD_COUNT: len(ids)}
    if len(ids) == 1:
        attributes[GenAI.MEMORY_RECORD_ID] = ids[0]
    return attributes


def _memory_ids(entry: ReceiptEntry) -> Iterator[str]:
    many = entry.summary.get("memories")
    for each in many if isinstance(many, list) else [entry.summary]:
        named = each[0] if isinstance(each, list) and each else each
        memory_id = named.get("id") if isinstance(named, dict) else named
        if isinstance(memory_id, str):
            yield memory_id


def _changes(entry: ReceiptEntry) -> Iterator[Mapping[str, Any]]:
    many = entry.summary.get("memories")
    for each in many if isinstance(many, list) else [entry.summary]:
        if isinstance(each, dict):
            yield each


def _events(receipt: Receipt) -> Iterator[SpanEvent]:
    """Yield an event for what a step holds beside its request and its answer."""
    budget: Json = None
    for entry in receipt.entries:
        name = f"{Ours.SECTION}{entry.kind}"
        if entry.kind == "compile_request":
            budget = entry.summary.get("budget")
        elif entry.kind == "compiled":
            yield SpanEvent(f"{Ours.SECTION}compiled", _compiled_attributes(entry, budget))
        elif entry.kind in ("memory_read", "memory_write") and (
            receipt.step_kind not in ("memory_read", "memory_write")
        ):
            count = len(list(_memory_ids(entry)))
            yield SpanEvent(name, {GenAI.MEMORY_RECORD_COUNT: count})
        elif entry.kind in ("policy_check", "approval", "compaction", "gap", "note"):
            facts: Attributes = {
                f"{name}.{key}": value
                for key, value in entry.summary.items()
                if isinstance(value, str | bool | int)
            }
            yield SpanEvent(name, facts)


def _compiled_attributes(entry: ReceiptEntry, budget: Json) -> Attributes:
    decisions = entry.summary.get("decisions")
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for decision in decisions if isinstance(decisions, list) else ():
        if isinstance(decision, list) and len(decision) >= 3:
            counts["excluded" if decision[1] == "exclude" else "included"] += 1
            reasons[str(decision[2])] += 1
    attributes: Attributes = {
        Ours.CONTEXT_INCLUDED: counts["included"],
        Ours.CONTEXT_EXCLUDED: counts["excluded"],
        **{f"tallystick.context.reason.{reason}": count for reason, count in reasons.items()},
    }
    for key, name in (("compiled_id", Ours.CONTEXT_ID), ("tokens", Ours.CONTEXT_USED)):
        value = entry.summary.get(key)
        if isinstance(value, str | int):
            attributes[name] = value
    if isinstance(budget, int):
        attributes[Ours.CONTEXT_BUDGET] = budget
    return attributes


def _error_of(receipt: Receipt) -> str | None:
    if receipt.status not in ("failed", "interrupted"):
        return None
    named = _first(receipt, "error", "type")
    return named if isinstance(named, str) else receipt.status


def _conversation(run: RunRecord) -> Attributes:
    thread = run.metadata.get("thread_id")
    return {GenAI.CONVERSATION_ID: thread} if isinstance(thread, str) else {}


def _first(receipt: Receipt, kind: str, key: str) -> Json:
    return next(
        (
            entry.summary[key]
            for entry in receipt.entries
            if entry.kind == kind and key in entry.summary
        ),
        None,
    )


def _merge_summaries(receipt: Receipt) -> Mapping[str, Any]:
    merged: dict[str, Any] = {}
    for entry in receipt.entries:
        merged.update(entry.summary)
    return merged
