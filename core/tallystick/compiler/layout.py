"""Layout: the order in which a model reads, in three sections that change at different speeds.

The stable prefix changes least and comes first, so that a provider's cache can reuse it; the
conversation ends the volatile suffix with the latest request and its results.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tallystick.compiler.budgeting import CLASSES
from tallystick.compiler.compression import wishes
from tallystick.compiler.measure import content_digest
from tallystick.compiler.state import State
from tallystick.records import (
    CompilationDecision,
    CompileConfig,
    CompiledContext,
    ContextItem,
    JsonObject,
    Section,
    SectionName,
    SourceRef,
    text_digest,
)

_PREFIX = {"system": 0, "tool_schema": 1, "policy": 2}
_HARD, _PROFILE = 3, 4
_TASK_ORDER = {
    kind: rank
    for rank, kind in enumerate(
        (
            "task",
            "plan",
            "constraint",
            "handoff",
            "working",
            "memory",
            "retrieval_doc",
            "artifact",
            "file",
            "code_diff",
            "summary",
            "other",
        )
    )
}
_NO_SOURCE = SourceRef()


def layout(state: State, *, token_method: str, token_exact: bool) -> CompiledContext:
    """Return the compiled context: chosen items in reading order, and one decision per
    candidate.
    """
    visible = {item_id: _visible_item(state, item_id) for item_id in state.included}
    digests = {item_id: item.stable_hash or "" for item_id, item in visible.items()}
    sections = tuple(
        _section(state, name, item_ids, digests) for name, item_ids in _sections(state).items()
    )
    decisions = tuple(_decision(state, item.id) for item in state.candidates)
    wished = wishes(state)
    request = state.request
    spent = {decision.item_id: decision.final_tokens for decision in decisions}
    outcome = [
        [[section.name, section.digest, section.item_ids, section.tokens] for section in sections],
        tuple(map(_decision_row, decisions)),
        [[wish.item_id, wish.input_digest, wish.max_tokens] for wish in wished],
        [token_method, token_exact],
    ]
    return CompiledContext(
        id=text_digest(
            "compiled-context", json.dumps([_request_row(state), outcome], sort_keys=True)
        ),
        request_id=request.request_id,
        coverage=request.coverage,
        provider=request.provider,
        model=request.model,
        selected_items=tuple(
            visible[item_id] for section in sections for item_id in section.item_ids
        ),
        excluded_items=tuple(state.items[item_id] for item_id in sorted(state.excluded)),
        decisions=decisions,
        token_allocation=_allocation(state, spent),
        token_method=token_method,
        token_exact=token_exact,
        stable_prefix_hash=sections[0].digest,
        volatile_suffix_hash=sections[3].digest,
        sections=sections,
        wishes=wished,
    )


def _sections(state: State) -> dict[SectionName, list[str]]:
    prefix: list[tuple[int, str, str]] = []
    task: list[tuple[int, str]] = []
    changed: list[str] = []
    talk: list[str] = []
    for item_id in state.included:
        item = state.items[item_id]
        if item_id in state.position:
            if state.head(item_id) == item_id:
                talk.append(item_id)
        elif (rank := _prefix_rank(item)) is not None:
            prefix.append((rank, _name(item), item_id))
        elif item.kind == "code_diff" or (
            "changed" in item.tags and item.kind in {"artifact", "file"}
        ):
            changed.append(item_id)
        else:
            task.append((_TASK_ORDER.get(item.kind, len(_TASK_ORDER)), item_id))
    talk.sort(key=lambda head: state.position[head])
    changed.sort()
    window = set(state.window)
    # What changes each step stands after turns that do not, and a call that waits for its result
    # ends the prompt.
    now = [head for head in talk if state.position[head] >= state.turn]
    quoted = [head for head in talk if head not in window and state.position[head] < state.turn]
    return {
        "stable_prefix": [item_id for *_, item_id in sorted(prefix)],
        "history": _spread(state, state.window),
        "task_context": [item_id for _, item_id in sorted(task)] + _spread(state, quoted),
        "volatile_suffix": [*changed, *_spread(state, now)],
    }


def _prefix_rank(item: ContextItem) -> int | None:
    if item.kind == "constraint" and "hard" in item.tags:
        return _HARD
    return _PROFILE if "profile" in item.tags else _PREFIX.get(item.kind)


def _name(item: ContextItem) -> str:
    return item.id if item.kind != "tool_schema" else item.source_ref.title or item.id


def _spread(state: State, heads: Iterable[str]) -> list[str]:
    return [member for head in heads for member in state.members(head)]


def _section(
    state: State, name: SectionName, item_ids: Sequence[str], digests: Mapping[str, str]
) -> Section:
    return Section(
        name=name,
        item_ids=tuple(item_ids),
        # Of what is said and in which order, not of ids: the same bytes give the same digest.
        digest=text_digest("section", "\n".join(digests[item_id] for item_id in item_ids)),
        tokens=sum(_final_tokens(state, item_id) for item_id in item_ids),
    )


def _final_tokens(state: State, item_id: str) -> int:
    short = state.shortened.get(item_id)
    return state.costs[item_id] if short is None else short.tokens + state.overhead(item_id)


def _visible_item(state: State, item_id: str) -> ContextItem:
    item = state.items[item_id]
    digest = state.digests[item_id]
    short = state.shortened.get(item_id)
    if short is None:
        return item.model_copy(
            update={"stable_hash": digest, "token_estimate": state.tokens[item_id]}
        )
    return item.model_copy(
        update={
            "content": short.content,
            "stable_hash": content_digest(item, short.content),
            "token_estimate": short.tokens,
            "metadata": {**item.metadata, "compressed_from": digest},
        }
    )


def _decision(state: State, item_id: str) -> CompilationDecision:
    notes = "; ".join(dict.fromkeys(state.notes[item_id])) if item_id in state.notes else ""
    # Overhead on both sides, so that an item that went in whole has two equal numbers.
    original = state.costs.get(item_id, 0)
    outcome = state.excluded.get(item_id)
    if outcome is not None:
        return CompilationDecision(
            item_id=item_id,
            decision="exclude",
            pass_name=outcome.pass_name,
            reason_code=outcome.reason,
            score_breakdown=state.scores.get(item_id, {}),
            original_tokens=original,
            final_tokens=0,
            related_id=outcome.related,
            notes=notes,
        )
    inclusion = state.included[item_id]
    redacted = item_id in state.verdicts
    short = state.shortened.get(item_id)
    if redacted:
        notes = f"{notes}; {inclusion.reason}"
    return CompilationDecision(
        item_id=item_id,
        decision="redact" if redacted else "compress" if short is not None else "include",
        pass_name="policy" if redacted else inclusion.pass_name,
        reason_code="policy_redacted" if redacted else inclusion.reason,
        score_breakdown=state.scores.get(item_id, {}),
        original_tokens=original,
        final_tokens=_final_tokens(state, item_id),
        related_id=inclusion.related,
        notes=notes,
    )


def _allocation(state: State, spent: Mapping[str, int]) -> dict[str, int]:
    allocation = dict.fromkeys(CLASSES, 0)
    for item_id in state.included:
        allocation[state.classes[state.head(item_id)]] += spent[item_id]
    request = state.request
    used = sum(allocation.values()) + request.target.per_request
    return {
        **allocation,
        "budget": request.token_budget,
        "response_reserve": request.response_reserve,
        "used": used,
        "free": request.token_budget - request.response_reserve - used,
    }


def _request_row(state: State) -> list[object]:
    """Return the inputs that determine the outcome: everything but the ids of request, run and
    step, and denied content.
    """
    request = state.request
    return [
        _config_row(request.compile_config),
        request.target.dump(),
        [
            request.token_budget,
            request.response_reserve,
            request.as_of,
            request.provider,
            request.model,
        ],
        [
            request.task_summary,
            request.query,
            request.agent,
            request.task_type,
            request.environment,
        ],
        sorted(json.dumps(rule.dump(), sort_keys=True) for rule in request.policy_rules),
        [_item_row(state, item_id) for item_id in state.items],
        # A request without approvals has no row for them, and a whole one none for its coverage.
        *([sorted(request.approved.items())] if request.approved else []),
        *([request.coverage] if request.coverage == "recalled" else []),
        *([sorted(pairs)] if (pairs := _contradictions(state)) else []),
    ]


def _contradictions(state: State) -> list[tuple[str, str]]:
    """Return the pairs of which both may be seen: what is denied has no influence."""
    pairs = state.request.contradictions or ()
    return [pair for pair in pairs if state.tokens.keys() >= {*pair}]


def _config_row(config: CompileConfig) -> JsonObject:
    """Return a configuration; one without a floor of relevance, or without a limit for memories, in
    the form that has none.
    """
    row = config.dump()
    if config.memory_budget is None:
        del row["memory_budget"]
    if config.relevance_floor == 0:
        del row["relevance_floor"]
        row["schema_version"] = 1
    return row


def _item_row(state: State, item_id: str) -> tuple[object, ...]:
    item = state.items[item_id]
    ref = item.source_ref
    return (
        item_id,
        item.kind,
        state.digests.get(item_id),
        state.tokens.get(item_id),
        item.created_at,
        item.freshness_ts,
        item.ttl_seconds,
        item.trust_score,
        item.importance_score,
        item.sensitivity,
        None if item.scope is None else str(item.scope),
        item.dependencies,
        sorted(item.tags) if item.tags else (),
        item.metadata,
        None if ref is _NO_SOURCE or ref == _NO_SOURCE else ref.dump(),
    )


def _decision_row(decision: CompilationDecision) -> tuple[object, ...]:
    return (
        decision.item_id,
        decision.decision,
        decision.pass_name,
        decision.reason_code,
        decision.score_breakdown.get("total"),
        decision.original_tokens,
        decision.final_tokens,
        decision.related_id,
        decision.notes,
    )
