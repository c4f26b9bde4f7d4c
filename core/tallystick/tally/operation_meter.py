"""OperationMeter: how long operations took, counted in memory and stored once a minute."""

from __future__ import annotations

import threading
from collections import Counter

from tallystick.errors import StorageError
from tallystick.logs import get_logger
from tallystick.ports import Clock
from tallystick.records.times import MINUTE
from tallystick.storage import Connection
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import operation_minutes
from tallystick.storage.rows.operation_minutes import Minute, bucket_of

_KEPT_MINUTES = 30 * 24 * 60
_MEASURES = "measures"
_ROOM = "operations"


class OperationMeter:
    """Counts the operations of this process by minute and kind. Thread-safe.

    A process that is killed loses the minute under way: these are measures, and no history.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._guard = threading.Lock()
        self._counts: dict[tuple[int, str], tuple[list[int], Counter[int]]] = {}
        self._swept = 0

    def note(self, kind: str, micros: int) -> None:
        """Count an operation: its name, mode and outcome, apart by dots, and its duration."""
        key, bucket = (self._clock.now() // MINUTE, kind), bucket_of(micros)
        with self._guard:
            counted = self._counts.get(key)
            if counted is None:
                counted = self._counts[key] = ([0, 0], Counter())
            totals, buckets = counted
            totals[0] += 1
            totals[1] += micros
            buckets[bucket] += 1

    def unwritten(self) -> list[Minute]:
        """Return what is still in memory."""
        with self._guard:
            return [
                Minute(minute, kind, totals[0], totals[1], dict(buckets))
                for (minute, kind), (totals, buckets) in self._counts.items()
            ]

    def flush(self) -> None:
        """Store what was counted, and remove what is older than 30 days. What cannot be stored is
        counted on.
        """
        with self._guard:
            counts, self._counts = self._counts, {}
        now = self._clock.now() // MINUTE
        minutes = [
            Minute(minute, kind, totals[0], totals[1], buckets)
            for (minute, kind), (totals, buckets) in counts.items()
        ]
        is_due = now - self._swept >= 60
        if self._database.unwritable is not None or not (minutes or is_due):
            return

        def unit(tx: Connection) -> None:
            operation_minutes.add(tx, minutes)
            if is_due:
                operation_minutes.remove_before(tx, now - _KEPT_MINUTES)

        try:
            self._database.write(unit, name="measures", writes=Writes.of(_MEASURES))
        except StorageError as error:
            get_logger(_ROOM).warning("measures.waiting", error=type(error).__name__)
            with self._guard:
                for key, (totals, buckets) in counts.items():
                    ours, counted = self._counts.setdefault(key, ([0, 0], Counter()))
                    ours[0], ours[1] = ours[0] + totals[0], ours[1] + totals[1]
                    counted.update(buckets)
            return
        self._swept = now if is_due else self._swept
