"""Figures: tokens, cost and models of runs, added up from receipts; verified marks; counts."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol

from tallystick.operations import OPERATIONS
from tallystick.records import EntryKind, ExploredScope, JsonObject, RunRecord, Verification
from tallystick.tally import BoundTally

_COUNTED_SECONDS = 15
_MOST = 2_000
"""Runs whose figures and marks a server keeps."""
_MOST_STEPS = 200
"""Steps up to which a list adds up a run; for longer ones its own page does."""


class Summarized(Protocol):
    """An entry of a step, or of its receipt."""

    @property
    def kind(self) -> EntryKind:
        """What it is."""
        raise NotImplementedError

    @property
    def summary(self) -> JsonObject:
        """What it says in short."""
        raise NotImplementedError

    @property
    def redactions(self) -> Mapping[str, int]:
        """How often secrets of each kind were taken out of it."""
        raise NotImplementedError


@dataclass(frozen=True)
class RunFigures:
    """What a run, or one step, took."""

    models: tuple[str, ...] = ()
    input_tokens: int = 0
    output_tokens: int = 0
    context_tokens: int = 0
    """Tokens of the contexts that were compiled."""
    cost: Decimal | None = None
    currency: str = ""

    @property
    def tokens(self) -> int:
        """Tokens as the providers counted them, else as the compiler did."""
        return self.input_tokens + self.output_tokens or self.context_tokens

    @property
    def is_counted(self) -> bool:
        """True where providers have said what they counted."""
        return bool(self.input_tokens + self.output_tokens)


@dataclass(frozen=True)
class Mark:
    """The outcome of a verification, and when it was made."""

    ok: bool
    at: int
    """Microseconds UTC."""


class Figures:
    """Figures of runs that have ended, marks of those that were verified here, and the counts of
    scopes of a few seconds ago. Thread-safe.

    It is asked about runs alone that the caller was shown; it decides nothing about access.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._scopes: dict[str, tuple[float, tuple[ExploredScope, ...]]] = {}
        self._figures: OrderedDict[str, RunFigures] = OrderedDict()
        self._marks: OrderedDict[str, Mark] = OrderedDict()

    def of(self, bound: BoundTally, run: RunRecord, steps: int) -> RunFigures | None:
        """Return the figures of a run, or None where it is too long to add up for a list."""
        with self._lock:
            cached = self._figures.get(run.id)
        if cached is not None:
            return cached
        return self.add_up(bound, run) if steps <= _MOST_STEPS else None

    def add_up(self, bound: BoundTally, run: RunRecord) -> RunFigures:
        """Return the figures of a run, however long it is."""
        summaries = bound.recordings.summaries(run.id)
        figures = figures_of(entry for entries in summaries.values() for entry in entries)
        if run.ended_at is not None:
            with self._lock:
                self._figures[run.id] = figures
                while len(self._figures) > _MOST:
                    self._figures.popitem(last=False)
        return figures

    def scopes(self, bound: BoundTally, token_id: str) -> tuple[ExploredScope, ...]:
        """Return the scopes that the caller with a token may look into, those that may be read
        first.

        Their counts are up to 15 seconds old: to count a large scope takes longer than a page may.
        """
        now = time.monotonic()
        with self._lock:
            cached = self._scopes.get(token_id)
        if cached is not None and cached[0] > now:
            return cached[1]
        explored = OPERATIONS["explore"].call(bound, {}).scopes
        scopes = tuple(sorted(explored, key=lambda each: (not each.readable, str(each.scope))))
        with self._lock:
            self._scopes = {name: old for name, old in self._scopes.items() if old[0] > now}
            self._scopes[token_id] = (now + _COUNTED_SECONDS, scopes)
        return scopes

    def mark(self, run_id: str) -> Mark | None:
        """Return the outcome of the newest verification of a run by this server."""
        with self._lock:
            return self._marks.get(run_id)

    def note(self, verified: Verification, at: int) -> None:
        """Keep the outcome of a verification."""
        with self._lock:
            self._marks[verified.run_id] = Mark(verified.ok, at)
            self._marks.move_to_end(verified.run_id)
            while len(self._marks) > _MOST:
                self._marks.popitem(last=False)


def figures_of(entries: Iterable[Summarized]) -> RunFigures:
    """Add up what the entries of steps say of models, tokens and cost."""
    models: dict[str, None] = {}
    counted = {"input_tokens": 0, "output_tokens": 0}
    context, currency = 0, ""
    cost: Decimal | None = None
    for entry in entries:
        summary = entry.summary
        if entry.kind in ("request", "response") and isinstance(summary.get("model"), str):
            models[str(summary["model"])] = None
        if entry.kind == "compiled":
            context += context_tokens(summary)
        if entry.kind != "response":
            continue
        usage, price = summary.get("usage"), summary.get("cost")
        if isinstance(usage, dict):
            for name in counted:
                tokens = usage.get(name)
                counted[name] += tokens if isinstance(tokens, int) else 0
        amount = _decimal(price.get("amount")) if isinstance(price, dict) else None
        if amount is not None and isinstance(price, dict):
            cost = amount if cost is None else cost + amount
            currency = str(price.get("currency", ""))
    return RunFigures(
        models=tuple(models),
        input_tokens=counted["input_tokens"],
        output_tokens=counted["output_tokens"],
        context_tokens=context,
        cost=cost,
        currency=currency,
    )


def context_tokens(summary: JsonObject) -> int:
    """Return the tokens of a compiled context, from the summary of its entry."""
    tokens, decisions = summary.get("tokens"), summary.get("decisions")
    if isinstance(tokens, int):
        return tokens
    if not isinstance(decisions, list):
        return 0
    return sum(
        decision[3]
        for decision in decisions
        if isinstance(decision, list) and len(decision) > 3 and isinstance(decision[3], int)
    )


def _decimal(value: object) -> Decimal | None:
    try:
        return Decimal(value) if isinstance(value, str) else None
    except InvalidOperation:
        return None
