"""Standing: what holds now comes first; what it replaced follows as history; what repeats it is
folded into it.

Works on ranked candidates after scope and filters. A superseded memory is shown only where its
replacement is visible too, and never above it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tallystick.access import recallable, replacements
from tallystick.ranking import Ranked
from tallystick.records import Memory, Scope
from tallystick.storage import Connection, edges, memories

__all__ = ["HISTORY", "Standing", "arranged", "is_current"]

HISTORY = 0.5
"""How much of its score what holds no longer keeps."""
_CHAIN = 32
"""How many replacements of replacements are followed."""


@dataclass(frozen=True)
class Standing:
    """A candidate with its place among those that say the same or say it anew."""

    stored: memories.Stored
    ranked: Ranked
    history: bool = False
    replaced_by: str | None = None
    duplicates: tuple[str, ...] = field(default=())


def is_current(memory: Memory, at: int) -> bool:
    """Whether what it says holds at `at` (microseconds UTC)."""
    since, until = memory.valid_from, memory.valid_until
    return (since is None or since <= at) and (until is None or at < until)


def arranged(
    connection: Connection,
    ranked: Sequence[tuple[memories.Stored, Ranked]],
    *,
    may_read: Callable[[Scope], bool],
    within: Sequence[Scope],
    now: int,
    as_of: int | None,
    collapse: bool,
    bring: bool,
) -> list[Standing]:
    """The candidates in their order. `collapse` folds duplicates; `bring` puts a replacement in
    that was not found.
    """
    at = now if as_of is None else as_of
    if all(
        stored.memory.state in ("active", "redacted")
        and is_current(stored.memory, at)
        and is_current(stored.memory, now)
        for stored, _ in ranked
    ):
        return [Standing(stored, one) for stored, one in ranked]
    standing = [Standing(stored, one) for stored, one in ranked]
    if collapse:
        standing = _folded(connection, standing, may_read, now)
    old = [one.stored.doc for one in standing if one.stored.memory.state == "superseded"]
    heads = replacements(connection, old, may_read, now)
    standing = [
        one
        for one in standing
        if one.stored.memory.state != "superseded" or one.stored.doc in heads
    ]
    if as_of is not None:
        # Asked for a day: all of it held then. What holds no longer says so.
        return [
            replace(
                one,
                history=not is_current(one.stored.memory, now) or one.stored.doc in heads,
                replaced_by=_id(heads, one.stored.doc),
            )
            for one in standing
        ]
    return _ordered(standing, heads, within if bring else (), at)


def _ordered(
    standing: Sequence[Standing],
    heads: Mapping[int, memories.Stored],
    within: Sequence[Scope],
    at: int,
) -> list[Standing]:
    scores = {one.stored.doc: one.ranked.score for one in standing}
    for one in standing:
        head = heads.get(one.stored.doc)
        if head is not None and (head.doc in scores or head.memory.scope in within):
            scores[head.doc] = max(scores.get(head.doc, 0.0), one.ranked.score)
    found = {one.stored.doc: one for one in standing}
    for one in standing:
        head = heads.get(one.stored.doc)
        if head is not None and head.doc in scores and head.doc not in found:
            signals = dict.fromkeys(one.ranked.signals, 0.0) | {"replaces": 1.0}
            found[head.doc] = Standing(head, Ranked(head.doc, scores[head.doc], signals))
    placed = []
    for doc, one in found.items():
        history = doc in heads or not is_current(one.stored.memory, at)
        score = scores[doc]
        if history:
            below = scores.get(heads[doc].doc, score) if doc in heads else score
            score = HISTORY * min(one.ranked.score, below)
        placed.append(
            replace(
                one,
                ranked=replace(one.ranked, score=score),
                history=history,
                replaced_by=_id(heads, doc),
            )
        )
    return sorted(placed, key=lambda one: (-one.ranked.score, one.history))


def _folded(
    connection: Connection,
    standing: Sequence[Standing],
    may_read: Callable[[Scope], bool],
    now: int,
) -> list[Standing]:
    repeated = [one.stored.doc for one in standing if one.stored.memory.state == "duplicate"]
    if not repeated:
        return list(standing)
    heads = {
        doc: edge.to_doc
        for doc, edge in edges.following(connection, "DUPLICATE_OF", repeated, forward=True).items()
    }
    for _ in range(_CHAIN):
        steps = edges.following(connection, "DUPLICATE_OF", set(heads.values()), forward=True)
        if not steps:
            break
        heads = {doc: steps[head].to_doc if head in steps else head for doc, head in heads.items()}
    found = memories.get_docs(connection, set(heads.values()))
    folded: dict[int, Standing] = {}
    for one in standing:
        doc = one.stored.doc
        if one.stored.memory.state != "duplicate":
            known = folded.get(doc)
            folded[doc] = one if known is None else _joined(one, known)
            continue
        head = found.get(heads.get(doc, -1))
        if head is None or not recallable(head.memory, now) or not may_read(head.memory.scope):
            continue
        stands = Standing(
            head, replace(one.ranked, doc=head.doc), duplicates=(one.stored.memory.id,)
        )
        known = folded.get(head.doc)
        folded[head.doc] = stands if known is None else _joined(known, stands)
    return sorted(folded.values(), key=lambda one: -one.ranked.score)


def _joined(first: Standing, second: Standing) -> Standing:
    """One standing for the same memory: the signals of the first, the better score."""
    score = max(first.ranked.score, second.ranked.score)
    return replace(
        first,
        ranked=replace(first.ranked, score=score),
        duplicates=(*first.duplicates, *second.duplicates),
    )


def _id(heads: Mapping[int, memories.Stored], doc: int) -> str | None:
    return heads[doc].memory.id if doc in heads else None
