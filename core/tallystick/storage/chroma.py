"""Chroma proposes: the derived vector index, owned by one process, rebuilt from the database at any
time.

A process that does not hold the folder's lock never opens Chroma, not even to read: a second opener
was measured to crash and to damage the store. Chroma is imported on first use.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from tallystick.errors import InvalidInput, StorageError, TallystickError
from tallystick.storage.chroma_layout import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ChromaIndex", "VectorPoint"]

_HNSW = {"space": "cosine", "ef_construction": 400, "ef_search": 400, "max_neighbors": 32}
"""High-recall parameters: with Chroma's defaults two builds of the same data disagree on a fifth of
queries.
"""

VectorPoint = tuple[int, int, int, "NDArray[np.float32]"]
"""(doc, scope id, version, vector)."""


class ChromaIndex:
    """The Chroma collections of one embedder: embedded in a folder that this process owns, or on a
    server.

    Points of most scopes share one collection and are told apart by a filter; a filter over a large
    collection is slow, so that a scope which has grown large has a collection of its own.
    """

    def __init__(
        self,
        fingerprint: str,
        *,
        folder: Path | None = None,
        server: str | None = None,
        layout: Layout | None = None,
    ) -> None:
        self._fingerprint = fingerprint
        self._layout = layout or Layout()
        self._folder = folder
        self._server = server
        self._lock = (
            FileLock(str(folder / "vectors.lock"), timeout=0, thread_local=False)
            if folder and not server
            else None
        )
        self._guard = threading.RLock()
        self._pid = os.getpid()
        self._client: Any = None
        self._collections: dict[int | None, Any] = {}

    @property
    def fingerprint(self) -> str:
        """The embedder whose vectors stand here."""
        return self._fingerprint

    @property
    def layout(self) -> Layout:
        """Which rebuild is in use, and which scopes have a collection of their own."""
        return self._layout

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
        return self._client is not None

    @property
    def folder_is_empty(self) -> bool:
        """Whether an embedded index has no files yet."""
        return (
            self._folder is not None
            and self._server is None
            and not (self._folder / "chroma").exists()
        )

    def arrange(self, layout: Layout) -> None:
        """Go on by `layout`, as the database has it now; an earlier one than that in use is passed
        over.
        """
        with self._guard:
            if layout.later_than(self._layout):
                self._layout, self._collections = layout, {}

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        """Write points, replacing those of the same doc."""
        with self._guard, _translated():
            for shelf, some in self._by_collection(points).items():
                self._collection(shelf).upsert(
                    ids=[str(doc) for doc, *_ in some],
                    embeddings=[vector for *_, vector in some],
                    metadatas=[
                        {"scope": scope_id, "version": version} for _, scope_id, version, _ in some
                    ],
                )

    def delete(self, docs: Sequence[int]) -> None:
        """Remove points, wherever they stand; unknown ones are no error."""
        if not docs:
            return
        with self._guard, _translated():
            for shelf in self._shelves():
                self._collection(shelf).delete(ids=[str(doc) for doc in docs])

    def propose(
        self, query: NDArray[np.float32], scope_ids: Sequence[int], *, most: int
    ) -> list[int]:
        """The docs nearest to `query` in these scopes, `most` of each collection. Approximate:
        re-score them.
        """
        found: list[int] = []
        shared = [scope_id for scope_id in scope_ids if scope_id not in self._layout.own]
        with self._guard, _translated():
            if shared:
                where = {"scope": shared[0]} if len(shared) == 1 else {"scope": {"$in": shared}}
                found += self._nearest(None, query, most, where)
            for scope_id in sorted(self._layout.own.intersection(scope_ids)):
                found += self._nearest(scope_id, query, most, None)
        return found

    def versions(self, points: Sequence[VectorPoint]) -> dict[int, int]:
        """Doc to version of those points that stand where a search looks for them."""
        there: dict[int, int] = {}
        with self._guard, _translated():
            for shelf, some in self._by_collection(points).items():
                found = self._collection(shelf).get(
                    ids=[str(doc) for doc, *_ in some], include=["metadatas"]
                )
                pairs = zip(found["ids"], found["metadatas"], strict=True)
                there.update((int(doc), int(metadata["version"])) for doc, metadata in pairs)
        return there

    def docs(self, *, page: int) -> Iterator[list[int]]:
        """Pages of the docs that stand here, collection by collection."""
        for shelf in self._shelves():
            offset = 0
            while True:
                with self._guard, _translated():
                    found = self._collection(shelf).get(limit=page, offset=offset, include=[])[
                        "ids"
                    ]
                if not found:
                    break
                yield [int(doc) for doc in found]
                offset += len(found)

    def reaches(self, point: VectorPoint) -> bool:
        """Whether a search for a point's own vector finds the point, or others no farther: a count
        does not show it.
        """
        doc, scope_id, _, vector = point
        with self._guard, _translated():
            collection = self._collection(self._shelf(scope_id))
            found = collection.query(query_embeddings=[vector], n_results=10, include=["distances"])
        ids, distances = found["ids"][0], found["distances"][0]
        return str(doc) in ids or (len(ids) == 10 and distances[-1] < 1e-4)

    def begin(self, layout: Layout) -> ChromaIndex:
        """An index by a later layout, beside this one, which stays in use until it is arranged."""
        with self._guard, _translated():
            self._opened()
            fresh = ChromaIndex(
                self._fingerprint, folder=self._folder, server=self._server, layout=layout
            )
            fresh._lock, fresh._guard, fresh._client = self._lock, self._guard, self._client
            # What a rebuild that was cut off left behind goes first.
            fresh._discard(fresh._names() - self._names())
            return fresh

    def leave(self, before: Layout) -> None:
        """Drop what the layout in use before held and this one does not need."""
        old = ChromaIndex(self._fingerprint, layout=before)
        with self._guard, _translated():
            self._opened()
            self._discard(old._names() - self._names())
            for scope_id in (
                self._layout.own - before.own
                if before.generation == self._layout.generation
                else ()
            ):
                self._collection(None).delete(where={"scope": scope_id})

    def count(self) -> int:
        """How many points the collections say they have (which does not prove that they are
        reachable).
        """
        with self._guard, _translated():
            return sum(int(self._collection(shelf).count()) for shelf in self._shelves())

    def close(self) -> None:
        """Close Chroma and give up the folder."""
        with self._guard:
            client, self._client, self._collections = self._client, None, {}
            if self._pid != os.getpid():
                return
            if client is not None:
                _close(client)
            if self._lock is not None and self._lock.is_locked:
                self._lock.release()

    def start_over(self) -> bool:
        """Remove every file of an embedded index, so that nothing of removed points is left;
        whether there were any.

        What it held is derived: fill it anew from the database. Raises StorageError when another
        process owns it.
        """
        with self._guard, _translated():
            if (
                self._server is not None
                or self._folder is None
                or not (self._folder / "chroma").exists()
            ):
                return False
            if not self.owned:
                raise StorageError("Another process owns this tally's Chroma folder.")
            client, self._client, self._collections = self._client, None, {}
            if client is not None:
                _close(client)
            shutil.rmtree(self._folder / "chroma")
            return True

    def _nearest(
        self, shelf: int | None, query: NDArray[np.float32], most: int, where: dict[str, Any] | None
    ) -> list[int]:
        collection = self._collection(shelf)
        found = collection.query(
            query_embeddings=[query], n_results=most, where=cast(Any, where), include=[]
        )
        return [int(doc) for doc in found["ids"][0]]

    def _shelf(self, scope_id: int) -> int | None:
        return scope_id if scope_id in self._layout.own else None

    def _shelves(self) -> list[int | None]:
        return [None, *sorted(self._layout.own)]

    def _by_collection(self, points: Sequence[VectorPoint]) -> dict[int | None, list[VectorPoint]]:
        of: dict[int | None, list[VectorPoint]] = {}
        for point in points:
            of.setdefault(self._shelf(point[1]), []).append(point)
        return of

    def _collection(self, shelf: int | None) -> Any:
        if shelf not in self._collections:
            self._collections[shelf] = self._opened().get_or_create_collection(
                name=self._name(shelf),
                embedding_function=None,
                configuration=cast(Any, {"hnsw": _HNSW}),
            )
        return self._collections[shelf]

    def _opened(self) -> Any:
        if self._client is not None:
            return self._client
        if not self.owned:
            raise StorageError(
                "Another process owns this tally's Chroma folder; vectors are searched exactly "
                "here."
            )
        import chromadb
        from chromadb.config import Settings

        # Chroma's own telemetry is off in every client that we make.
        quiet = Settings(anonymized_telemetry=False)
        if self._server is not None:
            address = urlsplit(self._server)
            if not address.hostname:
                raise InvalidInput(
                    f"{self._server!r} is not the address of a Chroma server. Write "
                    f"http://host:8000."
                )
            self._client = chromadb.HttpClient(
                host=address.hostname,
                port=address.port or (443 if address.scheme == "https" else 8000),
                ssl=address.scheme == "https",
                settings=quiet,
            )
        else:
            assert self._folder is not None
            self._client = chromadb.PersistentClient(
                path=str(self._folder / "chroma"), settings=quiet
            )
        return self._client

    def _discard(self, names: set[str]) -> None:
        for collection in self._client.list_collections():
            if collection.name in names:
                self._client.delete_collection(collection.name)

    def _names(self) -> set[str]:
        return {self._name(shelf) for shelf in self._shelves()}

    def _name(self, shelf: int | None) -> str:
        digest = hashlib.sha256(self._fingerprint.encode()).hexdigest()
        name = f"tally-{digest[:16]}-g{self._layout.generation}"
        return name if shelf is None else f"{name}-s{shelf}"


def _close(client: Any) -> None:
    """Close a client and the HTTP connections that Chroma, as of 1.5, leaves open behind a client
    of a server.
    """
    parts = (client, getattr(client, "_admin_client", None))
    sessions = [getattr(getattr(part, "_server", None), "_session", None) for part in parts]
    client.close()
    for session in sessions:
        if session is not None:
            session.close()


@contextmanager
def _translated() -> Iterator[None]:
    """Whatever Chroma raises, as our own error: its bindings raise many kinds, and none of them may
    stop a recall.
    """
    try:
        yield
    except TallystickError:
        raise
    except Exception as error:
        raise StorageError(
            f"Chroma failed ({type(error).__name__}); it is derived and can be rebuilt."
        ) from error
