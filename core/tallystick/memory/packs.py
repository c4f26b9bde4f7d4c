"""Packs: text for an agent within a budget, framed as data, each item with its source, reason and freshness.

A pack answers a query; a wake is what one should know before anything was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from tallystick.errors import InvalidInput
from tallystick.memory.recall import Wanted, recall
from tallystick.memory.room import MemoryRoom
from tallystick.memory.standing import is_current
from tallystick.ports import TokenCounter
from tallystick.records import Actor, ContextPack, Memory, PackItem, Scope
from tallystick.records.framing import framed
from tallystick.storage import memories, scopes

__all__ = ["context_pack", "wake"]

_LONGEST = 1_200
"""Characters of one item; what is longer is cut and says so."""
_MOST = 100
_LATEST = 50
"""How many of each kind a wake looks at, newest first."""
_WAKES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pinned", ()),
    ("constraint", ("constraint", "rule")),
    ("preference", ("preference",)),
    ("decision", ("decision",)),
    ("task", ("task", "plan", "milestone")),
    ("summary", ("session_summary", "summary")),
    ("recent", ("fact", "note", "turn")),
)
"""What a wake holds, in this order: why, and the kinds of it."""
_SHARE = 0.3
"""The part of a wake's budget that one reason takes at most, pins and constraints aside."""


def context_pack(
    room: MemoryRoom, actor: Actor, scope_list: Sequence[Scope], query: str, *, budget_tokens: int,
    counter: TokenCounter, wanted: Wanted | None = None,
) -> ContextPack:  # fmt: skip
    """What answers `query`, best first, as far as it fits. Raises Denied, InvalidInput."""
    found = recall(room, actor, scope_list, query, wanted or Wanted(limit=_MOST))
    items = [
        _item(hit.memory, hit.source_ids, hit.reason, why="relevance", score=hit.score, history=hit.history)
        for hit in found
    ]
    return _packed(room, items, budget_tokens, counter)


def wake(
    room: MemoryRoom, actor: Actor, scope_list: Sequence[Scope], *, budget_tokens: int, counter: TokenCounter
) -> ContextPack:  # fmt: skip
    """What to know at the start: pins, constraints, preferences, decisions, open tasks, what came last.

    Newest first within each; each but pins and constraints takes a part of the budget at most. Raises Denied.
    """
    decisions = {scope: room.gate.require(actor, "read", scope) for scope in scope_list}
    now = room.store.clock.now()
    with room.store.database.read() as connection:
        state = {scope: room.gate.decide(connection, actor, "read", scope) for scope in decisions}
        ids = [row.id for row in scopes.find(connection, [scope for scope, one in state.items() if one.allowed])]
        taken: dict[str, PackItem] = {}
        reasons: dict[str, list[PackItem]] = {}
        for why, kinds in _WAKES:
            stored = memories.latest(
                connection,
                ids,
                kinds=kinds,
                states=("active",),
                limit=_LATEST,
                pinned=True if why == "pinned" else None,
            )
            for one in stored:
                memory = one.memory
                if memory.id in taken or not _wakes(memory, why, now):
                    continue
                sources = tuple(source.source_id for source in memory.sources)
                taken[memory.id] = _item(memory, sources, state[memory.scope].reason, why=why)
                reasons.setdefault(why, []).append(taken[memory.id])
    room.gate.log_read(actor, "wake", scope_list, results=len(taken))
    chosen: list[PackItem] = []
    for why, items in reasons.items():
        room_left = budget_tokens if why in ("pinned", "constraint") else int(budget_tokens * _SHARE)
        for item in items:
            cost = counter.count(_line(item))
            if cost > room_left:
                break
            room_left -= cost
            chosen.append(item)
    return _packed(room, chosen, budget_tokens, counter, more=len(taken) - len(chosen))


def _wakes(memory: Memory, why: str, now: int) -> bool:
    if not is_current(memory, now) or (memory.expires_at is not None and memory.expires_at <= now):
        return False
    return why != "task" or memory.attributes.get("status", "open") not in ("done", "cancelled")


def _item(
    memory: Memory, source_ids: Iterable[str], reason: str, *, why: str, score: float | None = None,
    history: bool = False,
) -> PackItem:  # fmt: skip
    text = f"{memory.who}: {memory.content}" if memory.who else memory.content
    cut = len(text) > _LONGEST
    return PackItem(
        memory_id=memory.id,
        source_ids=tuple(source_ids),
        visible_to=memory.scope,
        reason=reason,
        why=why,
        score=score,
        fresh="redacted" if memory.state == "redacted" else "history" if history else "current",
        known_at=memory.freshness_ts,
        kind=memory.kind,
        text=text[: _LONGEST - 1] + "…" if cut else text,
        cut=cut,
    )


def _packed(
    room: MemoryRoom, items: Sequence[PackItem], budget_tokens: int, counter: TokenCounter, *, more: int = 0
) -> ContextPack:  # fmt: skip
    """The items that fit, in order, the frame and every label counted."""
    if budget_tokens < 1:
        raise InvalidInput("`budget_tokens` must be at least 1.")
    counts: Counter[str] = Counter()
    chosen: list[PackItem] = []
    left, used = budget_tokens - counter.count(framed(["x"])), 0
    for item in items:
        text, found = room.redactor.redact_text(item.text)
        clean = item.model_copy(update={"text": text})
        cost = counter.count(_line(clean)) + 2
        if used + cost > left:
            continue
        used += cost
        chosen.append(clean)
        counts.update(found)
    text = framed(_line(item) for item in chosen)
    while chosen and counter.count(text) > budget_tokens:
        chosen.pop()
        text = framed(_line(item) for item in chosen)
    return ContextPack(
        text=text,
        items=tuple(chosen),
        tokens=counter.count(text) if text else 0,
        budget_tokens=budget_tokens,
        exact=counter.exact,
        left_out=len(items) - len(chosen) + more,
        redactions=dict(counts),
    )


def _line(item: PackItem) -> str:
    """One item as the agent reads it: what it is and how old, its text, and by which id it is cited."""
    day = "" if item.known_at is None else f", {datetime.fromtimestamp(item.known_at / 1_000_000, tz=UTC):%Y-%m-%d}"
    standing = {"history": ", holds no longer", "redacted": ", redacted"}.get(item.fresh, "")
    source = f"source {item.source_ids[0]}" if item.source_ids else "no source"
    return f"[{item.kind}{day}{standing}] {item.text} ({source}; {item.visible_to}; {item.reason})"
