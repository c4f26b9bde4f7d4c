"""Compiling for a bound tally: gather candidates, measure relevance, record the decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from tallystick import compiler
from tallystick.compiler import compile_context
from tallystick.errors import ApprovalRequired
from tallystick.memory.fields import text_for_model
from tallystick.recorder import Step
from tallystick.records import (
    ApprovalRequest,
    CompilationRequest,
    CompiledContext,
    ContextItem,
    Hit,
    Memory,
)
from tallystick.tally.services import Services
from tallystick.tally.view import ObservedCall

__all__ = ["Candidate", "Candidates", "candidates_of", "compile_request"]

Candidate = ContextItem | Memory | Hit | Mapping[str, Any]
"""A candidate of `compile`: an item, a memory, a recalled hit, or a mapping of item fields."""

_Record = TypeVar("_Record", ContextItem, Memory)

_SHORT_TEXT = 20
"""Tokens of a short text: a budget has room for at most `budget / 20` texts, and relevance scores
that many.
"""


class Candidates(NamedTuple):
    """The candidates of a compile, in the order candidates."""

    items: tuple[ContextItem, ...]
    memories: tuple[Memory, ...]


def candidates_of(candidates: Iterable[Candidate]) -> Candidates:
    """Sort candidates into items and memories. Raises InvalidRecord."""
    items: list[ContextItem] = []
    memories: list[Memory] = []
    for candidate in candidates:
        if isinstance(candidate, Hit):
            memories.append(_for_model(_detached(candidate.memory)))
        elif isinstance(candidate, Memory):
            memories.append(_for_model(_detached(candidate)))
        else:
            items.append(_detached(ContextItem.load(candidate)))
    return Candidates(tuple(items), tuple(memories))


def compile_request(
    services: Services, request: CompilationRequest, call: ObservedCall
) -> CompiledContext:
    """Compile a request with the relevance that the tally's working sets measure, and record it.

    Raises what `compile_context` raises, and ApprovalRequired when a rule wants an approval.
    """
    request = request.model_copy(update={"relevance": _relevance(services, request)})
    compiled = compile_context(request, counter=services.counter(request.model))
    approvals = compiler.approvals(request)
    if call.step is not None:
        _record(call.step, request, compiled, approvals)
    if approvals:
        raise ApprovalRequired(approvals)
    return compiled


def _detached(record: _Record) -> _Record:
    """Copy the mappings of a record, because its holder may edit them before they are recorded."""
    if isinstance(record, Memory):
        mappings: object = record.attributes
    else:
        mappings = record.metadata or record.source_ref.metadata
    return record.model_copy(deep=True) if mappings else record


def _for_model(memory: Memory) -> Memory:
    text = text_for_model(memory.kind, memory.content)
    return memory if text == memory.content else memory.model_copy(update={"content": text})


def _relevance(services: Services, request: CompilationRequest) -> dict[str, int]:
    """Score by id how well each visible candidate answers the query, or the latest user message."""
    items = compiler.visible_items(request)
    query = request.query if request.query is not None else compiler.latest_request(items, request)
    if query is None:
        return {}
    texts = compiler.searchable_texts(items, request)
    most = request.token_budget // _SHORT_TEXT
    return services.working_sets.relevance(query, texts, now=request.as_of, most=most)


def _record(
    step: Step,
    request: CompilationRequest,
    compiled: CompiledContext,
    approvals: Sequence[ApprovalRequest],
) -> None:
    """Record the request, the decisions, and how the prompt follows the one before.

    Where approvals are wanted nothing is sent, so they are recorded in place of the prefix.
    """
    step.set_token_method(compiled.token_method)
    # Measured before anything is handed to the thread that seals payloads: both would take turns
    # for the interpreter.
    reuse = None if approvals else step.run.prefix_reuse(compiled)
    step.record(
        "compile_request",
        request,
        summary={"request_id": request.request_id, "budget": request.token_budget},
    )
    if reuse is None:
        step.record("compiled", compiled, summary=partial(_summary, compiled))
        requests = [
            {
                "action": approval.action,
                "rule": approval.rule_id,
                "items": list(approval.item_ids),
            }
            for approval in approvals
        ]
        step.record(
            "approval", {"requests": approvals}, summary={"state": "asked", "requests": requests}
        )
        return
    step.record(
        "compiled", compiled, summary=lambda: {**_summary(compiled), "prefix": reuse.dump()}
    )
    if reuse.cause == "compacted":
        step.record("compaction", {"prefix": reuse}, summary={"left": list(reuse.left)})


def _summary(compiled: CompiledContext) -> dict[str, Any]:
    return {
        "compiled_id": compiled.id,
        "stable_prefix_hash": compiled.stable_prefix_hash,
        "volatile_suffix_hash": compiled.volatile_suffix_hash,
        "tokens": compiled.token_allocation.get("used", 0),
        "token_exact": compiled.token_exact,
        "decisions": [
            [decision.item_id, decision.decision, decision.reason_code, decision.final_tokens]
            for decision in compiled.decisions
        ],
    }
