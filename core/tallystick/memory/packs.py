"""Packs: text for an agent within a budget, framed as data, each item with its source, reason and
freshness.

A pack answers a query; a wake is a pack for the start, before any query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tallystick.access import is_expired
from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.recall import RecallRequest, recall
from tallystick.memory.supersession import is_current
from tallystick.ports import TokenCounter
from tallystick.records import Actor, ContextPack, Memory, PackItem, Scope
from tallystick.records.escaping import as_name
from tallystick.records.framing import Quote, framed
from tallystick.storage import memories, scopes

__all__ = ["context_pack", "wake"]

_LONGEST, _SHORTEST = 1_200, 40
"""Characters of one item; a longer one is cut and says so, and is left out rather than cut shorter.
"""
_LEAST = 16
"""Tokens below which no further item is tried."""
_MOST = 100
_LATEST = 50
"""The memories of each kind that a wake reads, newest first."""
_WAKES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pinned", ()),
    ("constraint", ("constraint", "rule")),
    ("preference", ("preference",)),
    ("decision", ("decision",)),
    ("task", ("task", "plan", "milestone")),
    ("summary", ("session_summary", "summary")),
    ("recent", ("fact", "note", "turn")),
)
"""The reasons of a wake in their order, each with its kinds."""
_SHARE = 0.3
"""The part of a wake's budget for one reason at first, pins and constraints aside."""
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
    home: Scope,
    request: RecallRequest | None = None,
    working: Sequence[PackItem] = (),
) -> ContextPack:
    """Return `working`, the working memory of the run, and the answers to `query`, best first, as
    far as they fit; the pack is framed under the key of `home`. Raises Denied, InvalidInput.
    """
    hits = recall(context, actor, scope_list, query, request or RecallRequest(limit=_MOST))
    items = [
        _item(
            hit.memory,
            hit.source_ids,
            hit.access_reason,
            why="relevance",
            score=hit.score,
            history=hit.history,
        )
        for hit in hits
    ]
    speakers = {hit.memory.id: hit.memory.speaker for hit in hits}
    filling = _Filling(context, budget_tokens, counter, speakers, longest=_OF_PACK)
    share = int(budget_tokens * _SHARE)
    for item in working:
        share -= filling.add(item, share)
    for item in items:
        filling.add(item, filling.remaining)
    return filling.packed([*working, *items], home)


def wake(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    *,
    budget_tokens: int,
    counter: TokenCounter,
    home: Scope,
    working: Sequence[PackItem] = (),
) -> ContextPack:
    """Return what to know at the start: `working`, the working memory of the run, then pins,
    constraints, preferences, decisions, open tasks, summaries and the latest notes; framed under
    the key of `home`.

    Newest first within each; each but pins and constraints takes a part of the budget, and more
    where others leave it. A text that is too long is cut. Raises Denied, InvalidInput.
    """
    decisions = {scope: context.gate.require(actor, "read", scope) for scope in scope_list}
    now = context.store.clock.now()
    with context.store.database.read() as connection:
        # Decided again by the snapshot that the texts come from, as in recall.
        decisions = {
            scope: context.gate.decide(connection, actor, "read", scope) for scope in decisions
        }
        allowed = [scope for scope, decision in decisions.items() if decision.allowed]
        ids = [row.id for row in scopes.find(connection, allowed)]
        chosen: dict[str, PackItem] = {}
        speakers: dict[str, str | None] = {}
        reasons: dict[str, list[PackItem]] = {"working": list(working)}
        for why, kinds in _WAKES:
            stored = memories.latest(
                connection,
                ids,
                kinds=kinds,
                states=("active",),
                limit=_LATEST,
                pinned=True if why == "pinned" else None,
                without_kind=STORE_ITEM,
            )
            for entry in stored:
                memory = entry.memory
                if memory.id in chosen or not _wakes(memory, why, now):
                    continue
                sources = tuple(source.source_id for source in memory.sources)
                chosen[memory.id] = _item(memory, sources, decisions[memory.scope].reason, why=why)
                speakers[memory.id] = memory.speaker
                reasons.setdefault(why, []).append(chosen[memory.id])
    context.gate.log_read(actor, "wake", scope_list, results=len(chosen))
    items = [item for group in reasons.values() for item in group]
    filling = _Filling(context, budget_tokens, counter, speakers, longest=_OF_WAKE)
    for why, group in reasons.items():
        share = (
            filling.remaining if why in ("pinned", "constraint") else int(budget_tokens * _SHARE)
        )
        for item in group:
            share -= filling.add(item, share)
    # The rest that one reason leaves, the next ones may use.
    for item in items:
        filling.add(item, filling.remaining)
    return filling.packed(items, home)


def _wakes(memory: Memory, why: str, now: int) -> bool:
    if not is_current(memory, now) or is_expired(memory.expires_at, now):
        return False
    return why != "task" or memory.attributes.get("status") not in ("done", "cancelled")


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
        id=memory.id,
        source_ids=tuple(source_ids),
        visible_to=memory.scope,
        access_reason=reason,
        chosen_as=why,
        score=score,
        fresh="redacted" if memory.state == "redacted" else "history" if history else "current",
        known_at=memory.freshness_ts,
        kind=memory.kind,
        text=f"{memory.speaker}: {memory.content}" if memory.speaker else memory.content,
    )


class _FittedItem(NamedTuple):
    item: PackItem
    """Without secrets, and cut."""
    cost: int
    """Its tokens."""
    redactions: Mapping[str, int]
    """The secrets that were replaced, by kind."""


class _Filling:
    """A budget that is filled item by item, the frame and every label counted."""

    def __init__(
        self,
        context: MemoryContext,
        budget_tokens: int,
        counter: TokenCounter,
        speakers: Mapping[str, str | None],
        *,
        longest: float,
    ) -> None:
        """Begin with an empty pack; `speakers` are those of the memories by id, `longest` is the
        part of the budget to which one item is cut. Raises InvalidInput.
        """
        if budget_tokens < 1:
            raise InvalidInput("`budget_tokens` must be at least 1.")
        self._context, self._budget, self._counter = context, budget_tokens, counter
        self._speakers = speakers
        self._most = int(budget_tokens * longest)
        self._fitted: dict[str, _FittedItem] = {}
        self._chosen: dict[str, PackItem] = {}
        self.remaining = budget_tokens - counter.count(framed(["x"], b""))

    def add(self, item: PackItem, budget: int) -> int:
        """Add an item if it costs no more than `budget` tokens and is not in the pack; return its
        cost, else 0.
        """
        budget = min(budget, self.remaining)
        if item.id in self._chosen or budget < _LEAST:
            return 0
        fitted = self._fitted.get(item.id)
        if fitted is None:
            fitted = self._fitted[item.id] = self._fit(item)
        if fitted.cost > budget:
            return 0
        self._chosen[item.id] = fitted.item
        self.remaining -= fitted.cost
        return fitted.cost

    def packed(self, items: Sequence[PackItem], home: Scope) -> ContextPack:
        """Return the pack, in the order of `items`, framed under the key of `home`."""
        key = self._context.frame_keys.signing(home) if self._chosen else None
        chosen = [self._chosen[item.id] for item in items if item.id in self._chosen]
        text = framed(map(self._quote, chosen), key)
        while chosen and self._counter.count(text) > self._budget:
            chosen.pop()
            text = framed(map(self._quote, chosen), key)
        counts: Counter[str] = Counter()
        for item in chosen:
            counts.update(self._fitted[item.id].redactions)
        return ContextPack(
            text=text,
            items=tuple(chosen),
            tokens=self._counter.count(text) if text else 0,
            budget_tokens=self._budget,
            exact=self._counter.exact,
            left_out=len(items) - len(chosen),
            redactions=dict(counts),
        )

    def _fit(self, item: PackItem) -> _FittedItem:
        """Return the item without secrets, cut to the most that one item may cost."""
        # Redacted whole and then cut: no rule knows half a secret.
        text, redactions = self._context.redactor.redact_text(item.text)
        length, shortest = min(len(text), _LONGEST), None
        bare = self._cost(item.model_copy(update={"text": "…"}))
        while length >= min(len(text), _SHORTEST):
            cut = length < len(text)
            shortened = item.model_copy(
                update={"text": text[: length - 1] + "…" if cut else text, "cut": cut}
            )
            cost = self._cost(shortened)
            if cost <= self._most:
                return _FittedItem(shortened, cost, redactions)
            shortest = shortest or _FittedItem(shortened, cost, redactions)
            length = min(length - 1, length * (self._most - bare) // max(1, cost - bare))
        # In a small budget its label alone may be more than that.
        return shortest or _FittedItem(item, self._budget + 1, redactions)

    def _cost(self, item: PackItem) -> int:
        # Counted as it is rendered: an escape takes tokens too.
        return self._counter.count(str(self._quote(item))) + 2

    def _quote(self, item: PackItem) -> Quote:
        """Return one item as the agent reads it: its kind and day, its text, and the id to cite."""
        speaker, text = self._speakers.get(item.id), item.text
        if speaker and text.startswith(f"{speaker}: "):
            text = text[len(speaker) + 2 :]
        else:
            speaker = None  # A secret was replaced in the name, or the text was cut within it.
        before, after = _labels(item)
        return Quote(text, speaker, before, after)


class _Labels(NamedTuple):
    before: str
    after: str


def _labels(item: PackItem) -> _Labels:
    day = (
        ""
        if item.known_at is None
        else f", {datetime.fromtimestamp(item.known_at / 1_000_000, tz=UTC):%Y-%m-%d}"
    )
    freshness = {"history": ", holds no longer", "redacted": ", redacted"}.get(item.fresh, "")
    source = f"source {item.source_ids[0]}" if item.source_ids else "no source"
    visible_to = as_name(str(item.visible_to))
    return _Labels(
        f"[{item.kind}{day}{freshness}] ", f" ({source}; {visible_to}; {item.access_reason})"
    )
