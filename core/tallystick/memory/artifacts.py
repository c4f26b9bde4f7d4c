"""Artifacts: kept documents of synthesis, and what becomes of them where a memory that they cite
changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tallystick.memory.context import MemoryContext, Write
from tallystick.records import Actor, CitedIn, Memory
from tallystick.storage import Connection
from tallystick.storage.rows import edges, memories

SECTIONS, STALE = "sections", "stale"
"""Attributes of an artifact: its sections with what they cite, and the numbers of those of which
something has changed since.
"""
_SAYS = (
    *("content", "kind", "state", "subject", "speaker", "attributes", "redacted"),
    *("valid_from", "valid_until"),
)
"""Fields of a memory by which a document that cites it may be wrong."""
_REASON = "a memory that it cites has changed"


class _Citing(NamedTuple):
    stored: memories.Stored
    numbers: tuple[int, ...]
    titles: tuple[str, ...]


def cited_in(
    connection: Connection, context: MemoryContext, actor: Actor, cited: memories.Stored
) -> tuple[CitedIn, ...]:
    """Return the artifacts that cite a memory and that the actor may read, by id."""
    found = [
        CitedIn(
            artifact_id=each.stored.memory.id,
            sections=each.titles,
            is_stale=bool(each.stored.memory.attributes.get(STALE)),
        )
        for each in _citing(connection, cited)
        if context.gate.decide(connection, actor, "read", each.stored.memory.scope).allowed
    ]
    return tuple(sorted(found, key=lambda each: each.artifact_id))


def mark_stale(write: Write, before: memories.Stored, after: Memory) -> None:
    """Note on the artifacts that cite a memory which was just rewritten as `after` that they are
    stale, unless only something beside what it says has changed.
    """
    if all(getattr(before.memory, name) == getattr(after, name) for name in _SAYS):
        return
    for each in _citing(write.tx, before):
        memory = each.stored.memory
        known: Any = memory.attributes.get(STALE) or ()
        stale = sorted({*known, *each.numbers})
        if stale == list(known):
            continue
        write.rewrite(
            write.permit_follower(each.stored, "DERIVED_FROM", before),
            memory.model_copy(update={"attributes": {**memory.attributes, STALE: stale}}),
            "memory.stale",
            reason=_REASON,
            details={"follows": before.memory.id, "sections": stale},
        )


def _citing(connection: Connection, cited: memories.Stored) -> Iterator[_Citing]:
    docs = [
        edge.from_doc
        for edge in edges.of(connection, cited.doc)
        if edge.kind == "DERIVED_FROM" and edge.to_doc == cited.doc
    ]
    for stored in memories.get_docs(connection, docs).values():
        listed: Any = stored.memory.attributes.get(SECTIONS)
        if stored.memory.kind != "artifact" or not isinstance(listed, list):
            continue
        sections = [each for each in listed if _cites(each, cited.memory.id)]
        if sections and stored.memory.state != "deleted":
            yield _Citing(
                stored,
                tuple(each["number"] for each in sections),
                tuple(" / ".join(each["path"]) for each in sections),
            )


def _cites(section: Any, memory_id: str) -> bool:
    """Return True for a section as a synthesis writes it that cites a memory. Attributes are
    anybody's: what has another shape keeps no memory from being changed.
    """
    if not isinstance(section, dict):
        return False
    cited, path = section.get("memories"), section.get("path")
    return (
        isinstance(cited, list)
        and memory_id in cited
        and isinstance(section.get("number"), int)
        and isinstance(path, list)
        and all(isinstance(title, str) for title in path)
    )
