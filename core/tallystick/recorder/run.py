"""Runs and steps while they happen: hand over and go on, and be answered only at the end, after the commit.

`record` serialises and returns; the writer stores it in order. Ending a step waits until everything in it and its
receipt are committed, so that what was acknowledged survives the death of the process.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection

from tallystick.compiler import prefix_reuse
from tallystick.errors import RecorderError, RunClosed
from tallystick.recorder.room import Payload, RecorderRoom
from tallystick.records import (
    Actor,
    CompiledContext,
    EntryKind,
    Foil,
    PrefixReuse,
    Receipt,
    ReceiptEntry,
    Retention,
    RunRecord,
    Scope,
    StepKind,
    StepRecord,
    StepStatus,
)
from tallystick.storage import journal, parts, recordings, scopes

__all__ = ["Run", "Step", "current_run", "current_step", "run_stream", "status_for"]

_run: ContextVar[Run | None] = ContextVar("tallystick_run", default=None)
_step: ContextVar[Step | None] = ContextVar("tallystick_step", default=None)


def current_run() -> Run | None:
    """The run whose `with` block this code stands in, or None."""
    return _run.get()


def current_step() -> Step | None:
    """The step whose `with` block this code stands in, or None."""
    return _step.get()


def run_stream(run_id: str) -> str:
    """The journal stream of a run."""
    return f"run:{run_id}"


class Run:
    """An agent run that is being recorded. Steps may be added from any thread."""

    def __init__(self, room: RecorderRoom, actor: Actor, record: RunRecord) -> None:
        self._room = room
        self._actor = actor
        self._record = record
        self._guard = threading.Lock()
        self._next_index = 0
        self._open: dict[str, Step] = {}
        self._closing: list[Future[Receipt]] = []
        self._token: Token[Run | None] | None = None
        self._compiled: CompiledContext | None = None
        self._process = room.store.presence.hold()
        self._started: Future[None] = room.store.database.submit(self._write_start, name="run.start")

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

    @property
    def room(self) -> RecorderRoom:
        """The recorder that this run belongs to."""
        return self._room

    def follows(self, compiled: CompiledContext) -> PrefixReuse:
        """How a prompt of this run begins like the one compiled before it, which it takes the place of."""
        with self._guard:
            before, self._compiled = self._compiled, compiled
        return prefix_reuse(before, compiled)

    def step(
        self, kind: StepKind, *, name: str | None = None, parent: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Step:  # fmt: skip
        """Start a step; use it as a `with` block, or call its `end`. Raises RunClosed after the run ended."""
        with self._guard:
            if self._record.ended_at is not None:
                raise RunClosed(f"Run {self.id} has ended; start a new one to record more steps.")
            record = StepRecord(
                step_id=self._room.store.ids.new(),
                run_id=self.id,
                step_index=self._next_index,
                step_kind=kind,
                name=name,
                parent_step_id=parent,
                started_at=self._room.store.clock.now(),
                metadata=dict(metadata or {}),
            )
            self._next_index += 1
            step = Step(self, record)
            self._open[step.id] = step
            return step

    def end(self, status: StepStatus = "completed") -> Foil:
        """End the run, and as `interrupted` every step still open in it; the head of its chain: keep it as the foil.

        Returns after everything in the run is committed, and raises the first error that any of it met.
        Ending twice returns the same foil.
        """
        for step in list(self._open.values()):
            step.close("interrupted")
        with self._guard:
            if self._record.ended_at is None:
                now = self._room.store.clock.now()
                self._record = self._record.model_copy(update={"status": status, "ended_at": now})
                last = self._room.store.database.submit(self._write_end, name="run.end")
            else:
                last = None
        self._started.result()
        with self._guard:
            closing, self._closing = self._closing, []
        for future in closing:
            future.result()
        if last is not None:
            last.result()
        with self._room.store.database.read() as connection:
            return journal.foil(connection, run_stream(self.id), self.id)

    def join(
        self, kind: StepKind, *, name: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> tuple[Step, bool]:
        """The step for a call that an adapter sees, and whether the adapter is to end it.

        Inside an open step of the same kind that nobody has described yet, that step is it: its first observer
        claimed it, and an adapter adds its view. Otherwise a new one.
        """
        active = current_step()
        mine = active is not None and active.run is self and active.kind == kind and active.is_open
        if active is not None and mine and not active.has("request") and not active.has("tool_call"):
            return active, False
        return self.step(kind, name=name, metadata=metadata), True

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Make this the current run of the code inside, without ending it."""
        token = _run.set(self)
        try:
            yield self
        finally:
            _run.reset(token)

    def __enter__(self) -> Self:
        self._token = _run.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            _run.reset(self._token)
            self._token = None
        self.end(status_for(kind))

    def _closed(self, step: Step, closing: Future[Receipt]) -> None:
        with self._guard:
            if self._open.pop(step.id, None) is not None:
                self._closing.append(closing)

    def _write_start(self, tx: Connection) -> None:
        scope = scopes.ensure(tx, self._record.scope)
        recordings.add_run(tx, self._record, scope_id=scope.id, process=self._process)
        record = self._record
        details = {"agent_name": record.agent_name, "domain": record.domain, "retention": record.retention,
                   "scope": str(record.scope)}  # fmt: skip
        self._append(tx, "run.start", record.started_at, details)

    def _write_end(self, tx: Connection) -> None:
        recordings.end_run(tx, self._record)
        assert self._record.ended_at is not None
        self._append(tx, "run.end", self._record.ended_at, {"status": self._record.status, "steps": self._next_index})

    def _append(self, tx: Connection, event: str, at: int, details: Mapping[str, Any]) -> None:
        journal.append(
            tx,
            journal.Event(
                stream=run_stream(self.id), event=event, actor=self._actor, at=at,
                audit_id=self._room.store.ids.new(), subject_id=self.id, details=details,
            ),
        )  # fmt: skip


class Step:
    """A step that is being recorded. Made by `Run.step`."""

    def __init__(self, run: Run, record: StepRecord) -> None:
        self._run = run
        self._record = record
        self._guard = threading.Lock()
        self._entries: list[ReceiptEntry] = []
        self._pending: list[Future[Any]] = []
        self._token_method = "not counted"
        self._closing: Future[Receipt] | None = None
        self._incomplete = False
        self._token: Token[Step | None] | None = None
        self._submit(lambda tx: recordings.add_step(tx, record), "step.start")

    @property
    def id(self) -> str:
        """The id of the step."""
        return self._record.step_id

    @property
    def run(self) -> Run:
        """The run that this step belongs to."""
        return self._run

    @property
    def record_of(self) -> StepRecord:
        """The step as it stands now."""
        return self._record

    @property
    def kind(self) -> StepKind:
        """What kind of step it is."""
        return self._record.step_kind

    @property
    def is_open(self) -> bool:
        """Whether more can be recorded."""
        return self._record.ended_at is None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the step has ended and is committed."""
        done = self._closing is not None and self._closing.done() and self._closing.exception() is None
        return self._closing.result() if done and self._closing is not None else None

    def has(self, kind: EntryKind) -> bool:
        """Whether an entry of this kind was recorded already."""
        with self._guard:
            return any(entry.kind == kind for entry in self._entries)

    def record(self, kind: EntryKind, payload: Payload = None, *, summary: Mapping[str, Any] | None = None) -> None:
        """Record one thing. Serialised now, stored in the background, acknowledged by `end`.

        `summary` goes into the receipt as it is: ids, counts and reason codes only.
        Raises RunClosed after the step ended.
        """
        run = self._run
        room = run.room
        sealed = room.seal(kind, payload, retention=run.record.retention, summary=summary)
        with self._guard:
            if self._record.ended_at is not None:
                raise RunClosed(f"Step {self.id} has ended; nothing can be added to it.")
            position = len(self._entries)
            self._entries.append(sealed.entry)
            at = room.store.clock.now()
            entry_id = room.store.ids.new()

            def unit(tx: Connection) -> None:
                scope = scopes.ensure(tx, run.scope)
                recordings.add_entry(
                    tx,
                    step_id=self.id,
                    position=position,
                    id=entry_id,
                    scope_id=scope.id,
                    kind=kind,
                    at=at,
                    payload_state=sealed.entry.payload_state,
                    part_key=None if sealed.body is None else parts.put(tx, scope, sealed.body, at=at),
                    salt=sealed.salt,
                    commitment=sealed.entry.commitment,
                    redactions=_text(sealed.entry.redactions),
                    summary=_text(sealed.entry.summary),
                )

            self._submit(unit, "step.entry")

    def counted_by(self, method: str) -> None:
        """Say how the tokens of this step were counted; it stands in the receipt."""
        self._token_method = method

    def close(self, status: StepStatus = "completed", *, metadata: Mapping[str, Any] | None = None) -> Future[Receipt]:
        """End the step without waiting; the future holds the receipt after the commit.

        For hooks that must not stall their caller. Closing twice returns the same future.
        """
        with self._guard:
            if self._closing is None:
                update: dict[str, Any] = {"status": status, "ended_at": self._run.room.store.clock.now()}
                if metadata:
                    update["metadata"] = {**self._record.metadata, **metadata}
                self._record = self._record.model_copy(update=update)
                # Submitted under the guard, so that no entry can come after the receipt that counts it.
                self._closing = self._run.room.store.database.submit(self._write_end, name="step.end")
            closing = self._closing
        self._run._closed(self, closing)
        return closing

    def end(self, status: StepStatus = "completed", *, metadata: Mapping[str, Any] | None = None) -> Receipt:
        """End the step and return its receipt after the commit. Ending twice returns the same receipt.

        Raises the first error of storage that anything in the step met; then it is not acknowledged.
        """
        closing = self.close(status, metadata=metadata)
        for future in self._pending:
            future.result()
        return closing.result()

    def fail(self, error: BaseException) -> None:
        """Record what went wrong and close the step as failed, or as cancelled; returns without waiting."""
        if self.is_open:
            kind = type(error).__name__
            self.record("error", {"type": kind, "message": str(error)}, summary={"type": kind})
            self.close(status_for(type(error)))

    @contextmanager
    def active(self) -> Iterator[Self]:
        """Make this the current step of the code inside, without ending it."""
        leave = self.enter()
        try:
            yield self
        finally:
            leave()

    def enter(self) -> Callable[[], None]:
        """Make this the current step from here on; call what is returned to leave it.

        For hooks that have a start and an end but no block in between.
        """
        before = _step.get()
        _step.set(self)

        def leave() -> None:
            # Set rather than reset by token: an end hook may run in another context than its start.
            if _step.get() is self:
                _step.set(before)

        return leave

    def __enter__(self) -> Self:
        self._token = _step.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            _step.reset(self._token)
            self._token = None
        if error is not None:
            self.fail(error)
        self.end(status_for(kind))

    def _submit(self, unit: Callable[[Connection], None], name: str) -> None:
        def complete(tx: Connection) -> None:
            try:
                unit(tx)
            except BaseException:
                self._incomplete = True
                raise

        self._pending.append(self._run.room.store.database.submit(complete, name=name))

    def _write_end(self, tx: Connection) -> Receipt:
        record = self._record
        assert record.ended_at is not None
        if self._incomplete:
            raise RecorderError(f"Something in step {self.id} could not be stored, so that it gets no receipt.")
        recordings.end_step(tx, record)
        body = receipt_body(record, self._run.record.retention, self._token_method, self._entries)
        entry = journal.append(
            tx,
            journal.Event(
                stream=run_stream(record.run_id),
                event="receipt",
                actor=self._run.actor,
                at=record.ended_at,
                audit_id=self._run.room.store.ids.new(),
                correlation_id=record.run_id,
                subject_id=record.step_id,
                details=body,
            ),
        )
        return Receipt.load({**body, "previous": entry.previous, "digest": entry.digest, "position": entry.position})


def receipt_body(
    record: StepRecord, retention: Retention, token_method: str, entries: Sequence[ReceiptEntry]
) -> dict[str, Any]:  # fmt: skip
    """What the receipt of a step that ended says, before the chain adds its place."""
    return {
        "step_id": record.step_id,
        "run_id": record.run_id,
        "step_index": record.step_index,
        "step_kind": record.step_kind,
        "name": record.name,
        "status": record.status,
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "retention": retention,
        "token_method": token_method,
        "entries": [entry.dump() for entry in entries],
    }


def status_for(kind: type[BaseException] | None) -> StepStatus:
    """How a run or step ended that an exception of this type, or none, left."""
    if kind is None:
        return "completed"
    # asyncio.CancelledError and friends derive from BaseException alone: the step was stopped, it did not fail.
    return "failed" if issubclass(kind, Exception) else "cancelled"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
