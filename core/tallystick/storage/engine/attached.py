"""What is attached to an open database beside its files: the object storage of large bodies."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tallystick.errors import StorageError
from tallystick.ports import BlobStore

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

    def required(self) -> BlobStore:
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
