"""The drain: fills Chroma with the scopes that are large, and brings it up to date from the outbox,
while this process owns it.

Both go in batches: from the database into Chroma outside of any transaction, then a short one that
notes how far it came. A process that dies in between repeats a batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tallystick.errors import EmbeddingError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.pipeline.reconcile import (
    begin_anew,
    mend,
    owned_index,
    points_of,
    reconcile,
    scopes_in,
    wanted_keys,
)
from tallystick.storage import Connection, outbox, scopes, search
from tallystick.storage.chroma_layout import (
    IndexState,
    Layout,
    forget,
    keep_state,
    layout_of,
    state_of,
    take_in,
)
from tallystick.storage.writes import CHROMA, Writes

Progress = Callable[[int, int], None]
"""Receives the number of vectors that are done, and of all."""

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
"""The pauses after attempts to mend Chroma that failed, seconds; they double."""
_LOOK_SECONDS = 60.0
"""The pause after which it looks for scopes that have grown large."""
_FILLED_AT_ONCE = 1_000
"""The vectors of one batch of a collection that is being filled."""
_MANY = 500
"""More changed scopes than this are looked at together."""


class ChromaDrain:
    """Fills Chroma and drains the outbox batch by batch. Used by one thread at a time."""

    def __init__(self, context: MemoryContext, *, eager: bool, drain_at: int, batch: int) -> None:
        self._context = context
        self._eager = eager
        self._drain_at = drain_at
        self._batch = batch
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
        """Let no other process change Chroma inside of the block; yield False where one does, and
        this one was not to wait. Raises BusyTally, StorageError.
        """
        if self._context.index is None or not self._context.index.is_remote:
            yield True  # an embedded index has one owner
            return
        with self._context.store.database.turn_of("chroma", wait=wait) as mine:
            yield mine

    def take_in_grown(self) -> int:
        """Take what the setting asks for and Chroma does not have into the index, to be filled, if
        this process may write to it; return the number of collections. Chroma itself is not opened.
        Raises StorageError.
        """
        context, database = self._context, self._context.store.database
        if context.index is None or not context.uses_chroma:
            return 0
        try:
            fingerprint = context.embedder.fingerprint
        except EmbeddingError:
            return 0  # they are taken in when the embedder is back
        with database.read() as connection:
            layout = layout_of(connection, fingerprint)
            revisions = scopes.all_revisions(connection)
            seen = self._seen if layout == self._seen_in else {}
            changed = [each for each in revisions if seen.get(each) != revisions[each]]
            among = changed if len(changed) <= _MANY else None
            missing = wanted_keys(connection, context, among=among).difference(layout.keys)
            names = [scopes.named(connection, key).scope for key in missing if key is not None]
        if missing:
            if not context.index.owned:
                return 0
            unit = partial(take_in, fingerprint=fingerprint, keys=missing)
            if layout.index and None not in missing:
                declared = Writes.of(CHROMA, *names)
                database.write(unit, name="chroma.take_in", writes=declared)
            else:
                # The first one forgets the index of another embedder, and its files.
                if not layout.index:
                    context.index.start_over()
                database.write(unit, name="chroma.new")
            get_logger("pipeline").info("chroma.filling", collections=len(missing))
        # Of a layout that changed just now nothing has been seen.
        self._seen, self._seen_in = {} if missing else revisions, layout
        return len(missing)

    def look_for_grown(self) -> None:
        """Same as `take_in_grown`, once in a while."""
        if time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + _LOOK_SECONDS
            self.take_in_grown()

    def forget_undrained(self) -> None:
        """Forget the index where as much waits for it as fills it anew: nobody drains it, and this
        process may not.
        """
        context = self._context
        if self.backlog() <= context.large_scope:
            return
        if context.uses_chroma and context.index is not None and context.index.owned:
            return
        if context.store.database.write_if_possible(forget, name="chroma.forget"):
            get_logger("pipeline").warning("chroma.forgotten", reason="nobody drains the outbox")

    def is_due(self) -> bool:
        """Return True if a collection is to be filled or enough waits, and this process may write
        to Chroma.
        """
        index = self._context.index
        if index is None or not self._context.uses_chroma:
            return False
        backlog = self.backlog()
        is_due = backlog > 0 and (self._eager or index.is_open or backlog >= self._drain_at)
        return (is_due or bool(self._state().filling)) and index.owned

    def run(self) -> int:
        """Fill Chroma with all that the setting asks for, and drain the outbox, if this process may
        write there; return the number of memories. Raises StorageError.
        """
        index = self._context.index
        self.forget_undrained()
        if index is None or not self._context.uses_chroma:
            return 0
        self.take_in_grown()
        if not (self._state().upcoming or self.backlog()) or not index.owned:
            return 0
        self.mend()
        total = 0
        while count := self.step():
            total += count
        return total

    def backlog(self) -> int:
        """Return the number of entries of the outbox."""
        with self._context.store.database.read() as connection:
            return outbox.backlog(connection)

    def _state(self) -> IndexState:
        try:
            fingerprint = self._context.embedder.fingerprint
        except EmbeddingError:
            return IndexState()
        with self._context.store.database.read() as connection:
            return state_of(connection, fingerprint)

    def mend_in_background(self) -> None:
        """Begin Chroma anew where it is in doubt or not the one that the database left, without a
        write; after a failure with growing pauses. Raises StorageError.
        """
        index = self._context.index
        if index is None or not self._context.uses_chroma:
            return
        wanted = index.doubt is not None or self._eager or index.is_open
        if not wanted or time.monotonic() < self._mend_at or not index.owned:
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
            get_logger("pipeline").warning(
                "chroma.rebuilding",
                count=result.missing + result.stale + result.ghosts + result.unreachable,
            )
            begin_anew(self._context)

    def rebuild(self, progress: Progress = lambda count, total: None) -> int:
        """Begin Chroma anew and fill it; return the number of vectors. Raises StorageError."""
        begin_anew(self._context)
        self.checked = True
        fingerprint, count = self._context.embedder.fingerprint, 0
        with self._context.store.database.read() as connection:
            layout = layout_of(connection, fingerprint)
            total = search.count_points(connection, fingerprint, scope_ids=scopes_in(layout))
        progress(0, total)
        while (added := self.fill()) is not None:
            count += added
            progress(count, max(total, count))
        return count

    def step(self) -> int:
        """Drain a batch of the outbox, or else fill one; return the memories that were looked at, 0
        where nothing is left to do.
        """
        if drained := self.drain():
            return drained
        filled = self.fill()
        return 0 if filled is None else max(1, filled)

    def drain(self) -> int:
        """Bring the oldest entries into Chroma: current state in, removed memories out, then trim.
        Return the number of memories.
        """
        fingerprint = self._context.embedder.fingerprint
        with self._context.store.database.read() as connection:
            entries, docs = outbox.take(connection, most=self._batch)
            layout, state = layout_of(connection, fingerprint), state_of(connection, fingerprint)
            rows = search.points(connection, fingerprint, docs)
        if not docs:
            return 0
        living = {row.doc for row in rows}
        self._write(
            layout,
            state,
            state.filling,
            [row for row in rows if layout.includes(row.scope_id)],
            removed=[doc for doc in docs if doc not in living],
            drained=entries,
        )
        return len(docs)

    def fill(self) -> int | None:
        """Bring the next batch of a collection that is not filled into Chroma; return the number of
        vectors, None where all are filled.
        """
        fingerprint = self._context.embedder.fingerprint
        with self._context.store.database.read() as connection:
            layout, state = layout_of(connection, fingerprint), state_of(connection, fingerprint)
            if not state.filling:
                return None
            key, after = next(iter(state.filling.items()))
            rows = search.page_of_points(
                connection,
                fingerprint,
                after=after,
                most=_FILLED_AT_ONCE,
                scope_ids=None if key is None else (key,),
                besides=layout.own if key is None else (),
            )
        filling, is_filled = dict(state.filling), len(rows) < _FILLED_AT_ONCE
        if is_filled:
            del filling[key]
        else:
            filling[key] = rows[-1].doc
        self._write(layout, state, filling, rows, left=key if is_filled else None)
        if is_filled:
            get_logger("pipeline").info("chroma.filled", scope=key, left=len(filling))
        return len(rows)

    def _write(
        self,
        layout: Layout,
        state: IndexState,
        filling: Mapping[int | None, int],
        rows: Sequence[search.Point],
        *,
        removed: Sequence[int] = (),
        drained: Sequence[int] = (),
        left: int | None = None,
    ) -> None:
        """Write a batch to Chroma, then note in the database what was drained and filled; `left` is
        a scope whose points in the shared collection are not needed any more.
        """
        database, fingerprint = self._context.store.database, self._context.embedder.fingerprint
        following = state
        if layout.keys:
            index = owned_index(self._context)
            index.arrange(layout)
            # A stamp on a copy of another time would make it look whole.
            if (fault := index.fault(state)) is not None:
                raise index.doubted(f"Chroma does not match the database: {fault}")
            index.announce(state)
            # In pieces: a question waits for one of them.
            for start in range(0, len(rows), self._batch):
                index.upsert(points_of(self._context, rows[start : start + self._batch]))
            index.delete(removed)
            if left is not None:
                index.leave_shared(left)
            following = replace(index.stamp(state), filling=filling)

        def unit(tx: Connection) -> None:
            # Another process may have taken in collections or drained meanwhile, where a server
            # ended this one's turn: then the batch is written once more.
            if layout_of(tx, fingerprint) == layout and state_of(tx, fingerprint) == state:
                outbox.trim(tx, drained)
                if layout.keys:
                    keep_state(tx, fingerprint, following)

        database.write(unit, name="outbox.trim", writes=Writes.of(CHROMA))
