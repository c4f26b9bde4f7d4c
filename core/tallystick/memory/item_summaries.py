"""Item summaries: short forms of memories that a compile takes instead of cutting them.

A compile says what it could have used (`wishes`); a job makes it, and a later compile finds it.
What a person wrote or changed stands before what was made: a memory of the kind `summary` that was
concluded from the memory alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.access import is_recallable
from tallystick.memory.conclusions import is_a_persons
from tallystick.memory.context import MemoryContext
from tallystick.memory.passages import candidate_for_model
from tallystick.records import Actor, Memory, Scope, SummaryWish, text_digest
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import (
    item_summaries,
    job_list,
    jobs,
    journal,
    memories,
    memory_versions,
    sources,
)

SUMMARIZE_ITEM = "summarize_item"
"""The kind of the jobs that make the summary of one memory."""


def summary_key(context: MemoryContext, memory: Memory) -> str:
    """Return the key of a memory's text in the `summaries` of a request."""
    return text_digest("summary-input", candidate_for_model(context.redactor, memory).content)


def read_summaries(context: MemoryContext, memory_ids: Iterable[str]) -> dict[str, str]:
    """Return the summaries of memories, as `summaries` of a request: a person's before others."""
    ids = list(memory_ids)
    if not ids:
        return {}
    with context.store.database.read() as connection:
        return item_summaries.read(connection, ids) | _of_people(connection, context, ids)


def has_of_person(connection: Connection, context: MemoryContext, memory_id: str) -> bool:
    """Return True if a person wrote, changed or accepted a summary of a memory as it is."""
    return bool(_of_people(connection, context, [memory_id]))


def queue_wishes(
    context: MemoryContext,
    actor: Actor,
    wishes: Iterable[SummaryWish],
    candidates: Iterable[Memory],
) -> int:
    """Enqueue the summaries that a compile wishes of its memories, once for each version, where the
    actor may write; return their number. One that failed is left alone.
    """
    by_id = {memory.id: memory for memory in candidates}
    wanted = [(wish, by_id[wish.item_id]) for wish in wishes if wish.item_id in by_id]
    if not wanted or context.store.database.unwritable is not None:
        return 0
    with context.store.database.read() as connection:
        wanted = [
            (wish, memory)
            for wish, memory in wanted
            if not job_list.exists_for(connection, SUMMARIZE_ITEM, memory.id, memory.version)
            and context.gate.decide(connection, actor, "write", memory.scope).allowed
        ]
    if not wanted:
        return 0

    def unit(tx: Connection) -> None:
        for wish, memory in wanted:
            stored = memories.get(tx, memory.id, sources=False)
            if stored is None or stored.memory.version != memory.version:
                continue
            jobs.enqueue(
                tx,
                kind=SUMMARIZE_ITEM,
                subject_id=memory.id,
                version=memory.version,
                scope_id=stored.scope_id,
                actor=actor,
                job_id=context.store.ids.new(),
                at=context.store.clock.now(),
                payload={"digest": wish.input_digest, "max_tokens": wish.max_tokens},
                priority=jobs.NORMAL_PRIORITY + 1,
                restart=(),
            )

    scopes: set[Scope] = {memory.scope for _, memory in wanted}
    context.store.database.write(unit, name="summaries.queue", writes=Writes.of(*scopes))
    return len(wanted)


def _of_people(
    connection: Connection, context: MemoryContext, memory_ids: list[str]
) -> dict[str, str]:
    pairs = item_summaries.remembered(connection, memory_ids)
    if not pairs:
        return {}
    stored, now = memories.get_docs(connection, {*sum(pairs, ())}), context.store.clock.now()
    return {
        summary_key(context, stored[origin].memory): stored[doc].memory.content
        for origin, doc in pairs
        if is_recallable(stored[doc].memory, now)
        and _is_reviewed(connection, stored[doc])
        and _is_of_this_text(connection, stored[origin], stored[doc].memory)
    }


def _is_reviewed(connection: Connection, summary: memories.Stored) -> bool:
    """Return True if a person stated a summary as approved, or accepted, edited or pinned it."""
    if is_a_persons(connection, summary):
        return True
    types = sources.types_of(connection, [each.source_id for each in summary.memory.sources])
    if "human_approval" not in types:
        return False
    stream = f"scope:{summary.memory.scope}"
    entries = journal.about(connection, summary.memory.id, stream=stream)
    # What an agent says of itself that a person approved it is not that person's word.
    return bool(entries) and entries[0].actor.get("agent") is None


def _is_of_this_text(connection: Connection, origin: memories.Stored, summary: Memory) -> bool:
    """Return True if the text of a memory is the one that a summary was written or changed of."""
    then = [
        each.body
        for each in memory_versions.versions_of(connection, origin.doc)
        if each.created_at <= summary.updated_at
    ]
    return bool(then) and then[-1] is not None and then[-1]["content"] == origin.memory.content
