"""Reconcile and rebuild: hold Chroma against the database, and make it anew where it does not match.

Chroma was seen to lose vectors while its count stayed right, so that the check asks for ids and versions page by page
and for a sample of vectors by their own value. A rebuild fills a new generation of the collection beside the old one
and swaps; a search meanwhile is answered by the old one or by the exact scan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallystick.errors import StorageError
from tallystick.memory import MemoryRoom
from tallystick.ranking import whole_vectors
from tallystick.storage import ChromaIndex, keyed, outbox, search

__all__ = ["Reconciled", "generation_setting", "rebuild", "reconcile"]

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


def generation_setting(fingerprint: str) -> str:
    """The name of the setting that holds the generation of an embedder's collection."""
    return f"chroma.generation:{fingerprint}"


def reconcile(room: MemoryRoom, *, sample: int = 64) -> Reconciled:
    """Hold what Chroma has against the database; what still waits in the outbox is no difference.

    Changes nothing. Raises StorageError when this process may not use Chroma.
    """
    index = _owned(room)
    try:
        return _compared(room, index, sample)
    except StorageError as error:
        return Reconciled(0, 0, 0, 0, 0, problem=str(error))


def rebuild(room: MemoryRoom, *, progress: Progress = lambda done, total: None) -> int:
    """Make the collection anew from the database and swap it in; how many vectors it holds.

    What is written meanwhile waits in the outbox and is drained after the swap. Raises StorageError.
    """
    index = _owned(room)
    fingerprint = room.embedder.fingerprint
    fresh = index.begin_generation()
    with room.store.database.read() as connection:
        total = search.count_points(connection, fingerprint)
    done = last = 0
    progress(done, total)
    while True:
        with room.store.database.read() as connection:
            points = search.page_of_points(connection, fingerprint, after=last, most=_PAGE)
        if not points:
            break
        matrix = whole_vectors([point.vector for point in points], room.embedder.dimension)
        fresh.upsert(
            [(point.doc, point.scope_id, point.version, vector) for point, vector in zip(points, matrix, strict=True)]
        )
        last, done = points[-1].doc, done + len(points)
        progress(done, max(total, done))
    # The database names the new generation first: after a crash in between, an old collection is only left over.
    room.store.database.write(
        lambda tx: keyed.set_setting(tx, generation_setting(fingerprint), str(fresh.generation)), name="chroma.swap"
    )
    index.adopt(fresh)
    return done


def _owned(room: MemoryRoom) -> ChromaIndex:
    if room.index is None:
        raise StorageError("This tally has no Chroma index. Give the address of a server as `chroma`.")
    if not room.index.owned:
        raise StorageError("Another process owns this tally's Chroma folder. Close it there, or let it rebuild.")
    return room.index


def _compared(room: MemoryRoom, index: ChromaIndex, sample: int) -> Reconciled:
    fingerprint = room.embedder.fingerprint
    with room.store.database.read() as connection:
        total = search.count_points(connection, fingerprint)
        waiting = set(outbox.waiting(connection))
    every = max(1, total // sample) if sample else total + 1
    checked = missing = stale = unreachable = seen = last = 0
    living: set[int] = set()
    while True:
        with room.store.database.read() as connection:
            points = search.page_of_points(connection, fingerprint, after=last, most=_PAGE)
        if not points:
            break
        last = points[-1].doc
        living.update(point.doc for point in points)
        settled = [point for point in points if point.doc not in waiting]
        there = index.versions([point.doc for point in settled])
        missing += sum(point.doc not in there for point in settled)
        stale += sum(there.get(point.doc, point.version) != point.version for point in settled)
        checked += len(settled)
        vectors = list(whole_vectors([point.vector for point in settled], room.embedder.dimension)) if settled else []
        for point, vector in zip(settled, vectors, strict=True):
            if seen % every == 0 and point.doc in there and vector.any():
                unreachable += not index.reaches(point.doc, vector)
            seen += 1
    return Reconciled(checked, missing, stale, _ghosts(index, living | waiting), unreachable)


def _ghosts(index: ChromaIndex, known: set[int]) -> int:
    found = offset = 0
    while docs := index.docs(offset=offset, most=_PAGE):
        found += sum(doc not in known for doc in docs)
        offset += len(docs)
    return found
