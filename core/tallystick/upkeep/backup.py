"""Backup and restore: a whole tally as it is at one moment, in a folder of files that a manifest
names with their digests.

A backup holds the text in the clear and the keys of its digests: it is kept as the tally is kept.
Nobody waits for it. What is derived (Chroma) is left out and made anew. It goes back into the same
kind of database; from one kind to the other leads an export.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallystick.errors import (
    CorruptTally,
    InvalidInput,
    NewerTally,
    StateConflict,
    StorageError,
)
from tallystick.memory import MemoryContext
from tallystick.ports import Clock, Ids
from tallystick.records import Actor, Backup, canonical_json, strict_json, text_digest
from tallystick.storage import (
    Connection,
    Location,
    Store,
    chroma_layout,
    journal,
    objects,
    settings_rows,
)
from tallystick.storage import snapshots as files
from tallystick.storage.database import Database
from tallystick.storage.migrate import HEAD
from tallystick.storage.private_files import (
    is_new_or_empty,
    open_private,
    open_regular,
    whole_folder,
)
from tallystick.storage.writes import TALLY, Writes
from tallystick.upkeep.doctor import whole
from tallystick.upkeep.retention import require_operator

FORMAT = 1
"""Raised when the shape of a backup changes; later releases read earlier formats."""
Progress = Callable[[int, int], None]
_MANIFEST = "manifest.json"
_SHA256 = re.compile(r"[0-9a-f]{64}")
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
    event = _event("tally.backup", actor, store.clock, store.ids, {"format": FORMAT})
    store.database.write_if_possible(
        lambda tx: journal.append(tx, event), name="backup", writes=Writes.of(TALLY)
    )
    return write_backup(store.database, folder, at=store.clock.now())


def write_backup(
    database: Database,
    folder: Path,
    *,
    at: int,
    progress: Progress = lambda done, total: None,
) -> Backup:
    """Write a backup of a database of any schema to `folder`, which must be new or empty. It is
    written beside it and moved there whole; where it fails, what was written of it is removed, and
    what was left of one that was cut off goes with the next one. Raises InvalidInput, StorageError.
    """
    _require_new(folder)
    started = time.perf_counter()
    try:
        with whole_folder(folder) as partial:
            manifest, found = _write(database, partial, at, progress)
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error.strerror}.") from error
    checked = ["the digest of every file is in the manifest", *found]
    return _backup("backup", manifest, started, checked)


def _write(
    database: Database, folder: Path, at: int, progress: Progress
) -> tuple[dict[str, Any], Sequence[str]]:
    """Write the files of a backup; return its manifest and what was found to hold of the copy."""
    snapshot = files.write(database, folder, progress)
    members = {}
    for file in sorted(folder.iterdir()):
        sha256, size = files.file_digest(file)
        members[file.name] = {"sha256": sha256, "size": size}
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": version("tallystick"),
        "at": at,
        "chains": len(files.heads_in(folder)),
        "files": members,
        **{name: getattr(snapshot, name) for name in _SNAPSHOT},
    }
    manifest["digest"] = text_digest("backup", canonical_json(manifest))
    with open_private(folder / _MANIFEST) as stream:
        stream.write(canonical_json(manifest) + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    return manifest, snapshot.checked


def restore(
    folder: Path,
    where: str | os.PathLike[str],
    *,
    schema: str,
    actor: Actor | None,
    clock: Clock,
    ids: Ids,
    progress: Progress = lambda done, total: None,
) -> Backup:
    """Restore a backup into a new folder, or into a schema of PostgreSQL that has no tables.

    Digests are compared before anything is written; rows, chains and texts before the tally is
    there, and only then does it take its place: where something does not match, nothing is left of
    it, and what else is in the schema stays. A backup of an older schema is
    migrated. The restored tally has no Chroma index yet, and makes its own. Raises InvalidInput,
    StateConflict, NewerTally, CorruptTally, StorageError.
    """
    started = time.perf_counter()
    manifest = _read_manifest(folder)
    _check_files(folder, manifest)
    heads = files.heads_in(folder)

    def check(rows: Mapping[str, int], found: Sequence[files.Head]) -> None:
        if dict(rows) != manifest["counts"]:
            raise CorruptTally("The rows that were restored are not those of the backup.")
        if list(found) != heads:
            raise CorruptTally("The chains that were restored are not those of the backup.")

    target = os.fspath(where)
    is_url = "://" in target
    if is_url != files.is_of_a_server(manifest["database"]):
        raise InvalidInput(
            f"This is a backup of a tally on {manifest['database']}. Restore it into "
            f"{'a folder' if is_url else 'postgresql://…'}; `tally export` and `tally import` lead "
            "from one to the other.",
            argument="where",
        )
    try:
        if is_url:
            location = Location.find(target)
            snapshot = files.Snapshot(**{name: manifest[name] for name in _SNAPSHOT})
            beside = files.copy_in(location.url, schema, folder, snapshot, check, progress)
            try:
                checked = _finish(folder, location, beside, actor, clock, ids, manifest["digest"])
                files.move_in(location.url, beside, schema)
            except BaseException:
                files.remove(location.url, beside)
                raise
        else:
            checked = _restore_folder(
                folder, Path(target), check, actor, clock, ids, manifest["digest"]
            )
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error.strerror}.") from error
    return _backup("restore", manifest, started, ["digests, rows and chains match", *checked])


_SNAPSHOT = ("database", "schema", "counts", "columns", "sequences", "tally_id")


def _restore_folder(
    folder: Path,
    target: Path,
    check: Callable[[Mapping[str, int], Sequence[files.Head]], None],
    actor: Actor | None,
    clock: Clock,
    ids: Ids,
    digest: str,
) -> list[str]:
    """Restore beside the place, and move it there when all of it was found to hold."""
    target = target.expanduser().absolute()
    if not is_new_or_empty(target):
        raise StateConflict(
            str(target),
            state="in use",
            reason="something is there",
            hint="Restore into a new folder.",
            what="The place",
        )
    with whole_folder(target) as partial:
        files.copy_back(folder, partial, check)
        return _finish(folder, Location.find(partial), "", actor, clock, ids, digest)


def _finish(
    folder: Path,
    location: Location,
    schema: str,
    actor: Actor | None,
    clock: Clock,
    ids: Ids,
    digest: str,
) -> list[str]:
    """Bring what was restored to this release's schema, check it, and note in its journal where it
    came from.
    """
    store = Store.open(location, clock=clock, ids=ids, schema=schema or "tallystick")
    try:
        with store.database.read() as connection:
            checked = require_whole(connection)
            by = acting(connection, actor, "restore")
        event = _event("tally.restore", by, clock, ids, {"format": FORMAT, "digest": digest})

        def unit(tx: Connection) -> None:
            objects.bring_back(tx, partial(files.object_body, folder))
            chroma_layout.forget(tx)
            journal.append(tx, event)

        store.database.write(unit, name="restore")
    finally:
        store.database.close()
    return checked


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
    if not is_new_or_empty(folder):
        raise InvalidInput(f"{folder} is there already. Back up into a new folder.")


def _read_manifest(folder: Path) -> dict[str, Any]:
    file = folder / _MANIFEST
    try:
        with open_regular(folder, _MANIFEST) as stream:
            manifest = strict_json(stream.read())
    except OSError as error:
        raise InvalidInput(f"{folder} is no backup: its {_MANIFEST} cannot be read.") from error
    except ValueError as error:
        raise CorruptTally(f"{file} is damaged.") from error
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise InvalidInput(f"{folder} is no backup: its {_MANIFEST} says nothing of one.")
    schema = manifest.get("schema")
    if not isinstance(schema, str) or "counts" not in manifest:
        raise InvalidInput(f"{folder} is no backup. An export is read by `tally import`.")
    if manifest["format"] > FORMAT or schema > HEAD:
        raise NewerTally(schema, supported=HEAD)
    unsigned = {key: value for key, value in manifest.items() if key != "digest"}
    try:
        matches = manifest.get("digest") == text_digest("backup", canonical_json(unsigned))
    except InvalidInput as error:
        raise CorruptTally(f"{file} is damaged.") from error
    if not matches:
        raise CorruptTally(f"{file} does not match its digest.")
    return manifest


def _check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Compare every file with its digest before anything is written. Raises CorruptTally."""
    for name, entry in manifest["files"].items():
        if not files.is_member(name) or not _SHA256.fullmatch(entry["sha256"]):
            raise CorruptTally(f"The backup names {name!a}, which no release writes.")
        try:
            open_regular(folder, name).close()
            found = files.file_digest(folder / name)
        except OSError as error:
            raise CorruptTally(f"The backup lacks {name}, or it is no file of its own.") from error
        if found != (entry["sha256"], entry["size"]):
            raise CorruptTally(
                f"{name} of the backup does not match its digest. Nothing was restored."
            )
    needed = {files.HEADS}
    needed |= {f"{table}.copy.zst" for table in manifest["columns"]} or {files.DATABASE}
    if not needed <= set(manifest["files"]):
        raise CorruptTally("The manifest of the backup does not name all of its files.")


def _backup(
    mode: str, manifest: Mapping[str, Any], started: float, checked: Sequence[str]
) -> Backup:
    return Backup.load(
        {
            "mode": mode,
            "digest": manifest["digest"],
            "version": manifest["version"],
            "schema_revision": manifest["schema"],
            "database": manifest["database"],
            "at": manifest["at"],
            "tables": len(manifest["counts"]),
            "rows": sum(manifest["counts"].values()),
            "chains": manifest["chains"],
            "bytes": sum(entry["size"] for entry in manifest["files"].values()),
            "took_ms": round((time.perf_counter() - started) * 1_000),
            "checked": tuple(checked),
            "left_out": (_DERIVED,),
        }
    )
