"""Chroma proposes: the derived vector index, owned by one process, rebuilt from the database at any time.

A process that does not hold the folder's lock never opens Chroma, not even to read: a second opener was measured
to crash and to damage the store. Chroma is imported on first use.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from tallystick.errors import InvalidInput, StorageError, TallystickError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ChromaIndex", "VectorPoint"]

_HNSW = {"space": "cosine", "ef_construction": 400, "ef_search": 400, "max_neighbors": 32}
"""High-recall parameters: with Chroma's defaults two builds of the same data disagree on a fifth of queries."""

VectorPoint = tuple[int, int, int, "NDArray[np.float32]"]
"""(doc, scope id, version, vector)."""


class ChromaIndex:
    """The Chroma collection of one embedder: embedded in a folder that this process owns, or on a server."""

    def __init__(self, fingerprint: str, *, folder: Path | None = None, server: str | None = None) -> None:
        self._fingerprint = fingerprint
        self._folder = folder
        self._server = server
        self._lock = (
            FileLock(str(folder / "vectors.lock"), timeout=0, thread_local=False) if folder and not server else None
        )
        self._guard = threading.RLock()
        self._pid = os.getpid()
        self._client: Any = None
        self._collection: Any = None

    @property
    def owned(self) -> bool:
        """Whether this process may use the index: it holds the lock, or the index is a server's."""
        if self._server is not None:
            return True
        with self._guard:
            if self._lock is None or self._pid != os.getpid():
                return False
            if self._lock.is_locked:
                return True
            try:
                self._lock.acquire()
            except Timeout:
                return False
            return True

    @property
    def is_open(self) -> bool:
        """Whether Chroma was imported and opened by this index."""
        return self._collection is not None

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        """Write points, replacing those of the same doc."""
        if not points:
            return
        with self._guard, _translated():
            self._opened().upsert(
                ids=[str(doc) for doc, *_ in points],
                embeddings=[vector for *_, vector in points],
                metadatas=[{"scope": scope_id, "version": version} for _, scope_id, version, _ in points],
            )

    def delete(self, docs: Sequence[int]) -> None:
        """Remove points; unknown ones are no error."""
        if not docs:
            return
        with self._guard, _translated():
            self._opened().delete(ids=[str(doc) for doc in docs])

    def propose(self, query: NDArray[np.float32], scope_ids: Sequence[int], *, most: int) -> list[int]:
        """The docs nearest to `query` in these scopes, nearest first. Approximate: re-score and re-check them."""
        with self._guard, _translated():
            where = {"scope": scope_ids[0]} if len(scope_ids) == 1 else {"scope": {"$in": list(scope_ids)}}
            found = self._opened().query(query_embeddings=[query], n_results=most, where=cast(Any, where), include=[])
        return [int(doc) for doc in found["ids"][0]]

    def count(self) -> int:
        """How many points the collection says it has (which does not prove that they are reachable)."""
        with self._guard, _translated():
            return int(self._opened().count())

    def close(self) -> None:
        """Close Chroma and give up the folder."""
        with self._guard:
            client, self._client, self._collection = self._client, None, None
            if self._pid != os.getpid():
                return
            if client is not None:
                _close(client)
            if self._lock is not None and self._lock.is_locked:
                self._lock.release()

    def _opened(self) -> Any:
        if self._collection is not None:
            return self._collection
        if not self.owned:
            raise StorageError("Another process owns this tally's Chroma folder; vectors are searched exactly here.")
        import chromadb
        from chromadb.config import Settings

        # Chroma's own telemetry is off in every client that we make.
        quiet = Settings(anonymized_telemetry=False)
        if self._server is not None:
            address = urlsplit(self._server)
            if not address.hostname:
                raise InvalidInput(f"{self._server!r} is not the address of a Chroma server. Write http://host:8000.")
            self._client = chromadb.HttpClient(
                host=address.hostname,
                port=address.port or (443 if address.scheme == "https" else 8000),
                ssl=address.scheme == "https",
                settings=quiet,
            )
        else:
            assert self._folder is not None
            self._client = chromadb.PersistentClient(path=str(self._folder / "chroma"), settings=quiet)
        self._collection = self._client.get_or_create_collection(
            name=self._name(), embedding_function=None, configuration=cast(Any, {"hnsw": _HNSW})
        )
        return self._collection

    def _name(self) -> str:
        return "tally-" + hashlib.sha256(self._fingerprint.encode()).hexdigest()[:16] + "-g1"


def _close(client: Any) -> None:
    """Close a client and the HTTP connections that Chroma, as of 1.5, leaves open behind a client of a server."""
    parts = (client, getattr(client, "_admin_client", None))
    sessions = [getattr(getattr(part, "_server", None), "_session", None) for part in parts]
    client.close()
    for session in sessions:
        if session is not None:
            session.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Whatever Chroma raises, as our own error: its bindings raise many kinds, and none of them may stop a recall."""
    try:
        yield
    except TallystickError:
        raise
    except Exception as error:
        raise StorageError(f"Chroma failed ({type(error).__name__}); it is derived and can be rebuilt.") from error
