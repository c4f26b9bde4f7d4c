"""Packs: text for an agent within a budget, framed as data, each item with its number.

A pack answers a query; a wake is a pack for the start, before any query. Budgets are for what was
said: the number of an item leads to its source, visibility and reason in the record, and the kind
and day of several items are given once above them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, get_args

from tallystick.access import is_expired, visible_docs
from tallystick.compiler.shorten import whole_sentences
from tallystick.memory.context import MemoryContext
from tallystick.memory.contradictions import contradictions, disagreements
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.held_changes import changes_note, held_changes
from tallystick.memory.passages import (
    Content,
    as_ranges,
    content_of,
    document_place,
    part_of,
    says_the_same,
    shown_text,
)
from tallystick.memory.recall import recall
from tallystick.memory.recall_request import RecallRequest
from tallystick.memory.supersession import freshness_of, is_current
from tallystick.ports import TokenCounter
from tallystick.records import (
    Actor,
    AppliedChange,
    ContextPack,
    HeldChange,
    Hit,
    Holds,
    Memory,
    PackItem,
    Piece,
    Scope,
    WorkingSet,
    declared_attributes,
)
from tallystick.records.escaping import as_item, as_name, cut
from tallystick.records.framing import Quote, frame_quotes
from tallystick.records.kinds import Priority
from tallystick.records.times import moment_text
from tallystick.storage import Connection
from tallystick.storage.index import search
from tallystick.storage.rows import memories, scopes

_LONGEST, _SHORTEST = 1_200, 40
"""Characters of one item; a longer one is cut and says so, and is left out rather than cut shorter.
"""
_LEAST = 16
"""Tokens below which no further item is tried."""
_MOST = 150
_LATEST = 50
"""The memories of each kind that a wake chooses from, newest first."""
_PAGE = 500
"""Memories that are read at once where many are not to be shown."""
_NOTED, _LONGEST_NOTE = 6, 80
"""Values of an attribute that are shown beside an item, and characters of one."""
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
_WORK = ("task", "plan", "milestone")
_HANDOVER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("blocked", _WORK),
    ("open", _WORK),
    ("decided", ("decision", "constraint", "rule")),
    ("learned", ("episode", "error_pattern", "pattern", "procedure", "session_summary")),
)
"""The same of what is handed over in a project."""
_PRIORITIES = get_args(Priority)
_OF_HANDOVER = 0.2
"""The part of the budget for each of these at first, where a session's working set follows."""
_SHARE = 0.3
"""The part of a wake's budget for one reason at first, pins and constraints aside."""
_OF_LEGEND = 8
"""Tokens for the numbers of a line of the legend, until the pack is counted whole."""
_OF_WAKE, _OF_PACK = 0.2, 0.5
"""The part of a budget to which one item is cut."""


def pack(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    query: str,
    *,
    budget_tokens: int,
    counter: TokenCounter,
    home: Scope,
    working: Sequence[PackItem] = (),
    session: WorkingSet | None = None,
    named: Sequence[str] | None = None,
    found: Sequence[Hit] | None = None,
) -> ContextPack:
    """Return `working`, the working memory of the run, and the answers to `query`, best first, as
    far as they fit; the pack is framed under the key of `home`. Of a `session` its working set
    stands for the answers, and so do hits that were `found` before, and memories that are `named`
    by their ids. Raises Denied, InvalidInput.
    """
    if found is not None:
        hits = list(found)
        items = [_hit_item(hit) for hit in hits]
    elif named is not None:
        hits = hits_of(context, actor, named)
        items = [_hit_item(hit, why="about") for hit in hits]
    elif session is not None:
        hits = [piece.hit for piece in session.pieces]
        items = [_piece_item(piece) for piece in session.pieces]
    else:
        hits = list(recall(context, actor, scope_list, query, RecallRequest(limit=_MOST)))
        items = [_hit_item(hit) for hit in hits]
    shown = {hit.memory.id: hit.memory for hit in hits}
    passages = {hit.memory.id: hit.passage for hit in hits if hit.passage is not None}
    filling = _Filling(context, budget_tokens, counter, shown, longest=_OF_PACK, passages=passages)
    share = int(budget_tokens * _SHARE)
    for item in working:
        share -= filling.add(item, share)
    for item in items:
        filling.add(item, filling.remaining)
    return filling.pack([*working, *items], home)


def wake(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    *,
    budget_tokens: int,
    counter: TokenCounter,
    home: Scope,
    working: Sequence[PackItem] = (),
    session: WorkingSet | None = None,
    project: str | None = None,
) -> ContextPack:
    """Return what to know at the start: `working`, the working memory of the run, then pins,
    constraints, preferences, decisions, open tasks, summaries and the latest notes; framed under
    the key of `home`. Of a `session` its working set comes first, and stands for the latest notes.

    Of a `project` only what is blocked, open, decided and learned in it; before all of the above
    where there is a `session`.

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
        pieces = session.pieces if session is not None else ()
        of_session = {piece.hit.memory.id for piece in pieces}
        chosen: dict[str, memories.Stored] = {}
        reasons: dict[str, list[memories.Stored]] = {}
        of_project = (
            None if project is None else search.find_labelled(connection, ids, {"project": project})
        )
        asked = [(why, kinds, of_project) for why, kinds in _HANDOVER if project is not None]
        if project is None or session is not None:
            general = _WAKES[: len(_WAKES) if session is None else -1]
            asked += [(why, kinds, None) for why, kinds in general]
        for why, kinds, only_docs in asked:
            if why == "pinned":
                pinned = memories.pinned(connection, ids, without_kind=STORE_ITEM, limit=_LATEST)
                stored = [each for each in pinned if _wakes(each.memory, why, now)]
            else:
                stored = _newest(connection, ids, why, kinds, only_docs, now)
            for entry in sorted(stored, key=_urgency) if why == "open" else stored:
                memory = entry.memory
                is_shown = memory.id in of_session and only_docs is None
                if memory.id in chosen or is_shown:
                    continue
                chosen[memory.id] = entry
                reasons.setdefault(why, []).append(entry)
        rivals = contradictions(connection, context, actor, chosen.values(), now)
        held = held_changes(connection, context, actor, chosen.values())
    context.gate.log_read(actor, "wake", scope_list, results=len(chosen))
    groups = {"working": list(working)}
    handed_over = [why for why, _ in _HANDOVER if why in reasons]
    for why in handed_over:
        groups[why] = []
    # What is handed over is shown once, before the working set.
    for piece in (each for each in pieces if each.hit.memory.id not in chosen):
        groups.setdefault(f"session {piece.chosen_as}", []).append(_piece_item(piece))
    for why, entries in reasons.items():
        groups[why] = [
            _item(
                entry.memory,
                (source.source_id for source in entry.memory.sources),
                decisions[entry.memory.scope].reason,
                why=why,
                contradicted_by=rivals.get(entry.memory.id, ()),
                held=held.get(entry.memory.id, ()),
            )
            for entry in entries
        ]
    items = [item for group in groups.values() for item in group]
    shown = {memory_id: entry.memory for memory_id, entry in chosen.items()}
    shown |= {piece.hit.memory.id: piece.hit.memory for piece in pieces}
    filling = _Filling(context, budget_tokens, counter, shown, longest=_OF_WAKE)
    for why, group in groups.items():
        is_first = why in ("pinned", "constraint") or why.startswith("session ")
        part = _OF_HANDOVER if why in handed_over and session is not None else _SHARE
        share = filling.remaining if is_first else int(budget_tokens * part)
        for item in group:
            share -= filling.add(item, share)
    # The rest that one reason leaves, the next ones may use.
    for item in items:
        filling.add(item, filling.remaining)
    return filling.pack(items, home)


def _newest(
    connection: Connection,
    scope_ids: Sequence[int],
    why: str,
    kinds: Sequence[str],
    only_docs: Collection[int] | None,
    now: int,
) -> list[memories.Stored]:
    """Return the newest memories that a wake shows for a reason. Those that it does not show, such
    as tasks that are over, take no place from older ones.
    """
    found: list[memories.Stored] = []
    last, size = None, _LATEST
    while len(found) < _LATEST:
        page = memories.latest(
            connection,
            scope_ids,
            kinds=kinds,
            states=("active",),
            limit=size,
            before_doc=last,
            without_kind=STORE_ITEM,
            only_docs=only_docs,
        )
        found += [each for each in page if _wakes(each.memory, why, now)]
        if len(page) < size:
            break
        last, size = page[-1].doc, min(2 * size, _PAGE)
    return found[:_LATEST]


def _wakes(memory: Memory, why: str, now: int) -> bool:
    if not is_current(memory, now) or is_expired(memory.expires_at, now):
        return False
    status = memory.attributes.get("status")
    if why == "blocked":
        return status == "blocked"
    if why == "open":
        return status not in ("done", "cancelled", "blocked")
    return why != "task" or status not in ("done", "cancelled")


def _urgency(stored: memories.Stored) -> tuple[bool, int]:
    """Return the place of open work: what is under way first, then by priority."""
    attributes = stored.memory.attributes
    priority = attributes.get("priority")
    place = _PRIORITIES.index(priority) if priority in _PRIORITIES else _PRIORITIES.index("medium")
    return attributes.get("status", "todo") == "todo", place


def hits_of(context: MemoryContext, actor: Actor, ids: Sequence[str]) -> list[Hit]:
    """Return the memories with these ids that the actor may see, in their order."""
    with context.store.database.read() as connection:
        stored = {each.memory.id: each for each in memories.get_many(connection, ids)}
        decisions = {
            scope: context.gate.decide(connection, actor, "read", scope)
            for scope in {each.memory.scope for each in stored.values()}
        }
        readable = [each for each in stored.values() if decisions[each.memory.scope].allowed]
        now = context.store.clock.now()
        shown = visible_docs(connection, context.gate, actor, readable, now)
    return [
        Hit(
            memory=stored[each].memory,
            score=0.0,
            source_ids=tuple(source.source_id for source in stored[each].memory.sources),
            visible_to=stored[each].memory.scope,
            access_reason=decisions[stored[each].memory.scope].reason,
            path="none",
            history=not is_current(stored[each].memory, now),
        )
        for each in ids
        if each in stored and stored[each].doc in shown
    ]


def _hit_item(hit: Hit, why: str = "relevance") -> PackItem:
    return _item(
        hit.memory,
        hit.source_ids,
        hit.access_reason,
        why=why,
        score=hit.score,
        signals=hit.signals,
        history=hit.history,
        contradicted_by=hit.contradicted_by,
        held=hit.held,
    )


def _piece_item(piece: Piece) -> PackItem:
    return _item(
        piece.hit.memory,
        piece.hit.source_ids,
        piece.hit.access_reason,
        why=piece.chosen_as,
        signals=piece.hit.signals,
        contradicted_by=piece.hit.contradicted_by,
        held=piece.hit.held,
        learned=piece.hit.learned,
    )


def _item(
    memory: Memory,
    source_ids: Iterable[str],
    reason: str,
    *,
    why: str,
    score: float | None = None,
    history: bool = False,
    contradicted_by: tuple[str, ...] = (),
    held: tuple[HeldChange, ...] = (),
    learned: AppliedChange | None = None,
    signals: Mapping[str, float] = MappingProxyType({}),
) -> PackItem:
    return PackItem(
        id=memory.id,
        source_ids=tuple(source_ids),
        visible_to=memory.scope,
        access_reason=reason,
        chosen_as=why,
        score=score,
        fresh=freshness_of(memory, is_history=history),
        known_at=memory.freshness_ts,
        kind=memory.kind,
        text=f"{memory.speaker}: {shown_text(memory)}" if memory.speaker else shown_text(memory),
        contradicted_by=contradicted_by,
        held=held,
        learned=learned,
        attributes=declared_attributes(memory.kind, memory.attributes),
        signals={name: value for name, value in signals.items() if value},
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
        shown: Mapping[str, Memory],
        *,
        longest: float,
        passages: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """Begin with an empty pack; `shown` are the memories that may be in it by id, `longest` is
        the part of the budget to which one item is cut, `passages` are the slices of long texts
        that answer.
        """
        self._context, self._budget, self._counter = context, budget_tokens, counter
        self._shown, self._passages = shown, passages or {}
        self._of_line = counter.count("\n99 and 99 disagree; 99 is trusted more")
        self._most = int(budget_tokens * longest)
        self._fitted: dict[str, _FittedItem] = {}
        self._chosen: dict[str, PackItem] = {}
        self._contents: dict[str, Content] = {}
        self._headings: set[str] = set()
        self._legends: set[str] = set()
        self.remaining = budget_tokens - counter.count(frame_quotes(["x"], b""))

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
        content = content_of(fitted.item.text)
        if fitted.cost > budget or self._is_folded(fitted.item, content):
            return 0
        heading, legend = _heading(fitted.item), _visibility(fitted.item)
        cost = fitted.cost
        # What is given once is paid for once.
        cost += 0 if heading in self._headings else self._counter.count(heading) + 1
        cost += 0 if legend in self._legends else self._counter.count(legend) + _OF_LEGEND
        if item.contradicted_by:
            lines = self._disagreements([*self._chosen.values(), fitted.item])
            cost += self._of_line * (len(lines) - len(self._disagreements(self._chosen.values())))
        if cost > budget:
            return 0
        self._contents[item.id] = content
        self._headings.add(heading)
        self._legends.add(legend)
        self._chosen[item.id] = fitted.item
        self.remaining -= cost
        return cost

    def _is_folded(self, item: PackItem, content: Content) -> bool:
        """Return True if an item that is in says nearly the same; that one then names it."""
        for other_id, other in self._contents.items():
            shown = self._chosen[other_id]
            if other_id in item.contradicted_by:
                continue
            if shown.fresh == item.fresh and says_the_same(content, other):
                if item.id not in shown.folded:
                    folded = (*shown.folded, item.id)
                    self._chosen[other_id] = shown.model_copy(update={"folded": folded})
                return True
        return False

    def pack(self, items: Sequence[PackItem], home: Scope) -> ContextPack:
        """Return the pack, in the order of `items`, framed under the key of `home`."""
        key = self._context.frame_keys.signing(home) if self._chosen else None
        chosen = [self._chosen[item.id] for item in items if item.id in self._chosen]
        text, chosen = self._text(chosen, key)
        while chosen and self._counter.count(text) > self._budget:
            text, chosen = self._text(chosen[:-1], key)
        counts: Counter[str] = Counter()
        for item in chosen:
            counts.update(self._fitted[item.id].redactions)
        return ContextPack(
            text=text,
            items=tuple(chosen),
            tokens=self._counter.count(text) if text else 0,
            budget_tokens=self._budget,
            exact=self._counter.exact,
            left_out=len(items) - len(chosen) - sum(len(item.folded) for item in chosen),
            redactions=dict(counts),
        )

    def _fit(self, item: PackItem) -> _FittedItem:
        """Return the item without secrets, cut to the most that one item may cost."""
        # Redacted whole and then cut: no rule knows half a secret.
        text, redactions = self._context.redactor.redact_text(item.text)
        attributes = self._context.redactor.redact_json(item.attributes)[0]
        item, text = self._with_passage(item.model_copy(update={"attributes": attributes}), text)
        length, shortest = min(len(text), _LONGEST), None
        while length >= min(len(text), _SHORTEST):
            cut = length < len(text)
            shortened = item.model_copy(
                update={
                    "text": _beginning(text, length) if cut else text,
                    "cut": cut or item.place is not None,
                }
            )
            cost = self._cost(shortened)
            if cost <= self._most:
                return _FittedItem(shortened, cost, redactions)
            shortest = shortest or _FittedItem(shortened, cost, redactions)
            bare = self._cost(item.model_copy(update={"text": "…"}))
            length = min(length - 1, length * (self._most - bare) // max(1, cost - bare))
        # In a small budget its label alone may be more than that.
        return shortest or _FittedItem(item, self._budget + 1, redactions)

    def _cost(self, item: PackItem) -> int:
        # Counted as it is rendered: an escape takes tokens too.
        return self._counter.count(f"\n- 99 {self._quote(item)}") + 1

    def _with_passage(self, item: PackItem, text: str) -> tuple[PackItem, str]:
        """Return a long item with the slice that answers, and its place, instead of its text.

        What is shown is a part of the whole text without secrets: where a secret was replaced, the
        slice is looked for in it, and the item is left as it is if it is not there.
        """
        passage = self._passages.get(item.id)
        if passage is None:
            return item, text
        speaker = self._speaker(item)
        name = f"{speaker}: " if speaker and item.text.startswith(f"{speaker}: ") else ""
        content = item.text[len(name) :]
        piece = self._context.redactor.redact_text(content[passage[0] : passage[1]])[0]
        if not text.startswith(name) or piece not in text:
            return item, text
        place = part_of(content, passage)
        return item.model_copy(update={"place": place}), f"{name}{piece}"

    def _text(self, chosen: Sequence[PackItem], key: bytes | None) -> tuple[str, list[PackItem]]:
        """Return items as one frame, and the items with their numbers, in the order given.

        Items of one kind and day are together, in the order of the best of them.
        """
        groups: dict[str, list[PackItem]] = {}
        for item in chosen:
            groups.setdefault(_heading(item), []).append(item)
        numbers = {
            item.id: str(number)
            for number, item in enumerate((item for group in groups.values() for item in group), 1)
        }
        numbered = [item.model_copy(update={"handle": numbers[item.id]}) for item in chosen]
        by_id = {item.id: item for item in numbered}
        quotes = [self._quote(by_id[item.id]) for group in groups.values() for item in group]
        visible: dict[str, list[int]] = {}
        for item in numbered:
            visible.setdefault(_visibility(item), []).append(int(item.handle))
        legend = self._disagreements(numbered)
        legend += [f"{name}: {as_ranges(sorted(places))}" for name, places in visible.items()]
        return frame_quotes(quotes, key, legend=legend), numbered

    def _disagreements(self, items: Iterable[PackItem]) -> list[str]:
        """Return the lines about items that contradict one another; those without a number yet
        have the same one.
        """
        known = [item for item in items if item.id in self._shown]
        return disagreements(
            [(int(item.handle or 99), self._shown[item.id]) for item in known],
            {item.id: item.contradicted_by for item in known},
        )

    def _speaker(self, item: PackItem) -> str | None:
        return self._shown[item.id].speaker if item.id in self._shown else None

    def _place(self, item: PackItem) -> str | None:
        """Return the title and the headings of a passage of a document, without secrets."""
        place = document_place(self._shown[item.id]) if item.id in self._shown else None
        return None if place is None else self._context.redactor.redact_text(place).text

    def _quote(self, item: PackItem) -> Quote:
        """Return one item as the agent reads it: its kind and day, its text, and the id to cite."""
        speaker, text = self._speaker(item), item.text
        if speaker and text.startswith(f"{speaker}: "):
            text = text[len(speaker) + 2 :]
        else:
            # A secret was replaced in the name, or the text was cut within it.
            speaker = self._place(item)
        before = f"(part {item.place}) " if item.place else ""
        mark, after = f"- {item.handle or 99}", changes_note(item.held, item.learned)
        after = f"{_attributes_note(item)}{after}"
        return Quote(text, speaker, before, after, mark=mark, heading=_heading(item))


def _attributes_note(item: PackItem) -> str:
    """Return what stands behind an item of its attributes, texts escaped; empty for none."""
    notes: list[str] = []
    for name, value in item.attributes.items():
        texts = value if isinstance(value, list) else [value]
        words = [each if isinstance(each, str) else json.dumps(each) for each in texts[:_NOTED]]
        more = "" if len(texts) <= _NOTED else f" and {len(texts) - _NOTED} more"
        said = ", ".join(as_item(cut(each, _LONGEST_NOTE)) for each in words)
        notes.append(f"{name.replace('_', ' ')}: {said}{more}")
    return f" ({'; '.join(notes)})" if notes else ""


def _beginning(text: str, most: int) -> str:
    """Return the first whole sentences of a text in at most `most` characters, and that it goes on;
    as many whole words where these say less than half of it.
    """
    ends = [end for _, end in whole_sentences(text[: most + 1]) if end <= most - 2]
    if ends and 2 * ends[-1] >= most:
        return f"{text[: ends[-1]]} …"
    words = text[: most - 1]
    head = words if text[most - 1].isspace() else words.rpartition(" ")[0] or words
    return f"{head.rstrip()}…"


def _heading(item: PackItem) -> str:
    """Return the line above items: their kind and day, and whether they hold."""
    day = "" if item.known_at is None else f", {moment_text(item.known_at, '%Y-%m-%d')}"
    freshness = _FRESHNESS.get(item.fresh, "")
    # Who said it and when say already that it is a turn.
    kind = "" if item.kind == "turn" and day else item.kind
    return f"[{f'{kind}{day}{freshness}'.removeprefix(', ')}]"


_FRESHNESS: Mapping[Holds, str] = {
    "history": ", holds no longer",
    "redacted": ", redacted",
    "origin_gone": ", what it was concluded from is gone",
    "stale": ", stale: what it cites has changed",
}


def _visibility(item: PackItem) -> str:
    """Return the beginning of the line of the legend that an item belongs to."""
    return f"Visible to {as_name(str(item.visible_to))} ({item.access_reason})"
