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

    def __init__(
        self, fingerprint: str, *, folder: Path | None = None, server: str | None = None, generation: int = 1
    ) -> None:  # fmt: skip
        self._fingerprint = fingerprint
        self._generation = generation
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
    def fingerprint(self) -> str:
        """The embedder whose vectors stand here."""
        return self._fingerprint

    @property
    def generation(self) -> int:
        """Which rebuild of the collection is in use."""
        return self._generation

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

    def versions(self, docs: Sequence[int]) -> dict[int, int]:
        """Doc to version of those of `docs` that stand here."""
        with self._guard, _translated():
            found = self._opened().get(ids=[str(doc) for doc in docs], include=["metadatas"])
        return {
            int(doc): int(metadata["version"]) for doc, metadata in zip(found["ids"], found["metadatas"], strict=True)
        }

    def docs(self, *, offset: int, most: int) -> list[int]:
        """A page of the docs that stand here, in the collection's own order."""
        with self._guard, _translated():
            found = self._opened().get(limit=most, offset=offset, include=[])
        return [int(doc) for doc in found["ids"]]

    def reaches(self, doc: int, vector: NDArray[np.float32]) -> bool:
        """Whether a search for a point's own vector finds the point, or others no farther: a count does not show it."""
        with self._guard, _translated():
            found = self._opened().query(query_embeddings=[vector], n_results=10, include=["distances"])
        ids, distances = found["ids"][0], found["distances"][0]
        return str(doc) in ids or (len(ids) == 10 and distances[-1] < 1e-4)

    def begin_generation(self) -> ChromaIndex:
        """An empty collection of the next generation, beside this one, which stays in use until `adopt`."""
        with self._guard, _translated():
            self._opened()
            fresh = ChromaIndex(self._fingerprint, folder=self._folder, server=self._server)
            fresh._lock, fresh._guard, fresh._client = self._lock, self._guard, self._client
            fresh._generation = self._generation + 1
            fresh._discard(fresh._name())
            fresh._collection = fresh._make()
            return fresh

    def adopt(self, fresh: ChromaIndex) -> None:
        """Go on with the collection of `fresh`, and drop the one in use before."""
        with self._guard, _translated():
            old = self._name()
            self._generation, self._collection = fresh._generation, fresh._collection
            self._discard(old)

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
        self._collection = self._make()
        return self._collection

    def _make(self) -> Any:
        return self._client.get_or_create_collection(
            name=self._name(), embedding_function=None, configuration=cast(Any, {"hnsw": _HNSW})
        )

    def _discard(self, name: str) -> None:
        if any(collection.name == name for collection in self._client.list_collections()):
            self._client.delete_collection(name)

    def _name(self) -> str:
        return f"tally-{hashlib.sha256(self._fingerprint.encode()).hexdigest()[:16]}-g{self._generation}"


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
