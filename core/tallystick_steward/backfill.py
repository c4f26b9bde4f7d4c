"""Backfill: what a tally has from before is learned from, embedded or put into the graph, a portion
at a time.

A portion leaves jobs, or embeds; the place is kept, so that the next call goes on there, whichever
process makes it.
"""

from __future__ import annotations

from functools import partial

from tallystick.errors import InvalidInput
from tallystick.jobs import Background
from tallystick.jobs.embedding import Unembedded
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.ports import TokenCounter
from tallystick.records import Actor, Backfill, BackfillWork, Memory, ModelCost, NewMemory, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import measures, memories, scopes, settings_rows
from tallystick.tokens.prices import PriceTable, cost_of
from tallystick.upkeep.jobs import note_repair

_SAMPLE = 200
"""Memories by whose texts the tokens of all are estimated."""
_GRAPH = "graph"


def backfill(
    context: MemoryContext,
    background: Background,
    actor: Actor,
    scope: Scope,
    work: BackfillWork,
    *,
    portion: int,
    mode: str,
    reason: str,
    counter: TokenCounter,
    prices: PriceTable | None,
) -> Backfill:
    """Say what is left and what it takes, or do the next portion of it. Raises Denied, and
    InvalidInput where the tally does not do such work.
    """
    context.gate.require(actor, "write", scope)
    _require_on(context, work)
    with context.store.database.read() as connection:
        rows = scopes.find(connection, [scope])
        scope_id = rows[0].id if rows else 0
        name = f"backfill.{work}.{scope_id}"
        after = int(settings_rows.get_setting(connection, name) or 0)
        total = measures.count_after(connection, scope_id, after)
        docs = measures.docs_after(connection, scope_id, after, limit=portion)
        sample = memories.get_docs(connection, [doc for doc, _ in docs[:_SAMPLE]])
    texts = [each.memory.content for each in sample.values()]
    tokens = sum(counter.count(text) for text in texts)
    estimate = round(tokens / len(texts) * total) if texts else 0
    preview = Backfill(
        work=work,
        mode="preview",
        scope=scope,
        total=total,
        portion=len(docs),
        tokens=estimate,
        cost=_price(context, work, estimate, prices),
        is_over=not docs,
    )
    if mode == "preview" or not docs:
        return preview
    last = docs[-1][0]
    enqueued = 0
    if work == "embed":
        pages = Unembedded(context, scope_id)
        writes = Writes.of(scope)
        commit = partial(context.store.database.write, name="backfill", writes=writes)
        while pages.finished < portion and pages.embed_page(commit, lambda: False):
            enqueued = pages.vectors
        # Vectors know by themselves what is left.
        last = 0 if pages.docs(limit=1) else last
    elif work == _GRAPH:
        enqueued = sum(each.follow() for each in background.derived if each.name == _GRAPH)

    def unit(tx: Connection) -> int:
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        jobs_made = enqueued
        if work == "learn":
            stored = memories.get_docs(tx, [doc for doc, _ in docs])
            jobs_made = sum(_enqueue(write, each) for each in stored.values())
        settings_rows.set_setting(tx, name, str(last))
        details = {"work": work, "portion": len(docs), "enqueued": jobs_made, "left": total}
        note_repair(tx, context, actor, "steward.backfill", details, reason=reason)
        return jobs_made

    jobs_made = context.store.database.write(
        unit, name="steward.backfill", writes=Writes.of(TALLY, scope)
    )
    background.wake()
    left = max(0, total - len(docs))
    return preview.model_copy(update={"mode": "apply", "enqueued": jobs_made, "is_over": left == 0})


def _require_on(context: MemoryContext, work: BackfillWork) -> None:
    settings = context.settings
    is_on, text = {
        "learn": (settings.learning != "off", "The tally does not learn: set `learning` first."),
        "graph": (settings.graph, "The tally has no graph: set `graph` first."),
        "embed": (
            context.local_embedder,
            "The embedder is not on this machine: `tally reembed` says what it costs, and goes on "
            "where it was left.",
        ),
    }[work]
    if not is_on:
        raise InvalidInput(text, argument="work")


def _enqueue(write: MemoryWrite, stored: memories.Stored) -> int:
    """Leave the jobs that a memory would have had, had the tally learned when it came in."""
    memory, left = stored.memory, 0
    for extension in write.context.extensions:
        job = extension.job_for(write.context, write.actor, _as_new(memory))
        if job is not None:
            write.follow_up(job, memory, stored.scope)
            left += 1
    return left


def _as_new(memory: Memory) -> NewMemory:
    return NewMemory(
        content=memory.content,
        kind=memory.kind,
        speaker=memory.speaker,
        conversation=memory.conversation,
    )


def _price(
    context: MemoryContext, work: BackfillWork, tokens: int, prices: PriceTable | None
) -> ModelCost | None:
    """Return what the model's input takes; None where it is local or has no price."""
    named = context.settings.learning_model
    model = (named[0] if named else "") if isinstance(named, tuple) else named
    provider, _, name = model.rpartition(":")
    if work != "learn" or not name:
        return None
    usage = {"input_tokens": tokens, "output_tokens": 0}
    return cost_of(provider.rpartition(":")[2], [name], usage, table=prices)
