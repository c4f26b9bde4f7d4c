"""What steps and runs hand over is written together: a handful of statements for all that came
within the window.

A batch that fails is taken apart: each step is written again by itself, and one that cannot be
written gets a receipt that says how much is missing. A batch that finds no database, because others
keep it busy, is tried again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Connection

from tallystick.errors import ClosedTally
from tallystick.logs import get_logger
from tallystick.records import RunRecord, Scope, part_key
from tallystick.storage import Bases, ScopeRow, journal, parts, payloads, recordings, scopes
from tallystick.storage.database import savepoint

if TYPE_CHECKING:
    from tallystick.storage import Store

__all__ = ["Batch", "WriteQueue", "Item"]

_AGAIN = 0.5
"""Seconds after which a write that the database refused is tried again."""


class Item(Protocol):
    """Something that hands over: a step or a run. Called on the writer's thread."""

    noted: bool
    """Whether the writer knows that it has something to give; False at first."""

    def ready(self) -> None:
        """Do what may be done before the database is taken."""
        ...

    def put(self, batch: Batch) -> None:
        """Add to `batch` what waits."""
        ...

    def back(self) -> None:
        """Take back what `put` added last: it was not written."""
        ...

    def lose(self, error: BaseException) -> None:
        """Let go of what waits, and count it as missing."""
        ...

    def stored(self) -> None:
        """What was put is committed."""
        ...


class Stale(Exception):
    """What this process took for granted of the database is not so any more."""


class Batch:
    """Rows that are written together."""

    def __init__(self, tx: Connection, store: Store, bases: Bases) -> None:
        self.tx = tx
        self._store = store
        self._bases = bases
        self._parts: dict[tuple[int, str], dict[str, Any]] = {}
        self._entries: list[dict[str, Any]] = []
        self._new: set[str] = set()
        self._rest_on: set[str] = set()
        self._runs: dict[str, tuple[RunRecord, int, str]] = {}
        self._ended_runs: list[RunRecord] = []
        self._gaps: dict[str, tuple[str, int]] = {}
        self._scopes: dict[Scope, ScopeRow] = {}
        self._steps: list[Mapping[str, Any]] = []
        self._ended: list[Mapping[str, Any]] = []
        self._chained: list[journal.Appended] = []
        self._ends: dict[str, tuple[journal.End, journal.End]] = {}
        """For each stream where it ended, and where it will."""

    def scope(self, scope: Scope) -> ScopeRow:
        """The row of a scope, made when it is new."""
        if scope not in self._scopes:
            self._scopes[scope] = scopes.ensure(self.tx, scope)
        return self._scopes[scope]

    def begin_run(self, run: RunRecord, scope_id: int, process: str) -> None:
        """A run starts."""
        self._runs[run.run_id] = (run, scope_id, process)

    def end_run(self, run: RunRecord) -> None:
        """A run has ended; its record says how much of it is missing by now."""
        self._gaps.pop(run.run_id, None)
        begun = self._runs.get(run.run_id)
        if begun is None:
            self._ended_runs.append(run)
        else:
            self._runs[run.run_id] = (run, *begun[1:])

    def gapped(self, run_id: str, stream: str, gaps: int) -> None:
        """So much of a run is missing by now."""
        self._gaps[run_id] = (stream, gaps)

    def begin_step(self, row: Mapping[str, Any]) -> None:
        """A step starts, or started and ended within the window."""
        self._steps.append(row)

    def end_step(self, row: Mapping[str, Any]) -> None:
        """A step that was written before has ended."""
        self._ended.append(row)

    def entry(
        self,
        scope: ScopeRow,
        step_id: str,
        position: int,
        at: int,
        salt: bytes | None,
        said: dict[str, Any],
        pieces: Sequence[bytes] | None,
    ) -> None:
        """Something was recorded in a step."""
        layout, key, id = None, None, self._store.ids.new()
        if pieces is not None:
            layout = self._bases.lay(self.tx, scope, said["kind"], id, pieces)
            key = part_key(scope.secret, layout.own)
            if (scope.id, key) not in self._parts:
                self._parts[scope.id, key] = {
                    "scope_id": scope.id,
                    "key": key,
                    "body": layout.own,
                    "created_at": at,
                }
            if layout.base_id is not None and layout.base_id not in self._new:
                self._rest_on.add(layout.base_id)
        self._new.add(id)
        self._entries.append(
            recordings.entry_row(step_id, position, id, scope.id, at, salt, said, key, layout)
        )

    def append(self, event: journal.Event, known: journal.End | None) -> journal.Appended:
        """An entry of a stream's chain; `known` is where the caller takes it to end."""
        stream = event.stream
        if stream not in self._ends:
            end = known or journal.end_of(self.tx, stream)
            self._ends[stream] = (end, end)
        before, end = self._ends[stream]
        entry = journal.chained(event, end)
        self._ends[stream] = (before, journal.End(entry.position + 1, entry.digest))
        self._chained.append(entry)
        return entry

    def write(self) -> None:
        """Write it all. Raises Stale where the chain or a base is not where it was taken to be."""
        tx = self.tx
        recordings.add_runs(tx, list(self._runs.values()))
        recordings.add_steps(tx, self._steps)
        if not payloads.there(tx, self._rest_on):
            raise Stale
        parts.put_keyed(tx, list(self._parts.values()))
        recordings.add_entries(tx, self._entries)
        if self._chained:
            journal.add_many(tx, self._chained)
        last = {entry.event.stream: entry for entry in self._chained}
        if not journal.move_all(
            tx, {stream: (before, last[stream]) for stream, (before, _) in self._ends.items()}
        ):
            raise Stale
        recordings.end_steps(tx, self._ended)
        for run in self._ended_runs:
            recordings.end_run(tx, run)
        for run_id, gaps in self._gaps.items():
            recordings.note_gaps(tx, run_id, *gaps)


class WriteQueue:
    """Gathers what steps and runs hand over until the writer comes to it. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.bases = Bases()
        """Touched on the writer's thread alone."""
        self._guard = threading.Lock()
        self._waiting: deque[Item] = deque()
        self._queued: Future[None] | None = None
        self._count = 0
        store.database.on_flush(self._hand_over)

    def add(self, item: Item, *, soon: bool) -> Future[None]:
        """Let `item` be written; the future is done after the commit. What became of it, the item
        knows.
        """
        self._wait(item)
        queued = self._queue()
        if not soon:
            self._store.database.commit_now()
        return queued

    def note(self, item: Item) -> None:
        """Let `item` be written soon; call it when the item holds all that it is to give."""
        self._count += 1
        self._wait(item)
        # What is read here without the guard is at worst taken just now: then the item was, too.
        if self._queued is None:
            self._queue()

    def _wait(self, item: Item) -> None:
        if not item.noted:
            item.noted = True
            self._waiting.append(item)

    def _queue(self) -> Future[None]:
        """The write that takes what waits now."""
        database = self._store.database
        with self._guard:
            # One that is done was refused, or it would have made place for the next.
            if self._queued is not None and not self._queued.done():
                return self._queued
            taken: list[Item] = []
            self._queued = database.submit(
                lambda tx: self._write(tx, taken),
                name="recorder",
                deferred=True,
                size=lambda: self._count,
                prepare=self._ready,
            )
            queued = self._queued
        queued.add_done_callback(lambda done: self._settled(done, taken))
        return queued

    def _ready(self) -> None:
        for item in list(self._waiting):
            item.ready()

    def _write(self, tx: Connection, taken: list[Item]) -> None:
        # In this order: what comes from here on is queued anew; what came before is taken.
        with self._guard:
            self._queued = None
        taken += self._drained()
        try:
            self._together(tx, taken)
        except Exception:  # noqa: BLE001 - each item is tried by itself, and one that fails counts what is lost
            for item in reversed(taken):
                item.back()
            self.bases.clear()
            for item in taken:
                self._alone(tx, item)

    def _together(self, tx: Connection, items: Sequence[Item]) -> None:
        batch = Batch(tx, self._store, self.bases)
        with savepoint(tx):
            for item in items:
                item.put(batch)
            batch.write()

    def _alone(self, tx: Connection, item: Item) -> None:
        # What waits, then only that it is missing; an item that fails at both keeps its error.
        for _ in range(2):
            try:
                self._together(tx, [item])
                return
            except Exception as error:  # noqa: BLE001 - counted, and raised to whoever waits for the item
                item.back()
                item.lose(error)
                self.bases.clear()

    def _drained(self) -> list[Item]:
        found: dict[Item, None] = {}
        with suppress(IndexError):
            while True:
                found[self._waiting.popleft()] = None
        for item in found:
            item.noted = False
        return list(found)

    def _settled(self, done: Future[None], taken: Sequence[Item]) -> None:
        error = done.exception()
        with self._guard:
            if self._queued is done:
                # It was refused before it took anything.
                self._queued = None
        for item in reversed(taken):
            if error is not None:
                item.back()
                item.lose(error)
        for item in taken:
            item.stored()
            if error is not None:
                # What is lost is told, and what has ended gets its receipt.
                self._wait(item)
        if error is not None and self._waiting:
            # The database was not to be had: what waits is tried again, until it is closed.
            if self._store.database.closed:
                self._lose()
                return
            get_logger("recorder").warning("recording.waits", error=type(error).__name__)
            again = threading.Timer(_AGAIN, self._again)
            again.daemon = True
            again.start()

    def _again(self) -> None:
        try:
            self._hand_over()
        except ClosedTally:
            self._lose()

    def _hand_over(self) -> None:
        """Let what waits be written, if anything does."""
        if self._waiting:
            self._queue()

    def _lose(self) -> None:
        for item in self._drained():
            item.lose(ClosedTally())
