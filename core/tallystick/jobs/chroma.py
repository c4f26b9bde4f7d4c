"""The drain: fills Chroma with the scopes that are large, and brings it up to date, while this
process owns it.

It goes in batches: from the database into Chroma outside of any transaction, then a short one that
notes how far it came. A process that dies in between repeats a batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tallystick.errors import EmbeddingError, StorageError
from tallystick.jobs.derived import MEND, Derived, Progress
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.memory.reconcile import (
    Reconciled,
    begin_anew,
    mend,
    owned_index,
    points_of,
    reconcile,
    wanted_keys,
)
from tallystick.records import Actor, Finding
from tallystick.storage import Connection
from tallystick.storage.engine.writes import CHROMA, Writes
from tallystick.storage.index import search
from tallystick.storage.index.chroma import (
    NAME,
    IndexState,
    Layout,
    chroma_lags,
    keep_state,
    state_of,
    take_in,
)
from tallystick.storage.index.marks import (
    Lag,
    Mark,
    count_behind,
    keep_marks,
    marks_of,
    rows_behind,
)
from tallystick.storage.rows import scopes

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
"""The pauses after attempts to mend Chroma that failed, seconds; they double."""
_LOOK_SECONDS = 60.0
"""The pause after which it looks for scopes that have grown large."""
_AT_ONCE = 1_000
"""The memories of one batch."""
_AT_A_TIME = 200
"""The points that are written to Chroma at a time: a question waits for them."""
_MANY = 500
"""More changed scopes than this are looked at together."""


class ChromaDrain(Derived):
    """Fills Chroma and keeps it up to date, batch by batch, in the `turn` of one thread."""

    name = "index"

    def __init__(self, context: MemoryContext, *, eager: bool, drain_at: int) -> None:
        super().__init__(context)
        self.guard = threading.Lock()
        """Held by the thread whose turn it is."""
        self._eager = eager
        self._drain_at = drain_at
        self.checked = False
        """True once Chroma was compared with the database since the tally was opened."""
        self._seen: dict[int, int] = {}
        """By scope its revision at the last look for large ones."""
        self._seen_in = Layout()
        """The layout at that look: another process may have begun anew since."""
        self._look_at = 0.0
        self._pause, self._mend_at = 0.0, 0.0

    @contextmanager
    def turn(self, *, wait: bool) -> Iterator[bool]:
        """Let no other thread or process change Chroma inside of the block; yield False where one
        does, and this one was not to wait. Raises BusyTally, StorageError.
        """
        if not self.guard.acquire(blocking=wait):
            yield False
            return
        try:
            if self._context.index is None or not self._context.index.is_remote:
                yield True  # an embedded index has one owner
                return
            with self._database.turn_of("chroma", wait=wait) as mine:
                yield mine
        finally:
            self.guard.release()

    def check(self) -> Finding:
        """Compare Chroma with the database, once it is filled."""
        return self._look(repair=False)

    def repair(self, actor: Actor) -> Finding:
        """Make Chroma anew where it differs from the database."""
        return self._look(repair=True)

    def _look(self, *, repair: bool) -> Finding:
        context, index = self._context, self._context.index
        if index is None:
            text = self._large_scans()
            ok = "this tally has no Chroma index; vectors are scanned exactly"
            return self._says("ok", ok) if text is None else self._says("notice", text)
        fingerprint = context.embedder.fingerprint
        with self._database.read() as connection:
            state = state_of(connection, fingerprint)
            layout = state.layout
            missing = wanted_keys(connection, context).difference(layout.keys)
            text = _filling(connection, fingerprint, state)
        if text is not None:
            return self._says("notice", text)
        if not context.uses_chroma:
            hint = "; what Chroma has is removed by `tally rebuild-index`" if layout.keys else ""
            return self._says("ok", f"vectors are scanned exactly{hint}")
        if missing:
            text = f"Chroma is not filled with {_name_scopes(missing)} yet: the background does it"
            return self._says("notice", text)
        if not layout.keys:
            text = f"Chroma is not needed: no scope has more than {context.large_scope} memories"
            return self._says("ok", text)
        try:
            result = self.reconcile(repair=repair)
        except StorageError as error:
            return self._says("notice", f"Chroma was not looked at: {error}")
        if result.whole:
            return self._says("ok", f"{result.checked} vectors match the database")
        if repair:
            return self._says("repaired", "Chroma was made anew from the database")
        return self._says("problem", f"Chroma does not match ({result.reason}): {MEND}")

    def _large_scans(self) -> str | None:
        """Name what each recall compares that a Chroma server should answer."""
        context = self._context
        if not context.uses_chroma:
            return None
        with self._database.read() as connection:
            large = search.large_scopes(connection, above=context.large_scope)
        if not large:
            return None
        scanned = "1 scope has" if len(large) == 1 else f"{len(large)} scopes have"
        return (
            f"{scanned} more than {context.large_scope} memories, and this tally has no Chroma "
            "index: each recall there compares the signs of all vectors. Give the address of a "
            'Chroma server as `chroma`, or say that this is meant: `vector_search = "exact"`'
        )

    def reconcile(self, *, repair: bool) -> Reconciled:
        """Compare Chroma with the database, and with `repair` make it anew where they differ.
        Raises StorageError.
        """
        with self.turn(wait=True):
            result = reconcile(self._context)
            if result.whole or not repair:
                return result
            self._fill_anew()
            return replace(result, rebuilt=True)

    def take_in_grown(self) -> int:
        """Take what the setting asks for and Chroma does not have into the index, to be filled, if
        this process may write to it; return the number of collections. Chroma itself is not opened.
        Raises StorageError.
        """
        context, database = self._context, self._database
        if context.index is None or not context.uses_chroma:
            return 0
        try:
            fingerprint = context.embedder.fingerprint
        except EmbeddingError:
            return 0  # they are taken in when the embedder is back
        with database.read() as connection:
            layout = state_of(connection, fingerprint).layout
            revisions = scopes.all_revisions(connection)
            seen = self._seen if layout == self._seen_in else {}
            changed = [each for each in revisions if seen.get(each) != revisions[each]]
            among = changed if len(changed) <= _MANY else None
            missing = wanted_keys(connection, context, among=among).difference(layout.keys)
        if missing:
            if not context.index.owned:
                return 0
            if not layout.index:
                # The files may be those of another embedder.
                context.index.start_over()
            unit = partial(take_in, fingerprint=fingerprint, keys=missing)
            database.write(unit, name="chroma.take_in", writes=Writes.of(CHROMA))
            get_logger("jobs").info("chroma.filling", collections=len(missing))
        # Of a layout that changed just now nothing has been seen.
        self._seen, self._seen_in = {} if missing else revisions, layout
        return len(missing)

    def look_for_grown(self) -> None:
        """Same as `take_in_grown`, once in a while."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            self.take_in_grown()

    def is_due(self) -> bool:
        """Return True if a scope is to be filled or enough waits, and this process may write to
        Chroma.
        """
        index = self._context.index
        if index is None or not self._context.uses_chroma:
            return False
        backlog, is_filling = self._backlog()
        is_due = backlog > 0 and (self._eager or index.is_open or backlog >= self._drain_at)
        return (is_due or is_filling) and index.owned

    def complete(self) -> int:
        """Fill Chroma with all that the setting asks for and bring it up to date, if this process
        may write there; return the number of memories. Raises StorageError.
        """
        with self.turn(wait=True):
            return self._run()

    def _run(self) -> int:
        index = self._context.index
        if index is None or not self._context.uses_chroma:
            return 0
        self.take_in_grown()
        if not self._has_collections() or not index.owned:
            return 0
        self.mend()
        total = 0
        while (count := self.step()) is not None:
            total += count
        return total

    def backlog(self) -> int:
        """Return the number of memories that wait for Chroma."""
        return self._backlog()[0]

    def _backlog(self) -> tuple[int, bool]:
        """Return the number of memories that wait, and whether a scope is being filled."""
        if not self._context.uses_chroma:
            return 0, False
        try:
            fingerprint = self._context.embedder.fingerprint
        except EmbeddingError:
            return 0, False
        with self._database.read() as connection:
            lags = chroma_lags(connection, state_of(connection, fingerprint).layout)
            behind = sum(count_behind(connection, each, lags[each].mark) for each in lags)
        return behind, any(lag.mark.filling for lag in lags.values())

    def _has_collections(self) -> bool:
        fingerprint = self._context.embedder.fingerprint
        with self._database.read() as connection:
            return bool(state_of(connection, fingerprint).layout.keys)

    def mend_in_background(self) -> None:
        """Begin Chroma anew where it is in doubt or not the one that the database left, without a
        write; after a failure with growing pauses. Raises StorageError.
        """
        index = self._context.index
        if index is None or not self._context.uses_chroma:
            return
        needs_mending = index.doubt is not None or self._eager or index.is_open
        if not needs_mending or time.monotonic() < self._mend_at or not index.owned:
            return
        self._pause = min(_LONGEST_PAUSE, max(_FIRST_PAUSE, 2 * self._pause))
        self._mend_at = time.monotonic() + self._pause
        self.mend()
        self._pause = self._mend_at = 0.0

    def mend(self) -> None:
        """Begin Chroma anew where it is in doubt or not the one that the database left. Raises
        StorageError.
        """
        if mend(self._context):
            self.checked = True

    def repair_once(self) -> None:
        """Begin Chroma anew where it differs from the database: once per opening, before this
        process writes to it for the first time.
        """
        if self.checked:
            return
        self.checked = True
        result = reconcile(self._context)
        if not result.whole:
            get_logger("jobs").warning(
                "chroma.rebuilding",
                count=result.missing + result.stale + result.ghosts + result.unreachable,
            )
            begin_anew(self._context)

    def rebuild(self, progress: Progress) -> int:
        """Begin Chroma anew and fill it; return the number of vectors, 0 where the tally has no
        Chroma. Raises StorageError where another process owns it.
        """
        if self._context.index is None:
            return 0
        with self.turn(wait=True):
            return self._fill_anew(progress)

    def _fill_anew(self, progress: Progress = lambda count, total: None) -> int:
        begin_anew(self._context)
        self.checked = True
        fingerprint, count = self._context.embedder.fingerprint, 0
        with self._database.read() as connection:
            layout = state_of(connection, fingerprint).layout
            total = search.count_points(connection, fingerprint, scope_ids=layout.scopes)
        progress(0, total)
        count = 0
        while self.step() is not None:
            with self._database.read() as connection:
                count = sum(state_of(connection, fingerprint).counts.values())
            progress(count, max(total, count))
        return count

    def step(self) -> int | None:
        """Bring a batch of memories that Chroma has not followed into it, or out of it; return
        their number, None where nothing is left to do.
        """
        database, fingerprint = self._database, self._context.embedder.fingerprint
        with database.read() as connection:
            state = state_of(connection, fingerprint)
            lags = chroma_lags(connection, state.layout)
            docs, marks = _next_marks(connection, lags)
            points = search.points(connection, fingerprint, docs)
            erased = {
                scope_id: search.living_docs(connection, scope_id)
                for scope_id, mark in marks.items()
                if lags[scope_id].is_erased and mark.is_whole
            }
        if not marks:
            return None
        following = state
        if docs or erased:
            begun = {each for each in marks if lags[each].mark.revision < 0}
            following = self._write(state, begun, docs, points, erased)

        def unit(tx: Connection) -> None:
            # Another process may have taken in collections or drained meanwhile, where a server
            # ended this one's turn: then the batch is written once more.
            if state_of(tx, fingerprint) == state:
                keep_state(tx, fingerprint, following)
                keep_marks(tx, NAME, marks)

        database.write(unit, name="chroma.drained", writes=Writes.of(CHROMA))
        if filled := sum(lags[each].mark.filling > mark.filling for each, mark in marks.items()):
            get_logger("jobs").info("chroma.filled", scopes=filled)
        return len(docs)

    def _write(
        self,
        state: IndexState,
        begun: Collection[int],
        docs: Sequence[int],
        points: Sequence[search.Point],
        erased: Mapping[int, Collection[int]],
    ) -> IndexState:
        """Write a batch to Chroma; return the state to commit with it. Scopes that have `begun`
        leave the shared collection; of those `erased` what is not left is removed.
        """
        index, layout = owned_index(self._context), state.layout
        # A stamp on a copy of another time would make it look whole.
        if (fault := index.fault(state)) is not None:
            raise index.note_doubt(f"Chroma does not match the database: {fault}")
        index.announce(state)
        for scope_id in layout.own.intersection(begun) if layout.shared else ():
            index.leave_shared(scope_id)
        for start in range(0, len(points), _AT_A_TIME):
            index.upsert(points_of(self._context, points[start : start + _AT_A_TIME]))
        living = {point.doc for point in points}
        removed = [doc for doc in docs if doc not in living]
        for scope_id, left in erased.items():
            for page in index.docs(page=_AT_ONCE, scope_id=scope_id):
                removed += [doc for doc in page if doc not in left]
        index.delete(removed)
        return index.stamp(state)


def _next_marks(
    connection: Connection, lags: Mapping[int, Lag]
) -> tuple[list[int], dict[int, Mark]]:
    """Return the memories of the next batch, and how far Chroma follows their scopes with it."""
    docs, marks = list[int](), dict[int, Mark]()
    for scope_id, lag in lags.items():
        most = _AT_ONCE - len(docs)
        if not most:
            break
        rows = rows_behind(connection, scope_id, lag.mark, most=most)
        docs += [row.doc for row in rows]
        marks[scope_id] = (
            Mark(*rows[-1], filling=lag.mark.filling)
            if len(rows) == most
            else Mark.at(lag.revision)
        )
    return docs, marks


def _filling(connection: Connection, fingerprint: str, state: IndexState) -> str | None:
    """Say how far Chroma is filled; None where it is."""
    layout = state.layout
    marks = marks_of(connection, NAME, layout.scopes) if layout.keys else {}
    filling = [scope_id for scope_id, mark in marks.items() if mark.filling]
    if not filling:
        return None
    keys = {layout.key_of(scope_id) for scope_id in filling}
    total = search.count_points(connection, fingerprint, scope_ids=filling)
    count = min(total, sum(state.counts.get(key, 0) for key in keys))
    return (
        f"Chroma is being filled with {_name_scopes(keys)}: {count} of {total} vectors are there; "
        "until then they are scanned"
    )


def _name_scopes(keys: Collection[int | None]) -> str:
    """Name the collections of these keys by what is in them."""
    if None in keys:
        return "all scopes"
    return "1 large scope" if len(keys) == 1 else f"{len(keys)} large scopes"
