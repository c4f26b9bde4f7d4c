"""Conflicts: of items that contradict one another, or that one says it replaces, the better one
stays.

Items of one kind with the same subject and different content contradict one another, and memories
that the request names as contradictions.
`metadata.supersedes` lists the ids that an item replaces; it does so even when it is itself expired
or a duplicate, since what it replaced does not come true again. Policy's denials have no such
influence.
"""

from __future__ import annotations

from tallystick.compiler.dependencies import exclude_dependents, items_on_cycles, retained_copy
from tallystick.compiler.state import CONVERSATION, Exclusion, State
from tallystick.errors import InvalidContext
from tallystick.records import ContextItem

_WITHOUT_RIVALS = CONVERSATION | {"tool_schema"}


def resolve(state: State) -> State:
    """The state with superseded items and losers of conflicts out. Required items never lose; a
    note says so.

    Raises InvalidContext when items supersede one another in a circle.
    """
    excluded, notes = _exclude_superseded(state)
    losers, more = _losers(state, excluded)
    for item_id, texts in more.items():
        notes.setdefault(item_id, []).extend(texts)
    return exclude_dependents(
        state.excluding({**losers, **excluded}).with_notes(notes), "conflicts"
    )


def _exclude_superseded(state: State) -> tuple[dict[str, Exclusion], dict[str, list[str]]]:
    claims: dict[str, list[str]] = {}
    for item_id, item in state.items.items():
        if item_id in state.tokens and "supersedes" in item.metadata:
            claims[item_id] = [other for other in _ids(item) if other in state.items]
    cycle = items_on_cycles(claims)
    if cycle:
        raise InvalidContext(
            f"Items supersede one another in a circle: {', '.join(cycle)}.", item_ids=cycle
        )
    excluded: dict[str, Exclusion] = {}
    notes: dict[str, list[str]] = {}
    for item_id, others in claims.items():
        for other in (retained_copy(state, named) for named in others):
            if other == retained_copy(state, item_id):
                continue
            if other in state.required or state.items[other].kind in CONVERSATION:
                notes.setdefault(other, []).append(f"{item_id} says it replaces this")
            else:
                excluded.setdefault(other, Exclusion("superseded", "conflicts", item_id))
    return excluded, notes


def _losers(
    state: State, gone: dict[str, Exclusion]
) -> tuple[dict[str, Exclusion], dict[str, list[str]]]:
    rivals = _rivals(state, gone)
    excluded: dict[str, Exclusion] = {}
    notes: dict[str, list[str]] = {}
    kept: list[str] = []
    # Best first, so that what lost to another one puts nothing out itself.
    for item_id in sorted(rivals, key=lambda item_id: _rank(state, item_id)):
        winner = next((other for other in kept if other in rivals[item_id]), None)
        if winner is not None and item_id not in state.required:
            excluded[item_id] = Exclusion("conflict_loser", "conflicts", winner)
            continue
        kept.append(item_id)
        if winner is not None:
            notes.setdefault(item_id, []).append(f"contradicts {winner}")
    return excluded, notes


def _rivals(state: State, gone: dict[str, Exclusion]) -> dict[str, set[str]]:
    """Return for each item that contradicts others the ids of those."""
    may_lose = [
        item_id
        for item_id in state.remaining()
        if item_id not in gone and state.items[item_id].kind not in _WITHOUT_RIVALS
    ]
    pairs = state.request.contradictions
    values: dict[tuple[str, str, str], set[str]] = {}
    for item_id in may_lose:
        item = state.items[item_id]
        subject = item.metadata.get("subject")
        if isinstance(subject, str) and (pairs is None or item_id not in state.memories):
            memory_kind = str(item.metadata.get("memory_kind"))
            values.setdefault((item.kind, memory_kind, subject), set()).add(item_id)
    rivals: dict[str, set[str]] = {}
    here = set(may_lose)
    for names in values.values():
        for item_id in names if len(names) > 1 else ():
            rivals[item_id] = names - {item_id}
    for one, other in pairs or ():
        if {one, other} <= here:
            rivals.setdefault(one, set()).add(other)
            rivals.setdefault(other, set()).add(one)
    return rivals


def _rank(state: State, item_id: str) -> tuple[bool, int, int, int, int, str]:
    # Trust by quarters comes before freshness, so that fresh hearsay does not displace what is well
    # known.
    item = state.items[item_id]
    moment = item.known_at
    return (
        item_id not in state.required,
        -(item.trust_score // 25),
        -(moment or 0),
        -item.trust_score,
        -item.importance_score,
        item_id,
    )


def _ids(item: ContextItem) -> list[str]:
    listed = item.metadata.get("supersedes")
    return [other for other in listed if isinstance(other, str)] if isinstance(listed, list) else []
