"""Scoring: the worth of each item in millionths, as a sum whose terms are kept.

Integers only, because floating-point libraries differ between machines.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.compiler.state import CONVERSATION, State
from tallystick.records import ContextItem

_ONE = 1_000_000
_UNKNOWN_AGE = 500_000
_TURN_HALF_LIFE = 16
"""Messages after which a turn counts half: there, recency is by order and not by clock."""
_RISK = {"public": 0, "internal": 0, "restricted": 500_000, "secret": _ONE}
_DEPENDENTS_THAT_COUNT = 4
_FOUND = frozenset({"memory", "retrieval_doc", "artifact", "file", "other"})
_HOLDS = frozenset(
    {"constraint", "rule", "preference", "decision", "open_question", "profile", "changed"}
)
"""Kinds of memories, and tags, of what matters although no word of the request is in it."""


def score(state: State) -> State:
    """Return the state with a score and its terms for each item that is not out."""
    weights = state.weights
    relevance = _relevance(state)
    dependents: dict[str, int] = {}
    for others in state.needs.values():
        for other in others:
            dependents[other] = dependents.get(other, 0) + 1
    remaining = state.remaining()
    talk = [item_id for item_id in remaining if item_id in state.position]
    # Seen from the latest request, so that what the turn brings changes nothing of what stands
    # before it.
    now = state.position[state.latest] if state.latest is not None else len(talk)
    later = sum(state.position[item_id] > now for item_id in talk)
    ages = {item_id: max(0, age - later) for age, item_id in enumerate(reversed(talk))}
    scores: dict[str, dict[str, int]] = {}
    for item_id in remaining:
        item = state.items[item_id]
        terms = {
            "relevance": weights.relevance * relevance.get(item_id, 0) // 1000,
            "freshness": weights.freshness * _freshness(state, item, ages) // 1000,
            "trust": weights.trust * item.trust_score * 10,
            "importance": weights.importance * item.importance_score * 10,
            "dependency": weights.dependency
            * _dependency_worth(dependents.get(state.head(item_id), 0))
            // 1000,
            "pin": weights.pin * 1000 if "pinned" in item.tags else 0,
            "staleness": -(weights.staleness * _staleness(state, item) // 1000),
            "risk": -(weights.risk * _RISK[item.sensitivity] // 1000),
        }
        terms["total"] = sum(terms.values())
        scores[item_id] = terms
    return replace(state, scores=scores, irrelevant=_irrelevant(state, relevance))


def half_life_decay(age: int, half_life: int) -> int:
    """Return what is left of a million after `age`: halved every `half_life`, on straight lines
    between the halves.
    """
    if age <= 0:
        return _ONE
    if half_life <= 0:
        return 0
    halvings, rest = divmod(age, half_life)
    if halvings > 20:
        return 0
    whole = _ONE >> halvings
    return whole - whole * rest // (2 * half_life)


def _relevance(state: State) -> dict[str, int]:
    """Return relevance by id; a retained item has the best of its copies, and a placeholder answers
    nothing.
    """
    relevance = state.request.relevance
    best = {
        item_id: min(_ONE, max(0, relevance[item_id]))
        for item_id in state.tokens
        if item_id in relevance and item_id not in state.verdicts
    }
    for item_id, outcome in state.excluded.items():
        if outcome.reason == "duplicate" and outcome.related is not None and item_id in best:
            best[outcome.related] = max(best.get(outcome.related, 0), best[item_id])
    return best


def _irrelevant(state: State, relevance: dict[str, int]) -> frozenset[str]:
    """Return the items that were scored below the floor, of those that are candidates because they
    were found: neither required, nor messages, nor what holds whatever is asked.
    """
    floor = state.request.compile_config.relevance_floor
    return frozenset(
        item_id
        for item_id in state.remaining()
        if relevance.get(item_id, floor) < floor
        and item_id not in state.required
        and (item := state.items[item_id]).kind in _FOUND
        and item.metadata.get("memory_kind") not in _HOLDS
        and _HOLDS.isdisjoint(item.tags)
    )


def _freshness(state: State, item: ContextItem, ages: dict[str, int]) -> int:
    if item.kind in CONVERSATION:
        return half_life_decay(ages[item.id], _TURN_HALF_LIFE)
    moment = item.known_at
    if moment is None:
        return _UNKNOWN_AGE
    return half_life_decay(
        state.request.as_of - moment, state.weights.half_life_seconds * 1_000_000
    )


def _staleness(state: State, item: ContextItem) -> int:
    end = state.expiry.get(item.id)
    start = item.known_at
    if end is None or start is None or end <= start:
        return 0
    return min(_ONE, max(0, (state.request.as_of - start) * _ONE // (end - start)))


def _dependency_worth(dependents: int) -> int:
    return min(dependents, _DEPENDENTS_THAT_COUNT) * _ONE // _DEPENDENTS_THAT_COUNT
