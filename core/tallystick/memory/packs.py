"""Packs: text for an agent within a budget, framed as data, each item with its source, reason and
freshness.

A pack answers a query; a wake is what one should know before anything was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.memory.recall import Wanted, recall
from tallystick.memory.supersession import is_current
from tallystick.ports import TokenCounter
from tallystick.records import Actor, ContextPack, Memory, PackItem, Scope
from tallystick.records.framing import framed
from tallystick.storage import memories, scopes

__all__ = ["context_pack", "wake"]

_LONGEST, _SHORTEST = 1_200, 40
"""Characters of one item; what is longer is cut and says so, and is left out rather than cut
shorter.
"""
_LEAST = 16
"""Tokens below which nothing more is looked for that would fit."""
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
"""The part of a wake's budget that one reason takes at first, pins and constraints aside."""
_OF_WAKE, _OF_PACK = 0.2, 0.5
"""The part of a budget to which one item is cut."""


def context_pack(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    query: str,
    *,
    budget_tokens: int,
    counter: TokenCounter,
    wanted: Wanted | None = None,
) -> ContextPack:
    """What answers `query`, best first, as far as it fits. Raises Denied, InvalidInput."""
    found = recall(context, actor, scope_list, query, wanted or Wanted(limit=_MOST))
    items = [
        _item(
            hit.memory,
            hit.source_ids,
            hit.reason,
            why="relevance",
            score=hit.score,
            history=hit.history,
        )
        for hit in found
    ]
    filling = _Filling(context, budget_tokens, counter, longest=_OF_PACK)
    for item in items:
        filling.take(item, filling.left)
    return filling.packed(items)


def wake(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    *,
    budget_tokens: int,
    counter: TokenCounter,
) -> ContextPack:
    """What to know at the start: pins, constraints, preferences, decisions, open tasks, what came
    last.

    Newest first within each; each but pins and constraints takes a part of the budget, and more
    where others leave it. What is too long is cut. Raises Denied, InvalidInput.
    """
    decisions = {scope: context.gate.require(actor, "read", scope) for scope in scope_list}
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        state = {
            scope: context.gate.decide(connection, actor, "read", scope) for scope in decisions
        }
        ids = [
            row.id
            for row in scopes.find(
                connection, [scope for scope, one in state.items() if one.allowed]
            )
        ]
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
    context.gate.log_read(actor, "wake", scope_list, results=len(taken))
    items = [item for found in reasons.values() for item in found]
    filling = _Filling(context, budget_tokens, counter, longest=_OF_WAKE)
    for why, found in reasons.items():
        left = filling.left if why in ("pinned", "constraint") else int(budget_tokens * _SHARE)
        for item in found:
            left -= filling.take(item, left)
    # What one reason left free, the next may have.
    for item in items:
        filling.take(item, filling.left)
    return filling.packed(items)


def _wakes(memory: Memory, why: str, now: int) -> bool:
    if not is_current(memory, now) or (memory.expires_at is not None and memory.expires_at <= now):
        return False
    return why != "task" or memory.attributes.get("status", "open") not in ("done", "cancelled")


def _item(
    memory: Memory,
    source_ids: Iterable[str],
    reason: str,
    *,
    why: str,
    score: float | None = None,
    history: bool = False,
) -> PackItem:
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
        text=f"{memory.who}: {memory.content}" if memory.who else memory.content,
    )


class _Filling:
    """A budget that is filled item by item, the frame and every label counted."""

    def __init__(
        self, context: MemoryContext, budget_tokens: int, counter: TokenCounter, *, longest: float
    ) -> None:
        """`longest` is the part of the budget to which one item is cut. Raises InvalidInput."""
        if budget_tokens < 1:
            raise InvalidInput("`budget_tokens` must be at least 1.")
        self._context, self._budget, self._counter = context, budget_tokens, counter
        self._most = int(budget_tokens * longest)
        self._fitting: dict[str, tuple[PackItem, int, Mapping[str, int]]] = {}
        self._taken: dict[str, PackItem] = {}
        self.left = budget_tokens - counter.count(framed(["x"]))

    def take(self, item: PackItem, left: int) -> int:
        """Take an item if it costs no more than `left` tokens and was not taken before; what it
        costs, else 0.
        """
        left = min(left, self.left)
        if item.memory_id in self._taken or left < _LEAST:
            return 0
        if item.memory_id not in self._fitting:
            self._fitting[item.memory_id] = self._fit(item)
        fitting, cost, _ = self._fitting[item.memory_id]
        if cost > left:
            return 0
        self._taken[item.memory_id] = fitting
        self.left -= cost
        return cost

    def packed(self, items: Sequence[PackItem]) -> ContextPack:
        """What was taken, in the order of `items`."""
        chosen = [self._taken[item.memory_id] for item in items if item.memory_id in self._taken]
        text = framed(_line(item) for item in chosen)
        while chosen and self._counter.count(text) > self._budget:
            chosen.pop()
            text = framed(_line(item) for item in chosen)
        counts: Counter[str] = Counter()
        for item in chosen:
            counts.update(self._fitting[item.memory_id][2])
        return ContextPack(
            text=text,
            items=tuple(chosen),
            tokens=self._counter.count(text) if text else 0,
            budget_tokens=self._budget,
            exact=self._counter.exact,
            left_out=len(items) - len(chosen),
            redactions=dict(counts),
        )

    def _fit(self, item: PackItem) -> tuple[PackItem, int, Mapping[str, int]]:
        """The item without secrets, cut to what one may take, its tokens, and what was redacted."""
        # Redacted whole and then cut: half a secret is one that no rule knows.
        text, found = self._context.redactor.redact_text(item.text)
        length, whole = min(len(text), _LONGEST), None
        bare = self._cost(item.model_copy(update={"text": "…"}))
        while length >= min(len(text), _SHORTEST):
            cut = length < len(text)
            said = item.model_copy(
                update={"text": text[: length - 1] + "…" if cut else text, "cut": cut}
            )
            cost = self._cost(said)
            if cost <= self._most:
                return said, cost, found
            whole = whole or (said, cost, found)
            length = min(length - 1, length * (self._most - bare) // max(1, cost - bare))
        # In a small budget its label alone may be more than that.
        return whole or (item, self._budget + 1, found)

    def _cost(self, item: PackItem) -> int:
        return self._counter.count(_line(item)) + 2


def _line(item: PackItem) -> str:
    """One item as the agent reads it: what it is and how old, its text, and by which id it is
    cited.
    """
    day = (
        ""
        if item.known_at is None
        else f", {datetime.fromtimestamp(item.known_at / 1_000_000, tz=UTC):%Y-%m-%d}"
    )
    standing = {"history": ", holds no longer", "redacted": ", redacted"}.get(item.fresh, "")
    source = f"source {item.source_ids[0]}" if item.source_ids else "no source"
    return f"[{item.kind}{day}{standing}] {item.text} ({source}; {item.visible_to}; {item.reason})"
