"""The drain of the HNSW index: takes large scopes into it, and brings in the vectors that wait,
where the setting `vector_search` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import EmbeddingError, TallystickError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.storage import Connection, hnsw, scopes
from tallystick.storage.writes import Writes

_BATCH = 100
"""The memories of one transaction: an insert into the index takes a millisecond and more."""
_MANY = 1_000
"""The memories after which a partition is analyzed: the server does so by itself, but later."""
_WRITES = Writes.of("hnsw")


def prepare_hnsw(context: MemoryContext) -> None:
    """Make the index, where the setting asks for it and there is none for this embedder. Raises
    SettingsError where the database cannot have one.
    """
    database = context.store.database
    if context.vector_search != "hnsw":
        return
    hnsw.install(database)
    try:
        fingerprint, dimension = context.embedder.fingerprint, context.embedder.dimension
    except EmbeddingError:
        return  # the background makes it when the embedder is back

    def unit(tx: Connection) -> None:
        index = hnsw.find(tx)
        if index is None or index.fingerprint != fingerprint:
            hnsw.make(tx, fingerprint, dimension)

    with database.read() as connection:
        index = hnsw.find(connection)
    if index is None or index.fingerprint != fingerprint:
        database.write_if_possible(unit, name="hnsw.make")


class HnswDrain:
    """Fills the index in batches. Used by one thread at a time."""

    def __init__(self, context: MemoryContext) -> None:
        self._context = context
        self._seen: dict[int, int] = {}
        """By scope its revision at the last look."""

    @property
    def is_wanted(self) -> bool:
        """True if the setting asks for the index, and this process may write to it."""
        return (
            self._context.vector_search == "hnsw"
            and self._context.store.database.unwritable is None
        )

    def add_large_scopes(self) -> int:
        """Take scopes that are read from the database into the index; return their number. An
        index that somebody removed is made anew.
        """
        context, database = self._context, self._context.store.database
        if not self.is_wanted:
            return 0
        with database.read() as connection:
            index = hnsw.find(connection)
        if index is None:
            prepare_hnsw(context)
            self._seen.clear()
        with database.read() as connection:
            index = self._index(connection)
            if index is None:
                return 0
            known = set(hnsw.scope_ids(connection))
            revisions = scopes.all_revisions(connection)
            changed = [each for each in revisions if self._seen.get(each) != revisions[each]]
            large = [
                scopes.named(connection, scope_id)
                for scope_id in changed
                if scope_id not in known
                and context.corpora.is_large(connection, scope_id, dimension=index.dimension)
            ]
        for row in large:
            self._add(row, index.fingerprint)
        self._seen.update({scope_id: revisions[scope_id] for scope_id in changed})
        return len(large)

    def add_large_scopes_if_possible(self) -> None:
        """Same as `add_large_scopes`, for the background: jobs and other chores do not wait for
        what is wrong with the index, and recall says that it is not used.
        """
        try:
            self.add_large_scopes()
        except TallystickError as error:
            get_logger("pipeline").warning("hnsw.not_prepared", error=type(error).__name__)

    def drain(self, is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Bring in what waits, scope by scope; return the number of memories. Several processes
        may do so at once: each takes others.
        """
        if not self.is_wanted:
            return 0
        with self._context.store.database.read() as connection:
            index = self._index(connection)
            waiting = [] if index is None else hnsw.waiting_scopes(connection)
        if index is None:
            return 0
        return sum(self._fill(index, scope_id, is_stopping) for scope_id in waiting)

    def rebuild(self) -> int:
        """Make the index anew from the vectors; return the number of memories. Raises
        SettingsError, EmbeddingError, StorageError.
        """
        hnsw.install(self._context.store.database)
        fingerprint = self._context.embedder.fingerprint
        dimension = self._context.embedder.dimension
        self._context.store.database.write(
            lambda tx: hnsw.make(tx, fingerprint, dimension), name="hnsw.make"
        )
        self._seen.clear()
        self.add_large_scopes()
        return self.drain()

    def _add(self, row: scopes.ScopeRow, fingerprint: str) -> None:
        self._context.store.database.write(
            lambda tx: hnsw.add_scope(tx, row.id, fingerprint),
            name="hnsw.scope",
            writes=Writes.of("hnsw", row.scope),
        )

    def _fill(self, index: hnsw.HnswIndex, scope_id: int, is_stopping: Callable[[], bool]) -> int:
        database, total, after = self._context.store.database, 0, -1

        def unit(tx: Connection) -> list[int]:
            # Another process may have made the index anew meanwhile, for another embedder.
            if hnsw.find(tx) != index:
                return []
            return hnsw.bring_in(tx, index, scope_id, after=after, most=_BATCH)

        while not is_stopping() and (
            docs := database.write(unit, name="hnsw.fill", writes=_WRITES)
        ):
            total, after = total + len(docs), docs[-1]
        if total >= _MANY:
            database.write(
                lambda tx: hnsw.analyze(tx, scope_id), name="hnsw.analyze", writes=_WRITES
            )
        return total

    def _index(self, connection: Connection) -> hnsw.HnswIndex | None:
        """Return the index, unless it is that of another embedder, or nobody can say so now."""
        index = hnsw.find(connection)
        try:
            fingerprint = self._context.embedder.fingerprint
        except EmbeddingError:
            return None
        return index if index is not None and index.fingerprint == fingerprint else None
