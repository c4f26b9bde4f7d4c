"""The comparer of a process: asks the configuration of the settings and a candidate the same.

A sample of the questions that were answered is asked once more afterwards, of both configurations
one after the other, with what each asker may read. Only ids, counts and reason codes are journaled;
questions wait in the memory of their process alone, and nothing counts as recalled.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tallystick.embedding import GuardedEmbedder
from tallystick.errors import EmbeddingError, InvalidInput, SettingsError, TallystickError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext, RecallRequest
from tallystick.memory.recall import recall
from tallystick.memory.recalled import Recalled
from tallystick.records import Actor, ComparedRun, Comparison, JsonObject, Scope
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import memories
from tallystick.tally.models import choose_embedder
from tallystick_comparing.comparisons import Pair, count_question, judge, read, save

if TYPE_CHECKING:
    from tallystick.jobs.embedding import Unembedded

CHANGEABLE = ("embedder", "graph", "large_scope", "recall_weights", "vector_search")
"""The settings that a candidate may change."""
EVERY = 2.0
"""Seconds from one look at the waiting questions to the next."""
_WAITING = 64
_KNOWN_FOR = 5.0
"""Seconds for which a process does not look again what stands."""
_HELD = "compare"


class _Question(NamedTuple):
    actor: Actor
    scopes: tuple[Scope, ...]
    query: str
    request: RecallRequest


class Comparer:
    """Compares in one process. Thread-safe."""

    def __init__(self, context: MemoryContext) -> None:
        self._context = context
        self._waiting: deque[_Question] = deque(maxlen=_WAITING)
        self._guard = threading.Lock()
        self._known: Comparison | None = None
        self._candidate: MemoryContext | None = None
        self._read_at = float("-inf")
        self._asked = 0
        self._unavailable: str | None = None
        """The comparison whose candidate could not be made in this process."""
        self.took: Callable[[Recalled], int] = lambda recalled: recalled.cost.wall_us
        """The time that an answer took, microseconds."""

    def standing(self, *, fresh: bool = False) -> Comparison | None:
        """Return the comparison that was started last, as of at most five seconds ago."""
        with self._guard:
            if fresh or time.monotonic() - self._read_at > _KNOWN_FOR:
                with self._context.store.database.read() as connection:
                    comparison = read(connection)
                if comparison is None or self._known is None or comparison.id != self._known.id:
                    self._candidate = None
                self._known, self._read_at = comparison, time.monotonic()
            return self._known

    def serving(self, context: MemoryContext) -> MemoryContext:
        """Return the context by which recall answers: that of a promoted candidate, or the same;
        also where the candidate cannot be made here, which is logged.
        """
        comparison = self.standing()
        if (
            comparison is None
            or comparison.state != "promoted"
            or comparison.id == self._unavailable
        ):
            return context
        try:
            candidate = self._candidate_of(comparison)
        except TallystickError as error:
            self._unavailable = comparison.id
            get_logger("comparing").warning("compare.unavailable", error=type(error).__name__)
            return context
        is_silent = context.embedder is not self._context.embedder
        return candidate.silent() if is_silent else candidate

    def note(
        self, actor: Actor, scope_list: Sequence[Scope], query: str, request: RecallRequest
    ) -> None:
        """Let one question of the sample wait, to be asked of both configurations."""
        comparison = self.standing()
        if comparison is None or not comparison.is_open:
            return
        self._asked += 1
        if self._asked % max(1, round(100 / comparison.sample_percent)) == 0:
            self._waiting.append(_Question(actor, tuple(scope_list), query, request))

    def work(self) -> None:
        """Embed what the candidate lacks, ask both what waits, and judge."""
        comparison = self.standing(fresh=bool(self._waiting))
        if comparison is None or not comparison.is_open or self._context.store.database.unwritable:
            self._waiting.clear()
            return
        candidate = self._candidate_of(comparison)
        _embed_page(self._context, candidate)
        while self._waiting:
            question = self._waiting.popleft()
            try:
                pair = self._ask(question, candidate)
            except TallystickError:
                pair = None  # it may not be asked any more, or the tally is busy
            self._write(comparison.id, partial(count_question, pair=pair))
        if comparison.state == "promoted":
            # A breach lasts, and ends, without questions too.
            self._write(comparison.id, lambda tx, context, now: now)

    def _ask(self, question: _Question, candidate: MemoryContext) -> Pair | None:
        """Ask both, in turns the one or the other first; None where a memory changed meanwhile."""
        context = self._context
        answers: dict[bool, Recalled] = {}
        is_first = len(self._waiting) % 2 == 0
        for is_candidate in (is_first, not is_first):
            answers[is_candidate] = recall(
                candidate if is_candidate else context,
                question.actor,
                question.scopes,
                question.query,
                question.request,
                logged=False,
                as_is=True,
            )
        old, new = answers[False], answers[True]
        reasons: Counter[str] = Counter()
        with context.store.database.read() as connection:
            seen = [_Seen.of(connection, context, question, each) for each in (old, new)]
        if any(each.has_changed for each in seen):
            return None
        reasons.update(seen[1].reasons)
        if old.confident and seen[0].ids and seen[0].ids[0] not in seen[1].ids:
            reasons["target_lost"] += 1
        if new.path == "none" != old.path:
            reasons["no_vectors"] += 1
        counted = ComparedRun(
            questions=1,
            old_us=self.took(old),
            new_us=self.took(new),
            wrong=sum(reasons.values()),
            same_best=int(seen[0].ids[:1] == seen[1].ids[:1]),
            shared=len({*seen[0].ids} & {*seen[1].ids}),
            old_hits=len(seen[0].ids),
            new_hits=len(seen[1].ids),
        )
        return Pair(counted, seen[0].ids, seen[1].ids, dict(reasons))

    def _write(self, comparison_id: str, change: _Change) -> None:
        """Change what stands, in one transaction with its entries of the journal."""
        context = self._context

        def unit(tx: Connection) -> Comparison | None:
            comparison = read(tx)
            if comparison is None or comparison.id != comparison_id or not comparison.is_open:
                return None
            changed = judge(tx, context, change(tx, context, comparison))
            if changed != comparison:
                save(tx, changed)
            return changed

        changed = context.store.database.write(unit, name="compare", writes=Writes.of(TALLY))
        if changed is not None and changed.state == "reverted":
            text = f"the candidate was taken back: {', '.join(changed.breach) or 'it was slow'}"
            # Each process that recalls loads this file, and few compare.
            from tallystick.upkeep.alerts import raise_alert

            raise_alert(context, "candidate_reverted", text, comparison=changed.id)
        with self._guard:
            self._read_at = float("-inf")

    def _candidate_of(self, comparison: Comparison) -> MemoryContext:
        with self._guard:
            if self._candidate is None:
                self._candidate = candidate_of(self._context, comparison.candidate)
            return self._candidate


_Change = Callable[[Connection, MemoryContext, Comparison], Comparison]


class _Seen(NamedTuple):
    """The hits of an answer, asked of policy and of the database once more."""

    ids: tuple[str, ...]
    reasons: Counter[str]
    has_changed: bool

    @classmethod
    def of(
        cls, connection: Connection, context: MemoryContext, question: _Question, recalled: Recalled
    ) -> _Seen:
        ids, reasons, has_changed = [], Counter[str](), False
        for hit in recalled:
            stored = memories.get(connection, hit.memory.id)
            if stored is None or stored.memory.version != hit.memory.version:
                has_changed = True
                continue
            scope = stored.memory.scope
            decision = context.gate.decide(connection, question.actor, "read", scope)
            if not decision.allowed or scope not in question.scopes:
                reasons["not_readable"] += 1
            elif stored.memory.state not in (*question.request.findable_states, "superseded"):
                reasons["not_findable"] += 1
            else:
                ids.append(hit.memory.id)
        return cls(tuple(ids), reasons, has_changed)


def comparer_of(context: MemoryContext) -> Comparer:
    """Return the comparer of an opened tally, made with the first call."""
    comparer: Comparer | None = context.held.get(_HELD)
    return comparer or context.held.setdefault(_HELD, Comparer(context.origin or context))


def serving(context: MemoryContext) -> MemoryContext:
    """Return the context by which recall answers."""
    return comparer_of(context).serving(context)


def on_recall(
    context: MemoryContext,
    actor: Actor,
    scope_list: Sequence[Scope],
    query: str,
    request: RecallRequest,
) -> None:
    """Follow a question that was answered."""
    comparer_of(context).note(actor, scope_list, query, request)


def candidate_of(context: MemoryContext, overrides: JsonObject) -> MemoryContext:
    """Return the context of a tally with other settings. Raises InvalidInput for settings that no
    candidate changes or that do not fit, and for an embedder that is not there.
    """
    other = sorted(set(overrides) - set(CHANGEABLE))
    if other or not overrides:
        raise InvalidInput(
            f"A candidate changes one or more of {', '.join(CHANGEABLE)}"
            f"{', and not ' + ', '.join(other) if other else ''}.",
            argument="candidate",
        )
    values = dict(overrides)
    weights = values.get("recall_weights", {})
    if isinstance(weights, dict):
        values["recall_weights"] = {**context.weights.model_dump(), **weights}
    try:
        settings = Settings.read(**{**context.settings.model_dump(), **values})
        embedder = None
        if "embedder" in values:
            embedder = GuardedEmbedder(choose_embedder(None, settings))
            if embedder.fingerprint == context.embedder.fingerprint:
                embedder = None
    except (SettingsError, EmbeddingError) as error:
        raise InvalidInput(str(error), argument="candidate") from error
    return context.with_settings(settings, embedder)


def lacking(context: MemoryContext, candidate: MemoryContext) -> list[Unembedded]:
    """Return the scopes with texts that have no vector of the candidate's embedder yet."""
    from tallystick.jobs.embedding import unembedded

    if candidate.embedder is context.embedder:
        return []
    with context.store.database.read() as connection:
        return unembedded(connection, candidate, beside_jobs=True)


def _embed_page(context: MemoryContext, candidate: MemoryContext) -> None:
    """Embed a page of what lacks a vector. One far away costs something: `tally reembed` asks."""
    if candidate.local_embedder:
        for scope in lacking(context, candidate)[:1]:
            scope.embed_page(scope.committing("compare.embed"), lambda: False)
