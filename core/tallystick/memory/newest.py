"""The recall without a query: the newest memories that pass filters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from tallystick.access import is_expired, replacements, visible_docs
from tallystick.memory.context import MemoryContext
from tallystick.memory.contradictions import contradictions
from tallystick.memory.read import page_of
from tallystick.memory.recall import Recalled, require_answerable
from tallystick.memory.recall_request import RecallRequest
from tallystick.memory.supersession import freshness_of, is_current
from tallystick.records import AccessDecision, Actor, Hit, Memory, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import memories, scopes

_PAGE = 100
"""Memories that are read at once, at least: some of them may be left out."""


def newest(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    request: RecallRequest,
    *,
    logged: bool = True,
) -> Recalled:
    """Return the newest memories of these scopes that pass the filters of `request`: the recall
    without a query.

    By default active ones, with `as_of` those that were valid then; what holds no longer is marked
    as history. Nothing answers a question that was not asked: scores are 0, so that `min_score` and
    `only_confident` leave nothing. Raises Denied and InvalidInput, as `recall`.
    """
    require_answerable(request)
    for scope in dict.fromkeys(scope_list):
        context.gate.require(actor, "read", scope)
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        decisions = {
            scope: context.gate.decide(connection, actor, "read", scope)
            for scope in dict.fromkeys(scope_list)
        }
        readable = [scope for scope, decision in decisions.items() if decision.allowed]
        ids = [row.id for row in scopes.find(connection, readable)]
        passing = _passing(connection, context, actor, ids, request, now)
        found = list(islice(passing, request.limit))
        heads = replacements(
            connection,
            [stored.doc for stored in found if stored.memory.state == "superseded"],
            lambda scope: context.gate.decide(connection, actor, "read", scope).allowed,
            now,
        )
        docs = [stored.doc for stored in found]
        refs = memories.source_refs(connection, docs) if request.sources else {}
        rivals = contradictions(connection, context, actor, found, now)
    hits = []
    for stored in found if request.min_score == 0 else ():
        head = heads.get(stored.doc)
        contradicted_by = rivals.get(stored.memory.id, ())
        sources = refs.get(stored.doc, [])
        hits.append(_hit(stored, head, sources, decisions, contradicted_by, now))
    withheld = len(hits) if request.only_confident else 0
    given = [] if withheld else hits
    if request.budget is not None:
        given = request.budget(given)
    if logged:
        accessed = {stored.memory.id: stored.doc for stored in found}
        context.gate.log_read(
            actor,
            "recall",
            scope_list,
            results=len(given),
            accessed=[accessed[hit.memory.id] for hit in given],
        )
    return Recalled(tuple(given), "none", len(found), withheld=withheld)


def _passing(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope_ids: Sequence[int],
    request: RecallRequest,
    now: int,
) -> Iterator[memories.Stored]:
    """Yield the memories of these scopes that the actor may see and that pass the filters, newest
    first, read page by page.
    """
    states = request.states or (("active",) if request.as_of is None else memories.FINDABLE)
    before_doc, size = None, max(request.limit, _PAGE)
    while True:
        page = page_of(connection, scope_ids, request, states, limit=size, before_doc=before_doc)
        visible = visible_docs(connection, context.gate, actor, page, now)
        for stored in page:
            if (
                stored.doc in visible
                and not is_expired(stored.memory.expires_at, now)
                and (request.as_of is None or _was_valid(stored.memory, request.as_of))
            ):
                yield stored
        if len(page) < size:
            return
        before_doc = page[-1].doc


def _hit(
    stored: memories.Stored,
    head: memories.Stored | None,
    refs: Sequence[memories.SourceLink],
    decisions: Mapping[Scope, AccessDecision],
    contradicted_by: tuple[str, ...],
    now: int,
) -> Hit:
    memory = stored.memory
    holds = head is None and is_current(memory, now)
    return Hit.model_construct(
        memory=memory,
        score=0.0,
        signals={"filters": 1.0},
        sources=tuple(reference for _, reference in refs),
        source_ids=tuple(source_id for source_id, _ in refs),
        visible_to=memory.scope,
        access_reason=decisions[memory.scope].reason,
        path="none",
        fresh=freshness_of(memory, is_history=not holds) == "current",
        history=not holds,
        replaced_by=None if head is None else head.memory.id,
        duplicates=(),
        contradicted_by=contradicted_by,
        passage=None,
    )


def _was_valid(memory: Memory, at: int) -> bool:
    """Return True if a memory was valid at `at`; without a word on it, it holds since it was
    said.
    """
    since = memory.occurred_at if memory.valid_from is None else memory.valid_from
    return (since is None or since <= at) and is_current(memory, at)
