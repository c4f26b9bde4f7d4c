"""Mentions: entities of the graph stay true when a memory that mentions them changes.

An entity's name is text of the memories that mention it. So it is shown while an active memory
mentions it, and forgotten in the transaction in which the last one goes; it is back with the first.
One that somebody pinned, changed or forgot by hand is left as that person left it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tallystick.memory.conclusions import withdraw_copies
from tallystick.memory.context import Write
from tallystick.records import Memory
from tallystick.storage.index import communities, graph
from tallystick.storage.rows import edges, jobs, memories, memory_versions
from tallystick.storage.text import erasing

GRAPH_VERSION = memories.GRAPH_VERSION
"""The `transform_version` of what the graph made; nothing else has it."""
READ, SUMMARIZE = "graph", "summarize"
"""The kinds of the jobs that read the names in a scope's memories into the graph, and that have a
model summarize its communities.
"""
_GONE = "no memory mentions it any more"
_UNSAID = "what it was made from changed"
_BACK = "a memory mentions it again"


def queue_reading(write: Write, memory: Memory, scope_id: int) -> None:
    """Enqueue the job that reads what the graph has not read of a scope, and the one that
    summarizes it, where the graph is on.
    """
    context = write.context
    if memory.kind in graph.UNREAD_KINDS or not context.settings.graph:
        return
    write.enqueue(READ, graph_subject(scope_id), scope_id)
    if context.models.summarizer is not None:
        # A model is called with the authority of whoever wrote.
        write.enqueue(
            SUMMARIZE,
            graph_subject(scope_id),
            scope_id,
            actor=write.actor,
            priority=jobs.NORMAL_PRIORITY + 1,
        )


def graph_subject(scope_id: int) -> str:
    """Return the subject of the jobs that read a scope for the graph and summarize it."""
    return f"{scope_id}:graph"


def follow_change(write: Write, before: memories.Stored, after: Memory) -> None:
    """Bring the graph along with a memory that was just rewritten.

    What a text said is dropped with the text, before anybody reads the new one; what the new text
    says is read by the job.
    """
    if after.state != "active" or before.memory.content != after.content:
        _remove_summaries(write, before.doc)
    if after.kind in graph.UNREAD_KINDS and before.memory.kind in graph.UNREAD_KINDS:
        return
    is_active, was_active = after.state == "active", before.memory.state == "active"
    if _is_read_anew(before.memory, after) or after.kind in graph.UNREAD_KINDS:
        mentioned = graph.drop_mentions(write.tx, before.doc)
    elif is_active != was_active:
        mentioned = graph.mentioned_by(write.tx, before.doc)
    else:
        return
    if mentioned:
        settle(write, mentioned)
    if is_active:
        queue_reading(write, after, before.scope_id)


def _is_read_anew(before: Memory, after: Memory) -> bool:
    """Return True if the text of a memory changed, or the names that it was given."""
    return before.content != after.content or before.attributes.get(
        "entities"
    ) != after.attributes.get("entities")


def _remove_summaries(write: Write, doc: int) -> None:
    """Remove the summaries of communities that were made from a memory which no longer says so."""
    summaries = communities.summaries_of(write.tx, [doc])
    if summaries:
        stored = memories.get_docs(write.tx, summaries)
        remove_orphans(write, list(stored.values()), reason=_UNSAID)


def settle(write: Write, docs: Iterable[int]) -> int:
    """Forget those of these entities that no active memory mentions, bring back those that one
    mentions again, and remove those that nothing mentions at all; return the number of changes.
    """
    tx = write.tx
    stored = memories.get_docs(tx, sorted(set(docs)))
    orphans = graph.without_mention(tx, stored)
    remove_orphans(write, [stored.pop(doc) for doc in orphans])
    changed = len(orphans)
    entities = graph.made_here(tx, stored)
    living = graph.living_mentions(tx, entities)
    for doc in sorted(entities):
        current = stored[doc]
        memory = current.memory
        if memory.state in memories.FINDABLE and doc not in living:
            if memory.pinned or len(memory.sources) > 1:
                continue  # somebody confirmed it
            write.rewrite(
                write.permit_upkeep(current),
                memory.model_copy(update={"state": "deleted"}),
                "memory.forget",
                reason=_GONE,
            )
            _withdraw_copies(write, current)
            changed += 1
        elif memory.state == "deleted" and memory.corrected != "delete" and doc in living:
            before = memory_versions.before_deletion(tx, doc, memory.version)
            if before is None:
                continue  # its text was destroyed; the next reading makes another one
            again = memory.model_copy(update={"state": before["state"]})
            write.rewrite(write.permit_upkeep(current), again, "memory.recover", reason=_BACK)
            changed += 1
    return changed


def remove_orphans(
    write: Write, entities: Sequence[memories.Stored], *, reason: str = _GONE
) -> None:
    """Remove what the graph made and nothing bears out any more, such as entities that nothing
    mentions, each named in the journal of its scope.
    """
    for entity in entities:
        _withdraw_copies(write, entity)
        write.journal_event(
            entity.memory.scope,
            "memory.purge",
            entity.memory.id,
            {"version": entity.memory.version},
            reason=reason,
        )
    if entities:
        docs = [entity.doc for entity in entities]
        erasing.destroy(write.tx, docs, at=write.now, keep_rows=False)


def _withdraw_copies(write: Write, entity: memories.Stored) -> None:
    withdraw_copies(write, entity, edges.sharing(write.tx, entity.doc))
