"""Reconcile and rebuild: compare Chroma with the database, and build it anew where they differ.

Chroma was seen to lose vectors while its count stayed right, so that the check asks for ids and
versions page by page and for a sample of vectors by their own value. A rebuild fills a new
generation of the collections beside the old one and swaps; a search meanwhile is answered by the
old one or by the exact scan. A scope that has grown large is given a collection of its own in the
same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tallystick.errors import StorageError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.ranking import whole_vectors
from tallystick.storage import ChromaIndex, Connection, outbox, scopes, search
from tallystick.storage.chroma import VectorPoint
from tallystick.storage.chroma_layout import (
    IndexState,
    Layout,
    keep_layout,
    keep_state,
    layout_of,
    new_index,
    state_of,
)
from tallystick.storage.writes import CHROMA, Writes

Progress = Callable[[int, int], None]
"""Receives the number of vectors that are done, and of all."""

_PAGE = 500


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


def reconcile(context: MemoryContext, *, sample: int = 64) -> Reconciled:
    """Compare Chroma with the database; entries that still wait in the outbox are no difference.

    Changes nothing. Raises StorageError when this process may not use Chroma.
    """
    index = _owned(context)
    try:
        return _compared(context, index, sample)
    except StorageError as error:
        return Reconciled(0, 0, 0, 0, 0, problem=str(error))


def rebuild(context: MemoryContext, *, progress: Progress = lambda count, total: None) -> int:
    """Build the collections anew from the database and swap them in; return the number of vectors.

    Files that Chroma cannot read are removed first: they are derived. Raises StorageError.
    """
    index = _owned(context)
    if index.doubt is not None or not _is_readable(context, index):
        index.start_over()
    index.trust()
    try:
        return _rebuilt(context, index, progress)
    except StorageError:
        # A failure of Chroma itself leaves a doubt; one of the database does not.
        if index.doubt is None or not index.start_over():
            raise
    index.trust()
    return _rebuilt(context, index, progress)


def mend(context: MemoryContext) -> bool:
    """Look at an index that is in doubt, or not the one that the database left, and rebuild it
    where it differs; return True if it was rebuilt. Raises StorageError.

    On a server another process may have gone on meanwhile, and the stamp alone proves nothing:
    there it is compared first.
    """
    index, fingerprint = _owned(context), context.embedder.fingerprint
    with context.store.database.read() as connection:
        layout, state = layout_of(connection, fingerprint), state_of(connection, fingerprint)
    try:
        index.arrange(layout)
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
    get_logger("pipeline").warning("chroma.rebuilding", reason=fault or index.doubt)
    rebuild(context)
    return True


def _is_readable(context: MemoryContext, index: ChromaIndex) -> bool:
    with context.store.database.read() as connection:
        index.arrange(layout_of(connection, context.embedder.fingerprint))
        state = state_of(connection, context.embedder.fingerprint)
    try:
        return index.fault(state) is None
    except StorageError:
        return False


def _mark(context: MemoryContext, index: ChromaIndex, state: IndexState) -> None:
    """Stamp collections that contain what they should."""
    fingerprint, following = context.embedder.fingerprint, index.stamp(state)

    def unit(tx: Connection) -> None:
        if state_of(tx, fingerprint) == state:
            keep_state(tx, fingerprint, following)

    context.store.database.write(unit, name="chroma.mark", writes=Writes.of(CHROMA))


def _rebuilt(context: MemoryContext, index: ChromaIndex, progress: Progress) -> int:
    fingerprint = context.embedder.fingerprint
    context.store.database.write(
        lambda tx: new_index(tx, fingerprint), name="chroma.new", writes=Writes.of(CHROMA)
    )
    with context.store.database.read() as connection:
        total = search.count_points(connection, fingerprint)
        large = search.large_scopes(connection, fingerprint, above=context.exact_scan_limit)
        before = layout_of(connection, fingerprint)
    index.arrange(before)
    fresh = replace(before, generation=before.generation + 1, own=frozenset(large))
    progress(0, total)
    return _move(context, index, fresh, None, lambda count: progress(count, max(total, count)))


def give_own(context: MemoryContext) -> list[int]:
    """Give each scope that has outgrown the exact scan a Chroma collection of its own; return those
    scopes.

    Raises StorageError.
    """
    index = _owned(context)
    fingerprint = context.embedder.fingerprint
    moved = []
    with context.store.database.read() as connection:
        large = search.large_scopes(connection, fingerprint, above=context.exact_scan_limit)
        layout = layout_of(connection, fingerprint)
    index.arrange(layout)
    for scope_id in sorted(large - layout.own):
        layout = layout.with_own(scope_id)
        _move(context, index, layout, scope_id, lambda count: None)
        moved.append(scope_id)
    return moved


def _move(
    context: MemoryContext,
    index: ChromaIndex,
    layout: Layout,
    scope_id: int | None,
    progress: Callable[[int], None],
) -> int:
    """Fill the collections that `layout` adds to the one in use, with the points of one scope or of
    all, and swap. Return the number of points.
    """
    fingerprint, database = context.embedder.fingerprint, context.store.database
    before = index.layout
    fresh = index.begin(layout)
    with database.read() as connection:
        revisions = scopes.all_revisions(connection)
        state = state_of(connection, fingerprint)
    count = last = 0
    while True:
        with database.read() as connection:
            points = search.page_of_points(
                connection, fingerprint, after=last, most=_PAGE, scope_id=scope_id
            )
        if not points:
            break
        fresh.upsert(_vectors(context, points))
        last, count = points[-1].doc, count + len(points)
        progress(count)
    following = fresh.stamp(state)
    if scope_id is not None:
        # They leave the shared collection after the swap.
        shared = following.counts[None] - count
        following = replace(following, counts={**following.counts, None: max(0, shared)})

    def swap(tx: Connection) -> None:
        keep_layout(tx, fingerprint, layout)
        if scope_id is None or state_of(tx, fingerprint) == state:
            keep_state(tx, fingerprint, following)
        # Entries that another process drained into the old collections meanwhile are drained once
        # more: none is trimmed while this has the turn of Chroma, and one that is committed later
        # is in the outbox still.
        search.queue_for_index(tx, search.changed_since(tx, revisions))

    # The database names the new layout first: after a crash in between, old points are only left
    # over.
    database.write(swap, name="chroma.swap", writes=Writes.of(CHROMA))
    index.arrange(layout)
    index.leave(before)
    return count


def _vectors(context: MemoryContext, points: Sequence[search.Point]) -> list[VectorPoint]:
    if not points:
        return []
    matrix = whole_vectors([point.vector for point in points], context.embedder.dimension)
    return [
        VectorPoint(point.doc, point.scope_id, point.version, vector)
        for point, vector in zip(points, matrix, strict=True)
    ]


def _owned(context: MemoryContext) -> ChromaIndex:
    if context.index is None:
        raise StorageError(
            "This tally has no Chroma index. Give the address of a server as `chroma`."
        )
    if not context.index.owned:
        raise StorageError(
            "Another process owns this tally's Chroma folder. Close it there, or let it rebuild."
        )
    return context.index


def _compared(context: MemoryContext, index: ChromaIndex, sample: int) -> Reconciled:
    fingerprint = context.embedder.fingerprint
    with context.store.database.read() as connection:
        total = search.count_points(connection, fingerprint)
        waiting = set(outbox.waiting(connection))
        index.arrange(layout_of(connection, fingerprint))
        state = state_of(connection, fingerprint)
    fault = index.fault(state)
    every = max(1, total // sample) if sample else total + 1
    checked = missing = stale = unreachable = position = last = 0
    living: set[int] = set()
    while True:
        with context.store.database.read() as connection:
            points = search.page_of_points(connection, fingerprint, after=last, most=_PAGE)
            waiting.update(outbox.waiting(connection))  # what was written since
        if not points:
            break
        last = points[-1].doc
        living.update(point.doc for point in points)
        indexed = _vectors(context, [point for point in points if point.doc not in waiting])
        versions = index.versions(indexed)
        missing += sum(doc not in versions for doc, *_ in indexed)
        stale += sum(versions.get(doc, version) != version for doc, _, version, _ in indexed)
        checked += len(indexed)
        for point in indexed:
            if position % every == 0 and point.doc in versions and point.vector.any():
                unreachable += not index.reaches(point)
            position += 1
    ghosts = _ghosts(index, living | waiting)
    return Reconciled(checked, missing, stale, ghosts, unreachable, problem=fault)


def _ghosts(index: ChromaIndex, living: set[int]) -> int:
    return sum(doc not in living for page in index.docs(page=_PAGE) for doc in page)
