"""An opened store: the database of a tally with its clock, its ids and its location."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.ports import Clock, Ids
from tallystick.storage.database import Database
from tallystick.storage.liveness import Liveness
from tallystick.storage.location import Location
from tallystick.storage.migrate import migrate

__all__ = ["Store"]


@dataclass(frozen=True)
class Store:
    """The database of a tally, its location and the ports that writes need. Thread-safe."""

    location: Location
    database: Database
    clock: Clock
    ids: Ids
    liveness: Liveness

    @classmethod
    def open(
        cls,
        location: Location,
        *,
        clock: Clock,
        ids: Ids,
        busy_timeout_ms: int = 10_000,
        full_durability: bool = False,
        readers: int = 4,
        schema: str = "tallystick",
    ) -> Store:
        """Open the database and bring it to this release's schema. Raises NewerTally, CorruptTally,
        BusyTally.
        """
        database = Database(
            location.url,
            busy_timeout_ms=busy_timeout_ms,
            full_durability=full_durability,
            readers=readers,
            schema=schema,
        )
        try:
            migrate(database)
        except BaseException:
            database.close()
            raise
        return cls(location, database, clock, ids, Liveness(location.folder, database))
