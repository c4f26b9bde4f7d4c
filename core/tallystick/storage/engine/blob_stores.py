"""Blob stores: the port by which large bodies leave the database, on a folder and on object storage
that speaks the protocol of S3, and the one that is attached to an open database.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tallystick.errors import MissingExtra, SettingsError, StorageError
from tallystick.ports import BlobStore
from tallystick.spool import sync_folder
from tallystick.storage.engine.private_files import make_private_folder, open_private

_PARTIAL = ".partial"
ATTACHED = "tallystick_objects"
"""The option of a connection that has what is attached to its database."""


@dataclass
class Attached:
    """The object storage of an open database. Thread-safe."""

    blobs: BlobStore | None = None
    at_least: int = 0
    """Bytes from which on a body is moved."""
    large: set[tuple[int, str]] = field(default_factory=set)
    """Parts that this process wrote lately and that may be large enough."""
    looked_at: tuple[int, str] | None = None
    """The part up to which what was there before was looked at for large bodies."""
    guard: threading.Lock = field(default_factory=threading.Lock)

    def require_blobs(self) -> BlobStore:
        """Return the object storage. Raises StorageError where the tally was opened without."""
        if self.blobs is None:
            raise StorageError(
                "Parts of this tally are in object storage, and it was opened without. Give the "
                "setting `objects` that it was written with."
            )
        return self.blobs

    def take_large(self) -> list[tuple[int, str]]:
        """Return what was noted, which is then no longer noted."""
        with self.guard:
            taken, self.large = list(self.large), set()
        return taken


def open_blobs(where: str) -> BlobStore:
    """Open the store that a setting names: a folder, or `s3://bucket/prefix`. Raises SettingsError,
    MissingExtra, StorageError.
    """
    if "://" not in where:
        return FolderBlobs(Path(where))
    url = urlsplit(where)
    if url.scheme != "s3" or not url.netloc or url.query or url.fragment:
        raise SettingsError(
            f"`objects` takes a folder or s3://bucket/prefix, and not {where!a}. The endpoint and "
            "the credentials are those of AWS_ENDPOINT_URL and the other variables of its clients."
        )
    return S3Blobs(url.netloc, url.path.strip("/"))


class FolderBlobs:
    """A folder with a file for each object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser().absolute()
        with self._translate_errors():
            make_private_folder(self._folder)

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    def put(self, name: str, body: bytes) -> None:
        """Store a body; it is on disk when this returns."""
        file = self._folder / name
        partial = file.with_name(uuid.uuid4().hex + _PARTIAL)
        with self._translate_errors():
            make_private_folder(file.parent)
            with open_private(partial) as stream:
                stream.write(body)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(file)
            # A name that is lost with the power would be that of the only body.
            sync_folder(file.parent)

    def get(self, name: str) -> bytes | None:
        """Return a body; None where there is none."""
        with self._translate_errors():
            try:
                return (self._folder / name).read_bytes()
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> None:
        """Remove a body; one that is not there is no error."""
        with self._translate_errors():
            (self._folder / name).unlink(missing_ok=True)

    def names(self, prefix: str, *, older_than: float = 0.0) -> Iterator[str]:
        """Yield the names below a prefix, such as `a/`, of what is older than some seconds."""
        with self._translate_errors():
            for file in sorted((self._folder / prefix).glob("*")):
                if time.time() - file.stat().st_mtime >= older_than:
                    yield prefix + file.name

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"The objects in {self._folder} cannot be reached: {error.strerror}."
            ) from error


class S3Blobs:
    """A bucket of object storage, below a prefix. boto3 is loaded when it is opened.

    Endpoint, region and credentials are found as every client of AWS finds them.
    """

    def __init__(self, bucket: str, prefix: str = "") -> None:
        try:
            import boto3  # type: ignore[import-untyped]
            from botocore.config import Config  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingExtra("boto3", "s3") from error
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        config = Config(
            connect_timeout=10, read_timeout=60, retries={"mode": "standard", "max_attempts": 3}
        )
        with self._translate_errors():
            self._client: Any = boto3.client("s3", config=config)
            self._client.head_bucket(Bucket=bucket)

    @property
    def place(self) -> str:
        """The bucket and the prefix."""
        return f"s3://{self._bucket}/{self._prefix}"

    def put(self, name: str, body: bytes) -> None:
        """Store a body; it is stored when this returns."""
        with self._translate_errors():
            self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=body)

    def get(self, name: str) -> bytes | None:
        """Return a body; None where there is none."""
        with self._translate_errors():
            try:
                found = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
                body: bytes = found["Body"].read()
            except self._client.exceptions.NoSuchKey:
                return None
        return body

    def delete(self, name: str) -> None:
        """Remove a body; one that is not there is no error."""
        with self._translate_errors():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + name)

    def names(self, prefix: str, *, older_than: float = 0.0) -> Iterator[str]:
        """Yield the names below a prefix, such as `a/`, of what is older than some seconds."""
        pages = self._client.get_paginator("list_objects_v2")
        now = datetime.now(UTC)
        with self._translate_errors():
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                for found in page.get("Contents", ()):
                    if (now - found["LastModified"]).total_seconds() >= older_than:
                        yield found["Key"].removeprefix(self._prefix)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        from botocore.exceptions import (  # type: ignore[import-untyped]
            BotoCoreError,
            ClientError,
        )

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StorageError(
                f"The objects in s3://{self._bucket} cannot be reached: {error}"
            ) from error
