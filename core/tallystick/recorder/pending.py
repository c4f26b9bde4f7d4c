"""Pending writes: the parts of steps and runs that are handed over and not committed yet.

One hand-over passes these stages:

    enqueue          a hook added something; the item waits in the write queue, once
    prepare          on the writer's thread, before it takes the database: payloads are redacted
                     and hashed
    add_to           inside the transaction: rows and chain entries are added to the batch
    take_back        the batch was rolled back: all that `add_to` changed is restored
    drop             storage refused the item by itself: what waits is counted as missing
    finish_commit    the transaction is committed; only now does anybody read a receipt or an end

`add_to` runs before the commit is certain, so that it may change nothing that `take_back` cannot
restore. `finish_commit` follows every hand-over, also one that was taken back: an item that has
nothing in the transaction must ignore it. Several items of one run may be in one batch; items are
taken back in the reverse of the order in which they were added, and only the one that added the
start of the run takes it back.

A hook may add to a step at any moment, also between these stages. What it adds waits in a list of
its own until the next `add_to`, which takes the whole list under the step's lock. The end of a step
is set and enqueued under the same lock, so that no entry comes after the receipt that lists it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tallystick.costs import COSTS, Cost
from tallystick.errors import ClosedTally, RecorderError, RunClosed
from tallystick.recorder.chain import RunChain
from tallystick.recorder.context import RecorderContext
from tallystick.recorder.payloads import Captured, PreparedPayload
from tallystick.recorder.receipts import NOT_COUNTED, receipt_body, receipt_of, without_texts
from tallystick.recorder.write_queue import Batch
from tallystick.records import Receipt, StepKind, StepRecord, StepStatus
from tallystick.storage.rows import journal, recordings

_FULL = "QueueFull"
"""Reason of a gap: more payloads waited than may."""
_VERSION: int = StepRecord.model_fields["schema_version"].default


class PendingEntry:
    """An entry of a step that is not stored yet. Prepared on the writer's thread, many in a row."""

    __slots__ = ("_background", "_prepared", "at", "captured")

    def __init__(self, context: RecorderContext, captured: Captured, at: int) -> None:
        self.captured = captured
        self.at = at
        self._background: Future[PreparedPayload] | None = None
        if captured.is_large:
            self._background = context.payloads.submit(captured)
            if self._background is None and context.store.database.closed:
                raise ClosedTally
        self._prepared: PreparedPayload | Exception | None = None

    def prepare(self, context: RecorderContext) -> PreparedPayload | Exception:
        """Return the payload ready to be stored, or the error of its preparation; computed once."""
        if self._prepared is None:
            try:
                self._prepared = (
                    context.payloads.prepare(self.captured)
                    if self._background is None
                    else self._background.result()
                )
            except Exception as error:  # noqa: BLE001 - returned to the step, which counts the entry as missing
                self._prepared = error
        return self._prepared


class _Added(NamedTuple):
    """The parts of a step in a batch, so that they can be taken back."""

    entries: list[PendingEntry]
    starts_step: bool
    ends_step: bool
    receipt_entries: list[dict[str, Any]]
    """Those of the receipt before this batch."""
    summaries: list[str]
    """The stored summaries of these."""
    row: dict[str, Any]
    """The fields of the step's record."""
    starts_run: bool


class PendingStep:
    """The state of a step, of which part is stored and part waits to be. Thread-safe."""

    def __init__(
        self,
        chain: RunChain,
        step_id: str,
        index: int,
        kind: StepKind,
        name: str | None,
        parent: str | None,
        metadata: Mapping[str, Any],
        at: int,
    ) -> None:
        self.id = step_id
        self.kind: StepKind = kind
        self.started_at = at
        self.ended_at: int | None = None
        self.token_method = NOT_COUNTED
        self.queued = False
        self._chain = chain
        self._context = chain.context
        self._index = index
        facts = self._redact_facts({"name": name, "metadata": metadata})
        self._name: str | None = facts.get("name")
        self.parent = parent
        self._metadata = dict(facts.get("metadata", {}))
        self._costs: dict[str, Cost] = {}
        self._status: StepStatus = "running"
        # Reentrant: a tally that is being closed refuses the hand-over in the thread that makes it,
        # and the refusal comes back here.
        self._guard = threading.RLock()
        self._waiting: list[PendingEntry] = []
        self._receipt_entries: list[dict[str, Any]] = []
        """The receipt's entries for what is in the database or in the batch."""
        self._summaries: list[str] = []
        """The summaries of these entries, as they are stored."""
        self._kinds: set[str] = set()
        self._added: _Added | None = None
        """The parts in a batch that is not committed; None between batches."""
        self._started = False
        self._resumed = 0
        """How often the run had been resumed when this began."""
        self._continues: str | None = None
        self._error: BaseException | None = None
        self._gaps: dict[str, int] = {}
        self._receipt: tuple[dict[str, Any], journal.Appended] | None = None
        self._context.write_queue.enqueue(self)

    @property
    def is_stored(self) -> bool:
        """True once the step has ended and is committed with its receipt."""
        with self._guard:
            return self._receipt is not None and self._added is None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt, once the step has ended and is committed."""
        with self._guard:
            receipt = self._receipt if self._added is None else None
        return None if receipt is None else receipt_of(*receipt)

    @property
    def gaps(self) -> dict[str, int]:
        """Number of entries that could not be recorded, by reason."""
        with self._guard:
            return dict(self._gaps)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._chain.run_id

    def count_unwritten(self) -> int:
        """Return the number of entries that are not stored, and one more for the step itself where
        its start or its receipt is not.
        """
        with self._guard:
            if self._receipt is not None and self._added is None:
                return 0
            is_lacking = self.ended_at is not None or not self._started
            return len(self._waiting) + sum(self._gaps.values()) + is_lacking

    def has(self, kind: str) -> bool:
        """Return True if an entry of this kind was recorded."""
        return kind in self._kinds

    def add(self, captured: Captured, *, payload_omitted: bool, at: int | None = None) -> None:
        """Add an entry. Raises RunClosed after the step ended."""
        context = self._context
        entry = PendingEntry(context, captured, context.store.clock.now() if at is None else at)
        with self._guard:
            if self.ended_at is not None:
                raise RunClosed(f"Step {self.id} has ended; nothing can be added to it.")
            if payload_omitted:
                self._gaps[_FULL] = self._gaps.get(_FULL, 0) + 1
            context.backlog.add(captured.size)
            self._kinds.add(captured.kind)
            self._waiting.append(entry)
            context.write_queue.enqueue(self)

    def note_cost(self, piece: str, cost: Cost) -> None:
        """Add what a piece of work took to the costs in the metadata, unless the step has ended."""
        with self._guard:
            if self.ended_at is None:
                before = self._costs.get(piece)
                self._costs[piece] = cost if before is None else before.plus(cost)

    def close(
        self,
        status: StepStatus,
        metadata: Mapping[str, Any] | None,
        *,
        wait: bool,
        at: int | None = None,
    ) -> Future[None] | None:
        """Set how and when the step ended, unless it has ended, and hand it over.

        With `wait` the commit follows at once, and the future is done after it; None where the step
        is stored, or without `wait`.
        """
        write_queue = self._context.write_queue
        with self._guard:
            if self.ended_at is None:
                self._status = status
                now = self._context.store.clock.now() if at is None else at
                # Its start may be of a clock that is ahead.
                self.ended_at = max(now, self.started_at)
                if metadata:
                    self._metadata |= self._redact_facts(metadata)
            # Under the guard, so that no entry can come after the receipt that counts it.
            if self._receipt is not None and self._added is None:
                return None
            if wait:
                return write_queue.enqueue_urgent(self)
            write_queue.enqueue(self)
            return None

    def _redact_facts(self, facts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return facts as they are recorded; none where an engine of the user's own fails."""
        try:
            return self._context.payloads.redact_facts(facts, self._chain.record.retention)
        except Exception as error:  # noqa: BLE001 - counted; what records never stops an agent
            self._context.health.count_gap("recorder", error)
            return {}

    def stored_receipt(self) -> Receipt:
        """Return the receipt of a step whose hand-over was awaited.

        Raises the error that kept it from being written, and RecorderError where entries are
        missing from it.
        """
        if self._receipt is None:
            raise self._error or RecorderError(
                f"Step {self.id} could not be stored, so that it gets no receipt."
            )
        gaps = {name: count for name, count in self._gaps.items() if name != _FULL}
        if gaps:
            raise RecorderError(
                f"{sum(gaps.values())} entries of step {self.id} could not be stored "
                f"({', '.join(sorted(gaps))}). "
                "Its receipt says so."
            )
        return receipt_of(*self._receipt)

    def row(self) -> dict[str, Any]:
        """Return the fields of the step's record as they are now."""
        taken = {piece: cost._asdict() for piece, cost in self._costs.items()}
        costs = {COSTS: taken} if taken else {}
        return {
            "id": self.id,
            "run_id": self._chain.run_id,
            "step_index": self._index,
            "step_kind": self.kind,
            "name": self._name,
            "parent_step_id": self.parent,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "status": self._status,
            "metadata": self._metadata | costs,
            "schema_version": _VERSION,
        }

    # On the writer's thread

    def prepare(self) -> None:
        """Prepare the entries that wait."""
        for entry in list(self._waiting):
            entry.prepare(self._context)

    def add_to(self, batch: Batch) -> None:
        """Add the entries that wait, and the receipt if the step has ended."""
        chain = self._chain
        starts_run = chain.start(batch)
        with self._guard:
            if self._started and self._receipt is None and self._resumed != chain.resumed:
                self._continue_in_new_step()
            self._resumed = chain.resumed
            waiting, self._waiting = self._waiting, []
            starts, self._started = not self._started, True
            ends = self.ended_at is not None and self._receipt is None
            fields = self.row()
            # Set before anything can fail: from here on `take_back` restores the entries.
            self._added = _Added(
                waiting, starts, ends, self._receipt_entries, self._summaries, fields, starts_run
            )
        entries = self._storable(waiting)
        self._added = self._added._replace(entries=[entry for entry, _ in entries])
        scope = chain.scope_row
        receipt_entries, summaries = list(self._receipt_entries), list(self._summaries)
        for entry, payload in entries:
            position = len(receipt_entries)
            summaries.append(batch.add_entry(scope, self.id, position, entry.at, payload))
            receipt_entries.append(payload.receipt_entry)
        row = recordings.step_row(fields)
        if starts:
            batch.begin_step(row)
        if ends:
            if self._gaps:
                receipt_entry, summary = self._add_gap(batch, len(receipt_entries))
                receipt_entries.append(receipt_entry)
                summaries.append(summary)
            if not starts:
                batch.end_step(row)
            body = receipt_body(
                row,
                chain.record.retention,
                self.token_method,
                receipt_entries,
                continues=self._continues,
            )
            self._receipt = (
                body,
                chain.append(
                    batch,
                    "receipt",
                    row["ended_at"],
                    without_texts(body),
                    subject=self.id,
                    plain=True,
                    row_texts=recordings.step_texts_of(row, summaries),
                ),
            )
        self._receipt_entries, self._summaries = receipt_entries, summaries

    def _continue_in_new_step(self) -> None:
        """Leave what is stored to the step that another process has ended. Not taken back: that
        one stays ended.
        """
        self._continues, self.id = self.id, self._context.store.ids.new()
        self._index, self._started = self._chain.next_index(), False
        self._chain.count_step()
        self._receipt_entries, self._summaries = [], []

    def take_back(self) -> None:
        """Restore what `add_to` changed: it was not written."""
        with self._guard:
            added, self._added = self._added, None
            if added is None:
                return
            self._waiting = [*added.entries, *self._waiting]
            self._receipt_entries, self._summaries = added.receipt_entries, added.summaries
            self._started = self._started and not added.starts_step
            if added.ends_step:
                self._receipt = None
                self._chain.remove_step_gap(self.id)
        self._chain.take_back(started=added.starts_run)

    def drop(self, error: BaseException) -> None:
        """Drop the entries that wait: the receipt will say how many are missing."""
        with self._guard:
            dropped, self._waiting = self._waiting, []
        self._count_gaps(dropped, error)

    def finish_commit(self) -> None:
        """Free the backlog of what is committed, and tell listeners of a step that ended."""
        with self._guard:
            added, self._added = self._added, None
        if added is None:
            return
        self._context.backlog.add(-sum(entry.captured.size for entry in added.entries))
        if self._context.subscriptions.any_open:
            if added.starts_run:
                self._chain.publish_start()
            if added.ends_step:
                self._context.subscriptions.publish("step_ended", self._chain.record, added.row)

    def _storable(
        self, waiting: Sequence[PendingEntry]
    ) -> list[tuple[PendingEntry, PreparedPayload]]:
        """Return the entries that could be prepared; count the others as missing."""
        entries = []
        for entry in waiting:
            prepared = entry.prepare(self._context)
            if isinstance(prepared, PreparedPayload):
                entries.append((entry, prepared))
            else:
                self._count_gaps([entry], prepared)
        return entries

    def _count_gaps(self, dropped: Sequence[PendingEntry], error: BaseException) -> None:
        with self._guard:
            # What fails later follows from the first, such as a commit whose answer was lost.
            is_first, self._error = self._error is None, self._error or error
            if dropped:
                name = type(error).__name__
                self._gaps[name] = self._gaps.get(name, 0) + len(dropped)
        self._context.backlog.add(-sum(entry.captured.size for entry in dropped))
        if dropped or is_first:
            self._context.health.count_gap("recorder", error)

    def _add_gap(self, batch: Batch, position: int) -> tuple[dict[str, Any], str]:
        """Add an entry that says how much is missing; return it as the receipt has it, and its
        summary as it is stored.
        """
        payloads = self._context.payloads
        summary = {"missed": dict(sorted(self._gaps.items()))}
        gap = payloads.prepare(
            payloads.capture("gap", None, retention="metadata_only", summary=summary)
        )
        stored = batch.add_entry(
            self._chain.scope_row, self.id, position, self._context.store.clock.now(), gap
        )
        self._chain.set_step_gap(batch, self.id, sum(self._gaps.values()))
        return gap.receipt_entry, stored


class PendingRun:
    """The start of a run, and the events that it could not record."""

    def __init__(self, chain: RunChain) -> None:
        self.queued = False
        self._chain = chain
        self._starts_run = False
        self._gaps: dict[str, int] = {}
        """Those named by an entry that is not committed."""
        chain.context.write_queue.enqueue(self)

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._chain.run_id

    def count_unwritten(self) -> int:
        """Return the number of gaps that the chain does not name, and one more for a start that is
        not stored.
        """
        return self._chain.unwritten_gaps + (not self._chain.started)

    def prepare(self) -> None:
        """Do nothing: no payload waits."""

    def add_to(self, batch: Batch) -> None:
        """Add the start of the run, and an entry for its gaps."""
        chain = self._chain
        self._starts_run = chain.start(batch)
        self._gaps = chain.take_unwritten_gaps()
        if self._gaps:
            details = {"missed": dict(sorted(self._gaps.items()))}
            chain.append(
                batch, "run.gap", chain.context.store.clock.now(), details, subject=chain.run_id
            )
            batch.set_gaps(chain.run_id, chain.stream, chain.gaps)

    def take_back(self) -> None:
        """Restore what `add_to` changed: it was not written."""
        starts_run, self._starts_run = self._starts_run, False
        gaps, self._gaps = self._gaps, {}
        self._chain.take_back(started=starts_run)
        self._chain.give_back_gaps(gaps)

    def drop(self, error: BaseException) -> None:
        """Do nothing: the first step writes the start, or the end does."""

    def finish_commit(self) -> None:
        """Forget what is committed, and tell listeners of a run that started."""
        if self._starts_run:
            self._chain.publish_start()
        self._starts_run, self._gaps = False, {}


class PendingRunEnd:
    """The end of a run, which is written after all of its steps, once."""

    def __init__(self, chain: RunChain) -> None:
        self.queued = False
        self.error: BaseException | None = None
        """The error that kept the end from being written."""
        self.is_stored = False
        self._chain = chain
        self._is_added = False
        self._starts_run = False
        self._gaps: dict[str, int] = {}

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._chain.run_id

    def count_unwritten(self) -> int:
        """Return 1 while the end is not stored."""
        return int(not self.is_stored)

    def prepare(self) -> None:
        """Do nothing: no payload waits."""

    def add_to(self, batch: Batch) -> None:
        """Add the end of the run, unless it is stored."""
        chain = self._chain
        if self.is_stored:
            return
        self._is_added, self.error = True, None
        self._starts_run = chain.start(batch)
        self._gaps = chain.take_unwritten_gaps()
        record = chain.record = chain.record.model_copy(update={"gaps": chain.gaps})
        assert record.ended_at is not None
        batch.end_run(record)
        details: dict[str, Any] = {
            "status": record.status,
            "steps": chain.steps,
            "seen_by": chain.surfaces,
        }
        if self._gaps:
            details["missed"] = dict(sorted(self._gaps.items()))
        chain.append(batch, "run.end", record.ended_at, details, subject=chain.run_id)

    def take_back(self) -> None:
        """Restore what `add_to` changed: it was not written."""
        if self.is_stored:
            return
        self._is_added = False
        starts_run, self._starts_run = self._starts_run, False
        gaps, self._gaps = self._gaps, {}
        self._chain.take_back(started=starts_run)
        self._chain.give_back_gaps(gaps)

    def drop(self, error: BaseException) -> None:
        """Keep the error for the caller of `Run.end`: the end is not written."""
        if self.is_stored:
            return
        self.error = self.error or error
        self._chain.context.health.count_gap("recorder", error)

    def finish_commit(self) -> None:
        """Mark the end as stored unless it was taken back, and tell listeners of it."""
        if self._is_added and not self.is_stored:
            self.is_stored = True
            if self._starts_run:
                self._chain.publish_start()
            self._chain.context.subscriptions.publish("run_ended", self._chain.record)
        self._gaps = {}
