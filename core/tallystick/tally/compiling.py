"""Compiling for a bound tally: gather candidates, measure relevance, record the decisions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import tzinfo
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import SkipValidation

from tallystick import compiler
from tallystick.access import Approvals, GuardedCall, require_no_widening
from tallystick.errors import ActionDenied, RequestDenied
from tallystick.memory import WorkingMemory
from tallystick.memory.held_changes import with_changes
from tallystick.memory.passages import candidate_for_model
from tallystick.policy.redaction import Redactor
from tallystick.ranking import CONFIDENT
from tallystick.recorder import Step
from tallystick.records import (
    Actor,
    ApprovalRequest,
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    ContextItem,
    Hit,
    Json,
    JsonObject,
    Memory,
    Piece,
    PolicyRule,
    Scope,
    ScoreWeights,
    Several,
)
from tallystick.records.framing import frame_code
from tallystick.tally.enforcement import ask, settle
from tallystick.tally.observed_calls import ObservedCall
from tallystick.tally.services import Services

Candidate = ContextItem | Memory | Hit | Piece | WorkingMemory | Mapping[str, Any]
"""A candidate of `compile`: an item, a memory, a recalled hit, a piece of a working set, the
working memory of a run, or a mapping of item fields.
"""


CandidateItems = Annotated[Iterable[Candidate], SkipValidation, Several]
"""Candidates of `compile`, in any order."""

_Record = TypeVar("_Record", ContextItem, Memory)

_SHORT_TEXT = 20
"""Tokens of a short text: a budget has room for at most `budget / 20` texts, and relevance scores
that many.
"""

_NAMED_ITEMS = 10
"""Items that the name of an action names; its arguments have all."""


class Candidates(NamedTuple):
    """The candidates of a compile, in the order candidates."""

    items: tuple[ContextItem, ...]
    memories: tuple[Memory, ...]
    found: frozenset[str] = frozenset()
    """Ids of the memories that a recall found with confidence."""
    contradicted_by: Mapping[str, tuple[str, ...]] = {}
    """Id of each memory that a recall found to those that contradict it."""
    chosen_as: Mapping[str, str] = {}
    """Id of each memory of the session's working set to why it is there."""
    profile: tuple[str, ...] = ()
    """Ids of those that belong to the profile."""


def candidates_of(candidates: Iterable[Candidate], zone: tzinfo, redactor: Redactor) -> Candidates:
    """Sort candidates into items and memories, those without secrets; `zone` is that of moments
    without an offset.

    Raises InvalidRecord.
    """
    items: list[ContextItem] = []
    memories: list[Memory] = []
    found: set[str] = set()
    contradicted_by: dict[str, tuple[str, ...]] = {}
    chosen_as: dict[str, str] = {}
    profile: list[str] = []
    for candidate in candidates:
        if isinstance(candidate, Piece):
            # The session's request found it, or an earlier one: it stays, whatever is asked now.
            found.add(candidate.hit.memory.id)
            chosen_as[candidate.hit.memory.id] = candidate.chosen_as
            profile += [candidate.hit.memory.id] if candidate.profile else []
            candidate = candidate.hit
        if isinstance(candidate, Hit):
            if candidate.score >= CONFIDENT:
                found.add(candidate.memory.id)
            contradicted_by[candidate.memory.id] = candidate.contradicted_by
            known = candidate_for_model(redactor, _detach_mappings(candidate.memory))
            memories.append(with_changes(known, candidate.held, candidate.learned))
        elif isinstance(candidate, Memory):
            memories.append(candidate_for_model(redactor, _detach_mappings(candidate)))
        elif isinstance(candidate, WorkingMemory):
            items.extend(
                item.model_copy(update={"content": redactor.redact_text(item.content).text})
                for item in candidate.items()
            )
        else:
            items.append(_detach_mappings(ContextItem.load(candidate).at(zone)))
    return Candidates(
        tuple(items),
        tuple(memories),
        frozenset(found),
        contradicted_by,
        chosen_as,
        tuple(profile),
    )


def require_fitting_scopes(
    services: Services, actor: Actor, candidates: Candidates, run_scope: Scope
) -> None:
    """Raise Denied where a candidate would be recorded for readers that its own scope has not."""
    named = [memory.scope for memory in candidates.memories]
    named += [item.scope for item in candidates.items if item.scope is not None]
    origins = [scope for scope in dict.fromkeys(named) if scope != run_scope]
    if not origins:
        return
    with services.store.database.read() as connection:
        require_no_widening(
            connection,
            services.gate,
            actor,
            origins,
            run_scope,
            operation="promote",
            remedy="Compile it in a run of the narrower scope, or promote or share the memory "
            "first, with a preview.",
        )


def compile_request(
    services: Services,
    request: CompilationRequest,
    call: ObservedCall,
    approvals: Approvals,
    *,
    home: Scope,
) -> CompiledContext:
    """Compile a request with the relevance that the tally's working sets measure, and record it;
    its frames have codes under the key of `home`.

    Raises what `compile_context` raises, ApprovalRequired when a rule wants an approval that nobody
    gave, and ActionDenied when a person denied it, or a rule wants a receipt and nothing records.
    """
    requests = compiler.approvals(request)
    # Compiled as it would be sent before anybody is asked: a grant is used up by what is possible.
    allowed = {wish.rule_id: wish.item_ids for wish in requests}
    try:
        granted, compiled = _compile_measured(
            services, request.model_copy(update={"approved": allowed}), home
        )
    except RequestDenied as error:
        facts = {"items": [error.item_id], "rule": error.rule_id, "outcome": "denied"}
        call.record("policy_check", None, summary={"applies_to": "context_item", **facts})
        raise
    _require_receipts(granted, compiled, call)
    answers = ask(approvals, _actions(request, requests), call) if requests else []
    is_blocked = any(answer.state != "granted" for answer in answers)
    if call.step is not None:
        shown = _compile_measured(services, request, home) if is_blocked else (granted, compiled)
        _record(call.step, *shown, is_blocked=is_blocked)
    settle(answers, call, {"applies_to": "context_item"})
    contents = {item.id: item.content for item in compiled.selected_items} if requests else {}
    for rule_id, item_ids in allowed.items():
        for item_id in item_ids:
            services.call_rules.note_granted(rule_id, contents.get(item_id, ""))
    services.compile_requests.note(compiled, granted)
    return compiled


def record_again(
    services: Services,
    actor: Actor,
    compiled: CompiledContext,
    call: ObservedCall,
    *,
    compares: bool = False,
) -> None:
    """Record a context that was compiled before its step began, with its request, so that the step
    can be replayed alone; nothing of one that was compiled elsewhere. With `compares` nothing has
    recorded it yet, so that it is compared with the one before.

    Raises Denied where a candidate stands in a scope that not all readers of the run may read.
    """
    request = services.compile_requests.of(compiled)
    if request is None or call.step is None:
        return
    candidates = Candidates(request.context_items, request.memory_records)
    require_fitting_scopes(services, actor, candidates, call.step.run.scope)
    _record(call.step, request, compiled, is_blocked=not compares)


def _compile_measured(
    services: Services, request: CompilationRequest, home: Scope
) -> tuple[CompilationRequest, CompiledContext]:
    prepared = compiler.prepare(request)
    relevance = _relevance(services, request, compiler.visible_items(prepared))
    measured = request.model_copy(update={"relevance": relevance})
    compiled = compiler.compile_context(
        measured, counter=services.counter(measured.model), prepared=prepared
    )
    return measured, _with_codes(services, compiled, home)


def _actions(
    request: CompilationRequest, requests: Iterable[ApprovalRequest]
) -> list[tuple[GuardedCall, PolicyRule]]:
    """Return what a person is asked for: exactly these items, to this model, by each rule."""
    rules = {rule.id: rule for rule in request.policy_rules}
    candidates = {item.id: item for item in compiler.all_candidates(request)}
    actions = []
    for wish in requests:
        items: list[Json] = [
            {
                "id": item_id,
                "kind": candidates[item_id].kind,
                "content": candidates[item_id].content,
            }
            for item_id in wish.item_ids
        ]
        arguments: JsonObject = {
            "provider": request.provider,
            "model": request.model,
            "rule": wish.rule_id,
            "items": items,
        }
        call = GuardedCall("send_to_model", _names(wish.item_ids), arguments)
        actions.append((call, rules[wish.rule_id]))
    return actions


def _names(item_ids: Sequence[str]) -> str:
    more = len(item_ids) - _NAMED_ITEMS
    return ", ".join(item_ids[:_NAMED_ITEMS]) + (f" and {more} more" if more > 0 else "")


def _require_receipts(
    request: CompilationRequest, compiled: CompiledContext, call: ObservedCall
) -> None:
    if call.step is not None:
        return
    requests = compiler.receipts_wanted(request)
    for item in compiled.selected_items if requests else ():
        if item.id in requests:
            raise ActionDenied(
                "send_to_model",
                item.id,
                rule_id=requests[item.id],
                reason="receipt_required",
                why="it leaves with a receipt, and nothing records this. Compile inside of "
                "a run of this tally",
            )


def _with_codes(services: Services, compiled: CompiledContext, home: Scope) -> CompiledContext:
    from tallystick.compiler.outlines import frame_bodies

    bodies = frame_bodies(compiled)
    if not any(bodies):
        return compiled
    key = services.memory.frame_keys.signing(home)
    remembered, context = (frame_code(key, body) if body else "" for body in bodies)
    return compiled.model_copy(update={"frame_codes": (remembered, context)})


def _detach_mappings(record: _Record) -> _Record:
    """Copy the mappings of a record, because its holder may edit them before they are recorded.
    Nothing else in a record can be changed.
    """
    copies: dict[str, Any] = {}
    if isinstance(record, Memory):
        if record.attributes:
            copies["attributes"] = deepcopy(record.attributes)
    else:
        if record.metadata:
            copies["metadata"] = deepcopy(record.metadata)
        if (ref := record.source_ref).metadata:
            copies["source_ref"] = ref.model_copy(update={"metadata": deepcopy(ref.metadata)})
    return record.model_copy(update=copies) if copies else record


def _relevance(
    services: Services, request: CompilationRequest, items: tuple[ContextItem, ...]
) -> dict[str, int]:
    """Score by id how well each visible candidate answers the query, or the latest user message;
    never below what the request says already.
    """
    query = request.query if request.query is not None else compiler.latest_request(items, request)
    if query is None:
        return request.relevance
    texts = compiler.searchable_texts(items, request)
    most = request.token_budget // _SHORT_TEXT
    measured = services.working_sets.relevance(query, texts, now=request.as_of, most=most)
    least = {name: value for name, value in request.relevance.items() if name in measured}
    return measured | {name: max(value, measured[name]) for name, value in least.items()}


def _record(
    step: Step, request: CompilationRequest, compiled: CompiledContext, *, is_blocked: bool = False
) -> None:
    """Record the request, the decisions, and how the prompt follows the one before.

    Where approvals are waited for nothing is sent, so that no later prompt follows this one.
    """
    step.set_token_method(compiled.token_method)
    # Measured before anything is handed to the thread that seals payloads: both would take turns
    # for the interpreter.
    reuse = None if is_blocked else step.run.prefix_reuse(compiled)
    step.record(
        "compile_request",
        request,
        summary={"request_id": request.request_id, "budget": request.token_budget},
    )
    if reuse is None:
        step.record("compiled", compiled, summary=partial(_summary, compiled))
        return
    step.record(
        "compiled", compiled, summary=lambda: {**_summary(compiled), "prefix": reuse.dump()}
    )
    if reuse.cause == "compacted":
        step.record("compaction", {"prefix": reuse}, summary={"left": list(reuse.left)})


def _summary(compiled: CompiledContext) -> dict[str, Any]:
    return {
        "compiled_id": compiled.id,
        "coverage": compiled.coverage,
        "tokens": compiled.token_allocation.get("used", 0),
        "token_exact": compiled.token_exact,
        "decisions": [
            [decision.item_id, decision.decision, decision.reason_code, decision.final_tokens]
            for decision in compiled.decisions
        ],
    }


def apply_weights(config: CompileConfig | None, weights: ScoreWeights) -> CompileConfig:
    """Return a configuration with the weights of the settings, unless it names its own."""
    if config is None:
        return CompileConfig(weights=weights)
    if "weights" in config.model_fields_set:
        return config
    return config.model_copy(update={"weights": weights})
