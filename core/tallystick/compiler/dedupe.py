"""Dedupe: of items that say the same, one stays; the others point to it."""

from __future__ import annotations

from tallystick.compiler.state import CONVERSATION, Exclusion, State


def dedupe(state: State) -> State:
    """Return the state with exact copies out. The required one stays, else the most trusted,
    important and fresh one.

    Turns of a conversation are never copies of one another: two times "yes" are two turns. Redacted
    items all look alike and are never compared.
    """
    alike: dict[str, list[str]] = {}
    for item_id in state.remaining():
        if state.items[item_id].kind not in CONVERSATION and item_id not in state.verdicts:
            alike.setdefault(state.digests[item_id], []).append(item_id)
    excluded: dict[str, Exclusion] = {}
    for copies in alike.values():
        if len(copies) > 1:
            retained = min(copies, key=lambda item_id: _rank(state, item_id))
            excluded |= {
                item_id: Exclusion("duplicate", "dedupe", retained)
                for item_id in copies
                if item_id != retained
            }
    return state.excluding(excluded).not_requiring(excluded)


def _rank(state: State, item_id: str) -> tuple[bool, int, int, int, str]:
    item = state.items[item_id]
    moment = item.known_at
    return (
        item_id not in state.required,
        -item.trust_score,
        -item.importance_score,
        -(moment or 0),
        item_id,
    )
