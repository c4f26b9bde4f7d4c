"""Runs while they happen: steps may be added from any thread, and the end acknowledges everything
in them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from tallystick.compiler import prefix_reuse
from tallystick.errors import ClosedTally, ForkedTally, InsideTransaction, RunClosed
from tallystick.recorder.context import RecorderContext
from tallystick.recorder.step import Step, current_step, run_stream, status_for
from tallystick.recorder.write_queue import Batch
from tallystick.records import (
    Actor,
    CompiledContext,
    Foil,
    PrefixReuse,
    Retention,
    RunRecord,
    Scope,
    StepKind,
    StepStatus,
)
from tallystick.storage import ScopeRow, journal

__all__ = ["Run", "current_run"]

_run: ContextVar[Run | None] = ContextVar("tallystick_run", default=None)


def current_run() -> Run | None:
    """The run whose `with` block this code stands in, or None."""
    return _run.get()


_SETTLED = 256
"""Steps that have ended beyond which those that are stored are let go of."""

_CAUSES = 8
"""How far an error is followed to what it was made from."""


class Run:
    """An agent run that is being recorded. Steps may be added from any thread."""

    def __init__(self, context: RecorderContext, actor: Actor, record: RunRecord) -> None:
        self.context = context
        """The recorder that this run belongs to."""
        self._actor = actor
        self._record = record
        self.retention: Retention = record.retention
        """What is kept of payloads."""
        self._guard = threading.Lock()
        self._next_index = 0
        self._open: dict[str, Step] = {}
        self._closing: dict[str, Step] = {}
        """Steps that have ended and may not be stored yet."""
        self._sweep_at = _SETTLED
        self._token: Token[Run | None] | None = None
        self._compiled: CompiledContext | None = None
        self._missed: dict[str, int] = {}
        """What could not be recorded, by the type of the error, and what of it the chain does not
        say yet.
        """
        self._untold: dict[str, int] = {}
        self._telling: dict[str, int] = {}
        self._process = context.store.liveness.hold()
        self._end = _End(self)
        self._is_stored = False
        self._row: ScopeRow | None = None
        self._chain_end: journal.End | None = None
        """Where the run's chain ends, as far as this process knows."""
        self._gapped: dict[str, int] = {}
        """How much each step could not store."""
        self._begun = False
        self._told: BaseException | None = None
        self._latest: dict[StepKind, str] = {}
        self._seen_by = {actor.surface}
        self.noted = False
        context.write_queue.note(self)

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._record.run_id

    @property
    def record(self) -> RunRecord:
        """The run as it stands now."""
        return self._record

    @property
    def actor(self) -> Actor:
        """Who acts in this run."""
        return self._actor

    @property
    def scope(self) -> Scope:
        """Where the run is recorded."""
        return self._record.scope

    def follows(self, compiled: CompiledContext) -> PrefixReuse:
        """How a prompt of this run begins like the one compiled before it, which it takes the place
        of.
        """
        with self._guard:
            before, self._compiled = self._compiled, compiled
        return prefix_reuse(before, compiled)

    def step(
        self,
        kind: StepKind,
        *,
        name: str | None = None,
        parent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Step:
        """Start a step; use it as a `with` block, or call its `end`. Raises RunClosed after the run
        ended.
        """
        with self._guard:
            if self._record.ended_at is not None:
                raise RunClosed(f"Run {self.id} has ended; start a new one to record more steps.")
            store = self.context.store
            step = Step(
                self,
                store.ids.new(),
                self._next_index,
                kind,
                name,
                parent,
                metadata or {},
                store.clock.now(),
            )
            self._next_index += 1
            self._open[step.id] = step
            self._latest[kind] = step.id
            return step

    def latest(self, kind: StepKind) -> str | None:
        """The id of the step of this kind that began last, if there was one."""
        return self._latest.get(kind)

    def see(self, surface: str) -> None:
        """Note that an observer of this surface records in the run too; the chain's end names all
        of them.
        """
        self._seen_by.add(surface)

    def miss(self, where: str, error: BaseException) -> None:
        """Note that an event of this run could not be recorded: its chain, and `verify`, say so."""
        with self._guard:
            name = type(error).__name__
            for counts in (self._missed, self._untold):
                counts[name] = counts.get(name, 0) + 1
        self.context.health.miss(where, error)
        # It is counted: an adapter's failure must not become another where the tally takes no more.
        with suppress(ClosedTally, ForkedTally, InsideTransaction):
            self.context.write_queue.note(self)

    def tell(self, error: BaseException) -> None:
        """Note that a step of this run has recorded an error: it passes through other hooks on its
        way up.
        """
        self._told = error

    def has_told(self, error: BaseException) -> bool:
        """Whether a step has recorded this error, or one that it was made from."""
        seen: BaseException | None = error
        for _ in range(_CAUSES):
            if seen is None or self._told is None:
                return False
            if seen is self._told:
                return True
            seen = seen.__cause__ or seen.__context__
        return False

    def close(self, status: StepStatus = "completed") -> None:
        """End the run without waiting, and as `interrupted` every step still open in it, or as
        `cancelled` with it.

        Ending twice changes nothing. For hooks that must not stall their caller; whoever reads the
        tally in this process sees the end all the same.
        """
        self._close(status, soon=True)

    def end(self, status: StepStatus = "completed") -> Foil:
        """End the run, and as `interrupted` or `cancelled`, as `close` says, every step still open
        in it; the head of its chain: keep it as the foil.

        Returns after everything in the run is committed, and raises the first error that kept a
        receipt from being written. Ending twice returns the same foil.
        """
        end = self._close(status, soon=False)
        if end is not None:
            end.result()
        with self._guard:
            closing, self._closing = self._closing, {}
        for step in closing.values():
            if not step.is_stored:
                step.end()
        if self._end.error is not None:
            raise self._end.error
        with self.context.store.database.read() as connection:
            return journal.foil(connection, run_stream(self.id), self.id)

    def _close(self, status: StepStatus, *, soon: bool) -> Future[None] | None:
        for step in list(self._open.values()):
            step.close("cancelled" if status == "cancelled" else "interrupted")
        self._told = None
        with self._guard:
            if self._record.ended_at is None:
                now = self.context.store.clock.now()
                self._record = self._record.model_copy(update={"status": status, "ended_at": now})
            elif self._end.is_stored:
                return None
            return self.context.write_queue.add(self._end, soon=soon)

    def join(
        self, kind: StepKind, *, name: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> tuple[Step, bool]:
        """The step for a call that an adapter sees, and whether the adapter is to end it.

        Inside an open step of the same kind that nobody has described yet, that step is it: its
        first observer claimed it, and an adapter adds its view. Otherwise a new one, a child of the
        open step of this run.
        """
        active = current_step()
        if active is None or active.run is not self or not active.is_open:
            return self.step(kind, name=name, metadata=metadata), True
        if active.kind == kind and not active.has("request") and not active.has("tool_call"):
            return active, False
        return self.step(kind, name=name, parent=active.id, metadata=metadata), True

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Make this the current run of the code inside, without ending it."""
        token = _run.set(self)
        try:
            yield self
        finally:
            _run.reset(token)

    def enter(self) -> Callable[[], None]:
        """Make this the current run from here on; call what is returned to leave it. Same as
        `Step.enter`.
        """
        before = _run.get()
        _run.set(self)

        def leave() -> None:
            if _run.get() is self:
                _run.set(before)

        return leave

    def __enter__(self) -> Self:
        self._token = _run.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _run.reset(self._token)
            self._token = None
        self.end(status_for(kind))

    def ready(self) -> None:
        """Nothing needs to be made ready."""

    def put(self, batch: Batch) -> None:
        """Give the start of the run to be written, and what could not be recorded. On the writer's
        thread.
        """
        self._begun = self._begin(batch)
        self._telling = self._take_untold()
        if self._telling:
            details = {"missed": dict(sorted(self._telling.items()))}
            self._append(batch, "run.gap", self.context.store.clock.now(), details, subject=self.id)
            batch.gapped(self.id, run_stream(self.id), self._gaps)

    def back(self) -> None:
        """Take it back: it was not written."""
        begun, self._begun = self._begun, False
        self._back(begun=begun)
        self._give_back(self._telling)
        self._telling = {}

    def lose(self, error: BaseException) -> None:
        """The first step writes the start, or the end does."""

    def stored(self) -> None:
        """The start is committed."""
        self._begun, self._telling = False, {}

    @property
    def _gaps(self) -> int:
        """How much is missing, as the chain says it."""
        with self._guard:
            return (
                sum(self._gapped.values()) + sum(self._missed.values()) - sum(self._untold.values())
            )

    def _take_untold(self) -> dict[str, int]:
        with self._guard:
            untold, self._untold = self._untold, {}
            return untold

    def _give_back(self, untold: Mapping[str, int]) -> None:
        with self._guard:
            for name, count in untold.items():
                self._untold[name] = self._untold.get(name, 0) + count

    def _gap(self, batch: Batch, step_id: str, count: int) -> None:
        """A step could not store so much. On the writer's thread."""
        self._gapped[step_id] = count
        batch.gapped(self.id, run_stream(self.id), self._gaps)

    def _ungap(self, step_id: str) -> None:
        """What was said of a step's gap was not written. On the writer's thread."""
        self._gapped.pop(step_id, None)

    def _closed(self, step: Step) -> None:
        with self._guard:
            self._open.pop(step.id, None)
            self._closing[step.id] = step
            if len(self._closing) > self._sweep_at:
                self._closing = {
                    key: one for key, one in self._closing.items() if not one.is_stored
                }
                # Where steps end faster than they are stored, all are looked at ever more seldom.
                self._sweep_at = max(_SETTLED, 2 * len(self._closing))

    def _begin(self, batch: Batch) -> bool:
        """Give the start of the run unless that is done; whether it was done now. On the writer's
        thread.
        """
        if self._is_stored:
            return False
        record = self._record
        self._row = batch.scope(record.scope)
        started = record.model_copy(update={"status": "running", "ended_at": None})
        batch.begin_run(started, self._row.id, self._process)
        details = {
            "agent_name": record.agent_name,
            "domain": record.domain,
            "retention": record.retention,
            "scope": str(record.scope),
        }
        self._append(batch, "run.start", record.started_at, details, subject=self.id)
        self._is_stored = True
        return True

    def _back(self, *, begun: bool) -> None:
        """What was appended to the chain was not written, nor, if it was `begun`, the start."""
        self._chain_end = None
        if begun:
            self._is_stored = False

    def _append(
        self,
        batch: Batch,
        event: str,
        at: int,
        details: Mapping[str, Any],
        *,
        subject: str,
        plain: bool = False,
    ) -> journal.Appended:
        entry = batch.append(
            journal.Event(
                stream=run_stream(self.id),
                event=event,
                actor=self._actor,
                at=at,
                audit_id=self.context.store.ids.new(),
                subject_id=subject,
                details=details,
                plain=plain,
            ),
            self._chain_end,
        )
        self._chain_end = journal.End(entry.position + 1, entry.digest)
        return entry


class _End:
    """The end of a run, which is written after all of its steps."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._begun = self._is_put = self.is_stored = False
        self._telling: dict[str, int] = {}
        self.noted = False
        self.error: BaseException | None = None

    def ready(self) -> None:
        """Nothing needs to be made ready."""

    def put(self, batch: Batch) -> None:
        """Give the end to be written, once. On the writer's thread."""
        run = self._run
        if self.is_stored:
            return
        self._is_put, self.error = True, None
        self._begun = run._begin(batch)
        self._telling = run._take_untold()
        record = run._record = run._record.model_copy(update={"gaps": run._gaps})
        assert record.ended_at is not None
        batch.end_run(record)
        details: dict[str, Any] = {
            "status": record.status,
            "steps": run._next_index,
            "seen_by": sorted(run._seen_by),
        }
        if self._telling:
            details["missed"] = dict(sorted(self._telling.items()))
        run._append(batch, "run.end", record.ended_at, details, subject=run.id)

    def back(self) -> None:
        """Take it back: it was not written."""
        if self.is_stored:
            return
        self._is_put = False
        self._run._back(begun=self._begun)
        self._run._give_back(self._telling)
        self._telling = {}

    def lose(self, error: BaseException) -> None:
        """The end is not written: whoever waits for it is told why."""
        if self.is_stored:
            return
        self.error = error
        self._run.context.health.miss("recorder", error)

    def stored(self) -> None:
        """The end is committed, unless it was taken back."""
        self.is_stored, self._telling = self.is_stored or self._is_put, {}
