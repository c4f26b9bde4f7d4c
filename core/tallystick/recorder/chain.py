"""The chain of one run while it is recorded: its start, receipts, gaps and end, in this order."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from tallystick.recorder.context import RecorderContext
from tallystick.recorder.write_queue import Batch
from tallystick.records import Actor, RunRecord, StepStatus
from tallystick.storage import ScopeRow
from tallystick.storage.rows import journal, recordings
from tallystick.storage.rows.journal import run_stream


class RunChain:
    """The stored part of a run: its record, its stream in the journal, and its gaps.

    The run and each of its steps append through it, so that the start of the run is written before
    whatever comes first, and once.

    **The cached end.** An entry names the digest of the one before it. Reading the end of the
    stream for each batch would cost a query, so that `_end` caches where this process left the
    stream. The rules:

    - Only the writer's thread reads and sets it, between `start` and the commit.
    - It is believed only until the batch is written: `Batch.write` moves the stored head *from*
      the cached end, and raises `Stale` where the database says otherwise (the chain was cut by a
      purge, or an erasure appended to it). The batch is then rolled back and written again.
    - `take_back` forgets it, because entries that were rolled back are not in the stream. Whoever
      forgets that appends after an entry that does not exist.

    Were it believed without the comparison, two entries would claim one position: the unique index
    refuses the second at best; at worst the chain forks, and `verify` reports tampering for good.

    **The fence.** A process whose sign of life failed is taken for dead, and its runs are ended
    (`recovery`). Each batch therefore asks, in its transaction, whether this process still records
    the run, and raises `Stale` where it does not. What is written again then resumes the run, and
    each step that had begun goes on in a new one: the receipt of the first is final.
    """

    def __init__(
        self,
        context: RecorderContext,
        actor: Actor,
        record: RunRecord,
        *,
        unconfirmed: bool = False,
    ) -> None:
        """`unconfirmed` is a run that the transaction which stores its start has still to allow."""
        self.context = context
        self.actor = actor
        self.record = record
        """The run as it is now."""
        self.stream = run_stream(record.id)
        self.started = False
        """True once the start of the run is written; on the writer's thread."""
        self._unconfirmed = unconfirmed
        self._scope_row: ScopeRow | None = None
        self._end: journal.End | None = None
        self.resumed = 0
        """Number of times that the run went on after this process was taken for dead."""
        self.steps = 0
        """Number of steps up to here."""
        self._next_index = 0
        self._surfaces = {actor.surface}
        self._guard = threading.Lock()
        self._unwritten_gaps: dict[str, int] = {}
        """Events of the run that could not be recorded, by type of the error, as far as no entry of
        the chain names them yet.
        """
        self._written_gaps = 0
        """Number of such events that the chain names."""
        self._step_gaps: dict[str, int] = {}
        """Number of entries that each step could not store."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.record.id

    @property
    def scope_row(self) -> ScopeRow:
        """The row of the run's scope, once the run has started."""
        assert self._scope_row is not None
        return self._scope_row

    @property
    def gaps(self) -> int:
        """Number of events and entries that are missing, as the chain says it."""
        with self._guard:
            return sum(self._step_gaps.values()) + self._written_gaps

    @property
    def unwritten_gaps(self) -> int:
        """Number of events that could not be recorded and that the chain does not name yet."""
        with self._guard:
            return sum(self._unwritten_gaps.values())

    @property
    def surfaces(self) -> list[str]:
        """The surfaces whose observers recorded in the run."""
        return sorted(self._surfaces)

    def next_index(self) -> int:
        """Return the number of a step that may begin."""
        with self._guard:
            self._next_index += 1
            return self._next_index - 1

    def count_step(self) -> None:
        """Count a step that has begun."""
        with self._guard:
            self.steps += 1

    def add_surface(self, surface: str) -> None:
        """Add a surface whose observer records in the run too."""
        self._surfaces.add(surface)

    def close(self, status: StepStatus) -> None:
        """Set how and when the run ended, unless it has ended."""
        with self._guard:
            if self.record.ended_at is None:
                # Its clock may have been set back since.
                end = max(self.context.store.clock.now(), self.record.started_at)
                self.record = self.record.model_copy(update={"status": status, "ended_at": end})

    def count_gap(self, error: BaseException) -> None:
        """Count an event of the run that could not be recorded."""
        name = type(error).__name__
        with self._guard:
            self._unwritten_gaps[name] = self._unwritten_gaps.get(name, 0) + 1

    # On the writer's thread

    def start(self, batch: Batch) -> bool:
        """Add the start of the run to `batch` unless it is written; True if it was added."""
        if self.started:
            self._resume(batch)
            return False
        record = self.record
        if self._unconfirmed:
            self.context.gate.confirm(batch.tx, self.actor, "record", record.scope)
        self._scope_row = batch.scope(record.scope)
        running = record.model_copy(update={"status": "running", "ended_at": None})
        # Taken here, on the writer's thread and before the run can be seen, and not where the run
        # begins: that may be the event loop of an agent, and the sign of life is a file.
        process = self.context.store.liveness.hold(batch.tx)
        batch.begin_run(running, self._scope_row.id, process)
        self.append(
            batch,
            "run.start",
            record.started_at,
            {"retention": record.retention, "scope": str(record.scope)},
            subject=self.run_id,
            row_texts=recordings.run_texts_of(running),
        )
        self.started = True
        return True

    def _resume(self, batch: Batch) -> None:
        """Let this process record its run, which another one may have ended."""
        process = self.context.store.liveness.token
        # Asked only of a run whose end is not known: the batch asks for all others together.
        if self._end is None and recordings.record_on(batch.tx, self.run_id, process):
            self.resumed += 1
            now = self.context.store.clock.now()
            self.append(batch, "run.resume", now, {}, subject=self.run_id)
        batch.require_recorded(self.run_id)

    def append(
        self,
        batch: Batch,
        event: str,
        at: int,
        details: Mapping[str, Any],
        *,
        subject: str,
        plain: bool = False,
        row_texts: Mapping[str, Any] | None = None,
    ) -> journal.Appended:
        """Add an entry to the end of the chain. `plain` details are known to be canonical;
        `row_texts` are in rows, to which the entry commits.
        """
        entry = batch.append(
            journal.Event(
                stream=self.stream,
                event=event,
                actor=self.actor,
                at=at,
                audit_id=self.context.store.ids.new(),
                subject_id=subject,
                details=details,
                plain=plain,
                row_texts=None if row_texts is None else journal.row_text_bytes(row_texts),
            ),
            self._end,
        )
        self._end = journal.End(entry.position + 1, entry.digest)
        return entry

    def take_back(self, *, started: bool) -> None:
        """Forget what was added since the last commit, and if `started` the start too."""
        self._end = None
        if started:
            self.started = False

    def take_unwritten_gaps(self) -> dict[str, int]:
        """Return the gaps that the chain does not name yet, for an entry that names them."""
        with self._guard:
            gaps, self._unwritten_gaps = self._unwritten_gaps, {}
            self._written_gaps += sum(gaps.values())
            return gaps

    def give_back_gaps(self, gaps: Mapping[str, int]) -> None:
        """Undo `take_unwritten_gaps`: the entry was not written."""
        with self._guard:
            self._written_gaps -= sum(gaps.values())
            for name, count in gaps.items():
                self._unwritten_gaps[name] = self._unwritten_gaps.get(name, 0) + count

    def set_step_gap(self, batch: Batch, step_id: str, count: int) -> None:
        """Set how many entries a step could not store, as its receipt says."""
        with self._guard:
            self._step_gaps[step_id] = count
        batch.set_gaps(self.run_id, self.stream, self.gaps)

    def remove_step_gap(self, step_id: str) -> None:
        """Undo `set_step_gap`: the receipt was not written."""
        with self._guard:
            self._step_gaps.pop(step_id, None)

    def publish_start(self) -> None:
        """Tell listeners of the start of the run, which is committed."""
        if self.context.subscriptions.any_open:
            values = {"status": "running", "ended_at": None, "gaps": 0}
            self.context.subscriptions.publish("run_started", self.record.model_copy(update=values))
