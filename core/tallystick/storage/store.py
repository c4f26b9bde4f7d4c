"""An opened store: the database of a tally with its clock, its ids and its location."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection

from tallystick.errors import InvalidInput, ReadOnlyTally, StorageError, UnwritableReason
from tallystick.logs import get_logger
from tallystick.ports import BlobStore, Clock, Ids
from tallystick.records import Actor
from tallystick.storage.engine import migrate
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.database_errors import was_not_opened
from tallystick.storage.engine.liveness import Liveness
from tallystick.storage.engine.location import Location
from tallystick.storage.engine.private_files import file_unwritable, unwritable_reason
from tallystick.storage.rows import journal

Migrating = Callable[[Database], object]
"""Brings a database to the schema of this release."""


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
        writers: int | None = None,
        prepare_threshold: int | None = None,
        blobs: BlobStore | None = None,
        blobs_from: int = 0,
        migrating: Migrating,
    ) -> Store:
        """Open the database and let `migrating` bring it to this release's schema. One that cannot
        be written is opened for reading. Bodies of `blobs_from` bytes and more are moved to
        `blobs`. Raises NewerTally, CorruptTally, BusyTally, ReadOnlyTally, and what `migrating`
        raises.
        """

        def open_database(unwritable: UnwritableReason | None) -> Database:
            database = Database(
                location.url,
                busy_timeout_ms=busy_timeout_ms,
                full_durability=full_durability,
                readers=readers,
                writers=_writers(location, writers),
                prepare_threshold=prepare_threshold,
                schema=location.schema,
                unwritable=unwritable,
            )
            database.attached.blobs, database.attached.at_least = blobs, blobs_from
            try:
                if not migrate.is_current(database):
                    migrating(database)
            except BaseException:
                database.close()
                raise
            return database

        # SQLite takes a file that it may not write for one that is only read, and says so at the
        # first statement that writes.
        reason = None if location.folder is None else file_unwritable(location.folder)
        try:
            database = open_database(reason)
        except StorageError as error:
            reason = None if reason is not None else _unwritable_reason(location, error)
            if reason is None:
                raise
            try:
                database = open_database(reason)
            except StorageError as unread:
                if not was_not_opened(unread):
                    raise
                raise ReadOnlyTally(
                    reason,
                    "The last changes of this tally are in its log, which is only read where it "
                    "can be written: open it once there, or open a copy of its folder.",
                ) from unread
        if reason is not None:
            get_logger("storage").warning("tally.read_only", reason=reason)
        return cls(location, database, clock, ids, Liveness(location.folder, database))


def note_migration(
    tx: Connection,
    actor: Actor,
    before: str,
    *,
    at: int,
    audit_id: str,
    backup: str | None = None,
) -> None:
    """Note in the tally's journal that its schema was changed, and the digest of the backup that
    was written before.
    """
    details = {"before": before, "after": migrate.HEAD, **({"backup": backup} if backup else {})}
    event = journal.Event(
        stream="tally",
        event="tally.migrate",
        actor=actor,
        at=at,
        audit_id=audit_id,
        details=details,
    )
    journal.append(tx, event)


def _unwritable_reason(location: Location, error: StorageError) -> UnwritableReason | None:
    """Return why a tally that could not be opened for writing may be opened for reading; None where
    the error says something else.
    """
    if location.folder is None:
        return error.reason if isinstance(error, ReadOnlyTally) else None
    if isinstance(error, ReadOnlyTally):
        return unwritable_reason(location.folder) or error.reason
    # SQLite makes files beside the database before it reads it, and says no more than that.
    return unwritable_reason(location.folder) if was_not_opened(error) else None


_WRITERS = 4
"""Connections that write to a PostgreSQL tally, where the settings say nothing else."""


def _writers(location: Location, asked: int | None) -> int:
    if location.url.get_backend_name() == "postgresql":
        return _WRITERS if asked is None else asked
    if asked not in (None, 1):
        raise InvalidInput(
            f"SQLite has one writer, and the setting `writers` asks for {asked}. Leave it out, or "
            f"open the tally on PostgreSQL."
        )
    return 1
