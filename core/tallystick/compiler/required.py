"""Required: what a compile never drops and never compresses, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tallystick.compiler.state import State, is_empty
from tallystick.records import CompileReason, ContextItem

_SHORTENED_KINDS = frozenset({"memory", "retrieval_doc", "artifact", "file", "summary"})
_EVIDENCE = frozenset({"approval", "evidence"})
"""Tags of what is shown as it is or not at all."""


def mark_required(state: State) -> State:
    """The state with its latest request and its required items named.

    A tool result is unresolved until a later assistant message takes it up. Results of the current
    turn that were taken up are required too, but are the first thing given up when required items
    exceed the budget; otherwise an agent could not run longer than its context.
    """
    latest = _latest_request(state)
    required: dict[str, CompileReason] = {}
    for item_id, item in state.items.items():
        reason = "required_latest_request" if item_id == latest else _reason(item)
        if reason is not None and item_id not in state.excluded:
            required[item_id] = reason
    firm = dict(required)
    answered: set[str] = set()
    for head, taken_up in _current_results(state, latest):
        members = state.members(head)
        results = [member for member in members if state.items[member].kind == "tool_result"] or [
            head
        ]
        for result in results:
            required.setdefault(result, "required_tool_result")
        if taken_up and not any(member in firm for member in members):
            answered.add(head)
    # A group is atomic: what one member requires, all of them do.
    for members in state.groups.values():
        if any(member in required for member in members):
            for member in members:
                required.setdefault(member, "tool_pair_of_included")
    return replace(state, latest=latest, required=required, answered=frozenset(answered))


def may_shorten(state: State, item_id: str) -> bool:
    """Return True if an item may go in shortened: never if it is required, redacted, an approval or
    raw evidence.
    """
    item = state.items[item_id]
    return (
        state.request.compile_config.compression
        and item.kind in _SHORTENED_KINDS
        and item_id not in state.required
        and item_id not in state.verdicts
        and item.source_ref.source_type != "human_approval"
        and _EVIDENCE.isdisjoint(item.tags)
    )


def _reason(item: ContextItem) -> CompileReason | None:
    if item.kind in {"system", "tool_schema"}:
        return "required_system"
    if item.kind == "policy":
        return "required_policy"
    if "hard" in item.tags and (
        item.kind == "constraint" or item.metadata.get("memory_kind") == "constraint"
    ):
        return "required_constraint"
    if item.kind == "tool_result" and "blocking" in item.tags:
        return "required_tool_result"
    return "required_pinned" if "pinned" in item.tags else None


def _latest_request(state: State) -> str | None:
    # A denied request stays the latest one, though its content is gone from the items: an older one
    # must not be answered in its place.
    requests = (item for item in reversed(state.candidates) if item.kind == "user_msg")
    return next((item.id for item in requests if not is_empty(item)), None)


def _current_results(state: State, latest: str | None) -> Iterator[tuple[str, bool]]:
    """Yield the first of each unit of tool results in the current turn, and True if a later message
    took it up.

    Without a request, the current turn is every result that no later message took up.
    """
    place = state.position
    replies = [
        at
        for name, at in place.items()
        if state.items[name].kind == "assistant_msg" and name not in state.excluded
    ]
    last_reply = max(replies, default=-1)
    for name in place:
        if state.head(name) != name or (
            name not in state.groups and state.items[name].kind != "tool_result"
        ):
            continue
        members = state.members(name)
        if any(member in state.excluded for member in members):
            continue
        end = max(place[member] for member in members)
        taken_up = end < last_reply
        if end > place[latest] if latest is not None else not taken_up:
            yield name, taken_up
