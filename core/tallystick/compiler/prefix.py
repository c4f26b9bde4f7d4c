"""Prefix: the part of one prompt that begins the next, which a provider's cache can reuse, and why
it is not longer.
"""

from __future__ import annotations

from tallystick.records import CompiledContext, PrefixCause, PrefixReuse, SectionName

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
