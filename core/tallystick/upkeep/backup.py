"""Backup and restore: a whole tally as it is at one moment, in a folder whose manifest has the
digest of each file.

A backup of an SQLite tally is a copy of its file, and one of PostgreSQL an archive of its rows;
either is restored into either kind of database. It holds the text in the clear and the keys of its
digests: it is kept as the tally is kept. Nobody waits for it. What is derived (Chroma) is left out
and made anew.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tallystick.errors import (
    CorruptTally,
    InvalidInput,
    StateConflict,
    StorageError,
)
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.ports import Clock, Ids
from tallystick.records import Actor, Backup
from tallystick.records.times import moment_text
from tallystick.settings import folder_of
from tallystick.storage import Connection, Location, Store
from tallystick.storage.engine import migrate
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.private_files import (
    is_new_or_empty,
    make_private_folder,
    whole_folder,
)
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.index import chroma
from tallystick.storage.move import archives, restoring
from tallystick.storage.move.archives import DATABASE, Archive, Progress, silent
from tallystick.storage.rows import journal, settings_rows
from tallystick.storage.store import Migrating, note_migration
from tallystick.upkeep.doctor import whole
from tallystick.upkeep.retention import require_operator

_DERIVED = "Chroma, which is derived: it is made anew from the database"


def backup(context: MemoryContext, actor: Actor, folder: Path) -> Backup:
    """Write a backup to `folder`, which must be new or empty, while others read and write.

    The entry that says so in the journal is in the backup too. Raises Denied, InvalidInput,
    StorageError.
    """
    require_operator(context, actor)
    _require_new(folder)
    store = context.store
    store.database.flush()
    event = _event("tally.backup", actor, store.clock, store.ids, {})
    store.database.write_if_possible(
        lambda tx: journal.append(tx, event), name="backup", writes=Writes.of(TALLY)
    )
    return write_backup(store.database, folder, at=store.clock.now())


def write_backup(
    database: Database,
    folder: Path,
    *,
    at: int,
    progress: Progress = silent,
) -> Backup:
    """Write a backup of a database of any schema to `folder`, which must be new or empty. It is
    written beside it and moved there whole; where it fails, what was written of it is removed, and
    what was left of one that was cut off goes with the next one. Raises InvalidInput, StorageError.
    """
    _require_new(folder)
    started = time.perf_counter()
    missing: list[str] = []
    try:
        with whole_folder(folder) as unfinished:
            facts = restoring.back_up(database, unfinished, progress, missing=missing)
            facts |= {"at": at, "version": version("tallystick")}
            manifest = archives.write_manifest(unfinished, "backup", facts)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}.") from error
    checked = ["the digest of every file is in the manifest"]
    if DATABASE in manifest["files"]:
        checked.append("the copy of the database is whole")
    if missing:
        checked.append(
            f"{len(missing)} bodies outside of the database are not there, such as {missing[0]}: "
            "they were erased meanwhile, or lost, and are left out"
        )
    return _backup("backup", manifest, started, checked)


def restore(
    folder: Path,
    where: str | os.PathLike[str],
    *,
    schema: str | None,
    actor: Actor | None,
    clock: Clock,
    ids: Ids,
    progress: Progress = silent,
) -> Backup:
    """Restore a backup into a new folder, or into a schema of PostgreSQL that has no tables,
    whichever of the two it was taken from.

    Digests are compared before anything is written; rows, chains and texts before the tally is
    there, and only then does it take its place: where something does not match, nothing is left of
    it, and what else is in the schema stays. A backup of an older schema is migrated. The restored
    tally has no Chroma index yet, and makes its own. Raises InvalidInput, StateConflict,
    NewerTally, UnreleasedTally, CorruptTally, StorageError.
    """
    started = time.perf_counter()
    archive = Archive(folder, "backup")
    archive.check([DATABASE, *archive.rows])
    target = os.fspath(where)

    migrating = partial(migrate_database, actor=None, surface="restore", clock=clock, ids=ids)

    def finish(location: Location) -> None:
        store = Store.open(location, clock=clock, ids=ids, migrating=migrating)
        with closing(store.database):
            with store.database.read() as connection:
                checked.extend(require_whole(connection))
                by = acting(connection, actor, "restore")
            details = {"digest": archive.manifest["digest"]}
            event = _event("tally.restore", by, clock, ids, details)

            def unit(tx: Connection) -> None:
                chroma.forget(tx)
                journal.append(tx, event)

            store.database.write(unit, name="restore")

    checked = ["digests and rows match"]
    try:
        if folder_of(target) is None:
            location = Location.find(target, schema=schema)
            with (
                _as_rows(archive, clock, ids, migrating) as rows,
                restoring.schema_beside(location.url, location.schema) as beside,
            ):
                restoring.fill(location.url, beside, rows, progress)
                finish(replace(location, schema=beside))
        else:
            place = _require_place(target)
            _require_fit(archive)
            with whole_folder(place) as unfinished:
                location = Location.find(unfinished)
                if DATABASE in archive.manifest["files"]:
                    archive.copy_out(DATABASE, unfinished / DATABASE)
                else:
                    restoring.fill(location.url, location.schema, archive, progress)
                finish(location)
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}.") from error
    except StateConflict as error:
        if not _is_restored(target, schema, archive.manifest["digest"]):
            raise
        # As after a restore that was killed once it had completed.
        raise StateConflict(
            target,
            state="in use",
            reason="this backup is restored there already, and what is there is whole",
            hint="Open it.",
            what="The place",
        ) from error
    return _backup("restore", archive.manifest, started, checked)


@contextmanager
def _as_rows(archive: Archive, clock: Clock, ids: Ids, migrating: Migrating) -> Iterator[Archive]:
    """Yield the backup as rows: the copy of an SQLite file is brought to the schema of today and
    written as an archive for it.
    """
    if DATABASE not in archive.manifest["files"]:
        yield archive
        return
    with tempfile.TemporaryDirectory() as temporary:
        place, folder = Path(temporary) / "tally", Path(temporary) / "rows"
        make_private_folder(place)
        archive.copy_out(DATABASE, place / DATABASE)
        store = Store.open(Location.find(place), clock=clock, ids=ids, migrating=migrating)
        with closing(store.database), store.database.read() as connection:
            make_private_folder(folder)
            facts = restoring.write_whole(connection, folder, silent, missing=[])
        facts |= {name: archive.manifest[name] for name in ("at", "version")}
        archives.write_manifest(folder, "backup", facts)
        yield Archive(folder, "backup")


class Migrated(NamedTuple):
    """The backup before a migration, and what was found to hold after it."""

    backup: Backup | None
    checked: tuple[str, ...]


def migrate_database(
    database: Database,
    *,
    actor: Actor | None,
    surface: str,
    clock: Clock,
    ids: Ids,
    create: bool = True,
    backup: Callable[[str], Path | None] | None = None,
    progress: Progress = silent,
) -> Migrated:
    """Bring a database to the schema of this release, after a backup in the folder that `backup`
    names for a tally of an earlier one. Its journal says so, and where something does not hold
    afterwards all is as it was. Raises what `migrate` and `write_backup` raise, and CorruptTally.
    """
    written: list[Backup] = []
    checked: list[str] = []

    def preparing(before: str) -> None:
        if backup is not None and (folder := backup(before)) is not None:
            written.append(write_backup(database, folder, at=clock.now(), progress=progress))

    def noting(tx: Connection, before: str) -> None:
        digest = written[0].digest if written else None
        by = acting(tx, actor, surface)
        note_migration(tx, by, before, at=clock.now(), audit_id=ids.new(), backup=digest)
        # Before the commit: what does not hold afterwards is as it was.
        checked.extend(require_whole(tx))

    migrate.migrate(
        database, noting, create=create, preparing=None if backup is None else preparing
    )
    return Migrated(written[0] if written else None, tuple(checked))


def backup_beside(database: Database, folder: Path | None, before: str) -> Path | None:
    """Return the new folder beside an embedded tally for a backup before its migration; None where
    it has nothing to lose, or is no folder. Raises StorageError where it has no room there.
    """
    if folder is None or restoring.is_empty(database):
        return None
    place = folder.with_name(f"{folder.name}.schema-{before}")
    number = 1
    while not is_new_or_empty(place):
        number += 1
        place = folder.with_name(f"{folder.name}.schema-{before}-{number}")
    needed = sum(file.stat().st_size for file in folder.glob("tally.db*"))
    free = shutil.disk_usage(folder.parent).free
    if free < needed or not os.access(folder.parent, os.W_OK):
        raise StorageError(
            f"This tally has schema {before} and is backed up before it is migrated: {place} needs "
            f"{needed:,} bytes, and {free:,} are free in a folder that this user must be able to "
            "write. Make room, name another place by `tally migrate --apply --backup FOLDER`, or "
            "open it with `backup_before_migration` off."
        )
    get_logger("upkeep").warning("tally.backup_before_migration", folder=place.name)
    return place


def _is_restored(target: str, schema: str | None, digest: str) -> bool:
    """Return True if a place has the tally of the backup with this digest, whole."""
    try:
        location = Location.find(target, create=False, schema=schema)
        place = Database(location.url, schema=location.schema)
        with closing(place), place.read() as connection:
            require_whole(connection)
            return any(
                entry.event == "tally.restore" and entry.details.get("digest") == digest
                for entry in journal.entries(connection, "tally")
            )
    except (StorageError, InvalidInput):
        return False


def _require_fit(archive: Archive) -> None:
    """Refuse rows of an older schema, which are migrated where they are from: SQLite packs values
    in a way that only the schema of today declares.
    """
    if DATABASE not in archive.manifest["files"] and archive.schema != migrate.HEAD:
        raise InvalidInput(
            f"This backup of PostgreSQL has schema {archive.schema}, which is migrated there "
            "first. Restore it into postgresql://…, and back that up.",
            argument="where",
        )


def _require_place(target: str) -> Path:
    place = Path(target).expanduser().absolute()
    if not is_new_or_empty(place):
        raise StateConflict(
            str(place),
            state="in use",
            reason="something is there",
            hint="Restore into a new folder.",
            what="The place",
        )
    return place


def require_whole(connection: Connection) -> list[str]:
    """Return what was found to hold of the file, the chains and the texts of versions. Raises
    CorruptTally.
    """
    findings = whole(connection)
    problems = [finding for finding in findings if finding.status == "problem"]
    if problems:
        raise CorruptTally(f"{problems[0].check}: {problems[0].text}.")
    return [f"{finding.check}: {finding.text}" for finding in findings]


def acting(connection: Connection, actor: Actor | None, surface: str) -> Actor:
    """Return who is named in the journal of work on a whole tally: the one given, else its owner,
    else the release itself.
    """
    if actor is not None:
        return actor
    owner = settings_rows.get_setting(connection, "owner")
    if owner is not None:
        return Actor.loads(owner)
    return Actor(user="tallystick", surface=surface)


def _event(
    name: str, actor: Actor, clock: Clock, ids: Ids, details: dict[str, Any]
) -> journal.Event:
    return journal.Event(
        stream="tally",
        event=name,
        actor=actor,
        at=clock.now(),
        audit_id=ids.new(),
        details=details,
    )


def _require_new(folder: Path) -> None:
    if is_new_or_empty(folder):
        return
    try:
        archive = Archive(folder, "backup")
        archive.check([DATABASE, *archive.rows])
    except (InvalidInput, StorageError):
        raise InvalidInput(f"{folder} is there already. Back up into a new folder.") from None
    # As after a backup that was killed once it had completed.
    at = moment_text(archive.manifest["at"], "%Y-%m-%d %H:%M:%S UTC")
    raise InvalidInput(
        f"{folder} is there already: a backup of {at} that is complete and whole, with the digest "
        f"{archive.manifest['digest']}. Keep it, or back up into a new folder."
    )


def _backup(
    mode: str, manifest: Mapping[str, Any], started: float, checked: Sequence[str]
) -> Backup:
    rows: Mapping[str, int] = manifest["rows"]
    files = sum(entry["size"] for entry in manifest["files"].values())
    return Backup.load(
        {
            "mode": mode,
            "digest": manifest["digest"],
            "version": manifest["version"],
            "schema_revision": manifest["schema"],
            "database": manifest["database"],
            "at": manifest["at"],
            "tables": len(rows),
            "rows": sum(rows.values()),
            "chains": rows.get("streams", 0),
            "bytes": files + sum(manifest["blobs"].values()),
            "took_ms": round((time.perf_counter() - started) * 1_000),
            "checked": tuple(checked),
            "left_out": (_DERIVED,),
        }
    )
