"""Reading: where a synthesis may look, and what counts as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from tallystick.records import Memory, Scope
from tallystick.records.synthesis import (
    OutlineSection,
    PlannedSection,
    SynthesisFreshness,
    SynthesisRequest,
)
from tallystick.storage.rows import memories, synthesis_rows
from tallystick_synthesis.desk import Desk

NO_EVIDENCE = "no_evidence"
"""The gap of a section that nothing supports."""


def scopes_of(desk: Desk, request: SynthesisRequest) -> list[Scope]:
    """Return the scopes that a request reads, each open to the actor and to the one it acts for.
    Raises Denied with the reason of a closed one.
    """
    chosen = list(dict.fromkeys(request.scopes)) or [desk.scope]
    for scope in chosen:
        for actor in (desk.actor, desk.reader(request)):
            desk.context.gate.require(actor, "read", scope)
    return chosen


def asked_docs(desk: Desk, request: SynthesisRequest) -> frozenset[int] | None:
    """Return the memories to which a request keeps: those of its sources, and those that mention
    its entities; None where it names neither.
    """
    if not (request.source_ids or request.entity_ids):
        return None
    with desk.context.store.database.read() as connection:
        docs = synthesis_rows.docs_of_sources(connection, request.source_ids)
        named = {each.doc for each in memories.get_many(connection, request.entity_ids)}
        docs |= named | synthesis_rows.docs_linked(connection, "MENTIONS", named)
    return frozenset(docs)


def told_by_communities(
    desk: Desk,
    request: SynthesisRequest,
    sections: Sequence[OutlineSection | PlannedSection],
    most: int,
) -> list[str]:
    """Return memories that tell what the communities of the scopes are about, where one of the
    sections has them: one of each, those of the largest first, then a second of each. None where
    the graph is off, or the request keeps to some sources.
    """
    context = desk.context
    modes = {name: mode for each in context.extensions for name, mode in each.modes.items()}
    explore = modes.get("communities") if context.settings.graph else None
    is_bound = request.source_ids or request.entity_ids
    if explore is None or is_bound or not any(each.communities for each in sections):
        return []
    found = [
        community
        for scope in scopes_of(desk, request)
        for community in explore(context, desk.reader(request), scope, None, 1, most).communities
    ]
    found.sort(key=lambda each: (-each.memory_count, each.names))
    turns = zip_longest(*(each.sources for each in found))
    ids = dict.fromkeys(each for turn in turns for each in turn if each is not None)
    return list(ids)[:most]


def is_aged(freshness: SynthesisFreshness, known_at: int | None, now: int) -> bool:
    """Return True if what was last known to hold at a moment is by now older than is admitted."""
    most = freshness.max_age
    return most is not None and known_at is not None and now - known_at > most * 1_000_000


def is_evidence(memory: Memory) -> bool:
    """Return True unless a memory is a document of synthesis itself: it would feed on itself."""
    return not (memory.kind == "artifact" and "synthesis" in memory.attributes)
