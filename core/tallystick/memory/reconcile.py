"""Reconcile and start over: compare Chroma with the database, and begin it anew where they differ.

Chroma was seen to lose vectors while its count stayed right, so that the check asks for ids and
versions page by page and for a sample of vectors by their own value. Who starts over leaves empty
collections, which the drain fills; a search meanwhile is answered by the exact way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.errors import StorageError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.ranking import whole_vectors
from tallystick.storage import ChromaIndex, Connection
from tallystick.storage.engine.writes import CHROMA, Writes
from tallystick.storage.index import search
from tallystick.storage.index.chroma import (
    IndexState,
    VectorPoint,
    chroma_lags,
    keep_state,
    start_over,
    state_of,
)
from tallystick.storage.index.marks import rows_behind

_PAGE, _SAMPLE = 500, 64


@dataclass(frozen=True)
class Reconciled:
    """The result of a check."""

    checked: int
    """Vectors of the database that were looked up."""
    missing: int
    """Not in Chroma."""
    stale: int
    """In Chroma with another version."""
    ghosts: int
    """In Chroma and not in the database."""
    unreachable: int
    """Of the sample: there, but not found by their own vector."""
    rebuilt: bool = False
    problem: str | None = None
    """The error of Chroma if it could not be read at all, or why it is not the one that the
    database filled.
    """

    @property
    def whole(self) -> bool:
        """True if Chroma contained exactly what the database contains."""
        return not (self.differs or self.problem)

    @property
    def differs(self) -> bool:
        """True if points differ, or Chroma could not be read."""
        differences = self.missing + self.stale + self.ghosts + self.unreachable
        return differences > 0 or (self.problem is not None and not self.checked)

    @property
    def reason(self) -> str:
        """How it differs, to be read by a person; empty where it does not."""
        counts = {
            "missing": self.missing,
            "of another version": self.stale,
            "of memories that are gone": self.ghosts,
            "not found by their own vector": self.unreachable,
        }
        told = [f"{count} {what}" for what, count in counts.items() if count]
        return ", ".join([*([self.problem] if self.problem else []), *told])


def reconcile(context: MemoryContext) -> Reconciled:
    """Compare Chroma with the database; what Chroma has not followed yet is no difference.

    Changes nothing. Raises StorageError when this process may not use Chroma.
    """
    index = owned_index(context)
    try:
        return _compare_index(context, index)
    except StorageError as error:
        return Reconciled(0, 0, 0, 0, 0, problem=str(error))


def wanted_keys(
    connection: Connection, context: MemoryContext, *, among: Sequence[int] | None = None
) -> set[int | None]:
    """Return the keys of the collections that the setting `vector_search` asks for: of large
    scopes, of all or among some, and for `chroma` that of every other one.
    """
    if not context.uses_chroma:
        return set()
    keys: set[int | None] = {None} if context.vector_search == "chroma" else set()
    return keys | search.large_scopes(connection, above=context.large_scope, among=among)


def begin_anew(context: MemoryContext) -> None:
    """Leave Chroma empty, with the collections that are to be filled; one that is embedded loses
    its files, which may be damaged. Raises StorageError.
    """
    index, database = owned_index(context), context.store.database
    fingerprint = context.embedder.fingerprint
    index.start_over()
    index.trust()

    def unit(tx: Connection) -> None:
        start_over(tx, fingerprint, wanted_keys(tx, context))

    database.write(unit, name="chroma.new", writes=Writes.of(CHROMA))
    with database.read() as connection:
        layout = state_of(connection, fingerprint).layout
    index.arrange(layout)
    if index.is_remote and layout.index:
        index.discard_others()


def mend(context: MemoryContext) -> bool:
    """Look at an index that is in doubt, or not the one that the database left, and begin it anew
    where it differs; return True if it was. Raises StorageError.

    On a server another process may have gone on meanwhile, and the stamp alone proves nothing:
    there it is compared first.
    """
    index, fingerprint = owned_index(context), context.embedder.fingerprint
    with context.store.database.read() as connection:
        state = state_of(connection, fingerprint)
    try:
        fault = index.fault(state)
    except StorageError as error:
        if index.is_remote:
            raise
        fault = str(error)
    if fault is None and index.doubt is None:
        return False
    result = None if fault is not None and not index.is_remote else reconcile(context)
    if result is not None and not result.differs:
        if fault is not None:
            _mark(context, index, state)
        index.trust()
        return False
    get_logger("jobs").warning("chroma.rebuilding", reason=fault or index.doubt)
    begin_anew(context)
    return True


def _mark(context: MemoryContext, index: ChromaIndex, state: IndexState) -> None:
    """Stamp collections that contain what they should."""
    fingerprint, following = context.embedder.fingerprint, index.stamp(state)

    def unit(tx: Connection) -> None:
        if state_of(tx, fingerprint) == state:
            keep_state(tx, fingerprint, following)

    context.store.database.write(unit, name="chroma.mark", writes=Writes.of(CHROMA))


def points_of(context: MemoryContext, points: Sequence[search.Point]) -> list[VectorPoint]:
    """Return stored vectors as Chroma takes them, one for each memory."""
    if not points:
        return []
    matrix = whole_vectors([point.vector for point in points], context.embedder.dimension)
    return [
        VectorPoint(point.doc, point.scope_id, point.version, vector)
        for point, vector in zip(points, matrix, strict=True)
    ]


def owned_index(context: MemoryContext) -> ChromaIndex:
    """Return the index that this process may write to. Raises StorageError."""
    if context.index is None:
        raise StorageError(
            "This tally has no Chroma index. Give the address of a server as `chroma`."
        )
    if not context.index.owned:
        raise StorageError(
            "Another process owns this tally's Chroma folder. Close it there, or let it rebuild."
        )
    return context.index


def _compare_index(context: MemoryContext, index: ChromaIndex) -> Reconciled:
    fingerprint = context.embedder.fingerprint
    with context.store.database.read() as connection:
        state = state_of(connection, fingerprint)
        waiting, is_erased = _waiting(connection, state)
        within = state.layout.scopes
        total = search.count_points(connection, fingerprint, scope_ids=within)
    if not state.current:
        return Reconciled(0, 0, 0, 0, 0)
    fault = index.fault(state)
    every = max(1, total // _SAMPLE)
    checked = missing = stale = unreachable = position = last = 0
    living: set[int] = set()
    while True:
        with context.store.database.read() as connection:
            points = search.page_of_points(
                connection, fingerprint, after=last, most=_PAGE, scope_ids=within
            )
            waiting |= _waiting(connection, state)[0]  # what was written since
        if not points:
            break
        last = points[-1].doc
        living.update(point.doc for point in points)
        expected = [point for point in points if point.doc not in waiting]
        indexed = points_of(context, expected)
        versions = index.versions(indexed)
        missing += sum(doc not in versions for doc, *_ in indexed)
        stale += sum(versions.get(doc, version) != version for doc, _, version, _ in indexed)
        checked += len(indexed)
        sample = indexed[-position % every :: every]
        unreachable += len(index.unreached([each for each in sample if each.doc in versions]))
        position += len(indexed)
    ghosts = 0 if is_erased else _ghosts(index, living | waiting)
    return Reconciled(checked, missing, stale, ghosts, unreachable, problem=fault)


def _waiting(connection: Connection, state: IndexState) -> tuple[set[int], bool]:
    """Return the memories that Chroma has not followed, and True if rows of some are gone."""
    lags = chroma_lags(connection, state.layout)
    behind = (rows_behind(connection, scope_id, lag.mark) for scope_id, lag in lags.items())
    docs = {row.doc for rows in behind for row in rows}
    return docs, any(lag.is_erased for lag in lags.values())


def _ghosts(index: ChromaIndex, living: set[int]) -> int:
    return sum(doc not in living for page in index.docs(page=_PAGE) for doc in page)
