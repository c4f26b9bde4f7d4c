"""The dependencies of the recorder in one tally, and the state that its parts share."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from tallystick.access import Gate
from tallystick.errors import RecorderError, TallystickError
from tallystick.logs import get_logger
from tallystick.recorder.payloads import PayloadPreparer, PayloadRedactor, clear_text_memos
from tallystick.recorder.subscriptions import Subscriptions
from tallystick.recorder.write_queue import WriteQueue
from tallystick.records import Retention
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import RUNS, TALLY, Writes
from tallystick.storage.rows import settings_rows
from tallystick.tokens.prices import PriceTable

_MAX_BACKLOG_BYTES = 64 * 1024 * 1024
_LISTENER_SECONDS = 2.0
"""Time that a closing tally gives its listeners, in seconds."""


class Health:
    """Events that this process could not record. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._gaps: dict[str, int] = {}
        self._unstored = 0

    def count_gap(self, surface: str, error: BaseException) -> None:
        """Count and log an event that could not be recorded."""
        key = f"{surface}: {type(error).__name__}"
        with self._guard:
            count = self._gaps[key] = self._gaps.get(key, 0) + 1
        get_logger("recorder").warning(
            "capture.failed", surface=surface, error=type(error).__name__, failures=count
        )

    @property
    def gaps(self) -> dict[str, int]:
        """Number of such events, by `surface: type of the error`."""
        with self._guard:
            return dict(self._gaps)

    def add_unstored(self) -> bool:
        """Add an event that the tally is to count too; return True for the first that waits."""
        with self._guard:
            self._unstored += 1
            return self._unstored == 1

    def take_unstored(self) -> int:
        """Return how many events wait to be counted by the tally, which then wait no longer."""
        with self._guard:
            count, self._unstored = self._unstored, 0
            return count


class Claims:
    """The observers that record calls of a runtime, one per call, by the runtime's own identity.
    Thread-safe.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._owners: dict[Hashable, object] = {}

    def take(self, key: Hashable, owner: object) -> bool:
        """Return True if `owner` is to record the call: the first that claims it."""
        with self._guard:
            return self._owners.setdefault(key, owner) is owner

    def release(self, key: Hashable, owner: object) -> None:
        """Forget a call that has ended; does nothing unless `owner` claimed it."""
        with self._guard:
            if self._owners.get(key) is owner:
                del self._owners[key]


class Backlog:
    """Bytes of payloads that wait to be stored. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._size = 0
        self._guard = threading.Lock()

    def add(self, size: int) -> None:
        """Add `size` bytes; a negative number removes them."""
        if size:
            with self._guard:
                self._size += size

    @property
    def full(self) -> bool:
        """True if no further payload should wait."""
        return self._size >= self._max


@dataclass(frozen=True)
class RecorderContext:
    """The dependencies of the recorder. Thread-safe."""

    store: Store
    gate: Gate
    redactor: PayloadRedactor
    retention: Retention
    prices: PriceTable | None = None
    """The user's own table of prices, for what model calls cost."""
    zone: tzinfo = UTC
    """The zone of times without an offset."""
    backlog: Backlog = field(default_factory=lambda: Backlog(_MAX_BACKLOG_BYTES))
    """Beyond its size payloads are left out and counted as a gap."""
    health: Health = field(default_factory=Health)
    claims: Claims = field(default_factory=Claims)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    payloads: PayloadPreparer = field(init=False)
    write_queue: WriteQueue = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "payloads", PayloadPreparer(self.redactor))
        object.__setattr__(self, "write_queue", WriteQueue(self.store))
        self.store.database.on_lost_at_exit(self.note_losses)

    def clear_caches(self) -> None:
        """Drop the texts and digests that are cached in memory; they are computed anew."""
        self.payloads.clear()
        clear_text_memos()
        if self.store.database.unwritable is None:
            # Among the units of runs, which read them.
            self.store.database.write(
                lambda tx: self.write_queue.bases.clear(), name="payloads.let_go", writes=RUNS
            )

    def close_subscriptions(self) -> None:
        """Commit what waits, give listeners two seconds to take it, and close the subscriptions.

        Called before the database is closed, which listeners read.
        """
        if not self.subscriptions.any_open:
            return
        database = self.store.database
        with suppress(TallystickError):
            database.flush()
            # Events are published after a future is done, in the order of submission: when this
            # unit is answered, those of every unit before it have been.
            database.submit(lambda tx: None, name="subscriptions.close", writes=RUNS).result()
        self.subscriptions.close(wait_seconds=_LISTENER_SECONDS)

    def close(self) -> None:
        """Stop the thread that prepares payloads, after those that wait are prepared. Call it after
        the database is closed. Raises RecorderError where something was never written.
        """
        self.payloads.close()
        lost = self.note_losses()
        if lost:
            raise RecorderError(
                f"{sum(lost.values())} things of {len(lost)} run{'s' if len(lost) > 1 else ''} "
                "could not be written before the tally was closed, and are lost. Where it can be "
                f"written again, `tally verify` names the loss: {', '.join(sorted(lost)[:3])}"
                f"{' and others' if len(lost) > 3 else ''}."
            )

    def count_gap(self, surface: str, error: BaseException) -> None:
        """Count an event of no run that could not be recorded; the tally keeps the number, so that
        `doctor` says it in every process.
        """
        self.health.count_gap(surface, error)
        if not self.health.add_unstored():
            return
        taken: list[int] = []

        def unit(tx: Connection) -> None:
            # A unit may be tried again.
            taken.append(self.health.take_unstored())
            settings_rows.add_unrecorded(tx, sum(taken))

        def note_end(answer: Future[None]) -> None:
            if answer.exception() is not None:
                self.health.take_unstored()

        # A hook does not wait, and only reports its own failure: the log has it in any case.
        try:
            answer = self.store.database.submit(unit, name="recorder.gap", writes=Writes.of(TALLY))
        except TallystickError:
            self.health.take_unstored()
        else:
            answer.add_done_callback(note_end)

    def note_losses(self) -> dict[str, int]:
        """Note what was never written for whoever opens the tally next; return its count by run."""
        lost = self.write_queue.losses()
        if lost and not self.store.liveness.note_losses(lost):
            get_logger("recorder").error("losses.not_noted", count=sum(lost.values()))
        return lost
