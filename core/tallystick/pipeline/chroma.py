"""The drain of the outbox: brings Chroma up to date with the database while this process owns it,
and makes it anew where it is not the one that the database left.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.pipeline.reconcile import give_own, mend, rebuild, reconcile
from tallystick.ranking import whole_vectors
from tallystick.storage import Connection, outbox, search
from tallystick.storage.chroma import VectorPoint
from tallystick.storage.chroma_layout import keep_state, layout_of, new_index, state_of
from tallystick.storage.writes import CHROMA, Writes

_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
"""The pauses after attempts to mend Chroma that failed, seconds; they double."""


class ChromaDrain:
    """Drains the outbox batch by batch. Used by one thread at a time."""

    def __init__(self, context: MemoryContext, *, eager: bool, drain_at: int, batch: int) -> None:
        self._context = context
        self._eager = eager
        self._drain_at = drain_at
        self._batch = batch
        self.checked = False
        """True once Chroma was compared with the database since the tally was opened."""
        self._drained, self._give_own_at = 0, 1
        self._pause, self._mend_at = 0.0, 0.0

    @property
    def owned(self) -> bool:
        """True if there is an index and this process may write to it."""
        return self._context.index is not None and self._context.index.owned

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

    def is_due(self) -> bool:
        """Return True if enough waits and this process may write to Chroma."""
        index = self._context.index
        if index is None or not self._context.uses_chroma:
            return False
        backlog = self.backlog()
        if backlog == 0 or not (self._eager or index.is_open or backlog >= self._drain_at):
            return False
        return index.owned

    def backlog(self) -> int:
        """Return the number of entries of the outbox."""
        with self._context.store.database.read() as connection:
            return outbox.backlog(connection)

    def mend_in_background(self) -> None:
        """Rebuild Chroma where it is in doubt or not the one that the database left, without a
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
        """Rebuild Chroma where it is in doubt or not the one that the database left. Raises
        StorageError.
        """
        if mend(self._context):
            self.checked = True

    def repair_once(self) -> None:
        """Rebuild Chroma where it differs from the database: once per opening, before this process
        writes to it for the first time.
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
            rebuild(self._context)

    def drain(self) -> int:
        """Bring the oldest entries into Chroma: current state in, removed memories out, then trim.
        Return the number of memories.
        """
        index = self._context.index
        assert index is not None
        database, fingerprint = self._context.store.database, self._context.embedder.fingerprint
        with database.read() as connection:
            entries, docs = outbox.take(connection, most=self._batch)
            if not docs:
                return 0
            rows = search.points(connection, fingerprint, docs)
            layout = layout_of(connection, fingerprint)
            state = state_of(connection, fingerprint)
        if not layout.index:
            database.write(
                lambda tx: new_index(tx, fingerprint), name="chroma.new", writes=Writes.of(CHROMA)
            )
            return self.drain()
        index.arrange(layout)
        # A stamp on a copy of another time would make it look whole.
        if (fault := index.fault(state)) is not None:
            raise index.doubted(f"Chroma does not match the database: {fault}")
        index.announce(state)
        living = {row.doc for row in rows}
        if rows:
            matrix = whole_vectors([row.vector for row in rows], self._context.embedder.dimension)
            index.upsert(
                [
                    VectorPoint(row.doc, row.scope_id, row.version, vector)
                    for row, vector in zip(rows, matrix, strict=True)
                ]
            )
        index.delete([doc for doc in docs if doc not in living])
        following = index.stamp(state)

        def trim(tx: Connection) -> None:
            # Another process may have moved the collections or drained meanwhile, where a server
            # ended this one's turn: then these entries are drained once more.
            if layout_of(tx, fingerprint) == layout and state_of(tx, fingerprint) == state:
                outbox.trim(tx, entries)
                keep_state(tx, fingerprint, following)

        database.write(trim, name="outbox.trim", writes=Writes.of(CHROMA))
        self._drained += len(docs)
        return len(docs)

    def give_own(self) -> None:
        """Give scopes that have grown large a collection of their own: after the first drain, and
        then now and then.
        """
        if self._drained >= self._give_own_at:
            give_own(self._context)
            self._drained = 0
            self._give_own_at = max(self._batch, self._context.exact_scan_limit // 10)
