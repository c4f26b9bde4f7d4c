"""The location of a tally: a folder on a local disk, or a PostgreSQL database."""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from urllib.parse import unquote

from sqlalchemy import URL

from tallystick.errors import (
    CorruptTally,
    InvalidInput,
    MissingExtra,
    StorageError,
    TallyNotFound,
    TallystickError,
)
from tallystick.settings import TEMPORARY, folder_of
from tallystick.storage.engine.private_files import make_private_folder, restrict_tally

_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb",
    "smb2",
    "smb3",
    "smbfs",
    "afs",
    "9p",
    "fuse.sshfs",
    "ceph",
    "glusterfs",
}
_HEADER = 512
"""Bytes of the smallest page of SQLite; a database has at least one."""


@dataclass(frozen=True)
class Location:
    """The database of a tally and its folder."""

    url: URL
    folder: Path | None
    """The folder of an embedded tally; None for PostgreSQL."""
    process: int | None = None
    """The process with which the folder ends; None for a folder that stays."""
    schema: str = "tallystick"
    """The schema of a tally in PostgreSQL."""

    @classmethod
    def find(
        cls, where: str | os.PathLike[str], *, create: bool = True, schema: str | None = None
    ) -> Location:
        """Read `where`: a folder, an address such as `postgresql://user@host/database` or
        `host=… dbname=…`, or `:memory:` for a folder that is removed when the tally is closed.

        A URL may name the `schema` too. Creates the folder with `create`. Raises InvalidInput,
        TallyNotFound, CorruptTally, MissingExtra, or StorageError for network disks.
        """
        folder = folder_of(where)
        if folder is None:
            if os.fspath(where) != TEMPORARY:
                url, named = _read_address(os.fspath(where))
                if named is not None and schema not in (None, named):
                    raise InvalidInput(
                        f"The address names the schema {named!a}, and `schema` {schema!a}. Name "
                        "one of them.",
                        argument="schema",
                    )
                return cls(url, None, schema=schema or named or cls.schema)
            return cls._of_folder(Path(mkdtemp(prefix="tallystick-")), process=os.getpid())
        if _is_checkpoint_database(folder):
            raise InvalidInput(
                f"{folder} is a database of checkpoints. A tally is a folder: copy them into one "
                f"with `tally import-checkpoints {folder} --tally .tally`, then open that.",
                argument="where",
            )
        if folder.is_file():
            raise InvalidInput(
                f"{folder} is a file. A tally is a folder: give one that exists or may be made."
            )
        database = folder / "tally.db"
        size = database.stat().st_size if database.exists() else 0
        if not create and not size:
            raise TallyNotFound(f"There is no tally at {folder}.")
        if database.exists() and not size and (left := _contents(folder)):
            raise CorruptTally(
                f"{database} is empty, and {left} beside it shows that it was not. Restore it "
                f"from a copy; or move {folder} away to start anew."
            )
        if 0 < size < _HEADER:
            # SQLite takes the rest of a file for an empty database, and would write a new one over
            # it.
            raise CorruptTally(
                f"{database} was cut off. Restore it from a copy, or move it away to start anew."
            )
        try:
            make_private_folder(folder)
        except OSError as error:
            raise StorageError(
                f"{folder} cannot be made: {error.strerror}. Choose another folder."
            ) from error
        kind = _file_system(folder)
        if kind in _NETWORK:
            raise StorageError(
                f"{folder} is on a network file system ({kind}), whose locks cannot be trusted. "
                "Use a local disk, or PostgreSQL."
            )
        return cls._of_folder(folder)

    @classmethod
    def _of_folder(cls, folder: Path, *, process: int | None = None) -> Location:
        return cls(URL.create("sqlite", database=str(folder / "tally.db")), folder, process)

    def restrict(self) -> None:
        """Take the rights of other users from the folder of an embedded tally. Raises
        StorageError.
        """
        if self.folder is None:
            return
        try:
            restrict_tally(self.folder)
        except OSError as error:
            raise StorageError(
                f"{self.folder} cannot be read: {error.strerror}. Check its permissions."
            ) from error

    def remove_temporary(self) -> None:
        """Remove the folder, if it ends with this process; a forked one leaves it alone."""
        if self.process == os.getpid() and self.folder is not None:
            rmtree(self.folder, ignore_errors=True)

    @property
    def is_embedded(self) -> bool:
        """True if this is a folder rather than a server."""
        return self.folder is not None

    def __str__(self) -> str:
        url = self.url.difference_update_query(["sslpassword"])
        return str(self.folder) if self.folder else url.render_as_string(hide_password=True)


_SCHEME = re.compile(r"([A-Za-z0-9]+)(?:\+\w+)?://")


def _read_address(text: str) -> tuple[URL, str | None]:
    """Return the URL of a database and the schema that it names. The library of PostgreSQL reads
    it, so that all of its forms are understood. Raises InvalidInput, whose text quotes nothing
    that may be a password; MissingExtra.
    """
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ModuleNotFoundError as error:
        raise MissingExtra("psycopg", "postgres") from error
    schema = None
    if (scheme := _SCHEME.match(text)) is not None:
        if scheme[1] not in {"postgresql", "postgres"}:
            raise InvalidInput(
                f"A tally lives in a folder or in PostgreSQL, not in {scheme[1]}. "
                "Give a folder, or postgresql://user@host/database."
            )
        # A password may have a ? of its own.
        start = text.find("@", scheme.end()) + 1 or scheme.end()
        address, _, query = text[start:].partition("?")
        options = [part for part in query.split("&") if part]
        named = [unquote(part[7:]) for part in options if part.startswith("schema=")]
        schema = named[-1] if named else None
        rest = "&".join(part for part in options if not part.startswith("schema="))
        text = f"postgresql://{text[scheme.end() : start]}{address}?{rest}"
    try:
        values = {name: str(value) for name, value in conninfo_to_dict(text).items()}
        host, port = values.pop("host", None), values.pop("port", None)
        # A password with an @ or a / that is not percent-encoded is read as a part of these.
        if any("@" in (each or "") for each in (host, port, values.get("dbname"))):
            raise ValueError
        if f"{host}".startswith("/") or "," in f"{host}{port}":
            listed = {"host": host, "port": port}
            values |= {name: value for name, value in listed.items() if value is not None}
            host = port = None
        url = URL.create(
            "postgresql+psycopg",
            values.pop("user", None),
            values.pop("password", None),
            host,
            None if port is None else int(port),
            values.pop("dbname", None),
            values,
        )
    except (psycopg.Error, ValueError):
        raise InvalidInput(
            "This address of a database cannot be read. Write postgresql://user@host/database, "
            "with each @ : / % ? # of a name or password percent-encoded (%40 for @), or host=… "
            "dbname=…; with options of PostgreSQL's own library alone, such as sslmode.",
            argument="where",
        ) from None
    return url, schema


def in_schema(where: str, schema: str | None) -> str:
    """Return the address of a tally in a schema of its database. Raises InvalidInput."""
    if schema is None:
        return where
    if folder_of(where) is not None or where == TEMPORARY:
        raise InvalidInput(
            "Only a tally in PostgreSQL has a schema: leave it out.", argument="schema"
        )
    url = Location.find(where, schema=schema).url.set(drivername="postgresql")
    return url.update_query_dict({"schema": schema}).render_as_string(hide_password=False)


def shown_place(where: str) -> str:
    """Return the place of a tally as it may be printed, without a password."""
    if folder_of(where) is not None or where == TEMPORARY:
        return where
    try:
        return str(Location.find(where))
    except TallystickError:
        return "postgresql://…"


def _contents(folder: Path) -> str | None:
    """Return the name of a sibling that only a database with tables leaves; None without one."""
    log = folder / "tally.db-wal"
    if log.exists() and log.stat().st_size:
        return log.name
    siblings = (folder / name for name in ("chroma", "alive", "vectors.lock"))
    return next((sibling.name for sibling in siblings if sibling.exists()), None)


def _is_checkpoint_database(path: Path) -> bool:
    """Return True for an SQLite file that LangGraph's own saver has written."""
    if not path.is_file():
        return False
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
    except sqlite3.DatabaseError:
        return False
    finally:
        connection.close()
    return {"checkpoints", "writes"} <= names


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system under `folder` where the system reports it (Linux), else
    None.
    """
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return None
    best, kind = "", None
    for line in mounts.read_text(errors="replace").splitlines():
        _device, point, file_system, *_ = line.split(" ")
        point = point.replace("\\040", " ")
        inside = str(folder) == point or str(folder).startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, file_system
    return kind
