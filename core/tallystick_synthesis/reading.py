"""Reading: where a synthesis may look, and what counts as evidence."""

from __future__ import annotations

from tallystick.records import Memory, Scope
from tallystick.records.synthesis import SynthesisRequest
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


def is_evidence(memory: Memory) -> bool:
    """Return True unless a memory is a document of synthesis itself: it would feed on itself."""
    return not (memory.kind == "artifact" and "synthesis" in memory.attributes)
