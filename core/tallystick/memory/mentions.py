"""Mentions: entities of the graph stay true when a memory that mentions them changes.

An entity's name is text of the memories that mention it. So it is shown while an active memory
mentions it, and forgotten in the transaction in which the last one goes; it is back with the first.
One that somebody pinned, changed or forgot by hand is left as that person left it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tallystick.records import Memory
from tallystick.storage import edges, erasing, graph, jobs, memories

if TYPE_CHECKING:
    from tallystick.memory.memory_write import MemoryWrite

__all__ = [
    "GRAPH_VERSION",
    "follow_change",
    "graph_subject",
    "is_of_graph",
    "queue_reading",
    "remove_orphans",
    "settle",
]

GRAPH_VERSION = "graph-1"
"""The `transform_version` of what the graph made; nothing else has it."""
_GONE = "no memory mentions it any more"
_BACK = "a memory mentions it again"


def is_of_graph(memory: Memory) -> bool:
    """Return True if the graph made a memory: recall finds it by what mentions it, not by words."""
    return memory.transform_version is not None and memory.transform_version == GRAPH_VERSION


def queue_reading(write: MemoryWrite, memory: Memory, scope_id: int) -> None:
    """Enqueue the job that reads what the graph has not read of a scope, where the graph is on."""
    if (
        not write.context.graph
        or memory.kind in graph.UNREAD_KINDS
        or scope_id in write.graph_scopes
    ):
        return
    write.graph_scopes.add(scope_id)
    jobs.enqueue(
        write.tx,
        kind=jobs.GRAPH,
        subject_id=graph_subject(scope_id),
        scope_id=scope_id,
        actor=jobs.TALLY_ACTOR,
        job_id=write.context.store.ids.new(),
        at=write.now,
    )


def graph_subject(scope_id: int) -> str:
    """Return the subject of the job that reads a scope for the graph."""
    return f"{scope_id}:graph"


def follow_change(write: MemoryWrite, before: memories.Stored, after: Memory) -> None:
    """Bring the graph along with a memory that was just rewritten.

    What a text said is dropped with the text, before anybody reads the new one; what the new text
    says is read by the job.
    """
    if after.kind in graph.UNREAD_KINDS and before.memory.kind in graph.UNREAD_KINDS:
        return
    is_active, was_active = after.state == "active", before.memory.state == "active"
    if before.memory.content != after.content or after.kind in graph.UNREAD_KINDS:
        mentioned = graph.drop_mentions(write.tx, before.doc)
    elif is_active != was_active:
        mentioned = graph.mentioned_by(write.tx, before.doc)
    else:
        return
    if mentioned:
        settle(write, mentioned)
    if is_active:
        queue_reading(write, after, before.scope_id)


def settle(write: MemoryWrite, docs: Iterable[int]) -> int:
    """Forget those of these entities that no active memory mentions, bring back those that one
    mentions again, and remove those that nothing mentions at all; return the number of changes.
    """
    tx = write.tx
    stored = memories.get_docs(tx, sorted(set(docs)))
    orphans = graph.without_mention(tx, stored)
    remove_orphans(write, [stored.pop(doc) for doc in orphans])
    changed = len(orphans)
    made = graph.made_here(tx, stored)
    living = graph.living_mentions(tx, made)
    for doc in sorted(made):
        current = stored[doc]
        memory = current.memory
        if memory.state in memories.FINDABLE and doc not in living:
            if memory.pinned or len(memory.sources) > 1:
                continue  # somebody confirmed it
            write.rewrite(
                current,
                memory.model_copy(update={"state": "deleted"}),
                "memory.forget",
                reason=_GONE,
            )
            _withdraw_copies(write, current)
            changed += 1
        elif memory.state == "deleted" and memory.corrected != "delete" and doc in living:
            before = memories.before_deletion(tx, doc, memory.version)
            if before is None:
                continue  # its text was destroyed; the next reading makes another one
            again = memory.model_copy(update={"state": before["state"]})
            write.rewrite(current, again, "memory.recover", reason=_BACK)
            changed += 1
    return changed


def remove_orphans(write: MemoryWrite, entities: Sequence[memories.Stored]) -> None:
    """Remove entities that nothing mentions, each named in the journal of its scope."""
    for entity in entities:
        _withdraw_copies(write, entity)
        write.journal_event(
            entity.memory.scope,
            "memory.purge",
            entity.memory.id,
            {"version": entity.memory.version},
            reason=_GONE,
        )
    if entities:
        docs = [entity.doc for entity in entities]
        erasing.destroy(write.tx, docs, at=write.now, keep_rows=False)


def _withdraw_copies(write: MemoryWrite, entity: memories.Stored) -> None:
    if edges.sharing(write.tx, entity.doc).copies:
        from tallystick.memory.change import follow

        follow(write, entity, None)
