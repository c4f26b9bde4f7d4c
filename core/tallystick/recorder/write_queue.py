"""The write queue: what steps and runs hand over is committed together, in a handful of statements
for all that came within the window.

A batch that fails is taken apart: each item is written again by itself, and a step that cannot be
written gets a receipt that says how much is missing. A batch that finds no database, because other
processes keep it busy, is tried again.

The queue relies on these properties of `storage.engine.database.Database`, which explains how a
commit may be delayed:

- `submit` runs units in the order of submission, on the writer's thread, each in a savepoint of one
  transaction. Its future is done only after the commit, or with the error that undid the unit.
- `ready` is called before the transaction begins, so that redacting and hashing hold up nobody.
- `grown` keeps the window open while hooks hand over more; `hurry` closes it.
- `gathers` is called before the database settles or closes, so that nothing that waits here is
  forgotten.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Protocol

from tallystick.costs import measured
from tallystick.errors import BusyTally, ClosedTally
from tallystick.logs import get_logger
from tallystick.recorder.payloads import PreparedPayload
from tallystick.records import RunRecord, Scope, part_key
from tallystick.storage import Bases, Connection, ScopeRow, Store
from tallystick.storage.engine.database_errors import answerable, was_cut_off
from tallystick.storage.engine.group_commit import is_undone, savepoint
from tallystick.storage.engine.writes import RUNS
from tallystick.storage.rows import journal, parts, payloads, recordings, scopes

_RETRY_SECONDS = 0.5
"""Delay after which a write that the database refused is tried again."""


class Pending(Protocol):
    """Something that waits to be committed: a step, a run, or the end of one.

    `pending` describes the stages of a hand-over. All but the flag is used on the writer's thread.
    """

    queued: bool
    """True while the item waits in the queue; only the queue sets it. False at first."""

    def prepare(self) -> None:
        """Do what may be done before the database is taken. Must not raise."""
        ...

    def add_to(self, batch: Batch) -> None:
        """Add everything that waits to `batch`."""
        ...

    def take_back(self) -> None:
        """Restore what `add_to` changed last: it was not written. Also called where `add_to` never
        ran.
        """
        ...

    def drop(self, error: BaseException) -> None:
        """Drop what waits, and count it as missing."""
        ...

    @property
    def run_id(self) -> str:
        """The id of the run that it belongs to."""
        ...

    def count_unwritten(self) -> int:
        """Return the number of things that would be lost if nothing could be written any more."""
        ...

    def finish_commit(self) -> None:
        """Note that the hand-over has ended: what was added and not taken back is committed."""
        ...


class Stale(Exception):
    """A cached end of a chain, a cached base, or who records a run, differs from the database."""


class Batch:
    """Rows that are written together, in one savepoint."""

    def __init__(self, tx: Connection, store: Store, bases: Bases) -> None:
        self.tx = tx
        self._store = store
        self._bases = bases
        self._parts: dict[tuple[int, str], dict[str, Any]] = {}
        self._entries: list[dict[str, Any]] = []
        self._entry_ids: set[str] = set()
        self._base_ids: set[str] = set()
        """Stored entries that payloads of this batch share bytes with."""
        self._runs: dict[str, recordings.NewRun] = {}
        self._ended_runs: list[RunRecord] = []
        self._going_on: set[str] = set()
        """Runs that began before."""
        self._gaps: dict[str, tuple[str, int]] = {}
        self._scopes: dict[Scope, ScopeRow] = {}
        self._steps: list[Mapping[str, Any]] = []
        self._ended_steps: list[Mapping[str, Any]] = []
        self._journal: list[journal.Appended] = []
        self._ends: dict[str, tuple[journal.End, journal.End]] = {}
        """For each stream its end before the batch, and after it."""

    def scope(self, scope: Scope) -> ScopeRow:
        """Return the row of a scope, and create it when it is new."""
        if scope not in self._scopes:
            self._scopes[scope] = scopes.ensure(self.tx, scope)
        return self._scopes[scope]

    def begin_run(self, run: RunRecord, scope_id: int, process: str) -> None:
        """Add a run that starts."""
        self._runs[run.id] = recordings.NewRun(run, scope_id, process)

    def require_recorded(self, run_id: str) -> None:
        """Require that this process still records a run, unless it begins here."""
        if run_id not in self._runs:
            self._going_on.add(run_id)

    def end_run(self, run: RunRecord) -> None:
        """Add the end of a run; its record has the gaps up to here."""
        self._gaps.pop(run.id, None)
        started = self._runs.get(run.id)
        if started is None:
            self._ended_runs.append(run)
        else:
            self._runs[run.id] = started._replace(record=run)

    def set_gaps(self, run_id: str, stream: str, gaps: int) -> None:
        """Set how much of a run is missing up to here."""
        self._gaps[run_id] = (stream, gaps)

    def begin_step(self, row: Mapping[str, Any]) -> None:
        """Add a step that starts, or that started and ended within the window."""
        self._steps.append(row)

    def end_step(self, row: Mapping[str, Any]) -> None:
        """Add the end of a step that was written before."""
        self._ended_steps.append(row)

    def add_entry(
        self, scope: ScopeRow, step_id: str, position: int, at: int, payload: PreparedPayload
    ) -> str:
        """Add an entry of a step; return its summary as it is stored."""
        pieces, salt, receipt_entry = payload
        layout, key, entry_id = None, None, self._store.ids.new()
        if pieces is not None:
            layout = self._bases.lay_out(self.tx, scope, receipt_entry["kind"], entry_id, pieces)
            key = part_key(scope.secret, layout.own)
            if (scope.id, key) not in self._parts:
                self._parts[scope.id, key] = {
                    "scope_id": scope.id,
                    "key": key,
                    "body": layout.own,
                    "created_at": at,
                }
            if layout.base_id is not None and layout.base_id not in self._entry_ids:
                self._base_ids.add(layout.base_id)
        self._entry_ids.add(entry_id)
        row = recordings.entry_row(
            step_id, position, entry_id, scope.id, at, salt, receipt_entry, key, layout
        )
        self._entries.append(row)
        summary: str = row["summary"]
        return summary

    def append(self, event: journal.Event, cached_end: journal.End | None) -> journal.Appended:
        """Add an entry to the end of its stream.

        `cached_end` is the caller's cache of that end, or None. It is used for the first entry of
        the stream in this batch alone, and compared with the database by `write`.
        """
        stream = event.stream
        if stream not in self._ends:
            end = cached_end or journal.end_of(self.tx, stream)
            self._ends[stream] = (end, end)
        before, end = self._ends[stream]
        entry = journal.chain_entry(event, end)
        self._ends[stream] = (before, journal.End(entry.position + 1, entry.digest))
        self._journal.append(entry)
        return entry

    def write(self) -> None:
        """Write all rows. Raises Stale where a cached end or base differs from the database, or a
        run was ended by another process.
        """
        tx, process = self.tx, self._store.liveness.token
        if self._going_on and not recordings.are_recorded_by(tx, self._going_on, process):
            raise Stale
        recordings.add_runs(tx, list(self._runs.values()))
        recordings.add_steps(tx, self._steps)
        if not payloads.have_payloads(tx, self._base_ids):
            raise Stale
        parts.put_keyed(tx, list(self._parts.values()))
        recordings.add_entries(tx, self._entries)
        if self._journal:
            journal.add_many(tx, self._journal)
        last = {entry.event.stream: entry for entry in self._journal}
        if not journal.move_heads(
            tx,
            {
                stream: journal.HeadMove(before, last[stream])
                for stream, (before, _) in self._ends.items()
            },
        ):
            raise Stale
        recordings.end_steps(tx, self._ended_steps)
        for run in self._ended_runs:
            recordings.end_run(tx, run)
        for run_id, gaps in self._gaps.items():
            recordings.set_gaps(tx, run_id, *gaps)


class WriteQueue:
    """Gathers pending items until the writer takes them. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.bases = Bases()
        """Used on the writer's thread alone."""
        self._guard = threading.Lock()
        self._waiting: deque[Pending] = deque()
        self._write: Future[None] | None = None
        """The write that will take what waits; None while none is submitted."""
        self._count = 0
        self._unwritten: dict[Pending, None] = {}
        """Items of which something is refused or waits, until all of it is written."""
        store.database.on_flush(self._hand_over)

    def enqueue_urgent(self, item: Pending) -> Future[None]:
        """Write `item` now. The future is done after the commit; the item itself knows the outcome.

        The future never fails for what is wrong with one item, because items share it.
        """
        self._add(item)
        write = self._submit()
        self._store.database.commit_now()
        return write

    def enqueue(self, item: Pending) -> None:
        """Write `item` soon. Call it after the item was given what it is to write."""
        self._count += 1
        self._add(item)
        # Read without the guard. If it is not None, the write either has yet to drain the queue,
        # and takes the item, or it drained it after the line above, and took the item: `_run` sets
        # None before it drains.
        if self._write is None:
            self._submit()

    def _add(self, item: Pending) -> None:
        # `queued` is False again before a drained item is asked for what waits, so that a hook
        # which adds to it meanwhile queues it once more: at worst it then has nothing to write.
        self._store.database.require_writable()
        if not item.queued:
            item.queued = True
            self._unwritten[item] = None
            self._waiting.append(item)

    def _submit(self) -> Future[None]:
        """Return the write that takes what waits now; submit it if there is none."""
        database = self._store.database
        with self._guard:
            # A write that is done but still here was refused: `_run` clears it before it begins.
            if self._write is not None and not self._write.done():
                return self._write
            items: list[Pending] = []
            self._write = database.submit(
                lambda tx: self._run(tx, items),
                name="recorder",
                writes=RUNS,
                deferred=True,
                size=lambda: self._count,
                prepare=self._prepare,
            )
            write = self._write
        write.add_done_callback(lambda future: self._finish(future, items))
        return write

    # On the writer's thread

    def _prepare(self) -> None:
        for item in list(self._waiting):
            item.prepare()

    def _run(self, tx: Connection, items: list[Pending]) -> None:
        # In this order: an item that comes after the next line submits a write of its own; one that
        # came before it is drained here.
        with self._guard:
            self._write = None
        items += self._drain()
        try:
            with measured("record"):
                self._write_together(tx, items)
        except Exception as error:
            for item in reversed(items):
                item.take_back()
            self.bases.clear()
            if _is_written_again(tx, error):
                raise
            # Each item is tried by itself, and one that fails counts what is lost.
            for item in items:
                self._write_alone(tx, item)

    def _write_together(self, tx: Connection, items: Sequence[Pending]) -> None:
        batch = Batch(tx, self._store, self.bases)
        with savepoint(tx):
            for item in items:
                item.add_to(batch)
            batch.write()

    def _write_alone(self, tx: Connection, item: Pending) -> None:
        # First with what waits, then only with how much is missing; an item that fails at both
        # keeps its error.
        for _ in range(2):
            try:
                self._write_together(tx, [item])
                return
            except Exception as error:
                item.take_back()
                self.bases.clear()
                if _is_written_again(tx, error):
                    raise
                item.drop(answerable(error))

    def _drain(self) -> list[Pending]:
        items: dict[Pending, None] = {}
        with suppress(IndexError):
            while True:
                items[self._waiting.popleft()] = None
        for item in items:
            item.queued = False
        return list(items)

    def _finish(self, write: Future[None], items: Sequence[Pending]) -> None:
        """Tell items the outcome of a write. `items` is empty where the database was never entered:
        they still wait in the queue.

        Whoever waits for the future may run before this does. That `end` returns only after the
        commit is the future's doing; the receipt or error that it then reads was set inside the
        transaction, by `add_to` or `drop`.
        """
        error = write.exception()
        with self._guard:
            if self._write is write:
                # It was refused before it took anything.
                self._write = None
        # What was cut off with its connection, or met a lock, is written again, as it is.
        is_dropped = error is not None and not (was_cut_off(error) or isinstance(error, BusyTally))
        for item in reversed(items):
            if error is not None:
                item.take_back()
                if is_dropped:
                    item.drop(error)
        for item in items:
            item.finish_commit()
            if error is None and not item.count_unwritten():
                self._unwritten.pop(item, None)
            if error is not None:
                # Queued once more: for what it still has, or the count of what is missing and the
                # receipt of what ended.
                self._add(item)
        if error is not None and self._waiting:
            # The database could not be entered: what waits is tried again until it is closed.
            if self._store.database.closed:
                self._drop_all()
                return
            get_logger("recorder").warning("recording.waits", error=type(error).__name__)
            timer = threading.Timer(_RETRY_SECONDS, self._retry)
            timer.daemon = True
            timer.start()

    def _retry(self) -> None:
        try:
            self._hand_over()
        except ClosedTally:
            self._drop_all()

    def _hand_over(self) -> None:
        """Submit what waits, if anything does."""
        if self._waiting:
            self._submit()

    def _drop_all(self) -> None:
        for item in self._drain():
            item.drop(ClosedTally())

    def losses(self) -> dict[str, int]:
        """Return the number of things that were never written, by the id of the run; for after the
        database is closed.
        """
        by_run: dict[str, int] = {}
        for item in list(self._unwritten):
            if count := item.count_unwritten():
                by_run[item.run_id] = by_run.get(item.run_id, 0) + count
        return by_run


def _is_written_again(tx: Connection, error: Exception) -> bool:
    """Return True if nothing of the transaction may stay, so that all of it is written again: the
    database undid it, or a lock was not to be had in time, which is the fault of no item.
    """
    return is_undone(tx) or isinstance(answerable(error), BusyTally)
