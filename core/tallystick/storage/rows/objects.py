"""Objects: large bodies of parts in a folder or in object storage, outside of the database.

A body is committed to the database like any other, and moved later: it is put, then a short
transaction writes a reference in its place. So nobody waits for the network while writing, an
object storage that is away costs nothing but space, and no object is put inside a write
transaction. The reference has the digest of the body: what is read is checked. A put whose
reference was never committed leaves an object that nothing names; `sweep` removes it.
"""

# Names
# -----
# An object has a name that is drawn by lot and never given twice, below one of the tally's own
# (`objects.space`): two tallies in one place never touch what the other put, and one that was
# deleted cannot be confused with a later one. A restored or imported tally has its bodies
# in the database.
#
# What is deleted
# ---------------
# The transaction that removes a part notes the name of its object in a setting
# (`objects.doomed:…`). After the commit the object is deleted, then the note: cut off in between,
# it is done again.
#
# What is lost
# ------------
# An object that somebody deleted holds no text any more: it stands in the way of no erasure and no
# backup. Whoever reads the part is told, `doctor` names it, a proof says that it was not searched,
# and a backup stores that it was lost (`LOST`).

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, and_, delete, func, select, tuple_, update

from tallystick.errors import CorruptTally, StorageError
from tallystick.ports import BlobStore
from tallystick.storage.engine import tables
from tallystick.storage.engine.blob_stores import ATTACHED, Attached
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.dialects import unpack
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import settings_rows

MARK = b"\x00tallystick\x00"
"""With which a stored form begins that is not the body itself."""
SMALLEST = 1_024
"""Bytes below which no body is moved."""
_REFERENCE, _BODY, _LOST = MARK + b">", MARK + b"=", MARK + b"!"
_FIELDS = re.compile(rb"([0-9a-f]{12}/[0-9a-f]{32}) ([0-9a-f]{64}) ([0-9]{1,18})")
_LONGEST = 200
"""Bytes of a stored reference at most, packed."""
_SPACE, _DOOMED = "objects.space", "objects.doomed:"
OWN_SETTINGS = "objects.%"
"""The names of settings that say where the objects of one tally are."""
_DAY = 24 * 3_600.0
_LOOKED_AT = 2_000
"""Parts whose size is looked at in one go."""

_p, _s = tables.parts, tables.settings
_WRITES = Writes.of("objects")
"""What moves take part in: nobody else changes the body of a part, and who removes one is alone.
"""


class Reference(NamedTuple):
    """What the database keeps of a body that was moved."""

    name: str
    sha256: str
    size: int


class Search(NamedTuple):
    """What a search of bodies found."""

    parts: list[tuple[int, str]]
    """The parts, as scope and key, whose bodies contain what was looked for."""
    missing: list[str]
    """Objects that are not there, and hold nothing any more."""


class Health(NamedTuple):
    """What was found of the objects that the database names."""

    named: int
    missing: tuple[str, ...]
    altered: tuple[str, ...]
    orphans: int
    """Objects that nothing names, for a day or longer."""
    waiting: int
    """Objects that were erased here and are still there."""


# Bodies as they are stored


def stored_form(body: bytes) -> bytes:
    """Return the form in which a body is stored: only one that could be taken for a reference has
    another.
    """
    return _BODY + body if body.startswith(MARK) else body


def is_reference(stored: bytes) -> bool:
    """Return True for a body that was moved."""
    return stored.startswith(_REFERENCE)


def note_large(tx: Connection, scope_id: int, key: str, body: bytes) -> None:
    """Note that a body that is written may be one to move."""
    attached = attached_to(tx)
    if attached.blobs is not None and len(body) >= attached.at_least:
        with attached.guard:
            attached.large.add((scope_id, key))


def resolve_body(connection: Connection, stored: bytes | memoryview) -> bytes:
    """Return the body of a stored form; one that was moved is read from where it is. Raises
    CorruptTally, StorageError.
    """
    stored = bytes(stored)
    if not stored.startswith(MARK):
        return stored
    if stored.startswith(_BODY):
        return stored[len(_BODY) :]
    if stored.startswith(_LOST):
        raise CorruptTally(
            "This part was lost: its object was missing when the backup was written that this "
            "tally was restored from."
        )
    return read(_blobs(connection), _reference(stored))


def read(blobs: BlobStore, reference: Reference) -> bytes:
    """Return the body of a reference. Raises CorruptTally where it is missing or was altered, and
    StorageError where the object storage is away.
    """
    body = blobs.get(reference.name)
    if body is None:
        raise CorruptTally(
            f"The object {reference.name} is missing from {blobs.place}. Bring it back from a "
            "copy of the object storage; `tally doctor` lists all that are missing."
        )
    if hashlib.sha256(body).hexdigest() != reference.sha256:
        raise CorruptTally(
            f"The object {reference.name} in {blobs.place} is not what was put there. Bring it "
            "back from a copy of the object storage."
        )
    return body


def self_contained(
    attached: Attached, stored: bytes | memoryview, *, missing: list[str] | None
) -> bytes:
    """Return the stored form of a body that needs no object. Where its object is not there, it is
    stored as lost, and named in `missing`; where that is None, it raises CorruptTally.
    """
    stored = bytes(stored)
    if not is_reference(stored):
        return stored
    reference, blobs = _reference(stored), attached.require_blobs()
    if missing is not None and blobs.get(reference.name) is None:
        missing.append(reference.name)
        return _LOST + stored[len(_REFERENCE) :]
    return stored_form(read(blobs, reference))


def _reference(stored: bytes) -> Reference:
    fields = _FIELDS.fullmatch(stored, len(_REFERENCE))
    if fields is None:
        raise CorruptTally("A part names its object in a form that no release writes.")
    name, sha256, size = (value.decode() for value in fields.groups())
    return Reference(name, sha256, int(size))


def attached_to(connection: Connection) -> Attached:
    """Return what is attached to the database of a connection."""
    attached: Attached = connection.get_execution_options().get(ATTACHED, Attached())
    return attached


def _blobs(connection: Connection) -> BlobStore:
    return attached_to(connection).require_blobs()


# Moving


def move(database: Database, *, everything: bool = False) -> int:
    """Move large bodies out of the database: those that this process wrote lately, and some or
    `everything` of what was there before; return how many. Raises StorageError where the object
    storage is away.
    """
    attached = database.attached
    if attached.blobs is None or database.unwritable is not None:
        return 0
    noted = attached.take_large()
    while True:
        page, attached.looked_at = _large_after(database, attached.looked_at)
        noted += page
        if not everything or attached.looked_at is None:
            break
    moved = 0
    for done, (scope_id, key) in enumerate(noted):
        try:
            moved += _move_one(database, attached.blobs, scope_id, key)
        except StorageError:
            with attached.guard:
                attached.large.update(noted[done:])
            raise
    return moved


def _large_after(
    database: Database, after: tuple[int, str] | None
) -> tuple[list[tuple[int, str]], tuple[int, str] | None]:
    """Return the large bodies among the parts behind one, and the last part that was looked at;
    None at the end, where it begins anew: another process may have written one.
    """
    with database.read() as connection:
        is_large = func.length(unpack(connection, _p.c.body)) >= database.attached.at_least
        query = select(_p.c.scope_id, _p.c.key, is_large.label("is_large"))
        if after is not None:
            query = query.where(tuple_(_p.c.scope_id, _p.c.key) > tuple_(*after))
        query = query.order_by(_p.c.scope_id, _p.c.key).limit(_LOOKED_AT)
        rows = connection.execute(query).all()
    last = (rows[-1].scope_id, rows[-1].key) if len(rows) == _LOOKED_AT else None
    return [(row.scope_id, row.key) for row in rows if row.is_large], last


def _move_one(database: Database, blobs: BlobStore, scope_id: int, key: str) -> bool:
    here = and_(_p.c.scope_id == scope_id, _p.c.key == key)
    with database.read() as connection:
        stored = connection.execute(select(_p.c.body).where(here)).scalar()
        space = settings_rows.get_setting(connection, _SPACE)
        if stored is None or is_reference(bytes(stored)):
            return False
        body = resolve_body(connection, stored)
    if space is None:
        space = database.write(_draw_space, name="objects.space", writes=_WRITES)
    name = f"{space}/{uuid.uuid4().hex}"
    blobs.put(name, body)
    digest = hashlib.sha256(body).hexdigest()
    reference = _REFERENCE + f"{name} {digest} {len(body)}".encode()

    def unit(tx: Connection) -> bool:
        now = tx.execute(select(_p.c.body).where(here)).scalar()
        if now is None or is_reference(bytes(now)):
            return False
        tx.execute(update(_p).where(here).values(body=reference))
        return True

    if not database.write(unit, name="objects.move", writes=_WRITES):
        blobs.delete(name)
        return False
    return True


def _draw_space(tx: Connection) -> str:
    space = settings_rows.get_setting(tx, _SPACE)
    if space is None:
        space = uuid.uuid4().hex[:12]
        settings_rows.set_setting(tx, _SPACE, space)
    return space


# Removing


def doom(tx: Connection, scope_id: int, keys: Iterable[str]) -> None:
    """Note the objects of parts that this transaction removes: `remove_doomed` deletes them."""
    moved = [_p.c.scope_id == scope_id, _p.c.key.in_(list(keys)), *_short()]
    for (stored,) in tx.execute(select(_p.c.body).where(*moved)).all():
        if is_reference(bytes(stored)):
            settings_rows.set_setting(tx, _DOOMED + _reference(bytes(stored)).name, "1")


def remove_doomed(database: Database) -> int:
    """Delete the objects of parts that were removed; return how many there were. Raises
    StorageError: then they wait.
    """
    with database.read() as connection:
        names = _list_doomed(connection)
        if not names:
            return 0
        blobs = _blobs(connection)
    for name in names:
        blobs.delete(name)
        database.write(partial(_forget_doomed, name), name="objects.removed", writes=_WRITES)
    return len(names)


def _forget_doomed(name: str, tx: Connection) -> None:
    tx.execute(delete(_s).where(_s.c["name"] == _DOOMED + name))


def sweep(database: Database, *, older_than: float = _DAY) -> int:
    """Delete what was removed here, and what a put without a commit left behind, if it is older
    than some seconds; return how many. Raises StorageError.
    """
    removed = remove_doomed(database)
    blobs = database.attached.blobs
    if blobs is None:
        return removed
    for name in _orphans(database, blobs, older_than):
        blobs.delete(name)
        removed += 1
    return removed


def _orphans(database: Database, blobs: BlobStore, older_than: float) -> list[str]:
    with database.read() as connection:
        space = settings_rows.get_setting(connection, _SPACE)
    if space is None:
        return []
    # Listed before the references are read: what is put meanwhile is not in the list.
    names = set(blobs.names(f"{space}/", older_than=older_than))
    with database.read() as connection:
        return sorted(names - {one.name for one in list_references(connection)})


def _list_doomed(connection: Connection) -> list[str]:
    query = select(_s.c["name"]).where(_s.c["name"].like(_DOOMED + "%")).order_by(_s.c["name"])
    return [name.removeprefix(_DOOMED) for name in connection.execute(query).scalars()]


def bring_back(tx: Connection, attached: Attached, missing: list[str]) -> None:
    """Write the bodies of moved parts into a copy of a database, and forget where they were: a
    restored tally never touches the objects of another. Those that are not there are stored as
    lost, and named in `missing`. Raises CorruptTally.
    """
    for row in list(_list_moved(tx, None)):
        here = and_(_p.c.scope_id == row.scope_id, _p.c.key == row.key)
        body = self_contained(attached, row.body, missing=missing)
        tx.execute(update(_p).where(here).values(body=body))
    tx.execute(delete(_s).where(_s.c["name"].like(OWN_SETTINGS)))


# Looking


def _short() -> Sequence[Any]:
    return (func.length(_p.c.body) <= _LONGEST,)


def list_references(
    connection: Connection, *, within: Sequence[int] | None = None
) -> Iterator[Reference]:
    """Yield the references of all parts, or of those of some scopes."""
    for row in _list_moved(connection, within):
        yield _reference(bytes(row.body))


def _list_moved(connection: Connection, within: Sequence[int] | None) -> Iterator[Any]:
    if settings_rows.get_setting(connection, _SPACE) is None:
        return  # nothing was ever moved
    query = select(_p.c.scope_id, _p.c.key, _p.c.body).where(*_short())
    if within is not None:
        query = query.where(_p.c.scope_id.in_(list(within)))
    for row in connection.execute(query):
        if is_reference(bytes(row.body)):
            yield row


def objects_with(
    connection: Connection, needles: Sequence[bytes], *, within: Sequence[int] | None = None
) -> Search:
    """Search the bodies that were moved for `needles`, also those that somebody altered. Raises
    StorageError.
    """
    found: list[tuple[int, str]] = []
    missing: list[str] = []
    for row in _list_moved(connection, within):
        name = _reference(bytes(row.body)).name
        body = _blobs(connection).get(name)
        if body is None:
            missing.append(name)
        elif any(needle in body for needle in needles):
            found.append((row.scope_id, row.key))
    return Search(found, missing)


def check(database: Database) -> Health | None:
    """Read every object that the database names; None where it names none and none are configured.
    Raises StorageError.
    """
    with database.read() as connection:
        named = list(list_references(connection))
        waiting = len(_list_doomed(connection))
        attached = database.attached.blobs
        if not named and not waiting and attached is None:
            return None
        blobs = _blobs(connection)
    missing, altered = [], []
    for reference in named:
        body = blobs.get(reference.name)
        if body is None:
            missing.append(reference.name)
        elif hashlib.sha256(body).hexdigest() != reference.sha256:
            altered.append(reference.name)
    orphans = len(_orphans(database, blobs, _DAY))
    return Health(len(named), tuple(missing), tuple(altered), orphans, waiting)
