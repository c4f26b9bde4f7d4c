"""Backfill: what a tally has from before is learned from, embedded or put into the graph, a portion
at a time.

A portion leaves jobs, or embeds. What is left is read from what was done, so that the next call
goes on there, whichever process makes it.
"""

from __future__ import annotations

from tallystick.errors import InvalidInput
from tallystick.jobs import Background
from tallystick.jobs.embedding import Unembedded
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.remember import jobs_for
from tallystick.ports import TokenCounter
from tallystick.records import Actor, Backfill, BackfillWork, ModelCost, NewMemory, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.index import graph
from tallystick.storage.index.marks import lags_of
from tallystick.storage.rows import measures, memories, scopes, settings_rows
from tallystick.tokens.prices import PriceTable, cost_of
from tallystick.upkeep.jobs import note_repair

_SAMPLE = 200
"""Memories by whose texts the tokens of all are estimated."""
_ASKED = ("content", "kind", "speaker", "conversation")
"""The fields of a memory by which extensions say what reads it."""


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
        docs = _left(connection, context, actor, rows[0].id, work) if rows else []
        sample = memories.get_docs(connection, docs[:_SAMPLE])
    texts = [each.memory.content for each in sample.values()]
    tokens = sum(counter.count(text) for text in texts) * len(docs) // max(1, len(texts))
    preview = Backfill(
        work=work,
        mode="preview",
        scope=scope,
        total=len(docs),
        portion=len(docs[:portion]),
        tokens=tokens,
        cost=_price(context, work, tokens, prices),
        is_over=not docs,
    )
    if mode == "preview" or not docs:
        return preview
    made = 0
    if work == "embed":
        pages = Unembedded(context, rows[0].id)
        commit = pages.committing("steward.backfill")
        while pages.finished < portion and pages.embed_page(commit, lambda: False):
            made = pages.vectors
    elif work == "graph":
        made = sum(each.follow() for each in background.derived if each.name == graph.NAME)
    left = max(0, len(docs) - max(portion, made))

    def unit(tx: Connection) -> int:
        context.gate.confirm(tx, actor, "write", scope)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), None)
        jobs = _leave_jobs(write, rows[0].id, docs[:portion]) if work == "learn" else made
        details = {"work": work, "portion": preview.portion, "enqueued": jobs, "left": left}
        note_repair(tx, context, actor, "steward.backfill", details, reason=reason)
        return jobs

    with context.gate.journaling(actor):
        enqueued = context.store.database.write(
            unit, name="steward.backfill", writes=Writes.of(TALLY, scope)
        )
    background.wake()
    return preview.replace(mode="apply", enqueued=enqueued, is_over=left == 0)


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


def _left(
    connection: Connection, context: MemoryContext, actor: Actor, scope_id: int, work: BackfillWork
) -> list[int]:
    """Return the memories of a scope with which such work was not done yet, in their order."""
    if work == "embed":
        return Unembedded(context, scope_id).docs()
    if work == "learn":
        asked = int(settings_rows.get_setting(connection, _name(scope_id)) or 0)
        return measures.never_learned(connection, scope_id, actor.user, after=asked)
    lag = lags_of(connection, graph.NAME, [scope_id]).get(scope_id)
    return [] if lag is None else [row.doc for row in graph.unread(connection, scope_id, lag.mark)]


def _name(scope_id: int) -> str:
    return f"backfill.learn.{scope_id}"


def _leave_jobs(write: MemoryWrite, scope_id: int, docs: list[int]) -> int:
    """Leave the jobs that memories would have had, had the tally learned when they came in; what
    nothing learns from is not looked at again.
    """
    jobs_made = 0
    for doc, stored in memories.get_docs(write.tx, docs).items():
        memory = stored.memory
        fields = {name: getattr(memory, name) for name in _ASKED}
        for job in jobs_for(write.context, write.actor, NewMemory(**fields)):
            memories.set_extraction_status(write.tx, doc, "pending")
            write.follow_up(job, memory, stored.scope)
            jobs_made += 1
    settings_rows.set_setting(write.tx, _name(scope_id), str(docs[-1]))
    return jobs_made


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
