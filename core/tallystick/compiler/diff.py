"""Diff: how two compiles differ, candidate by candidate, and how much of one prompt begins the
next, which a provider's cache can reuse.
"""

from __future__ import annotations

from tallystick.records import (
    CompilationDecision,
    CompiledContext,
    CompileDiff,
    DecisionChange,
    PrefixCause,
    PrefixReuse,
    SectionName,
)


def diff_compiled(before: CompiledContext, after: CompiledContext) -> CompileDiff:
    """Return the candidates that came in, fell out or changed from `before` to `after`, each in the
    order of ids.

    A candidate that stayed counts as changed when its decision, reason, tokens or shown content
    differ, and as rescored when only its score does; one that was out both times counts as
    unchanged, unless by another policy.
    """
    old = {decision.item_id: decision for decision in before.decisions}
    new = {decision.item_id: decision for decision in after.decisions}
    old_hashes = {item.id: item.stable_hash for item in before.selected_items}
    new_hashes = {item.id: item.stable_hash for item in after.selected_items}
    added: list[DecisionChange] = []
    removed: list[DecisionChange] = []
    changed: list[DecisionChange] = []
    rescored: list[DecisionChange] = []
    policy: list[DecisionChange] = []
    unchanged = 0
    for item_id in sorted(old.keys() | new.keys()):
        previous, current = old.get(item_id), new.get(item_id)
        change = DecisionChange(item_id=item_id, before=previous, after=current)
        if _policy(previous) != _policy(current):
            policy.append(change)
        if _is_in(current) and not _is_in(previous):
            added.append(change)
        elif _is_in(previous) and not _is_in(current):
            removed.append(change)
        elif _is_in(previous) and (
            _fate(previous) != _fate(current) or old_hashes.get(item_id) != new_hashes.get(item_id)
        ):
            changed.append(change)
        elif previous is not None and current is not None:
            if _is_in(previous) and previous.score_breakdown.get(
                "total"
            ) != current.score_breakdown.get("total"):
                rescored.append(change)
            unchanged += 1
    return CompileDiff(
        added=tuple(added),
        removed=tuple(removed),
        changed=tuple(changed),
        rescored=tuple(rescored),
        policy=tuple(policy),
        unchanged=unchanged,
        budget_before=before.token_allocation.get("budget", 0),
        budget_after=after.token_allocation.get("budget", 0),
        tokens_before=before.token_allocation["used"],
        tokens_after=after.token_allocation["used"],
        stable_prefix_changed=before.stable_prefix_hash != after.stable_prefix_hash,
    )


def _is_in(decision: CompilationDecision | None) -> bool:
    return decision is not None and decision.decision != "exclude"


def _policy(decision: CompilationDecision | None) -> str | None:
    return (
        decision.reason_code
        if decision is not None and decision.reason_code.startswith("policy_")
        else None
    )


def _fate(decision: CompilationDecision | None) -> tuple[object, ...]:
    if decision is None:
        return ()
    return decision.decision, decision.reason_code, decision.final_tokens


_CAUSES: dict[SectionName, PrefixCause] = {
    "stable_prefix": "prefix_changed",
    "history": "history_changed",
    "task_context": "context_changed",
    "volatile_suffix": "turn_changed",
}


def prefix_reuse(before: CompiledContext | None, after: CompiledContext) -> PrefixReuse:
    """Return the tokens of the prompt of `before` with which that of `after` begins too, item by
    item.

    The zone is the stable prefix and the history window, which are there to be reused; `left` are
    the turns that left the window when it was compacted.
    """
    if before is None:
        return PrefixReuse(cause="first")
    old, new = _prompt_parts(before), _prompt_parts(after)
    same = 0
    while same < min(len(old), len(new)) and old[same][1] == new[same][1]:
        same += 1
    zone = [tokens for _, _, tokens, section in old if section in ("stable_prefix", "history")]
    window = {section.name: section.item_ids for section in after.sections}["history"]
    dropped = tuple(
        item_id
        for section in before.sections
        if section.name == "history"
        for item_id in section.item_ids
        if item_id not in window
    )
    cause: PrefixCause = "appended"
    at = None
    if same < len(old):
        at = old[same][0]
        cause = "compacted" if dropped and old[same][3] == "history" else _CAUSES[old[same][3]]
    return PrefixReuse(
        cause=cause,
        item_id=at,
        reused=sum(tokens for _, _, tokens, _ in old[:same]),
        before=sum(tokens for _, _, tokens, _ in old),
        zone_reused=sum(zone[:same]),
        zone=sum(zone),
        left=dropped,
    )


def _prompt_parts(compiled: CompiledContext) -> list[tuple[str, str, int, SectionName]]:
    """Return each item in prompt order: id, digest of its text, tokens, section."""
    tokens = {decision.item_id: decision.final_tokens for decision in compiled.decisions}
    digests = {item.id: item.stable_hash or "" for item in compiled.selected_items}
    return [
        (item_id, digests[item_id], tokens[item_id], section.name)
        for section in compiled.sections
        for item_id in section.item_ids
    ]
