"""Likeness: memories of some kinds that a text is like, by the vectors that recall has of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tallystick.access import visible_docs
from tallystick.errors import StateConflict
from tallystick.memory import MemoryContext
from tallystick.memory.change import require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.read import preview_of
from tallystick.ranking import cosines, from_float16_bytes
from tallystick.records import Actor, Memory
from tallystick.records.work import LinkedAlike, SuggestedLink
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.index import search
from tallystick.storage.rows import edges, memories

LINKED_KINDS = ("pattern", "rule", "template", "error_pattern", "topic")
"""Kinds of memories that a new one is linked to where it is like them."""
LINKED_FROM = 75
"""The likeness from which on they are linked, percent."""
_MOST_LINKS = 8
_COMPARED = 5_000
"""Memories of these kinds that a text is compared with, the newest."""
_MOST_TEXT = 160


class Alike(NamedTuple):
    """A memory that a text is like."""

    stored: memories.Stored
    cosine: float


def alike(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope_ids: Sequence[int],
    vector: bytes | None,
    *,
    kinds: Sequence[str],
    least: float,
    passes: Callable[[Memory], bool] = lambda memory: True,
) -> list[Alike]:
    """Return the active memories of some kinds that a vector is like, those most alike first; none
    without a vector. The actor may see the text of each.
    """
    fingerprint = context.settled_fingerprint()
    if vector is None or fingerprint is None:
        return []
    page = memories.latest(connection, scope_ids, kinds=kinds, states=("active",), limit=_COMPARED)
    shown = visible_docs(connection, context.gate, actor, page, context.store.clock.now())
    fitting = {each.doc: each for each in page if each.doc in shown and passes(each.memory)}
    vectors = search.vectors_of(connection, scope_ids, fingerprint, list(fitting))
    size = context.embedder.dimension * 2
    docs = [doc for doc, blob in vectors.items() if len(blob) >= size]
    if not docs:
        return []
    # Of a long text its first slice stands for it.
    matrix = from_float16_bytes([vectors[doc][:size] for doc in docs])
    near = cosines(from_float16_bytes([vector[:size]])[0], matrix)
    found = [
        Alike(fitting[doc], float(cosine))
        for doc, cosine in zip(docs, near, strict=True)
        if cosine >= least
    ]
    return sorted(found, key=lambda each: (-each.cosine, each.stored.doc))


def suggest_links(
    context: MemoryContext, actor: Actor, memory_id: str
) -> tuple[memories.Stored, list[SuggestedLink], dict[str, int]]:
    """Return a memory, what of its scope it would be linked with, and the numbers of these by id.
    Raises NotFound.
    """
    with context.store.database.read() as connection:
        stored = context.visible(connection, actor, memory_id, "read")
        if stored.doc not in visible_docs(
            connection, context.gate, actor, [stored], context.store.clock.now()
        ):
            raise context.absent(actor, memory_id)
    vector = context.vector_for(stored.memory)
    with context.store.database.read() as connection:
        linked = {edge.to_doc for edge in edges.of(connection, stored.doc)}
        found = [
            each
            for each in alike(
                connection,
                context,
                actor,
                [stored.scope_id],
                vector,
                kinds=LINKED_KINDS,
                least=LINKED_FROM / 100,
            )
            if each.stored.doc != stored.doc and each.stored.doc not in linked
        ][:_MOST_LINKS]
    links = [
        SuggestedLink(
            id=each.stored.memory.id,
            kind=each.stored.memory.kind,
            score=min(100, int(100 * each.cosine)),
            text=preview_of(context, each.stored.memory, most=_MOST_TEXT),
        )
        for each in found
    ]
    return stored, links, {each.stored.memory.id: each.stored.doc for each in found}


def link_alike(
    context: MemoryContext,
    actor: Actor,
    memory_id: str,
    *,
    reason: str,
    preview: bool,
    correlation_id: str | None,
) -> LinkedAlike:
    """Link a memory with those that it is like, each with its likeness, or tell with which;
    `modify` removes such a link as any other. Raises NotFound, Denied, StateConflict.
    """
    require_reason(reason)
    stored, links, docs = suggest_links(context, actor, memory_id)
    if preview or not links:
        return LinkedAlike(mode="preview" if preview else "apply", links=tuple(links))

    def unit(tx: Connection) -> int:
        current = context.visible(tx, actor, memory_id, "correct")
        if current.memory.state != "active":
            raise StateConflict(
                memory_id, state=current.memory.state, reason="only an active memory is linked"
            )
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        permitted = write.permit(current, "correct")
        for link in links:
            edges.add(
                tx,
                edge_id=context.store.ids.new(),
                kind="REFERENCES",
                scope_id=current.scope_id,
                from_doc=current.doc,
                to_doc=docs[link.id],
                at=write.now,
                reason=reason,
                confidence=link.score,
            )
        memory, _ = write.rewrite(permitted, current.memory, "memory.update", reason=reason)
        details = {
            "version": memory.version,
            "kind": "REFERENCES",
            "related_to": [link.id for link in links],
            "scores": [link.score for link in links],
        }
        write.journal_event(memory.scope, "memory.link", memory.id, details, reason=reason)
        return memory.version

    with context.gate.journaling(actor):
        version = context.store.database.write_mostly(
            unit, name="apply.link_alike", writes=Writes.of(stored.memory.scope)
        )
    return LinkedAlike(mode="apply", links=tuple(links), version=version)
