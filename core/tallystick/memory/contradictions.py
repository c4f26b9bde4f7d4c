"""Contradictions: which memories contradict one another, and how a reader is told.

Two memories do where an open edge joins them, and where they are two values of one subject: of one
scope and kind, with different texts of different sources. Only what holds now counts, so that what
was replaced, forgotten, hidden or erased contradicts nothing, and what is restored does again. A
closed edge says that a person settled it, by other words for one of the two.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

from tallystick.access import is_expired
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.supersession import is_current
from tallystick.records import Actor, Hit, Memory, Scope
from tallystick.storage import Connection
from tallystick.storage.index import search
from tallystick.storage.rows import edges, memories

_Key = TypeVar("_Key", int, str)
_AT_ONCE = 500
_RIVALS = 20
"""Values of one subject that are read, for each memory that has one."""

ContradictedBy = Mapping[str, tuple[str, ...]]
"""Id of a memory to the ids of those that contradict it, the one that is believed first."""


def contradictions(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    among: Iterable[memories.Stored],
    now: int,
) -> ContradictedBy:
    """Return for each of these memories, which the actor may read, those that contradict it and
    that the actor may read too; memories without any are left out.
    """
    shown = {each.doc: each for each in among if _holds(each.memory, now)}
    if not shown:
        return {}
    links = edges.contradictions(connection, sorted(shown))
    docs = {doc for link in links if link.is_open for doc in (link.from_doc, link.to_doc)}
    docs |= set(_docs_of_subjects(connection, shown.values()))
    readable = shown | _readable(connection, context, actor, docs - shown.keys(), now)
    pairs = {_pair(link.from_doc, link.to_doc) for link in links if link.is_open}
    settled = {_pair(link.from_doc, link.to_doc) for link in links} - pairs
    pairs |= _pairs_of_subjects({doc: each.memory for doc, each in readable.items()}) - settled
    rivals: dict[str, list[Memory]] = {}
    for first, second in pairs:
        for doc, rival in ((first, second), (second, first)):
            if doc in shown and rival in readable:
                rivals.setdefault(readable[doc].memory.id, []).append(readable[rival].memory)
    return {
        memory_id: tuple(each.id for each in sorted(others, key=_rank))
        for memory_id, others in rivals.items()
    }


def _docs_of_subjects(connection: Connection, shown: Iterable[memories.Stored]) -> list[int]:
    """Return the memories with the subject of one of these, newest first."""
    valued = [each for each in shown if each.memory.subject is not None]
    if not valued:
        return []
    scope_ids = sorted({each.scope_id for each in valued})
    subjects = {str(each.memory.subject) for each in valued}
    return search.about_subjects(connection, scope_ids, subjects, most=_RIVALS * len(valued))


def _readable(
    connection: Connection, context: MemoryContext, actor: Actor, docs: Collection[int], now: int
) -> dict[int, memories.Stored]:
    """Return those of these memories that hold and that the actor may read."""
    others = memories.get_docs(connection, docs) if docs else {}
    return {
        doc: second
        for doc, second in others.items()
        if _holds(second.memory, now)
        and second.memory.kind != STORE_ITEM
        and context.gate.decide(connection, actor, "read", second.memory.scope).allowed
    }


def _pairs_of_subjects(among: Mapping[_Key, Memory]) -> set[tuple[_Key, _Key]]:
    """Return the pairs of different values of one subject."""
    values: dict[tuple[Scope, str, str], list[tuple[_Key, Memory]]] = {}
    for key, memory in among.items():
        if memory.subject is not None:
            subject = (memory.scope, memory.kind, memory.subject)
            values.setdefault(subject, []).append((key, memory))
    return {
        _pair(one_key, other_key)
        for group in values.values()
        for (one_key, first), (other_key, second) in combinations(group, 2)
        if first.content != second.content
        # One text says several things about its subject.
        and _source_ids(first).isdisjoint(_source_ids(second))
    }


def _pair(first: _Key, second: _Key) -> tuple[_Key, _Key]:
    return min(first, second), max(first, second)


def pairs_among(
    context: MemoryContext,
    actor: Actor,
    candidates: Sequence[Memory],
    contradicted_by: ContradictedBy,
) -> tuple[tuple[str, str], ...]:
    """Return the pairs of candidates that contradict one another, in order: of recalled ones as
    the recall says in `contradicted_by`, of others that the actor may read as they are stored, and
    of those that this tally does not have by their subject.
    """
    others = {each.id: each for each in candidates if each.id not in contradicted_by}
    by_id = dict(contradicted_by)
    if others:
        ids = list(others)
        with context.store.database.read() as connection:
            stored = [
                each
                for start in range(0, len(ids), _AT_ONCE)
                for each in memories.get_many(connection, ids[start : start + _AT_ONCE])
                if context.gate.decide(connection, actor, "read", each.memory.scope).allowed
            ]
            now = context.store.clock.now()
            by_id |= contradictions(connection, context, actor, stored, now)
        for each in stored:
            del others[each.memory.id]
    here = {each.id for each in candidates}
    pairs = {_pair(first, second) for first, rivals in by_id.items() for second in rivals}
    return tuple(sorted({pair for pair in pairs if here >= {*pair}} | _pairs_of_subjects(others)))


def _source_ids(memory: Memory) -> set[str]:
    return {source.source_id for source in memory.sources}


def _holds(memory: Memory, now: int) -> bool:
    return (
        memory.state == "active"
        and is_current(memory, now)
        and not is_expired(memory.expires_at, now)
    )


def _trust(memory: Memory) -> int:
    """Return the trust in a memory in quarters, so that fresh hearsay does not displace what is
    well known. A compile ranks in the same way.
    """
    return memory.confidence // 25


def _known_at(memory: Memory) -> int:
    return memory.freshness_ts or memory.occurred_at or memory.updated_at


def _rank(memory: Memory) -> tuple[int, int, int, int, str]:
    return (
        -_trust(memory),
        -_known_at(memory),
        -memory.confidence,
        -memory.importance,
        memory.id,
    )


def disagreements(
    shown: Sequence[tuple[int, Memory]], contradicted_by: Mapping[str, Iterable[str]]
) -> list[str]:
    """Return a line for each pair that a reader is shown by number, such as `1 and 3 disagree; 3 is
    newer`: numbers alone, no word of a memory.

    Of several that all contradict one another each is told beside the best of them only.
    """
    number_of = {memory.id: number for number, memory in shown}
    ranked = sorted((memory for _, memory in shown), key=_rank)
    sentences: list[tuple[int, int, str]] = []
    better: dict[str, set[str]] = {}
    for memory in ranked:
        rivals = set(contradicted_by.get(memory.id, ()))
        winners = [each for each in ranked[: ranked.index(memory)] if each.id in rivals]
        better[memory.id] = {each.id for each in winners}
        for winner in winners:
            if better[winner.id] & better[memory.id]:
                continue
            low, high = sorted((number_of[memory.id], number_of[winner.id]))
            sentences.append((low, high, _why(number_of[winner.id], winner, memory)))
    return [f"{low} and {high} disagree{why}" for low, high, why in sorted(sentences)]


def disagreements_of(shown: Iterable[Hit]) -> list[str]:
    """Same as `disagreements`, of hits that are shown by their place, counted from 1."""
    hits = list(shown)
    return disagreements(
        [(number, hit.memory) for number, hit in enumerate(hits, start=1)],
        {hit.memory.id: hit.contradicted_by for hit in hits},
    )


def _why(number: int, winner: Memory, loser: Memory) -> str:
    if _trust(winner) != _trust(loser):
        return f"; {number} is trusted more"
    return f"; {number} is newer" if _known_at(winner) > _known_at(loser) else ""
