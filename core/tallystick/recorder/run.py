"""Runs and steps while they happen: the handles of whoever records.

Recording serialises and returns. What waits is committed together, when nothing more comes for a
twentieth of a second, at the latest after half a second. `end` acknowledges: it returns after the
commit of the step and its receipt, or of everything in the run, so that what it acknowledged
survives a killed process. `end(wait=False)` acknowledges nothing.

The two handles are in one file because each names the other: a run makes steps, and a step knows
its run. All that is stored is behind them, in `pending` and `chain`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args, overload

from tallystick import compiler
from tallystick.costs import Cost
from tallystick.errors import (
    ApprovalRequired,
    ClosedTally,
    ForkedTally,
    InsideTransaction,
    InvalidInput,
    RunClosed,
)
from tallystick.recorder.chain import RunChain
from tallystick.recorder.context import RecorderContext
from tallystick.recorder.current import active_run, active_step, current_step
from tallystick.recorder.payloads import (
    Payload,
    Summary,
    metadata_of,
    require_mapping,
    storable_text,
)
from tallystick.recorder.pending import PendingRun, PendingRunEnd, PendingStep
from tallystick.records import (
    Actor,
    CompiledContext,
    EntryKind,
    Foil,
    Moment,
    PrefixReuse,
    Receipt,
    Retention,
    RunRecord,
    Scope,
    StepKind,
    StepRecord,
    StepStatus,
    microseconds,
)
from tallystick.records.escaping import html_of
from tallystick.storage.rows import journal

_MAX_ENDING = 256
"""Steps that have ended beyond which those that are stored are dropped from the list."""

_CLOCKS_DIFFER_US = 5_000_000
"""Time by which the clock of another machine may be ahead, microseconds."""
_MAX_CAUSES = 8
"""Links of a chain of errors that are followed."""


_STEP_KINDS = frozenset(get_args(StepKind))
# A gap is counted, in words of ours: its summary stands in the chain, from which nothing goes.
_ENTRY_KINDS = frozenset(get_args(EntryKind)) - {"gap"}
_STATUSES = frozenset(get_args(StepStatus)) - {"running"}


class _Recorded(ABC):
    """A run or step as the current one of the code inside of it."""

    _current: ClassVar[ContextVar[Any]]

    def __init__(self) -> None:
        self._token: Token[Any] | None = None

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Make this the current one of the code inside, without ending it."""
        leave = self.enter()
        try:
            yield self
        finally:
            leave()

    def enter(self) -> Callable[[], None]:
        """Make this the current one from here on; call the returned function to leave it.

        For hooks that have a start and an end but no block in between.
        """
        current = self._current
        before = current.get()
        current.set(self)

        def leave() -> None:
            # Set rather than reset by token: an end hook may run in another context than its start.
            if current.get() is self:
                current.set(before)

        return leave

    def __enter__(self) -> Self:
        self._token = self._current.set(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            self._current.reset(self._token)
            self._token = None
        self._end_block(kind, error)

    @abstractmethod
    def _end_block(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """End it with the block, which an error may have left."""

    def _repr_html_(self) -> str | None:
        """Return it for a notebook."""
        return html_of(self)


class Step(_Recorded):
    """A step that is being recorded. Made by `Run.step`."""

    _current = active_step

    def __init__(self, run: Run, pending: PendingStep, on_end: Callable[[Step], None]) -> None:
        super().__init__()
        self._run = run
        self._pending = pending
        self._on_end = on_end
        self._is_handed_over = False
        self.begun_as = pending.id
        """The id with which the step began: it goes on under another one where this process was
        taken for dead.
        """

    @property
    def id(self) -> str:
        """The id of the step."""
        return self._pending.id

    @property
    def run(self) -> Run:
        """The run that this step belongs to."""
        return self._run

    @property
    def step_record(self) -> StepRecord:
        """The step as it is now."""
        return StepRecord.load(self._pending.row())

    @property
    def kind(self) -> StepKind:
        """The kind of the step."""
        return self._pending.kind

    @property
    def parent_id(self) -> str | None:
        """The id of the step that this one is a child of, or None."""
        return self._pending.parent

    @property
    def started_at(self) -> int:
        """Time of the start, microseconds UTC."""
        return self._pending.started_at

    def elapsed_us(self) -> int:
        """Return the microseconds since the step started, by the tally's clock."""
        return self._run.context.store.clock.now() - self.started_at

    @property
    def is_open(self) -> bool:
        """True if more can be recorded."""
        return self._pending.ended_at is None

    @property
    def is_stored(self) -> bool:
        """True once the step has ended and is committed with its receipt."""
        return self._pending.is_stored

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the step has ended and is committed."""
        return self._pending.receipt

    @property
    def gaps(self) -> dict[str, int]:
        """Number of entries that could not be recorded, by reason."""
        return self._pending.gaps

    def has(self, kind: EntryKind) -> bool:
        """Return True if an entry of this kind was recorded already."""
        return self._pending.has(kind)

    def hand_over(self) -> None:
        """Let the first call of this kind that joins the step end it, with its own outcome: what
        surrounds a call may see several attempts as one.
        """
        self._is_handed_over = True

    def take_over(self) -> bool:
        """Return True, once, if the step was handed over to whoever joins it."""
        is_handed_over, self._is_handed_over = self._is_handed_over, False
        return is_handed_over

    def record(
        self,
        kind: EntryKind,
        payload: Payload = None,
        *,
        summary: Summary = None,
        at: Moment | None = None,
    ) -> None:
        """Record an entry. Serialised now, hashed and stored in the background, acknowledged by
        `end`.

        A record of ours is serialised in the background too, because it does not change. A payload
        that is costly to make may be given as a function, which is called if payloads are kept.
        `summary` goes into the receipt as it is: ids, counts and reason codes only. Where too many
        payloads wait to be stored, this one is left out, and the receipt says so. `at` is the time
        of whoever saw it happen, else it is now. Raises InvalidInput for a kind that there is not
        and for a time that cannot be, and RunClosed after the step ended.
        """
        require_recordable(kind)
        if summary is not None and not callable(summary):
            require_mapping(summary, "summary")
        run = self._run
        context = run.context
        full = context.backlog.full
        self._pending.add(
            context.payloads.capture(
                kind,
                payload,
                retention="metadata_only" if full else run.retention,
                summary=summary,
            ),
            payload_omitted=full and run.retention != "metadata_only",
            at=time_of(context, "at", at, since=self.started_at),
        )

    def __repr__(self) -> str:
        return f"<Step {self.kind} {self.id}{'' if self.is_open else ', ended'}>"

    def note_cost(self, piece: str, cost: Cost) -> None:
        """Add what a piece of work took to the costs of this step, in its metadata; nothing after
        its end.
        """
        self._pending.note_cost(piece, cost)

    def set_token_method(self, method: str) -> None:
        """Set how the tokens of this step were counted, for its receipt."""
        self._pending.token_method = method

    @overload
    def end(
        self,
        status: StepStatus = ...,
        *,
        wait: Literal[True] = ...,
        metadata: Mapping[str, Any] | None = ...,
        ended_at: Moment | None = ...,
    ) -> Receipt: ...
    @overload
    def end(
        self,
        status: StepStatus = ...,
        *,
        wait: Literal[False],
        metadata: Mapping[str, Any] | None = ...,
        ended_at: Moment | None = ...,
    ) -> None: ...
    def end(
        self,
        status: StepStatus = "completed",
        *,
        wait: bool = True,
        metadata: Mapping[str, Any] | None = None,
        ended_at: Moment | None = None,
    ) -> Receipt | None:
        """End the step and return its receipt after the commit. Ending twice returns the same
        receipt.

        Without `wait` it returns None at once, for hooks that must not stall their caller.
        `ended_at` is the time of whoever saw it end, else it is now. Raises InvalidInput for a time
        that cannot be, the error of storage that kept the receipt from being written, and
        RecorderError where an entry could not be stored: then the receipt exists, with an entry
        `gap`.
        """
        require_ended(status)
        metadata = metadata_of(metadata)
        end = time_of(self._run.context, "ended_at", ended_at, since=self.started_at)
        future = self._pending.close(status, metadata, wait=wait, at=end)
        self._on_end(self)
        if not wait:
            return None
        if future is not None:
            future.result()
        return self._pending.stored_receipt()

    def fail(self, error: BaseException) -> None:
        """Record an error and end the step as failed, cancelled or blocked, without waiting."""
        if self.is_open:
            kind, status = type(error).__name__, status_for(type(error))
            self._run.note_error(error)
            # A blocked step has no error: the approval that it waits for is recorded already.
            if status != "blocked":
                self.record("error", {"type": kind, "message": str(error)}, summary={"type": kind})
            self.end(status, wait=False)

    def _end_block(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)
        self.end(status_for(kind))


class JoinedStep(NamedTuple):
    """The step that an adapter records in."""

    step: Step
    is_own: bool
    """True if the adapter opened the step and is to end it."""


class Run(_Recorded):
    """An agent run that is being recorded. Steps may be added from any thread."""

    _current = active_run

    def __init__(
        self,
        context: RecorderContext,
        actor: Actor,
        record: RunRecord,
        *,
        unconfirmed: bool = False,
    ) -> None:
        super().__init__()
        self.context = context
        """The recorder that this run belongs to."""
        self.retention: Retention = record.retention
        """The retention of payloads."""
        self._chain = RunChain(context, actor, record, unconfirmed=unconfirmed)
        self._guard = threading.Lock()
        self._open: dict[str, Step] = {}
        self._ending: dict[str, Step] = {}
        """Steps that have ended and may not be stored yet."""
        self._sweep_at = _MAX_ENDING
        self._compiled: dict[str | None, CompiledContext] = {}
        self._error: BaseException | None = None
        self._latest: dict[StepKind, str] = {}
        self._pending = PendingRun(self._chain)
        self._pending_end = PendingRunEnd(self._chain)

    @property
    def id(self) -> str:
        """The id of the run."""
        return self._chain.run_id

    @property
    def record(self) -> RunRecord:
        """The run as it is now."""
        return self._chain.record

    @property
    def actor(self) -> Actor:
        """The actor of the run."""
        return self._chain.actor

    @property
    def scope(self) -> Scope:
        """The scope in which the run is recorded."""
        return self.record.scope

    def __repr__(self) -> str:
        return f"<Run {self.record.agent_name!r} {self.id}, {self.record.status}>"

    def prefix_reuse(self, compiled: CompiledContext) -> PrefixReuse:
        """Return how much of a prompt of this run begins like the one compiled before it, and
        remember it for the next. What memory adds to requests is no part of whole ones.
        """
        with self._guard:
            before = self._compiled.get(compiled.coverage)
            self._compiled[compiled.coverage] = compiled
        return compiler.prefix_reuse(before, compiled)

    def step(
        self,
        kind: StepKind,
        *,
        name: str | None = None,
        parent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        started_at: Moment | None = None,
    ) -> Step:
        """Start a step; use it as a `with` block, or call its `end`. Raises InvalidInput, and
        RunClosed after the run ended.

        `started_at` is the time of whoever saw it start, else it is now: not before the run, and at
        most five seconds ahead of this clock.
        """
        _require_one_of(_STEP_KINDS, kind, "kind")
        start = time_of(self.context, "started_at", started_at, since=self.record.started_at)
        name, parent = _name_of("name", name), _name_of("parent", parent)
        metadata = metadata_of(metadata)
        # Before the guard: in a forked child this raises, and the guard may be held for ever.
        store = self.context.store
        with self._guard:
            if self.record.ended_at is not None:
                raise RunClosed(f"Run {self.id} has ended; start a new one to record more steps.")
            pending = PendingStep(
                self._chain,
                store.ids.new(),
                self._chain.next_index(),
                kind,
                name,
                parent,
                metadata,
                max(store.clock.now(), self.record.started_at) if start is None else start,
            )
            step = Step(self, pending, self._step_ended)
            self._chain.count_step()
            self._open[pending.id] = step
            self._latest[kind] = pending.id
            return step

    def open_step(self, step_id: str) -> Step | None:
        """Return the step of this id while more can be recorded in it, or None."""
        return self._open.get(step_id)

    def latest(self, kind: StepKind) -> str | None:
        """Return the id of the step of this kind that began last, or None."""
        return self._latest.get(kind)

    def add_surface(self, surface: str) -> None:
        """Add a surface whose observer records in the run too; the chain's end names all of
        them.
        """
        self._chain.add_surface(surface)

    def count_gap(self, surface: str, error: BaseException) -> None:
        """Count an event of this run that could not be recorded: its chain, and `verify`, say
        so.
        """
        # That a closed tally writes no entry for it must not raise in a hook that only reports its
        # own failure.
        with suppress(ClosedTally, ForkedTally, InsideTransaction):
            write_queue, health = self.context.write_queue, self.context.health
            self._chain.count_gap(error)
            health.count_gap(surface, error)
            write_queue.enqueue(self._pending)

    def note_error(self, error: BaseException) -> None:
        """Note that a step of this run has recorded an error, which passes through other hooks on
        its way up.
        """
        self._error = error

    def has_noted(self, error: BaseException) -> bool:
        """Return True if a step has recorded this error, or one of its causes."""
        link: BaseException | None = error
        for _ in range(_MAX_CAUSES):
            if link is None or self._error is None:
                return False
            if link is self._error:
                return True
            link = link.__cause__ or link.__context__
        return False

    @overload
    def end(self, status: StepStatus = ..., *, wait: Literal[True] = ...) -> Foil: ...
    @overload
    def end(self, status: StepStatus = ..., *, wait: Literal[False]) -> None: ...
    def end(self, status: StepStatus = "completed", *, wait: bool = True) -> Foil | None:
        """End the run, and as `interrupted` every step still open in it, or as `cancelled` with it.

        Returns the head of the chain after everything in the run is committed: keep it as the foil.
        Raises the first error that kept a receipt from being written. Without `wait` it returns
        None at once, for hooks that must not stall their caller; readers in this process see the
        end all the same. Ending twice returns the same foil.
        """
        require_ended(status)
        future = self._close(status, wait=wait)
        if not wait:
            return None
        if future is not None:
            future.result()
        with self._guard:
            ending, self._ending = self._ending, {}
        for step in ending.values():
            if not step.is_stored:
                step.end()
        if self._pending_end.error is not None:
            raise self._pending_end.error
        with self.context.store.database.read() as connection:
            return journal.foil(connection, self._chain.stream, self.id)

    def _close(self, status: StepStatus, *, wait: bool) -> Future[None] | None:
        pending_end, write_queue = self._pending_end, self.context.write_queue
        for step in list(self._open.values()):
            step.end("cancelled" if status == "cancelled" else "interrupted", wait=False)
        self._error = None
        with self._guard:
            self._chain.close(status)
            if pending_end.is_stored:
                return None
            if wait:
                return write_queue.enqueue_urgent(pending_end)
            write_queue.enqueue(pending_end)
            return None

    def _step_ended(self, step: Step) -> None:
        with self._guard:
            self._open.pop(step.begun_as, None)
            self._ending[step.begun_as] = step
            if len(self._ending) > self._sweep_at:
                self._ending = {
                    key: other for key, other in self._ending.items() if not other.is_stored
                }
                # Where steps end faster than they are stored, each sweep is rarer than the last.
                self._sweep_at = max(_MAX_ENDING, 2 * len(self._ending))

    def join(
        self,
        kind: StepKind,
        *,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        started_at: Moment | None = None,
    ) -> JoinedStep:
        """Return the step for a call that an adapter sees.

        Inside an open step of the same kind that has no request yet, it is that step: its first
        observer claimed it, and an adapter adds its view. One that was handed over is the caller's
        to end. Otherwise it is a new one, a child of the open step of this run; beside a step that
        has ended, where a call is made again.
        """
        active = current_step()
        if active is None or active.run is not self:
            parent = None
        elif not active.is_open:
            parent = active.parent_id if active.kind == kind else None
        elif active.kind == kind and active.take_over():
            return JoinedStep(active, is_own=True)
        elif active.kind == kind and not active.has("request") and not active.has("tool_call"):
            return JoinedStep(active, is_own=False)
        else:
            parent = active.id
        step = self.step(kind, name=name, parent=parent, metadata=metadata, started_at=started_at)
        return JoinedStep(step, is_own=True)

    def _end_block(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        self.end(status_for(kind))


def _require_one_of(words: frozenset[str], word: object, argument: str) -> None:
    """Raise InvalidInput for a word that is none of these: a receipt could not be made of it."""
    if not isinstance(word, str) or word not in words:
        raise InvalidInput(
            f"`{argument}` takes one of {', '.join(sorted(words))}.", argument=argument
        )


def _name_of(argument: str, text: object) -> str | None:
    """Return a name as it is stored. Raises InvalidInput for what is no text."""
    if text is not None and not isinstance(text, str):
        raise InvalidInput(f"`{argument}` takes a text.", argument=argument)
    return None if text is None else storable_text(text)


def require_recordable(kind: object) -> None:
    """Raise InvalidInput for what is no kind of an entry that `record` takes."""
    _require_one_of(_ENTRY_KINDS, kind, "kind")


def require_ended(status: object) -> None:
    """Raise InvalidInput for what is no status of a run or step that has ended."""
    _require_one_of(_STATUSES, status, "status")


def time_of(
    context: RecorderContext, argument: str, moment: Moment | None, *, since: int
) -> int | None:
    """Return a time that another clock tells, microseconds UTC. Raises InvalidInput for one before
    `since`, or ahead of this clock by more than clocks differ.
    """
    at = microseconds(moment, context.zone, name=argument)
    if at is not None and not since <= at <= context.store.clock.now() + _CLOCKS_DIFFER_US:
        raise InvalidInput(
            f"`{argument}` lies between the start of the run or step that it belongs to and five "
            "seconds from now.",
            argument=argument,
        )
    return at


def status_for(kind: type[BaseException] | None) -> StepStatus:
    """Return the status of a run or step that an exception of this type, or none, left."""
    if kind is None:
        return "completed"
    if issubclass(kind, ApprovalRequired):
        return "blocked"
    # asyncio.CancelledError and friends derive from BaseException alone: the step was stopped, it
    # did not fail.
    return "failed" if issubclass(kind, Exception) else "cancelled"
