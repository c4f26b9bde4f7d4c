"""Migration: what an older tally lacks, a trial of it that is taken back, and the change itself
with a backup before it and an entry in the journal.

Opening a tally migrates it too, with a backup beside its folder: this is for those who want to see
it first, or to name the place of the backup.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from tallystick.errors import InvalidInput
from tallystick.ports import Clock, Ids
from tallystick.records import Actor, Backup, Migration, MigrationStep
from tallystick.settings import Settings
from tallystick.storage import Database, Location
from tallystick.storage.engine import migrate
from tallystick.storage.engine.blob_stores import open_blobs
from tallystick.storage.move.archives import Progress, silent
from tallystick.upkeep.backup import migrate_database, require_whole


class _TakenBack(Exception):
    """Ends a trial, so that its transaction is rolled back."""


def migrate_tally(
    where: str | os.PathLike[str],
    *,
    mode: Literal["plan", "dry_run", "apply"],
    backup: Path | None,
    without_backup: bool,
    schema: str | None,
    actor: Actor | None,
    clock: Clock,
    ids: Ids,
    progress: Progress = silent,
) -> Migration:
    """Say what migrating a tally changes, try it, or do it.

    A trial runs every migration and checks the result in one transaction that is rolled back:
    others wait so long with their writes. The change needs a `backup`, a new folder, unless
    `without_backup` refuses it. Raises InvalidInput, TallyNotFound, NewerTally, CorruptTally,
    BusyTally, StorageError.
    """
    if mode != "apply" and (backup is not None or without_backup):
        raise InvalidInput(
            "Nothing is changed without --apply, so that no backup is needed. Leave it out, or "
            "apply.",
            argument="backup",
        )
    if backup is not None and without_backup:
        raise InvalidInput("Name a folder for a backup or refuse one, not both.", argument="backup")
    location = Location.find(where, create=False, schema=schema)
    started = time.perf_counter()
    database = Database(location.url, schema=location.schema)
    where_objects = Settings.read(where).objects
    try:
        if where_objects is not None:
            database.attached.blobs = open_blobs(where_objects)
        with database.read() as connection:
            lacks = migrate.pending(connection)
            before = migrate.revision_of(connection) or migrate.HEAD
        steps = tuple(MigrationStep(schema_revision=each.number, text=each.text) for each in lacks)
        checked: tuple[str, ...] = ()
        written: Backup | None = None
        if lacks and mode == "dry_run":
            checked = _rehearse(database)
        elif lacks and mode == "apply":
            if backup is None and not without_backup:
                raise InvalidInput(
                    "Name a new folder for a backup, or say that you have one of your own: "
                    "--backup FOLDER, or --no-backup.",
                    argument="backup",
                )
            written, checked = migrate_database(
                database,
                actor=actor,
                surface="migrate",
                clock=clock,
                ids=ids,
                backup=lambda before: backup,
                progress=progress,
            )
    finally:
        database.close()
    return Migration(
        mode=mode,
        before=before,
        after=migrate.HEAD,
        steps=steps,
        checked=checked,
        backup=written,
        took_ms=round((time.perf_counter() - started) * 1_000),
    )


def grants(where: str, role: str) -> str:
    """Return what the owner of a PostgreSQL tally runs, so that another role may work with it.
    Raises InvalidInput.
    """
    location = Location.find(where, create=False)
    if location.is_embedded:
        raise InvalidInput("Only a tally in PostgreSQL has roles.", argument="grants")
    return migrate.grants(location.schema, role)


def _rehearse(database: Database) -> tuple[str, ...]:
    """Migrate, check, and take all of it back."""
    checked: tuple[str, ...] = ()
    try:
        with database.migrating() as connection:
            migrate.upgrade(connection)
            checked = tuple(require_whole(connection))
            raise _TakenBack
    except _TakenBack:
        return checked
