"""An opened store: the database of a tally with its clock, its ids and its place."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.ports import Clock, Ids
from tallystick.storage.database import Database
from tallystick.storage.migrate import migrate
from tallystick.storage.place import Place
from tallystick.storage.presence import Presence

__all__ = ["Store"]


@dataclass(frozen=True)
class Store:
    """What every room above needs of storage. Thread-safe."""

    place: Place
    database: Database
    clock: Clock
    ids: Ids
    presence: Presence

    @classmethod
    def open(
        cls,
        place: Place,
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
            place.url,
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
        return cls(place, database, clock, ids, Presence(place.folder, database))
