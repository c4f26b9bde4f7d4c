"""Compare mode: a candidate configuration of recall beside the one that the settings name.

A sample of the questions that were answered is asked once more afterwards, of both configurations
one after the other, with what each asker may read. Only ids, counts and reason codes are journaled;
questions wait in the memory of their process alone, and nothing counts as recalled.

    comparing   the settings answer; runs of 20 questions are judged
    promoted    after three green runs in a row: the candidate answers, and is still compared
    reverted    slower than the settings by a fifth, or wrong targets, for 15 minutes
    stopped     a person ended it

What stands is one row of the tally, written with the journal: a restart changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from tallystick.embedding import GuardedEmbedder
from tallystick.errors import (
    ClosedTally,
    EmbeddingError,
    ForkedTally,
    InvalidInput,
    SettingsError,
    StateConflict,
    TallystickError,
)
from tallystick.jobs import TALLY_ACTOR
from tallystick.jobs.embedding import Unembedded
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext, RecallRequest
from tallystick.memory.recall import Recalled, recall
from tallystick.records import Actor, ComparedRun, Comparison, JsonObject, Scope
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.index import search
from tallystick.storage.rows import memories, scopes, settings_rows
from tallystick.tally.models import choose_embedder
from tallystick.upkeep.jobs import note_repair
from tallystick_steward import alerts
from tallystick_steward.following import MINUTE

CHANGEABLE = ("embedder", "graph", "large_scope", "recall_weights", "vector_search")
"""The settings that a candidate may change."""
GREEN_RUNS = 3
RUN = 20
"""Questions of a run."""
BREACH = 15 * MINUTE
EVERY = 2.0
"""Seconds from one look at the waiting questions to the next."""
_LEAST = 5
"""Questions by which a promoted candidate is judged at least; the last 20 at most."""
_KEPT_RUNS = 10
_WAITING = 64
_KNOWN_FOR = 5.0
"""Seconds for which a process does not look again what stands."""
_ROW, _HELD = "compare", "compare"


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
        except InvalidInput as error:
            self._unavailable = comparison.id
            get_logger("steward").warning("compare.unavailable", error=type(error).__name__)
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

    def chore(self) -> None:
        """Do what waits, for the background; what stops it is logged and tried again."""
        try:
            self.work()
        except (ClosedTally, ForkedTally):
            raise
        except TallystickError as error:
            get_logger("steward").warning("compare.waiting", error=type(error).__name__)

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
            self._write(comparison.id, partial(_with_question, pair=pair))
        if comparison.state == "promoted":
            # A breach lasts, and ends, without questions too.
            self._write(comparison.id, lambda tx, context, now: now)

    def _ask(self, question: _Question, candidate: MemoryContext) -> _Pair | None:
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
        return _Pair(counted, seen[0].ids, seen[1].ids, dict(reasons))

    def _write(self, comparison_id: str, change: _Change) -> None:
        """Change what stands, in one transaction with its entries of the journal."""
        context = self._context

        def unit(tx: Connection) -> Comparison | None:
            comparison = read(tx)
            if comparison is None or comparison.id != comparison_id or not comparison.is_open:
                return None
            changed = _judged(tx, context, change(tx, context, comparison))
            if changed != comparison:
                save(tx, changed)
            return changed

        changed = context.store.database.write(unit, name="compare", writes=Writes.of(TALLY))
        if changed is not None and changed.state == "reverted":
            text = f"the candidate was taken back: {', '.join(changed.breach) or 'it was slow'}"
            alerts.raise_alert(context, "candidate_reverted", text, comparison=changed.id)
        with self._guard:
            self._read_at = float("-inf")

    def _candidate_of(self, comparison: Comparison) -> MemoryContext:
        with self._guard:
            if self._candidate is None:
                self._candidate = candidate_of(self._context, comparison.candidate)
            return self._candidate


class _Pair(NamedTuple):
    """What both answered to one question, as far as it is journaled."""

    counted: ComparedRun
    old_ids: tuple[str, ...]
    new_ids: tuple[str, ...]
    reasons: dict[str, int]


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


def unembedded(context: MemoryContext, candidate: MemoryContext) -> list[int]:
    """Return the scopes with texts that have no vector of the candidate's embedder yet."""
    if candidate.embedder is context.embedder:
        return []
    with context.store.database.read() as connection:
        return search.scopes_missing_vectors(
            connection,
            candidate.embedder.fingerprint,
            local_embedder=candidate.local_embedder,
            beside_jobs=True,
        )


def _embed_page(context: MemoryContext, candidate: MemoryContext) -> None:
    """Embed a page of what lacks a vector. One far away costs something: `tally reembed` asks."""
    if not candidate.local_embedder:
        return
    for scope_id in unembedded(context, candidate)[:1]:
        with context.store.database.read() as connection:
            writes = Writes.of(scopes.get_by_id(connection, scope_id).scope)
        commit = partial(context.store.database.write, name="compare.embed", writes=writes)
        Unembedded(candidate, scope_id, beside_jobs=True).embed_page(commit, lambda: False)


def read(connection: Connection) -> Comparison | None:
    """Return the comparison that was started last."""
    text = settings_rows.get_setting(connection, _ROW)
    return None if text is None else Comparison.loads(text)


def save(tx: Connection, comparison: Comparison) -> None:
    """Store what stands."""
    settings_rows.set_setting(tx, _ROW, comparison.dumps())


def begin(
    context: MemoryContext, actor: Actor, candidate: JsonObject, percent: int, reason: str
) -> Comparison:
    """Start a comparison in place of the last one; the caller has checked that an operator asks.
    Raises InvalidInput, and StateConflict while another is open.
    """
    candidate_of(context, candidate)

    def unit(tx: Connection) -> Comparison:
        comparison = read(tx)
        if comparison is not None and comparison.is_open:
            raise _conflict(
                comparison.id, comparison.state, "stop it before another one is started"
            )
        comparison = Comparison(
            id=context.store.ids.new(),
            state="comparing",
            candidate=candidate,
            sample_percent=percent,
            started_at=context.store.clock.now(),
        )
        save(tx, comparison)
        details = {"comparison": comparison.id, "settings": sorted(candidate), "percent": percent}
        note_repair(tx, context, actor, "compare.started", details, reason=reason)
        _clear_alert(tx, context)
        return comparison

    return _changed(context, unit)


def promote(context: MemoryContext, actor: Actor, reason: str) -> Comparison:
    """Let the candidate answer; the caller has checked that an operator asks. Raises StateConflict
    before three green runs in a row, and while texts lack a vector of its embedder.
    """
    comparer = comparer_of(context)
    comparison = comparer.standing(fresh=True)
    if comparison is not None and comparison.is_open:
        missing = unembedded(context, candidate_of(context, comparison.candidate))
        if missing:
            text = f"texts of {len(missing)} scopes have no vector of its embedder yet"
            raise _conflict(comparison.id, comparison.state, text)

    def unit(tx: Connection) -> Comparison:
        comparison = read(tx)
        if comparison is None or comparison.state != "comparing":
            state = "none" if comparison is None else comparison.state
            raise _conflict(_ROW, state, "there is no comparison under way")
        if comparison.green < GREEN_RUNS:
            text = f"it has {comparison.green} green runs in a row, and needs {GREEN_RUNS}"
            raise _conflict(comparison.id, comparison.state, text)
        note_repair(
            tx, context, actor, "compare.promoted", {"comparison": comparison.id}, reason=reason
        )
        changed = comparison.replace(state="promoted", recent=(), breach_since=None)
        save(tx, changed)
        return changed

    return _changed(context, unit)


def stop(context: MemoryContext, actor: Actor, reason: str) -> Comparison:
    """End a comparison: the settings answer again. Raises StateConflict where none is open."""

    def unit(tx: Connection) -> Comparison:
        comparison = read(tx)
        if comparison is None or not comparison.is_open:
            state = "none" if comparison is None else comparison.state
            raise _conflict(_ROW, state, "there is no comparison under way")
        note_repair(
            tx, context, actor, "compare.stopped", {"comparison": comparison.id}, reason=reason
        )
        changed = comparison.replace(state="stopped")
        save(tx, changed)
        return changed

    return _changed(context, unit)


def _conflict(comparison_id: str, state: str, reason: str) -> StateConflict:
    return StateConflict(comparison_id, state=state, reason=reason, what="Comparison")


def _changed(context: MemoryContext, unit: Callable[[Connection], Comparison]) -> Comparison:
    changed = context.store.database.write(unit, name="compare", writes=Writes.of(TALLY))
    comparer_of(context).standing(fresh=True)
    return changed


def _clear_alert(tx: Connection, context: MemoryContext) -> None:
    alert = alerts.standing(tx).get("candidate_reverted")
    if alert is not None and alert.state == "raised":
        alerts.clear_alert(tx, context, "candidate_reverted")


def _with_question(
    tx: Connection, context: MemoryContext, comparison: Comparison, *, pair: _Pair | None
) -> Comparison:
    """Count a question, and end the run that it fills."""
    if pair is None:
        return comparison.replace(skipped=comparison.skipped + 1)
    counted = pair.counted
    details: dict[str, Any] = {
        "comparison": comparison.id,
        "old": list(pair.old_ids),
        "new": list(pair.new_ids),
        "old_us": counted.old_us,
        "new_us": counted.new_us,
        "reasons": pair.reasons,
    }
    note_repair(tx, context, TALLY_ACTOR, "compare.asked", details, reason="sample")
    run = comparison.run.plus(counted)
    reasons = Counter(comparison.reasons) + Counter(pair.reasons)
    changed = comparison.replace(
        run=run, recent=(*comparison.recent, counted)[-RUN:], reasons=dict(sorted(reasons.items()))
    )
    if run.questions < RUN:
        return changed
    green = comparison.green + 1 if run.is_green else 0
    verdict = {"comparison": comparison.id, "green": run.is_green, "in_a_row": green}
    note_repair(tx, context, TALLY_ACTOR, "compare.judged", verdict, reason="run")
    return changed.replace(
        run=ComparedRun(), runs=(*comparison.runs, run)[-_KEPT_RUNS:], green=green
    )


def _judged(tx: Connection, context: MemoryContext, comparison: Comparison) -> Comparison:
    """Return what stands after the breach of a promoted candidate was looked at: when it began,
    or that it was taken back after 15 minutes.
    """
    if comparison.state != "promoted" or len(comparison.recent) < _LEAST:
        return comparison
    now, last = context.store.clock.now(), ComparedRun()
    for each in comparison.recent:
        last = last.plus(each)
    if last.is_green:
        return comparison.replace(breach_since=None) if comparison.breach_since else comparison
    since = comparison.breach_since or now
    if now - since < BREACH:
        return comparison.replace(breach_since=since)
    breach = (*(["latency"] if last.is_slow else []), *(["wrong_targets"] if last.wrong else []))
    details = {"comparison": comparison.id, "breach": list(breach), "since": since}
    note_repair(tx, context, TALLY_ACTOR, "compare.reverted", details, reason="breach")
    return comparison.replace(state="reverted", breach=breach, breach_since=since)
