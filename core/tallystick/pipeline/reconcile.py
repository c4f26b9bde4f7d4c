"""Reconcile and rebuild: hold Chroma against the database, and make it anew where it does not
match.

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
from tallystick.memory import MemoryContext
from tallystick.ranking import whole_vectors
from tallystick.storage import ChromaIndex, Connection, outbox, scopes, search
from tallystick.storage.chroma import VectorPoint
from tallystick.storage.chroma_layout import Layout, keep_layout, layout_of

__all__ = ["Reconciled", "give_own", "rebuild", "reconcile"]

Progress = Callable[[int, int], None]
"""Told (vectors done, vectors in all)."""

_PAGE = 500


@dataclass(frozen=True)
class Reconciled:
    """What the check found."""

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
    """What Chroma raised, when it could not be asked at all."""

    @property
    def whole(self) -> bool:
        """Whether Chroma held exactly what the database holds."""
        return not (self.missing or self.stale or self.ghosts or self.unreachable or self.problem)


def reconcile(context: MemoryContext, *, sample: int = 64) -> Reconciled:
    """Hold what Chroma has against the database; what still waits in the outbox is no difference.

    Changes nothing. Raises StorageError when this process may not use Chroma.
    """
    index = _owned(context)
    try:
        return _compared(context, index, sample)
    except StorageError as error:
        return Reconciled(0, 0, 0, 0, 0, problem=str(error))


def rebuild(context: MemoryContext, *, progress: Progress = lambda done, total: None) -> int:
    """Make the collections anew from the database and swap them in; how many vectors they hold.

    Raises StorageError.
    """
    index = _owned(context)
    fingerprint = context.embedder.fingerprint
    with context.store.database.read() as connection:
        total = search.count_points(connection, fingerprint)
        large = search.large_scopes(connection, fingerprint, above=context.exact_scan_limit)
        before = layout_of(connection, fingerprint)
    index.arrange(before)
    fresh = replace(before, generation=before.generation + 1, own=frozenset(large))
    progress(0, total)
    return _move(context, index, fresh, None, lambda done: progress(done, max(total, done)))


def give_own(context: MemoryContext) -> list[int]:
    """Give each scope that has outgrown the exact scan a Chroma collection of its own; the scopes
    that got one.

    Raises StorageError.
    """
    index = _owned(context)
    fingerprint = context.embedder.fingerprint
    given = []
    with context.store.database.read() as connection:
        large = search.large_scopes(connection, fingerprint, above=context.exact_scan_limit)
        layout = layout_of(connection, fingerprint)
    index.arrange(layout)
    for scope_id in sorted(large - layout.own):
        layout = layout.with_own(scope_id)
        _move(context, index, layout, scope_id, lambda done: None)
        given.append(scope_id)
    return given


def _move(
    context: MemoryContext,
    index: ChromaIndex,
    layout: Layout,
    scope_id: int | None,
    told: Callable[[int], None],
) -> int:
    """Fill what `layout` has and the one in use has not, with the points of one scope or of all,
    and swap.
    """
    fingerprint, database = context.embedder.fingerprint, context.store.database
    before = index.layout
    fresh = index.begin(layout)
    with database.read() as connection:
        began = scopes.all_revisions(connection)
    done = last = 0
    while True:
        with database.read() as connection:
            points = search.page_of_points(
                connection, fingerprint, after=last, most=_PAGE, scope_id=scope_id
            )
        if not points:
            break
        fresh.upsert(_vectors(context, points))
        last, done = points[-1].doc, done + len(points)
        told(done)

    def swap(tx: Connection) -> None:
        keep_layout(tx, fingerprint, layout)
        # What another process drained into the old collections meanwhile is drained once more.
        outbox.append(tx, search.changed_since(tx, began))

    # The database names the new layout first: after a crash in between, old points are only left
    # over.
    database.write(swap, name="chroma.swap")
    index.arrange(layout)
    index.leave(before)
    return done


def _vectors(context: MemoryContext, points: Sequence[search.Point]) -> list[VectorPoint]:
    if not points:
        return []
    matrix = whole_vectors([point.vector for point in points], context.embedder.dimension)
    return [
        (point.doc, point.scope_id, point.version, vector)
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
    every = max(1, total // sample) if sample else total + 1
    checked = missing = stale = unreachable = seen = last = 0
    living: set[int] = set()
    while True:
        with context.store.database.read() as connection:
            points = search.page_of_points(connection, fingerprint, after=last, most=_PAGE)
        if not points:
            break
        last = points[-1].doc
        living.update(point.doc for point in points)
        settled = _vectors(context, [point for point in points if point.doc not in waiting])
        there = index.versions(settled)
        missing += sum(doc not in there for doc, *_ in settled)
        stale += sum(there.get(doc, version) != version for doc, _, version, _ in settled)
        checked += len(settled)
        for point in settled:
            if seen % every == 0 and point[0] in there and point[3].any():
                unreachable += not index.reaches(point)
            seen += 1
    return Reconciled(checked, missing, stale, _ghosts(index, living | waiting), unreachable)


def _ghosts(index: ChromaIndex, known: set[int]) -> int:
    return sum(doc not in known for page in index.docs(page=_PAGE) for doc in page)
