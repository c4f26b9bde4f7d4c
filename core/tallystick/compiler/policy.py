"""Policy: deny and redact are decided first and once, and checked again before layout; and what
rules want before a request is sent.

From the decision on, a denied item is its id, kind, sensitivity, scope and tool call ids; a
redacted one has a placeholder for content. No later pass can reach what was taken away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import NamedTuple, get_args

from tallystick.compiler.normalize import normalize
from tallystick.compiler.state import Exclusion, State, Verdict
from tallystick.errors import InvalidContext
from tallystick.policy.rules import RuleSubject, applicable_rule, strongest_rule
from tallystick.records import (
    ApprovalRequest,
    CompilationRequest,
    CompileReason,
    ContextItem,
    Json,
    JsonObject,
    Memory,
    PolicyRule,
    Sensitivity,
    SourceRef,
)

_RANK = {name: rank for rank, name in enumerate(get_args(Sensitivity))}
_REASONS: dict[str, CompileReason] = {
    "deny": "policy_denied",
    "require_approval": "policy_requires_approval",
}


def decide(state: State) -> State:
    """The state in which every item may be seen as it is: denied ones emptied and out, redacted
    ones replaced.
    """
    verdicts: dict[str, Verdict] = {}
    notes: dict[str, list[str]] = {}
    items: dict[str, ContextItem] = {}
    excluded: dict[str, Exclusion] = {}
    ids = {item.id for item in state.candidates}
    for item, (verdict, receipt) in zip(state.candidates, judge(state), strict=True):
        items[item.id] = item
        if receipt is not None:
            notes[item.id] = [f"receipt required by rule {receipt}"]
        if verdict is None:
            continue
        verdicts[item.id] = verdict
        notes.setdefault(item.id, []).append(verdict.note)
        if verdict.effect == "redact":
            items[item.id] = _placeholder_for(item, verdict.placeholder, ids)
        else:
            items[item.id] = _without_content(item)
            excluded[item.id] = Exclusion(_REASONS[verdict.effect], "policy")
    return replace(state, verdicts=verdicts, items=items).excluding(excluded).with_notes(notes)


def recheck(state: State) -> State:
    """Return the same state, after every item about to be laid out was judged anew.

    Raises InvalidContext if one of them is denied or shows redacted text: then nothing may
    leave.
    """
    for item, (verdict, _) in zip(state.candidates, judge(state), strict=True):
        if item.id not in state.included or verdict is None:
            continue
        visible = state.items[item.id]
        shortened = item.id in state.shortened
        if verdict.effect != "redact" or shortened or visible.content != verdict.placeholder:
            raise InvalidContext(
                f"Policy ({verdict.effect}) no longer held for item {item.id!r} before layout; "
                f"nothing was sent. "
                "This is a defect in a pass: please report it.",
                item_ids=(item.id,),
            )
    return state


class Judgement(NamedTuple):
    """The decision about one candidate."""

    verdict: Verdict | None
    receipt: str | None
    """The id of the rule that wants a receipt."""


def judge(state: State) -> Iterator[Judgement]:
    """Yield the judgement of each candidate, in order."""
    request = state.request
    # Many items look alike to the rules; each look is judged once.
    rules_by_look: dict[tuple[object, ...], PolicyRule | None] = {}
    ceiling = _RANK[request.compile_config.max_sensitivity]
    for item in state.candidates:
        memory = state.memories.get(item.id)
        if _RANK[item.sensitivity] > ceiling:
            limit = request.compile_config.max_sensitivity
            yield Judgement(
                Verdict("deny", f"sensitivity {item.sensitivity} is above {limit}"), None
            )
            continue
        if memory is not None and memory.state in {"hidden", "deleted"}:
            yield Judgement(Verdict("deny", f"the memory is {memory.state}"), None)
            continue
        classes = state.tool_classes.get(item.id, (None, None))
        look = (item.kind, item.sensitivity, item.scope, item.tags, classes)
        if look not in rules_by_look:
            rules_by_look[look] = _rule(request, item, *classes) if request.policy_rules else None
        rule = rules_by_look[look]
        if (
            rule is not None
            and rule.effect == "require_approval"
            and item.id in request.approved.get(rule.id, ())
        ):
            rule = None
        verdict, receipt = _verdict(rule, memory)
        if verdict is not None and verdict.effect == "redact" and item.kind == "tool_schema":
            # A tool without its schema cannot be offered to a model.
            note = f"{verdict.note}: a tool cannot be shown in part"
            verdict = Verdict("deny", note, rule_id=verdict.rule_id)
        yield Judgement(verdict, receipt)


def _rule(
    request: CompilationRequest,
    item: ContextItem,
    tool_class: str | None,
    claimed_class: str | None,
) -> PolicyRule | None:
    subject = RuleSubject(
        agent=request.agent,
        task_type=request.task_type,
        provider=request.provider,
        model=request.model,
        sensitivity=item.sensitivity,
        tool_class=tool_class,
        claimed_class=claimed_class,
        environment=request.environment,
        scope=item.scope,
        kind=item.kind,
        tags=frozenset(item.tags),
    )
    rule = applicable_rule(request.policy_rules, subject)
    if item.kind != "memory":
        return rule
    of_memory = applicable_rule(request.policy_rules, replace(subject, applies_to="memory"))
    return strongest_rule(candidate for candidate in (rule, of_memory) if candidate is not None)


def _verdict(rule: PolicyRule | None, memory: Memory | None) -> tuple[Verdict | None, str | None]:
    receipt = rule.id if rule is not None and rule.effect == "require_receipt" else None
    if rule is not None and rule.effect == "deny":
        return Verdict("deny", f"denied by rule {rule.id}", rule_id=rule.id), None
    if rule is not None and rule.effect == "require_approval":
        return Verdict(
            "require_approval", f"approval required by rule {rule.id}", rule_id=rule.id
        ), None
    if rule is not None and rule.effect == "redact":
        return Verdict(
            "redact",
            f"redacted by rule {rule.id}",
            f"[redacted by rule {rule.id}]",
            rule_id=rule.id,
        ), None
    if memory is not None and memory.state == "redacted":
        return Verdict("redact", "the memory is redacted", "[redacted]"), receipt
    return None, receipt


def _without_content(item: ContextItem) -> ContextItem:
    return ContextItem(
        id=item.id,
        kind=item.kind,
        content="",
        sensitivity=item.sensitivity,
        scope=item.scope,
        tool_call_ids=item.tool_call_ids,
        tool_call_id=item.tool_call_id,
    )


def _placeholder_for(item: ContextItem, placeholder: str, ids: Collection[object]) -> ContextItem:
    # Titles, queries, checksums and free metadata can hold or betray the text, so only its place is
    # kept, and of what it replaces only the ids of other candidates.
    ref = item.source_ref
    replaced = item.metadata.get("supersedes")
    named: list[Json] = (
        [other for other in replaced if isinstance(other, str) and other in ids]
        if isinstance(replaced, list)
        else []
    )
    metadata: JsonObject = {"supersedes": named} if named else {}
    return item.model_copy(
        update={
            "content": placeholder,
            "source_ref": SourceRef(source_type=ref.source_type, uri=ref.uri, version=ref.version),
            "metadata": metadata,
            "stable_hash": None,
            "token_estimate": None,
        }
    )


def approvals(request: CompilationRequest) -> tuple[ApprovalRequest, ...]:
    """Return the approvals to ask for, by the ids of the rules that want them; empty if no rule
    wants one.
    """
    if not any(rule.effect == "require_approval" for rule in request.policy_rules):
        return ()
    state = decide(normalize(State(request=request, count=len)))
    waiting: dict[str, list[str]] = {}
    for item_id in state.items:
        verdict = state.verdicts.get(item_id)
        if verdict is not None and verdict.effect == "require_approval" and verdict.rule_id:
            waiting.setdefault(verdict.rule_id, []).append(item_id)
    reasons = {rule.id: rule.description or rule.name for rule in request.policy_rules}
    return tuple(
        ApprovalRequest(rule_id=rule_id, reason=reasons[rule_id], item_ids=tuple(item_ids))
        for rule_id, item_ids in sorted(waiting.items())
    )


def receipts_wanted(request: CompilationRequest) -> dict[str, str]:
    """Return the rule that wants a receipt for each item that one does, by the id of the item."""
    if not any(rule.effect == "require_receipt" for rule in request.policy_rules):
        return {}
    state = normalize(State(request=request, count=len))
    return {
        item.id: receipt
        for item, (_, receipt) in zip(state.candidates, judge(state), strict=True)
        if receipt is not None
    }


def withholding_rules(request: CompilationRequest) -> dict[str, str]:
    """Return the rule that keeps each item from the model as it is, by the id of the item. What was
    redacted already is sent.
    """
    state = normalize(State(request=request, count=len))
    return {
        item.id: verdict.rule_id
        for item, (verdict, _) in zip(state.candidates, judge(state), strict=True)
        if verdict is not None
        and verdict.rule_id is not None
        and not (verdict.effect == "redact" and item.content == verdict.placeholder)
    }
