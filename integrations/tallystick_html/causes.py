"""Candidates of a compile for people: what each is, how it begins, why it went in or not, and what
would have had to be different.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.records import (
    CompilationDecision,
    CompiledContext,
    ContextCandidate,
    Json,
    StepEntry,
)
from tallystick.records.memory import reasons_of
from tallystick_html import words

_MADE_UP = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HEADING = 90
"""Characters of the first line of a text that stand for it."""
_RELATED = 50
_WORDS = 5
"""Words in common that are named."""


def short_id(identity: str) -> str:
    """Return an id as far as a person needs it: of one that was made up the end."""
    return f"…{identity[-8:]}" if _MADE_UP.search(identity) else identity


@dataclass(frozen=True)
class Recall:
    """What was asked of memory in a step, and the signals of what was found, by memory."""

    query: str = ""
    signals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The conversation, by a number, and the position in it of each turn."""


def recall_of(entries: Iterable[StepEntry]) -> Recall:
    """Return the recall that the entries of a step have; of several that of the last."""
    recall = Recall()
    for entry in entries:
        payload = entry.payload if entry.kind == "memory_read" else None
        hits = payload.get("hits") if isinstance(payload, dict) else None
        if isinstance(payload, dict) and isinstance(hits, list):
            hits_by_id = {str(hit["id"]): hit for hit in hits if isinstance(hit, dict)}
            signals = {memory_id: _signals(hit) for memory_id, hit in hits_by_id.items()}
            places = {
                memory_id: place
                for memory_id, hit in hits_by_id.items()
                if (place := _place(hit)) is not None
            }
            recall = Recall(str(payload.get("query") or ""), signals, places)
    return recall


def _place(hit: Mapping[str, Json]) -> tuple[int, int] | None:
    match hit.get("turn"):
        case [int(conversation), int(position)]:
            return conversation, position
    return None


def _signals(hit: Mapping[str, Json]) -> dict[str, float]:
    signals = hit.get("signals")
    pairs = signals.items() if isinstance(signals, dict) else ()
    return {name: float(value) for name, value in pairs if isinstance(value, int | float)}


class Causes:
    """What a person is told of the candidates of one compile."""

    def __init__(
        self,
        compiled: CompiledContext,
        candidates: Sequence[ContextCandidate],
        recall: Recall | None = None,
        *,
        closed: str | None = None,
    ) -> None:
        """Take a compile with its candidates, and the recall before it, if one is recorded.
        Memories of somebody else, who is named by `closed`, are not opened: of them is told whose
        they are.
        """
        items = (*compiled.selected_items, *compiled.excluded_items)
        self._kinds = {item.id: item.kind for item in items}
        self._candidates = {each.item_id: each for each in candidates}
        self._allocation = compiled.token_allocation
        self._recall, self._closed = recall or Recall(), closed
        self._is_full = any(
            each.reason_code in ("over_budget", "class_budget", "compacted")
            for each in compiled.decisions
        )

    @property
    def candidates(self) -> list[ContextCandidate]:
        """The candidates, in the order of their decisions."""
        return list(self._candidates.values())

    def kind(self, item_id: str) -> str:
        """Return the kind of a candidate, as the compiler names it."""
        candidate = self._candidates.get(item_id)
        if candidate is not None and candidate.memory_id is not None:
            return "memory"
        return self._kinds.get(item_id, "tool_schema" if item_id.startswith("tool:") else "other")

    def name(self, item_id: str) -> str:
        """Return what a candidate is, in words."""
        return words.ITEMS.get(self.kind(item_id), "item")

    def text(self, item_id: str) -> str | None:
        """Return what a candidate says, of a tool what it is for; None where policy withheld it."""
        candidate = self._candidates.get(item_id)
        says = None if candidate is None else candidate.says
        if says is None or self.kind(item_id) != "tool_schema":
            return says
        try:
            described: Json = json.loads(says)
        except ValueError:
            return says
        return str(described.get("description", says)) if isinstance(described, dict) else says

    def heading(self, item_id: str, most: int = _HEADING) -> str:
        """Return the first line of a candidate."""
        if self._is_closed(item_id):
            return f"a memory of {self._closed}"
        says = self.text(item_id)
        if says is None:
            return "withheld by policy" if item_id in self._candidates else item_id
        line = next((" ".join(each.split()) for each in says.splitlines() if each.strip()), "")
        return (line if len(line) <= most else f"{line[: most - 1]}…") or item_id

    def why(self, decision: CompilationDecision) -> str:
        """Return why a candidate went in or not, in words of cause."""
        cause = words.reason(decision)
        if decision.reason_code == "selected_by_score":
            cause = "; ".join(filter(None, (self._recalled(decision.item_id), self._chosen())))
        if decision.related_id:
            cause = f"{cause} “{self.heading(decision.related_id, _RELATED)}”"
        return cause

    def otherwise(self, decision: CompilationDecision) -> str | None:
        """Return what would have had to be different for a candidate that was left out."""
        if decision.decision != "exclude":
            return None
        related = "another"
        if decision.related_id:
            related = f"“{self.heading(decision.related_id, _RELATED)}”"
        budget, free = self._allocation.get("budget", 0), self._allocation.get("free", 0)
        return words.OTHERWISE.get(decision.reason_code, "").format(
            tokens=decision.original_tokens,
            free=free,
            budget=budget + max(decision.original_tokens - free, 1),
            related=related,
        )

    def _chosen(self) -> str:
        return "ranked above what did not fit" if self._is_full else "there was room"

    def _recalled(self, item_id: str) -> str:
        """Return why recall brought a memory; nothing for what it did not bring."""
        signals = self._recall.signals.get(item_id)
        if signals is None:
            return ""
        reasons = reasons_of(signals)
        shared = [] if self._is_closed(item_id) else self._shared_words(item_id)
        if shared:
            about = f"you asked about {shared[0]}"
            rest = f" (words: {', '.join(shared)})" if len(shared) > 1 else ""
            reasons = [f"{about}{rest}", *(each for each in reasons if "shares words" not in each)]
        if (beside := self._beside(item_id)) is not None:
            reasons = [*(each for each in reasons if "next to a match" not in each), beside]
        return f"recalled because {', and '.join(reasons)}" if reasons else "the nearest there was"

    def _beside(self, item_id: str) -> str | None:
        """Return which turn with words of the question a turn is near, and how far; None where its
        neighbours did not bring it.
        """
        places = self._recall.places
        if item_id not in places or self._recall.signals[item_id].get("neighbours", 0.0) <= 0:
            return None
        conversation, position = places[item_id]
        matches = [
            (abs(at - position), at, other)
            for other, (number, at) in places.items()
            if number == conversation and other != item_id and other in self._candidates
            if self._recall.signals.get(other, {}).get("text", 0.0) > 0
        ]
        if not matches:
            return None
        distance, at, other = min(matches)
        turns = "1 turn" if distance == 1 else f"{distance} turns"
        return (
            f"{turns} {'before' if at < position else 'after'}: “{self.heading(other, _RELATED)}”"
        )

    def _is_closed(self, item_id: str) -> bool:
        return self._closed is not None and self.kind(item_id) == "memory"

    def _shared_words(self, item_id: str) -> list[str]:
        """Return the words of the question that a text has in one of their forms, the longest
        first.
        """
        from tallystick.ranking.words import analyze, content_words

        says = self.text(item_id)
        if not says or not self._recall.query:
            return []
        terms = set(analyze(says))
        terms_asked = content_words(self._recall.query).items()
        return sorted((word for word, term in terms_asked if term in terms), key=len)[::-1][:_WORDS]
