"""Dependency expansion: an item brings the items that it needs, and an item that misses one stays
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from tallystick.compiler.state import Exclusion, State
from tallystick.records import CompileReason


def expand(state: State) -> State:
    """Return the state with every unit's needs resolved, and with the items that required ones need
    required as well.

    A need for a duplicate is met by the copy that was retained. A required item stays although it
    misses another; a note says so.
    """
    needs, missing = _needs(state)
    state = replace(state, needs=needs).excluding(
        {
            item_id: Exclusion("dependency_missing", "dependencies", other)
            for item_id, other in missing.items()
            if item_id not in state.required
        }
    )
    state = state.with_notes(
        {
            item_id: [f"misses {other}"]
            for item_id, other in missing.items()
            if item_id in state.required
        }
    )
    state = exclude_dependents(state, "dependencies")
    brought = {
        member: _BROUGHT
        for head in closure(state, _required_heads(state))
        for member in state.members(head)
        if member not in state.required
    }
    return replace(state, required={**state.required, **brought})


def exclude_dependents(state: State, pass_name: str) -> State:
    """Return the state in which everything that must leave with an excluded item is out: its tool
    group, and its dependents.

    Required items stay, unless a call and its result would be separated.
    """
    excluded = dict(state.excluded)
    notes: dict[str, list[str]] = {}
    dependents = _dependents(state)
    queue = deque(item_id for item_id in state.items if item_id in excluded)
    while queue:
        absent = queue.popleft()
        head = state.head(absent)
        for member in state.members(head):
            if member not in excluded:
                excluded[member] = Exclusion("tool_pair_excluded", pass_name, absent)
                queue.append(member)
        for dependent in dependents.get(head, ()) if not _has_copy(excluded[absent]) else ():
            if dependent in excluded:
                continue
            if dependent in state.required:
                notes.setdefault(dependent, []).append(f"misses {absent}")
                continue
            excluded[dependent] = Exclusion("dependency_excluded", pass_name, absent)
            queue.append(dependent)
    fresh = {name: more for name, more in notes.items() if more[0] not in state.notes.get(name, ())}
    return replace(state, excluded=excluded).not_requiring(excluded).with_notes(fresh)


def closure(state: State, heads: Iterable[str]) -> dict[str, str | None]:
    """Return the first of each unit that `heads` need, themselves included, mapped to the unit that
    called for it.
    """
    return dict(needed_units(state, heads))


def needed_units(
    state: State, heads: Iterable[str], *, beyond: Collection[str] = ()
) -> Iterator[tuple[str, str | None]]:
    """Yield the units that `heads` need, themselves included, each with the unit that called for
    it.

    They come in the order in which they are called for. Units in `beyond` are in already, and units
    that are out are skipped.
    """
    callers: dict[str, str | None] = dict.fromkeys(heads)
    queue = deque(callers)
    while queue:
        head = queue.popleft()
        yield head, callers[head]
        for other in state.needs.get(head, ()):
            if other not in callers and other not in beyond and other not in state.excluded:
                callers[other] = head
                queue.append(other)


def retained_copy(state: State, item_id: str) -> str:
    """Return the retained copy of an item: itself unless it is a duplicate."""
    outcome = state.excluded.get(item_id)
    return (
        outcome.related
        if outcome is not None and outcome.related and _has_copy(outcome)
        else item_id
    )


def items_on_cycles(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the names on a cycle, or between two cycles, of `edges` (name to the names it points
    to), sorted.
    """
    ahead = {name: {other for other in others if other in edges} for name, others in edges.items()}
    for _ in range(2):  # first what leads nowhere is peeled off, then what nothing leads to
        behind: dict[str, set[str]] = {name: set() for name in ahead}
        for name, others in ahead.items():
            for other in others:
                behind[other].add(name)
        ends = [name for name, others in ahead.items() if not others]
        while ends:
            end = ends.pop()
            del ahead[end]
            for name in behind.pop(end):
                ahead[name].discard(end)
                if not ahead[name]:
                    ends.append(name)
        ahead = {name: behind[name] & ahead.keys() for name in ahead}
    return sorted(ahead)


_BROUGHT: CompileReason = "dependency_of_included"


def _required_heads(state: State) -> list[str]:
    return list(
        dict.fromkeys(state.head(item_id) for item_id in state.items if item_id in state.required)
    )


def _has_copy(outcome: Exclusion) -> bool:
    return outcome.reason == "duplicate" and outcome.related is not None


def _needs(state: State) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return needs by unit, and the first missing dependency of each item that has one."""
    needs: dict[str, dict[str, None]] = {}
    missing: dict[str, str] = {}
    for item_id in state.remaining():
        for other in state.items[item_id].dependencies:
            if other not in state.items:
                missing.setdefault(item_id, other)
                continue
            head, other_head = state.head(item_id), state.head(retained_copy(state, other))
            if head != other_head:
                needs.setdefault(head, {})[other_head] = None
    return {head: tuple(sorted(others)) for head, others in needs.items()}, missing


def _dependents(state: State) -> dict[str, list[str]]:
    dependents: dict[str, list[str]] = {}
    for head, others in state.needs.items():
        for other in others:
            dependents.setdefault(other, []).append(head)
    return dependents
