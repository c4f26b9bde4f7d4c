"""One step while it happens: hand over and go on, and be answered only at the end, after the
commit.

`record` serialises and returns. What waits is written together, when nothing more comes for a
twentieth of a second, at the latest after half a second; ending a step waits until everything in it
and its receipt are committed, so that what was acknowledged survives a killed process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tallystick.errors import ApprovalRequired, RecorderError, RunClosed
from tallystick.recorder.context import Captured, Payload, PreparedPayload, RecorderContext, Summary
from tallystick.recorder.write_queue import Batch
from tallystick.records import EntryKind, Receipt, Retention, StepKind, StepRecord, StepStatus
from tallystick.storage import ScopeRow, journal, recordings

if TYPE_CHECKING:
    from tallystick.recorder.run import Run

__all__ = [
    "NOT_COUNTED",
    "Step",
    "current_step",
    "receipt_body",
    "receipt_from",
    "receipt_of",
    "run_stream",
    "status_for",
]

NOT_COUNTED = "not counted"
"""What receipts say of tokens that nobody counted."""
_FULL = "QueueFull"
_VERSION: int = StepRecord.model_fields["schema_version"].default

_step: ContextVar[Step | None] = ContextVar("tallystick_step", default=None)


def current_step() -> Step | None:
    """The step whose `with` block this code stands in, or None."""
    return _step.get()


def run_stream(run_id: str) -> str:
    """The journal stream of a run."""
    return f"run:{run_id}"


class _Entry:
    """Something recorded that waits to be written. Sealed on the writer's thread, many in a row."""

    __slots__ = ("_later", "_sealed", "at", "taken")

    def __init__(self, context: RecorderContext, taken: Captured, at: int) -> None:
        self.taken = taken
        self.at = at
        self._later = context.seal_later(taken) if taken.is_large else None
        self._sealed: PreparedPayload | Exception | None = None

    def seal(self, context: RecorderContext) -> PreparedPayload | Exception:
        """The payload ready to be stored, made once, or what kept it from being sealed."""
        if self._sealed is None:
            try:
                self._sealed = (
                    context.seal(self.taken) if self._later is None else self._later.result()
                )
            except Exception as error:  # noqa: BLE001 - handed to whoever writes the entry, which counts it as missing
                self._sealed = error
        return self._sealed


class _Put(NamedTuple):
    """What a step gave to be written, so that it can be taken back."""

    taken: list[_Entry]
    begins: bool
    ends: bool
    said: list[dict[str, Any]]
    begins_run: bool = False


class Step:
    """A step that is being recorded. Made by `Run.step`."""

    def __init__(
        self,
        run: Run,
        step_id: str,
        index: int,
        kind: StepKind,
        name: str | None,
        parent: str | None,
        metadata: Mapping[str, Any],
        at: int,
    ) -> None:
        self._run = run
        self._id = step_id
        self._kind: StepKind = kind
        self._index = index
        self._name = name
        self._parent = parent
        self._metadata = dict(metadata)
        self._started_at = at
        self._ended_at: int | None = None
        self._status: StepStatus = "running"
        # The same thread may come twice: a tally that closes refuses what is handed over while it
        # is.
        self._guard = threading.RLock()
        self._waiting: list[_Entry] = []
        self._said: list[dict[str, Any]] = []
        """What the receipt will say of the entries that are written."""
        self._kinds: set[str] = set()
        self._put: _Put | None = None
        self._started = False
        self._error: BaseException | None = None
        self._lost: dict[str, int] = {}
        """What could not be stored, by the type of the error."""
        self._token_method = NOT_COUNTED
        self._receipt: tuple[dict[str, Any], journal.Appended] | None = None
        self._token: Token[Step | None] | None = None
        self.noted = False
        run.context.write_queue.note(self)

    @property
    def id(self) -> str:
        """The id of the step."""
        return self._id

    @property
    def run(self) -> Run:
        """The run that this step belongs to."""
        return self._run

    @property
    def record_of(self) -> StepRecord:
        """The step as it stands now."""
        return StepRecord.load(self._now())

    @property
    def kind(self) -> StepKind:
        """What kind of step it is."""
        return self._kind

    @property
    def started_at(self) -> int:
        """When it began, microseconds UTC."""
        return self._started_at

    @property
    def is_open(self) -> bool:
        """Whether more can be recorded."""
        return self._ended_at is None

    @property
    def is_stored(self) -> bool:
        """Whether the step has ended, and is committed with its receipt."""
        with self._guard:
            return self._receipt is not None and self._put is None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the step has ended and is committed."""
        with self._guard:
            written = self._receipt if self._put is None else None
        return None if written is None else receipt_of(*written)

    def has(self, kind: EntryKind) -> bool:
        """Whether an entry of this kind was recorded already."""
        return kind in self._kinds

    def record(self, kind: EntryKind, payload: Payload = None, *, summary: Summary = None) -> None:
        """Record one thing. Serialised now, hashed and stored in the background, acknowledged by
        `end`.

        A record of ours is serialised in the background too, because it does not change. A payload
        that is costly to make may be given as a function, which is called if payloads are kept.
        `summary` goes into the receipt as it is: ids, counts and reason codes only. Where more
        waits to be stored than may, the payload is left out, and the receipt says so. Raises
        RunClosed after the step ended.
        """
        run = self._run
        context = run.context
        retention = "metadata_only" if context.backlog.full else run.retention
        taken = context.take(kind, payload, retention=retention, summary=summary)
        entry = _Entry(context, taken, context.store.clock.now())
        with self._guard:
            if self._ended_at is not None:
                raise RunClosed(f"Step {self._id} has ended; nothing can be added to it.")
            if retention != run.retention:
                self._lost[_FULL] = self._lost.get(_FULL, 0) + 1
            context.backlog.add(taken.size)
            self._kinds.add(kind)
            self._waiting.append(entry)
            context.write_queue.note(self)

    @property
    def missed(self) -> dict[str, int]:
        """What could not be recorded, by the reason."""
        with self._guard:
            return dict(self._lost)

    def counted_by(self, method: str) -> None:
        """Say how the tokens of this step were counted; it stands in the receipt."""
        self._token_method = method

    def close(
        self, status: StepStatus = "completed", *, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """End the step without waiting, for hooks that must not stall their caller. Closing twice
        changes nothing.
        """
        self._close(status, metadata, soon=True)

    def end(
        self, status: StepStatus = "completed", *, metadata: Mapping[str, Any] | None = None
    ) -> Receipt:
        """End the step and return its receipt after the commit. Ending twice returns the same
        receipt.

        Raises the error of storage that kept the receipt from being written, and RecorderError
        where something in the step could not be stored: then the receipt stands, with an entry
        `gap`.
        """
        ending = self._close(status, metadata, soon=False)
        if ending is not None:
            ending.result()
        if self._receipt is None:
            raise self._error or RecorderError(
                f"Step {self._id} could not be stored, so that it gets no receipt."
            )
        lost = {name: count for name, count in self._lost.items() if name != _FULL}
        if lost:
            raise RecorderError(
                f"{sum(lost.values())} entries of step {self._id} could not be stored "
                f"({', '.join(sorted(lost))}). "
                "Its receipt says so."
            )
        return receipt_of(*self._receipt)

    def fail(self, error: BaseException) -> None:
        """Record what went wrong and close the step as failed, cancelled or blocked; returns
        without waiting.
        """
        if self.is_open:
            kind, status = type(error).__name__, status_for(type(error))
            self._run.tell(error)
            # What blocks a step is no error: the approval that it waits for is recorded already.
            if status != "blocked":
                self.record("error", {"type": kind, "message": str(error)}, summary={"type": kind})
            self.close(status)

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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._token is not None:
            _step.reset(self._token)
            self._token = None
        if error is not None:
            self.fail(error)
        self.end(status_for(kind))

    def ready(self) -> None:
        """Seal what waits. On the writer's thread, before it takes its turn."""
        context = self._run.context
        for entry in list(self._waiting):
            entry.seal(context)

    def put(self, batch: Batch) -> None:
        """Give what waits, and the receipt if the step has ended, to be written. On the writer's
        thread.
        """
        run = self._run
        with self._guard:
            waiting, self._waiting = self._waiting, []
            begins, self._started = not self._started, True
            ends = self._ended_at is not None and self._receipt is None
            now = self._now()
            self._put = _Put(waiting, begins, ends, self._said)
        taken = self._kept(waiting)
        self._put = _Put([entry for entry, _ in taken], begins, ends, self._said)
        if run._begin(batch):
            self._put = self._put._replace(begins_run=True)
        scope = run._row
        assert scope is not None
        said = list(self._said)
        for entry, sealed in taken:
            batch.entry(
                scope, self._id, len(said), entry.at, sealed.salt, sealed.said, sealed.pieces
            )
            said.append(sealed.said)
        row = recordings.step_row(**now)
        if begins:
            batch.begin_step(row)
        if ends:
            if self._lost:
                said.append(self._gap(batch, scope, len(said)))
            if not begins:
                batch.end_step(row)
            body = receipt_body(row, run.retention, self._token_method, said)
            self._receipt = (
                body,
                run._append(batch, "receipt", row["ended_at"], body, subject=self._id, plain=True),
            )
        self._said = said

    def back(self) -> None:
        """Take back what was put: it was not written."""
        with self._guard:
            put, self._put = self._put, None
            if put is None:
                return
            self._waiting = [*put.taken, *self._waiting]
            self._said = put.said
            self._started = self._started and not put.begins
            if put.ends:
                self._receipt = None
                self._run._ungap(self._id)
        self._run._back(begun=put.begins_run)

    def _kept(self, waiting: Sequence[_Entry]) -> list[tuple[_Entry, PreparedPayload]]:
        """What waits and can be stored; of the rest only that it is missing."""
        found = []
        for entry in waiting:
            sealed = entry.seal(self._run.context)
            if isinstance(sealed, PreparedPayload):
                found.append((entry, sealed))
            else:
                self._miss([entry], sealed)
        return found

    def lose(self, error: BaseException) -> None:
        """Let go of what waits: the receipt will say how much is missing."""
        with self._guard:
            lost, self._waiting = self._waiting, []
        self._miss(lost, error)

    def _miss(self, lost: Sequence[_Entry], error: BaseException) -> None:
        with self._guard:
            again, self._error = self._error is not None, error
            if lost:
                name = type(error).__name__
                self._lost[name] = self._lost.get(name, 0) + len(lost)
        context = self._run.context
        context.backlog.add(-sum(entry.taken.size for entry in lost))
        if lost or not again:
            context.health.miss("recorder", error)

    def stored(self) -> None:
        """What was put is committed."""
        with self._guard:
            put, self._put = self._put, None
        if put is not None:
            self._run.context.backlog.add(-sum(entry.taken.size for entry in put.taken))

    def _close(
        self, status: StepStatus, metadata: Mapping[str, Any] | None, *, soon: bool
    ) -> Future[None] | None:
        write_queue = self._run.context.write_queue
        with self._guard:
            if self._ended_at is None:
                self._status = status
                self._ended_at = self._run.context.store.clock.now()
                if metadata:
                    self._metadata |= metadata
            # Under the guard, so that no entry can come after the receipt that counts it.
            ending = None
            if self._receipt is None or self._put is not None:
                if soon:
                    write_queue.note(self)
                else:
                    ending = write_queue.add(self, soon=False)
        self._run._closed(self)
        return ending

    def _now(self) -> dict[str, Any]:
        """The fields of the step's record as they stand."""
        return {
            "step_id": self._id,
            "run_id": self._run.id,
            "step_index": self._index,
            "step_kind": self._kind,
            "name": self._name,
            "parent_step_id": self._parent,
            "started_at": self._started_at,
            "ended_at": self._ended_at,
            "status": self._status,
            "metadata": self._metadata,
            "schema_version": _VERSION,
        }

    def _gap(self, batch: Batch, scope: ScopeRow, position: int) -> dict[str, Any]:
        """An entry that says how much is missing."""
        context = self._run.context
        missed = {"missed": dict(sorted(self._lost.items()))}
        sealed = context.seal(context.take("gap", None, retention="metadata_only", summary=missed))
        batch.entry(
            scope, self._id, position, context.store.clock.now(), sealed.salt, sealed.said, None
        )
        self._run._gap(batch, self._id, sum(self._lost.values()))
        return sealed.said


def receipt_body(
    row: Mapping[str, Any],
    retention: Retention,
    token_method: str,
    entries: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What the receipt of a step that ended says, before the chain adds whose it is, when it ended
    and its place.

    `row` is the step's, as storage has it.
    """
    return {
        "step_index": row["step_index"],
        "step_kind": row["step_kind"],
        "name": row["name"],
        "status": row["status"],
        "started_at": row["started_at"],
        "retention": retention,
        "entries": list(entries),
        **({} if token_method == NOT_COUNTED else {"token_method": token_method}),
    }


def receipt_of(body: Mapping[str, Any], entry: journal.Appended) -> Receipt:
    """The receipt that stands in a run's chain."""
    event = entry.event
    return receipt_from(
        body, event.stream, event.subject_id, event.at, entry.previous, entry.digest, entry.position
    )


def receipt_from(
    body: Mapping[str, Any],
    stream: str,
    step_id: str | None,
    at: int,
    previous: str,
    digest: str,
    position: int,
) -> Receipt:
    """The receipt that an entry of a chain is. Raises InvalidRecord."""
    whose = {"step_id": step_id, "run_id": stream.removeprefix(run_stream("")), "ended_at": at}
    return Receipt.load(
        {**whose, **body, "previous": previous, "digest": digest, "position": position}
    )


def status_for(kind: type[BaseException] | None) -> StepStatus:
    """How a run or step ended that an exception of this type, or none, left."""
    if kind is None:
        return "completed"
    if issubclass(kind, ApprovalRequired):
        return "blocked"
    # asyncio.CancelledError and friends derive from BaseException alone: the step was stopped, it
    # did not fail.
    return "failed" if issubclass(kind, Exception) else "cancelled"
