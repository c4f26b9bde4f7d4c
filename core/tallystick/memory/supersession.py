"""Supersession: the order of ranked memories among those that replace or repeat each other.

Current memories come first, those that they replaced follow as history, and a duplicate is folded
into the memory that it repeats. Works on ranked candidates, after scope and filters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tallystick.access import is_recallable, replacements
from tallystick.records import Holds, Memory, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import edges, memories

if TYPE_CHECKING:
    from tallystick.ranking import Ranked

HISTORY = 0.5
"""Factor on the score of a memory that is no longer valid."""


@dataclass(frozen=True)
class RankedMemory:
    """A memory with its rank, and its place among those that replace or repeat it."""

    stored: memories.Stored
    ranked: Ranked
    history: bool = False
    """True if it is no longer valid."""
    replaced_by: str | None = None
    duplicates: tuple[str, ...] = field(default=())
    """The ids of the memories that were folded into it."""


def is_current(memory: Memory, at: int) -> bool:
    """Return True if a memory is valid at `at` (microseconds UTC)."""
    since, until = memory.valid_from, memory.valid_until
    return (since is None or since <= at) and (until is None or at < until)


def freshness_of(memory: Memory, *, is_history: bool) -> Holds:
    """Return whether a memory holds, the same for hits, packs and inspections; `is_history` says
    that it was replaced, or is out of its validity.
    """
    if memory.state == "redacted":
        return "redacted"
    if is_history:
        return "history"
    if memory.corrected == "origin_gone":
        return "origin_gone"
    return "stale" if memory.kind == "artifact" and memory.attributes.get("stale") else "current"


def resolve_replacements(
    connection: Connection,
    ranked: Sequence[tuple[memories.Stored, Ranked]],
    *,
    may_read: Callable[[Scope], bool],
    within: Sequence[Scope],
    now: int,
    as_of: int | None,
    collapse: bool,
    bring: bool,
) -> list[RankedMemory]:
    """Return the memories in their order. `collapse` folds duplicates; `bring` adds a replacement
    in the scopes `within` that was not found itself.
    """
    at = now if as_of is None else as_of
    candidates = [RankedMemory(stored, rank) for stored, rank in ranked]
    if all(
        stored.memory.state in ("active", "redacted")
        and is_current(stored.memory, at)
        and is_current(stored.memory, now)
        for stored, _ in ranked
    ):
        return candidates
    if collapse:
        candidates = _collapse_duplicates(connection, candidates, may_read, now)
    superseded = [
        candidate.stored.doc
        for candidate in candidates
        if candidate.stored.memory.state == "superseded"
    ]
    heads = replacements(connection, superseded, may_read, now)
    candidates = [
        candidate
        for candidate in candidates
        if candidate.stored.memory.state != "superseded" or candidate.stored.doc in heads
    ]
    if as_of is not None:
        # Asked for a day: all of these were valid then. Those that are no longer are marked.
        return [
            replace(
                candidate,
                history=not is_current(candidate.stored.memory, now)
                or candidate.stored.doc in heads,
                replaced_by=_id(heads, candidate.stored.doc),
            )
            for candidate in candidates
        ]
    return _place_below_replacements(candidates, heads, within if bring else (), at)


def _place_below_replacements(
    candidates: Sequence[RankedMemory],
    heads: Mapping[int, memories.Stored],
    within: Sequence[Scope],
    at: int,
) -> list[RankedMemory]:
    """Order the memories, each superseded one below its replacement.

    A superseded memory is never above the one that replaced it, and is never returned without
    it where that is in a scope that is searched. It often answers the words of a query better, as
    an old address answers "where does she live"; an agent that reads the first hit would act on
    what is wrong by now. So the replacement takes over the better score of the two, and joins with
    that score where the query did not find it; the superseded one keeps `HISTORY` of its own score,
    and at most that part of its replacement's. On equal scores history comes last.
    """
    from tallystick.ranking import Ranked

    scores = {candidate.stored.doc: candidate.ranked.score for candidate in candidates}
    for candidate in candidates:
        head = heads.get(candidate.stored.doc)
        if head is not None and (head.doc in scores or head.memory.scope in within):
            scores[head.doc] = max(scores.get(head.doc, 0.0), candidate.ranked.score)
    by_doc = {candidate.stored.doc: candidate for candidate in candidates}
    for candidate in candidates:
        head = heads.get(candidate.stored.doc)
        if head is not None and head.doc in scores and head.doc not in by_doc:
            signals = dict.fromkeys(candidate.ranked.signals, 0.0) | {"replaces": 1.0}
            by_doc[head.doc] = RankedMemory(head, Ranked(head.doc, scores[head.doc], signals))
    placed = []
    for doc, candidate in by_doc.items():
        history = doc in heads or not is_current(candidate.stored.memory, at)
        score = scores[doc]
        if history:
            ceiling = scores.get(heads[doc].doc, score) if doc in heads else score
            score = HISTORY * min(candidate.ranked.score, ceiling)
        placed.append(
            replace(
                candidate,
                ranked=replace(candidate.ranked, score=score),
                history=history,
                replaced_by=_id(heads, doc),
            )
        )
    return sorted(placed, key=lambda candidate: (-candidate.ranked.score, candidate.history))


def _collapse_duplicates(
    connection: Connection,
    candidates: Sequence[RankedMemory],
    may_read: Callable[[Scope], bool],
    now: int,
) -> list[RankedMemory]:
    """Fold each duplicate into the memory that it repeats; drop it where that may not be seen."""
    duplicates = [
        candidate.stored.doc
        for candidate in candidates
        if candidate.stored.memory.state == "duplicate"
    ]
    if not duplicates:
        return list(candidates)
    ends = edges.follow_to_end(connection, "DUPLICATE_OF", duplicates, forward=True)
    canonical = memories.get_docs(connection, set(ends.values()))
    collapsed: dict[int, RankedMemory] = {}
    for candidate in candidates:
        doc = candidate.stored.doc
        if candidate.stored.memory.state != "duplicate":
            existing = collapsed.get(doc)
            collapsed[doc] = candidate if existing is None else _merge(candidate, existing)
            continue
        head = canonical.get(ends.get(doc, -1))
        if head is None or not is_recallable(head.memory, now) or not may_read(head.memory.scope):
            continue
        stand_in = RankedMemory(
            head,
            replace(candidate.ranked, doc=head.doc),
            duplicates=(candidate.stored.memory.id,),
        )
        existing = collapsed.get(head.doc)
        collapsed[head.doc] = stand_in if existing is None else _merge(existing, stand_in)
    return sorted(collapsed.values(), key=lambda candidate: -candidate.ranked.score)


def _merge(first: RankedMemory, second: RankedMemory) -> RankedMemory:
    """Return one entry for the same memory: the signals of the first, the better score."""
    score = max(first.ranked.score, second.ranked.score)
    return replace(
        first,
        ranked=replace(first.ranked, score=score),
        duplicates=(*first.duplicates, *second.duplicates),
    )


def _id(heads: Mapping[int, memories.Stored], doc: int) -> str | None:
    return heads[doc].memory.id if doc in heads else None
