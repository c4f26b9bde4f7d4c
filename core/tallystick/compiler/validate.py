"""Validation: candidates that no request may contain are refused or left out before anything is
chosen.

Refused are candidates that contradict one another (two with one id, a cycle of dependencies); left
out are empty and expired ones and tool calls and results that no provider would accept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from tallystick.compiler.dependencies import exclude_dependents, items_on_cycles
from tallystick.compiler.measure import measure
from tallystick.compiler.required import mark_required
from tallystick.compiler.state import CONVERSATION, Exclusion, State, is_empty
from tallystick.errors import InvalidContext, RequestDenied
from tallystick.records import ContextItem


def validate(state: State) -> State:
    """Return the state with items measured, tool groups formed and unusable items out; policy has
    decided before.

    Raises InvalidContext for ids given twice and for dependency cycles, naming the ids, and
    RequestDenied where policy denies the latest request.
    """
    _refuse_twins(state.candidates)
    state = measure(state)
    state = state.excluding(_unusable(state))
    state = mark_required(_group_tool_calls(state))
    _refuse_without_request(state)
    state = _exclude_expired(state)
    _refuse_cycles(state)
    return exclude_dependents(state, "validate")


def _refuse_twins(candidates: Iterable[ContextItem]) -> None:
    counts = Counter(item.id for item in candidates)
    twins = sorted(item_id for item_id, count in counts.items() if count > 1)
    if twins:
        raise InvalidContext(
            f"More than one candidate has the id {', '.join(map(repr, twins))}. Give each its own.",
            item_ids=twins,
        )


def _refuse_without_request(state: State) -> None:
    # Left out quietly, the model would answer an older request, or nothing that anybody asked.
    verdict = None if state.latest is None else state.verdicts.get(state.latest)
    if state.latest is not None and verdict is not None and verdict.effect == "deny":
        raise RequestDenied(state.latest, why=verdict.note, rule_id=verdict.rule_id)


def _unusable(state: State) -> dict[str, Exclusion]:
    excluded: dict[str, Exclusion] = {}
    now = state.request.as_of
    for item_id, item in state.items.items():
        memory = state.memories.get(item_id)
        if memory is not None and memory.state == "superseded":
            excluded[item_id] = Exclusion("superseded", "validate")
        elif memory is not None and memory.state == "duplicate":
            excluded[item_id] = Exclusion("duplicate", "validate")
        elif memory is not None and not _is_valid_at(memory.valid_from, memory.valid_until, now):
            excluded[item_id] = Exclusion("stale", "validate")
        elif is_empty(item):
            excluded[item_id] = Exclusion("empty", "validate")
    return excluded


def _is_valid_at(start: int | None, end: int | None, now: int) -> bool:
    return (start is None or start <= now) and (end is None or now < end)


def _exclude_expired(state: State) -> State:
    now = state.request.as_of
    never = {"required_latest_request", "required_tool_result", "tool_pair_of_included"}
    expired = {
        item_id: Exclusion("expired", "validate")
        for item_id, at in state.expiry.items()
        if at <= now and state.required.get(item_id) not in never
    }
    return state.excluding(expired).not_requiring(expired)


def _group_tool_calls(state: State) -> State:
    """Join calls and results into groups; a call or result without a partner is out.

    A result answers the nearest earlier open call of its id, so that ids which a provider counts
    anew in each turn still pair. Providers refuse a call without its result anywhere but at the
    very end.
    """
    messages = [item for item_id, item in state.items.items() if item.kind in CONVERSATION]
    groups: dict[str, list[str]] = {}
    waiting: dict[str, dict[str, None]] = {}
    open_calls: dict[str, str] = {}
    answers: dict[str, str] = {}
    excluded: dict[str, Exclusion] = {}
    notes: dict[str, list[str]] = {}
    for item in messages:
        if item.kind == "assistant_msg" and item.tool_call_ids:
            groups[item.id] = [item.id]
            waiting[item.id] = dict.fromkeys(item.tool_call_ids)
            open_calls |= dict.fromkeys(item.tool_call_ids, item.id)
        elif item.kind == "tool_result" and (call := item.tool_call_id) is not None:
            head = open_calls.pop(call, None)
            if head is None:
                excluded[item.id] = Exclusion("unpaired_tool_result", "validate", answers.get(call))
                notes[item.id] = [
                    f"call {call} {'is answered already' if call in answers else 'is not there'}"
                ]
                continue
            groups[head].append(item.id)
            del waiting[head][call]
            answers[call] = item.id
    pending = _last_unit(messages, groups, {**excluded, **state.excluded})
    for head, calls in waiting.items():
        if not calls:
            continue
        if head == pending:
            notes[head] = [f"waiting for {', '.join(calls)}"]
            continue
        notes[head] = [f"no result for {', '.join(calls)}"]
        excluded[head] = Exclusion("tool_pair_excluded", "validate")
    return (
        replace(
            state,
            groups={head: tuple(members) for head, members in groups.items()},
            heads={member: head for head, members in groups.items() for member in members},
            position={item.id: place for place, item in enumerate(messages)},
        )
        .excluding(excluded)
        .with_notes(notes)
    )


def _last_unit(
    messages: list[ContextItem], groups: Mapping[str, list[str]], excluded: Mapping[str, Exclusion]
) -> str | None:
    """Return the first of the unit that ends the conversation once results are joined to their
    calls.
    """
    results = {member for members in groups.values() for member in members[1:]}
    return next(
        (
            item.id
            for item in reversed(messages)
            if item.id not in results and item.id not in excluded
        ),
        None,
    )


def _refuse_cycles(state: State) -> None:
    edges = {
        item_id: [
            other
            for other in state.items[item_id].dependencies
            if other == item_id
            or item_id not in state.heads
            or state.heads.get(other) != state.heads[item_id]
        ]
        for item_id in state.remaining()
        if state.items[item_id].dependencies
    }
    cycle = items_on_cycles(edges)
    if cycle:
        raise InvalidContext(
            f"Items depend on one another in a cycle: {', '.join(cycle)}.", item_ids=cycle
        )
