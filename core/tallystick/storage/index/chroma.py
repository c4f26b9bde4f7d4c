"""Chroma proposes: the derived vector index, owned by one process, rebuilt from the database at any
time.

A process that does not hold the folder's lock never opens Chroma, not even to read: a second opener
was measured to crash and to damage the store. Chroma is imported on first use.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from sqlalchemy import Connection
from sqlalchemy import text as sql

from tallystick.errors import InvalidInput, StorageError, TallystickError
from tallystick.storage.engine.database import Database
from tallystick.storage.engine.private_files import make_private_folder
from tallystick.storage.index.marks import Lag, begin_marks, forget_marks, lags_of
from tallystick.storage.rows import journal, settings_rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAME = "chroma"
"""The name of its marks."""
_FORGET = sql("DELETE FROM settings WHERE name LIKE 'chroma.%'")


@dataclass(frozen=True)
class Layout:
    """The rebuild in use, and the scopes that are in Chroma. It only grows within a generation."""

    generation: int = 1
    own: frozenset[int] = frozenset()
    """Scopes with a collection of their own."""
    shared: bool = False
    """True if every other scope is in the shared collection. That one is there in any case."""
    index: str = ""
    """Drawn by lot for this tally, and a part of the collections' names: another tally's
    collections are never taken for its own. Empty until a scope is taken in.
    """

    def later_than(self, other: Layout) -> bool:
        """Return True if this layout came after `other`: an old snapshot of the database must not
        bring an old layout back.
        """
        if self.index != other.index:
            return bool(self.index)
        return self._age > other._age

    @property
    def _age(self) -> tuple[int, int]:
        return self.generation, len(self.own) + self.shared

    @property
    def keys(self) -> list[int | None]:
        """The keys of the collections: a scope's number, None for the shared one."""
        return [*([None] if self.shared else []), *sorted(self.own)]

    def includes(self, scope_id: int) -> bool:
        """Return True if a scope is in Chroma."""
        return self.shared or scope_id in self.own

    @property
    def scopes(self) -> frozenset[int] | None:
        """The scopes that are in Chroma; None for all."""
        return None if self.shared else self.own

    def key_of(self, scope_id: int) -> int | None:
        """Return the key of the collection of a scope that is in Chroma."""
        return scope_id if scope_id in self.own else None

    def with_keys(self, keys: Iterable[int | None]) -> Layout:
        """Return this layout with more collections to fill."""
        keys = frozenset(keys)
        own = frozenset(key for key in keys if key is not None)
        return replace(self, own=self.own | own, shared=self.shared or None in keys)


# How a copy of another time is recognised
# ----------------------------------------
# A drain writes the stamp `upcoming` to the shared collection, then its points, and then commits
# its marks together with the state that names this stamp as `current` and draws a new `upcoming`.
# So the collection of this database always has one of the two stamps: the second only while a drain
# is under way, or where its process died, and then the rows behind the marks are drained once more.
# The stamp names the last entry of the journal: a database that was put back from a copy may know
# the stamp of one drain as `upcoming`, and its journal has another entry there. Who finds fewer
# points than were left asks for the stamp again: if it is still `current`, no drain has deleted
# any, and they are missing. Processes that share a server drain one at a time (`Database.turn_of`):
# a second one would leave counts that the first has changed, or a stamp that the database has
# passed. A folder or a database that was restored from an earlier copy has a stamp that the other
# does not know. Stamps are drawn by lot: numbers would match again after a restored database wrote
# on.


@dataclass(frozen=True)
class IndexState:
    """The state in which the database last left the collections."""

    current: str = ""
    """The stamp of the last drain; empty before the first."""
    upcoming: str = ""
    """The stamp that the next drain writes."""
    counts: Mapping[int | None, int] = field(default_factory=dict)
    """The number of points after the last drain, by the key of a collection."""
    layout: Layout = field(default_factory=Layout)

    def following(self, counts: Mapping[int | None, int]) -> IndexState:
        """Return the state after a drain that wrote `upcoming`."""
        return replace(self, current=self.upcoming, upcoming=uuid.uuid4().hex, counts=dict(counts))


def take_in(tx: Connection, fingerprint: str, keys: Iterable[int | None]) -> None:
    """Take collections into the index of an embedder, empty, to be filled."""
    state = state_of(tx, fingerprint)
    if not state.layout.index:
        start_over(tx, fingerprint, keys)
        return
    added = [key for key in keys if key not in state.layout.keys]
    keep_state(tx, fingerprint, replace(state, layout=state.layout.with_keys(added)))
    begin_marks(tx, NAME, added, besides=state.layout.own)


def start_over(tx: Connection, fingerprint: str, keys: Iterable[int | None]) -> None:
    """Begin the next generation with these collections, empty, to be filled."""
    keys, before = list(keys), state_of(tx, fingerprint).layout
    forget(tx)
    if not (keys or before.index):
        return
    layout = Layout(before.generation + 1 if before.index else 1, index=before.index or _lot())
    keep_state(tx, fingerprint, IndexState(upcoming=_lot(), layout=layout.with_keys(keys)))
    begin_marks(tx, NAME, keys)


def forget(tx: Connection) -> None:
    """Forget the index, of any embedder."""
    tx.execute(_FORGET)
    forget_marks(tx, NAME)


def chroma_lags(connection: Connection, layout: Layout) -> dict[int, Lag]:
    """Return the scopes that Chroma has and has not followed yet."""
    return lags_of(connection, NAME, layout.scopes) if layout.keys else {}


def _lot() -> str:
    return uuid.uuid4().hex[:12]


def state_of(connection: Connection, fingerprint: str) -> IndexState:
    """Return the state in which the collections of an embedder were left."""
    text = settings_rows.get_setting(connection, f"chroma.state:{fingerprint}")
    if text is None:
        return IndexState()
    values = json.loads(text)
    counts = {int(key) if key else None: count for key, count in values["counts"].items()}
    layout = {**values["layout"], "own": frozenset(values["layout"]["own"])}
    return IndexState(values["current"], values["upcoming"], counts, Layout(**layout))


def keep_state(tx: Connection, fingerprint: str, state: IndexState) -> None:
    """Record the state in which the collections are from this commit on."""
    counts = {"" if key is None else str(key): count for key, count in state.counts.items()}
    layout = {**asdict(state.layout), "own": sorted(state.layout.own)}
    text = json.dumps({**vars(state), "counts": counts, "layout": layout})
    settings_rows.set_setting(tx, f"chroma.state:{fingerprint}", text)


_HNSW = {"space": "cosine", "ef_construction": 400, "ef_search": 400, "max_neighbors": 32}
"""High-recall parameters: with Chroma's defaults two builds of the same data disagree on a fifth of
queries.
"""
_NEAR = 10
"""The nearest points among which a point has to be found by its own vector."""
_STAMP = "tallystick"
"""The key of the stamp in the metadata of the shared collection."""
_ORIGIN = "tallystick_origin"
"""The key of the journal entry at which the stamp was written."""


class VectorPoint(NamedTuple):
    """The vector of one memory."""

    doc: int
    scope_id: int
    version: int
    vector: NDArray[np.float32]


class ChromaIndex:
    """The Chroma collections of one embedder: embedded in a folder that this process owns, or on a
    server.

    A large scope has a collection of its own. Others, where they are in Chroma at all, share one
    and are told apart by a filter, which is slow over many.
    """

    def __init__(
        self,
        fingerprint: str,
        *,
        database: Database,
        folder: Path | None = None,
        server: str | None = None,
        layout: Layout,
    ) -> None:
        self._database = database
        self._fingerprint = fingerprint
        self._layout = layout
        self._folder = folder
        self._server = server
        self._lock = (
            FileLock(str(folder / "vectors.lock"), timeout=0, thread_local=False, mode=0o600)
            if folder and not server
            else None
        )
        self._guard = threading.RLock()
        self._pid = os.getpid()
        self._client: Any = None
        self._opened: int | None = None
        self._collections: dict[int | None, Any] = {}
        self._doubt: str | None = None
        self.on_doubt: Callable[[], None] = lambda: None
        """Called when the index turned out to be broken: somebody should rebuild it."""

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the embedder whose vectors these are."""
        return self._fingerprint

    @property
    def layout(self) -> Layout:
        """The rebuild in use, and the scopes that are in Chroma."""
        return self._layout

    @property
    def owned(self) -> bool:
        """True if this process may use the index: it has the lock, or the index is a server's."""
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
        """True if Chroma was imported and opened by this index."""
        return self._client is not None

    @property
    def is_remote(self) -> bool:
        """True if the index is a server's, to which other processes write as well."""
        return self._server is not None

    @property
    def doubt(self) -> str | None:
        """Why the index needs to be looked at; None while nothing is known."""
        return self._doubt

    def trust(self) -> None:
        """Take back the doubt: the index was compared with the database, or made anew."""
        self._doubt = None

    def note_doubt(self, reason: str) -> StorageError:
        """Note that the index needs to be looked at, and return the error to raise."""
        self._doubt = reason
        self.on_doubt()
        return StorageError(reason)

    def fault(self, state: IndexState) -> str | None:
        """Return how the collections differ from the ones that the database left in `state`, as
        which they are arranged; None where they do not. Raises StorageError where Chroma fails.

        Files of an embedded index are looked at by their identity, and what is in them once per
        opening: nobody else may write there. A server is asked each time.
        """
        self.arrange(state.layout)
        if not state.current:
            return None
        with self._guard, self._translate_errors():
            if self._files_are_others():
                self._forget_client()
            if self._server is None and not (self._data / "chroma.sqlite3").exists():
                return "its files are gone"
            if self._server is None and None in self._collections and self._doubt is None:
                return None
            self._collections = {}
            shared = self._find(None)
            if shared is None:
                return "its collection is gone"
            metadata = shared.metadata or {}
            stamp = metadata.get(_STAMP)
            if stamp not in (state.current, state.upcoming) or (
                stamp == state.upcoming and not self._has_origin(metadata)
            ):
                return "it is a copy of another time"
            for key in self._keys():
                collection = self._find(key)
                count = 0 if collection is None else int(collection.count())
                if count < state.counts.get(key, 0) and self._is_settled(state):
                    return "points are missing in it"
            return None

    def _has_origin(self, metadata: Mapping[str, Any]) -> bool:
        """Return True if the journal has the entry at which a stamp was written."""
        if (origin := metadata.get(_ORIGIN)) is None:
            return False
        with self._database.read() as connection:
            return journal.has_origin(connection, journal.Origin(*json.loads(origin)))

    def _is_settled(self, state: IndexState) -> bool:
        """Return False where a drain began after `state`: it may have deleted points."""
        self._collections.pop(None, None)
        shared = self._find(None)
        return shared is not None and (shared.metadata or {}).get(_STAMP) == state.current

    def announce(self, state: IndexState) -> None:
        """Write the stamp of a drain that begins, before its first deletion."""
        with self._database.read() as connection:
            origin = json.dumps(journal.last_origin(connection))
        with self._guard, self._translate_errors():
            self._collection(None).modify(metadata={_STAMP: state.upcoming, _ORIGIN: origin})

    def stamp(self, state: IndexState) -> IndexState:
        """Write the stamp of a drain that is done; return the state to commit with it."""
        self.announce(state)
        with self._guard, self._translate_errors():
            return state.following(
                {key: int(self._collection(key).count()) for key in self._keys()}
            )

    def arrange(self, layout: Layout) -> None:
        """Use `layout` from now on, as the database has it; one earlier than that in use is
        ignored.
        """
        with self._guard:
            if layout.later_than(self._layout):
                self._layout, self._collections = layout, {}

    def upsert(self, points: Sequence[VectorPoint]) -> None:
        """Write points, replacing those of the same doc.

        Chroma links the points of a batch at once, and was seen to leave some that no search
        reaches: those are written once more, each by itself.
        """
        with self._guard, self._translate_errors():
            for group in self._by_collection(points).values():
                self._write(group)
            for point in self.unreached(points):
                self._collection(self._key_of(point.scope_id)).delete(ids=[str(point.doc)])
                self._write([point])

    def _write(self, group: Sequence[VectorPoint]) -> None:
        """Write points of one collection."""
        self._collection(self._key_of(group[0].scope_id)).upsert(
            ids=[str(point.doc) for point in group],
            embeddings=[point.vector for point in group],
            metadatas=[{"scope": point.scope_id, "version": point.version} for point in group],
        )

    def leave_shared(self, scope_id: int) -> None:
        """Remove the points of a scope that has a collection of its own from the shared one."""
        with self._guard, self._translate_errors():
            self._collection(None).delete(where={"scope": scope_id})

    def delete(self, docs: Sequence[int]) -> None:
        """Remove points from every collection; unknown ones are no error."""
        if not docs:
            return
        with self._guard, self._translate_errors():
            for key in self._keys():
                self._collection(key).delete(ids=[str(doc) for doc in docs])

    def propose(
        self,
        query: NDArray[np.float32],
        scope_ids: Sequence[int],
        *,
        most: int,
        state: IndexState,
    ) -> list[int]:
        """Return the memories nearest to `query` in these scopes, `most` of each collection, which
        are filled. Approximate: re-score them.

        `state` is that of the database. Raises StorageError where the collections
        are not the ones that it left, or not all of them: an answer would be empty or partial.
        """
        layout, docs = state.layout, list[int]()
        self.arrange(layout)
        shared = [scope_id for scope_id in scope_ids if scope_id not in layout.own]
        if not self.owned:
            raise self._not_owned()
        if self._layout != layout:
            raise StorageError("Chroma was arranged anew meanwhile")
        if (fault := self.fault(state)) is not None:
            raise self.note_doubt(f"Chroma does not match the database: {fault}")
        with self._guard, self._translate_errors():
            if shared:
                where = {"scope": shared[0]} if len(shared) == 1 else {"scope": {"$in": shared}}
                docs += self._nearest(None, query, most, where)
            for scope_id in sorted(layout.own.intersection(scope_ids)):
                docs += self._nearest(scope_id, query, most, None)
        return docs

    def versions(self, points: Sequence[VectorPoint]) -> dict[int, int]:
        """Return the versions of those points that are in the collection which a search would use,
        by memory.
        """
        versions: dict[int, int] = {}
        with self._guard, self._translate_errors():
            for key, group in self._by_collection(points).items():
                if (collection := self._find(key)) is None:
                    continue
                stored = collection.get(ids=[str(doc) for doc, *_ in group], include=["metadatas"])
                pairs = zip(stored["ids"], stored["metadatas"], strict=True)
                versions.update((int(doc), int(metadata["version"])) for doc, metadata in pairs)
        return versions

    def docs(self, *, page: int, scope_id: int | None = None) -> Iterator[list[int]]:
        """Yield pages of the memories that have a point, of one scope or collection by collection.

        What is removed while it is read may hide others of this round.
        """
        where: Any = None if scope_id is None else {"scope": scope_id}
        for key in self._keys() if scope_id is None else [self._key_of(scope_id)]:
            offset = 0
            while True:
                with self._guard, self._translate_errors():
                    if (collection := self._find(key)) is None:
                        break
                    found = collection.get(limit=page, offset=offset, where=where, include=[])
                ids = found["ids"]
                if not ids:
                    break
                yield [int(doc) for doc in ids]
                offset += len(ids)

    def unreached(self, points: Sequence[VectorPoint]) -> list[VectorPoint]:
        """Return the points that a search for their own vector does not find, nor others no
        farther: a count does not prove that they are. An empty vector is not looked for.
        """
        lost = list[VectorPoint]()
        sought = [point for point in points if point.vector.any()]
        with self._guard, self._translate_errors():
            for key, group in self._by_collection(sought).items():
                hits = self._collection(key).query(
                    query_embeddings=[point.vector for point in group],
                    n_results=_NEAR,
                    include=["distances"],
                )
                for point, ids, distances in zip(
                    group, hits["ids"], hits["distances"], strict=True
                ):
                    is_near = len(ids) == _NEAR and distances[-1] < 1e-4
                    if str(point.doc) not in ids and not is_near:
                        lost.append(point)
        return lost

    def discard_others(self) -> None:
        """Remove the collections of earlier generations."""
        with self._guard, self._translate_errors():
            for collection in self._open_client().list_collections():
                name = collection.name
                if name.startswith(f"{self._stem}-") and name not in self._names():
                    self._client.delete_collection(name)

    def count(self) -> int:
        """Return the number of points that the collections report, which does not prove that they
        are reachable.
        """
        with self._guard, self._translate_errors():
            return sum(int(self._collection(key).count()) for key in self._keys())

    def close(self) -> None:
        """Close Chroma and release the folder."""
        with self._guard:
            client, self._client, self._collections = self._client, None, {}
            if self._pid != os.getpid():
                return
            if client is not None:
                _close(client)
            if self._lock is not None and self._lock.is_locked:
                self._lock.release()

    def start_over(self) -> bool:
        """Remove every file of an embedded index, so that nothing of removed points is left; return
        True if there were any.

        The index is derived: fill it anew from the database. The lock stays with this process.
        Raises StorageError when another process owns it.
        """
        with self._guard, self._translate_errors():
            if self._server is not None or self._folder is None:
                return False
            if not self.owned:
                raise StorageError("Another process owns this tally's Chroma folder.")
            self._forget_client()
            if not os.path.lexists(self._data):
                return False
            if self._data.is_dir() and not self._data.is_symlink():
                shutil.rmtree(self._data)
            else:
                self._data.unlink()
            return True

    @property
    def _data(self) -> Path:
        """The folder that Chroma writes to."""
        assert self._folder is not None
        return self._folder / "chroma"

    def _files_are_others(self) -> bool:
        """Return True if the open files are no longer those of the folder: somebody replaced it."""
        return self._opened is not None and self._opened != _identity(self._data)

    def _forget_client(self) -> None:
        """Close Chroma and keep the lock."""
        client, self._client, self._collections = self._client, None, {}
        self._opened = None
        if client is not None:
            _close(client)
        if self._folder is not None:
            _drop_half_open(str(self._data))

    def _nearest(
        self, key: int | None, query: NDArray[np.float32], most: int, where: dict[str, Any] | None
    ) -> list[int]:
        collection = self._collection(key)
        hits = collection.query(
            query_embeddings=[query], n_results=most, where=cast(Any, where), include=[]
        )
        return [int(doc) for doc in hits["ids"][0]]

    def _key_of(self, scope_id: int) -> int | None:
        """Return the key of a scope's collection."""
        return self._layout.key_of(scope_id)

    def _keys(self) -> list[int | None]:
        """Return the keys of the collections that are there: the shared one has the stamp."""
        return [None, *sorted(self._layout.own)]

    def _by_collection(self, points: Sequence[VectorPoint]) -> dict[int | None, list[VectorPoint]]:
        groups: dict[int | None, list[VectorPoint]] = {}
        for point in points:
            groups.setdefault(self._key_of(point[1]), []).append(point)
        return groups

    def _find(self, key: int | None) -> Any:
        """Return a collection, or None where there is none."""
        if key not in self._collections:
            client = self._open_client()
            from chromadb.errors import NotFoundError

            try:
                self._collections[key] = client.get_collection(
                    name=self._name(key), embedding_function=None
                )
            except NotFoundError:
                return None
        return self._collections[key]

    def _collection(self, key: int | None) -> Any:
        """Return a collection, made on first use."""
        if key not in self._collections:
            self._collections[key] = self._open_client().get_or_create_collection(
                name=self._name(key),
                embedding_function=None,
                configuration=cast(Any, {"hnsw": _HNSW}),
            )
        return self._collections[key]

    def _open_client(self) -> Any:
        if self._client is not None:
            return self._client
        if not self.owned:
            raise self._not_owned()
        # Two threads that import it at once, one of them by way of Chroma, may see half of it.
        import_module("numpy")
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
            try:
                make_private_folder(self._data)
                self._client = chromadb.PersistentClient(path=str(self._data), settings=quiet)
            except BaseException:
                _drop_half_open(str(self._data))
                raise
            self._opened = _identity(self._data)
        return self._client

    @staticmethod
    def _not_owned() -> StorageError:
        return StorageError(
            "Another process owns this tally's Chroma folder; vectors are searched exactly here."
        )

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise any error of Chroma as our own, and doubt the index: its bindings raise many kinds,
        and none may stop a recall.
        """
        try:
            yield
        except TallystickError:
            raise
        except Exception as error:
            raise self.note_doubt(
                f"Chroma failed ({type(error).__name__}); it is derived and can be rebuilt."
            ) from error

    def _names(self) -> set[str]:
        return {self._name(key) for key in self._keys()}

    @property
    def _stem(self) -> str:
        digest = hashlib.sha256(f"{self._fingerprint}\0{self._layout.index}".encode()).hexdigest()
        return f"tally-{digest[:16]}"

    def _name(self, key: int | None) -> str:
        name = f"{self._stem}-g{self._layout.generation}"
        return name if key is None else f"{name}-s{key}"


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


def _drop_half_open(path: str) -> None:
    """Forget a client that failed while it opened: Chroma, as of 1.5, would return it again."""
    if "chromadb" not in sys.modules:
        return
    from chromadb.api.shared_system_client import SharedSystemClient

    systems: Any = getattr(SharedSystemClient, "_identifier_to_system", {})
    if path not in getattr(SharedSystemClient, "_identifier_to_refcount", {}):
        systems.pop(path, None)


def _identity(folder: Path) -> int | None:
    """Return the number that the file system gave Chroma's database; None without one."""
    try:
        return (folder / "chroma.sqlite3").stat().st_ino
    except OSError:
        return None
