"""The indexer: brings vectors up to date with the text, and Chroma up to date with the vectors.

It runs embedding jobs (remote embedders), embeds again what has no vector of the current embedder
(a changed one), and drains the outbox into Chroma when this process owns it. Recall is right
before, during and after.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from tallystick.errors import ClosedTally, EmbeddingError, TallystickError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.memory.context import is_local_only
from tallystick.pipeline.reconcile import Progress, Reconciled, give_own, rebuild, reconcile
from tallystick.ranking import whole_vectors
from tallystick.records import ReasonCode
from tallystick.storage import Connection, jobs, memories, outbox, scopes, search
from tallystick.storage.chroma_layout import layout_of

__all__ = ["Drained", "Indexer"]

_BATCH = 200
_LEASE_SECONDS = 120
_PAUSE_SECONDS = 0.5
_POLL_SECONDS = 5.0
"""How often the background looks for what other processes wrote and for jobs whose retry is due."""
_LOOK_AGAIN_SECONDS = 60.0
"""How often it looks for memories without a vector, which only a failure or a changed embedder
leaves.
"""


@dataclass(frozen=True)
class Drained:
    """What one round did."""

    embedded: int
    """Vectors made, of jobs and of memories that had none of the current embedder."""
    indexed: int
    """Memories brought up to date in Chroma."""
    left: int
    """Outbox entries that still wait, because another process owns Chroma or it was not asked for.
    """


class Indexer:
    """Works in the background of one tally, or when asked with `run`."""

    def __init__(self, context: MemoryContext, *, eager: bool, drain_at: int = 1_000) -> None:
        self._context = context
        self._eager = eager
        self._drain_at = drain_at
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._looked = 0.0
        self._checked = False
        self._drained, self._look_at = 0, 1
        self.failures = 0
        """Rounds that failed since the tally was opened."""

    def start(self) -> None:
        """Begin to work in the background."""
        self._thread = threading.Thread(target=self._work, name="tallystick-indexer", daemon=True)
        self._thread.start()
        self._wake.set()

    def nudge(self) -> None:
        """Say that something was written."""
        if not self._wake.is_set():  # to look costs less than to set it anew
            self._wake.set()

    def stop(self) -> None:
        """Stop after the piece of work under way."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def run(self) -> Drained:
        """Do everything that waits, Chroma included, now. Raises EmbeddingError, StorageError."""
        with self._guard:
            embedded = indexed = 0
            while (done := self._embed_jobs() + self._embed_missing()) > 0:
                embedded += done
            self._looked = time.monotonic()
            if self._context.index is not None and self._context.index.owned:
                while (done := self._drain()) > 0:
                    indexed += done
                self._give_own()
            return Drained(embedded, indexed, self._backlog())

    def reconcile(self, *, repair: bool) -> Reconciled:
        """Hold Chroma against the database, and with `repair` rebuild it where it does not
        match.
        """
        with self._guard:
            found = reconcile(self._context)
            if found.whole or not repair:
                return found
            rebuild(self._context)
            self._checked = True
            return replace(found, rebuilt=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No round begins inside of this block."""
        with self._guard:
            yield

    def rebuild(self, progress: Progress) -> int:
        """Make Chroma's collection anew from the database; how many vectors it holds."""
        with self._guard:
            return rebuild(self._context, progress=progress)

    def _work(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(_POLL_SECONDS)
            self._wake.clear()
            # A short pause gathers what is written in a burst, and keeps short scripts free of this
            # work.
            if self._stop.wait(_PAUSE_SECONDS):
                return
            try:
                self._round()
            except ClosedTally:
                return
            except TallystickError as error:
                self.failures += 1
                get_logger("pipeline").warning(
                    "indexer.failed", error=type(error).__name__, failures=self.failures
                )

    def _round(self) -> None:
        with self._guard:
            while not self._stop.is_set() and self._embed_jobs() > 0:
                pass
            if self._looked == 0.0 or time.monotonic() - self._looked > _LOOK_AGAIN_SECONDS:
                while not self._stop.is_set() and self._embed_missing() > 0:
                    pass
                self._looked = time.monotonic()
            if not self._wants_chroma():
                return
            if not self._checked:
                self._repair_if_needed()
            while not self._stop.is_set() and self._drain() > 0:
                pass
            if not self._stop.is_set():
                self._give_own()

    def _repair_if_needed(self) -> None:
        """Once per opening, before this process writes to Chroma for the first time."""
        self._checked = True
        found = reconcile(self._context)
        if not found.whole:
            get_logger("pipeline").warning(
                "chroma.rebuilding",
                count=found.missing + found.stale + found.ghosts + found.unreachable,
            )
            rebuild(self._context)

    def _wants_chroma(self) -> bool:
        index = self._context.index
        if index is None or self._context.vector_search == "exact":
            return False
        waiting = self._backlog()
        if waiting == 0 or not (self._eager or index.is_open or waiting >= self._drain_at):
            return False
        return index.owned

    def _backlog(self) -> int:
        with self._context.store.database.read() as connection:
            return outbox.backlog(connection)

    def _embed_jobs(self) -> int:
        database = self._context.store.database
        with database.read() as connection:
            if not jobs.due(connection, kind="embed"):
                return 0
        worker = f"{os.getpid()}-{id(self)}"
        leased = database.write(
            lambda tx: jobs.lease(
                tx, kind="embed", worker=worker, most=_BATCH, seconds=_LEASE_SECONDS
            ),
            name="jobs.lease",
        )
        if not leased:
            return 0
        leased = self._authorised(leased)
        if not leased:
            return 1
        ids = [job.id for job in leased]
        with database.read() as connection:
            found = [memories.get(connection, job.subject_id) for job in leased]
        living = [
            stored
            for stored in found
            if stored is not None and stored.memory.state in memories.FINDABLE
        ]
        if not self._context.local_embedder:
            living = [stored for stored in living if not is_local_only(stored.memory.attributes)]
        try:
            vectors = self._vectors(living)
        except EmbeddingError as error:
            kind = type(error).__name__
            database.write(lambda tx: jobs.fail(tx, ids, error=kind), name="jobs.fail")
            raise
        database.write(lambda tx: self._finalize(tx, living, vectors, ids), name="finalize")
        return len(leased)

    def _authorised(self, leased: list[jobs.Job]) -> list[jobs.Job]:
        """Those whose actor may still write where they work; the others will never run."""
        database, gate = self._context.store.database, self._context.gate
        unfit: dict[ReasonCode, list[str]] = {}
        with database.read() as connection:
            for job in leased:
                if job.actor is None:
                    unfit.setdefault("job_policy_context_missing", []).append(job.id)
                    continue
                decision = gate.decide(
                    connection, job.actor, "write", scopes.named(connection, job.scope_id).scope
                )
                # What is frozen for a while does not end an authority; embedding changes nothing
                # that was said.
                if not decision.allowed and decision.reason != "mutations_frozen":
                    unfit.setdefault("job_policy_context_stale", []).append(job.id)
        for reason, ids in unfit.items():
            database.write(partial(jobs.bury, job_ids=ids, error=reason), name="jobs.bury")
        gone = {job_id for ids in unfit.values() for job_id in ids}
        return [job for job in leased if job.id not in gone]

    def _embed_missing(self) -> int:
        database = self._context.store.database
        with database.read() as connection:
            # Those with an embedding job are left to it: it has their retries.
            docs = search.docs_missing_vectors(
                connection,
                self._context.embedder.fingerprint,
                limit=_BATCH,
                local_embedder=self._context.local_embedder,
            )
            living = list(memories.get_docs(connection, docs).values())
        if not living:
            return 0
        vectors = self._vectors(living)
        return database.write(lambda tx: self._finalize(tx, living, vectors, []), name="finalize")

    def _vectors(self, living: Sequence[memories.Stored]) -> list[bytes]:
        if not living:
            return []
        return self._context.embedded([stored.memory for stored in living])

    def _finalize(
        self,
        tx: Connection,
        living: Sequence[memories.Stored],
        vectors: Sequence[bytes],
        job_ids: list[str],
    ) -> int:
        """Store the vectors of those memories that still say what was embedded; how many those
        are.
        """
        fingerprint = self._context.embedder.fingerprint
        current = memories.get_docs(tx, [stored.doc for stored in living])
        missing = search.without_vector(tx, fingerprint, [stored.doc for stored in living])
        rows = [
            (stored.doc, stored.scope_id, stored.memory.version, vector)
            for stored, vector in zip(living, vectors, strict=True)
            if stored.doc in missing and current[stored.doc].memory.version == stored.memory.version
        ]
        search.add_vectors(tx, rows, fingerprint)
        outbox.append(tx, [doc for doc, *_ in rows])
        for scope_id in sorted({scope_id for _, scope_id, *_ in rows}):
            docs = [doc for doc, of, *_ in rows if of == scope_id]
            search.touch(tx, docs, revision=scopes.next_revision(tx, scope_id))
        if job_ids:
            jobs.finish(tx, job_ids)
        return len(rows)

    def _drain(self) -> int:
        """Bring the oldest entries of the outbox into Chroma: current state in, what is gone out,
        then trim.
        """
        index = self._context.index
        assert index is not None
        database, fingerprint = self._context.store.database, self._context.embedder.fingerprint
        with database.read() as connection:
            last, docs = outbox.take(connection, most=_BATCH)
            if not docs:
                return 0
            rows = search.points(connection, fingerprint, docs)
            layout = layout_of(connection, fingerprint)
        index.arrange(layout)
        living = {row.doc for row in rows}
        if rows:
            matrix = whole_vectors([row.vector for row in rows], self._context.embedder.dimension)
            index.upsert(
                [
                    (row.doc, row.scope_id, row.version, vector)
                    for row, vector in zip(rows, matrix, strict=True)
                ]
            )
        index.delete([doc for doc in docs if doc not in living])

        def trim(tx: Connection) -> None:
            # Another process may have moved the collections meanwhile: then these entries are
            # drained once more.
            if layout_of(tx, fingerprint) == layout:
                outbox.trim(tx, last)

        database.write(trim, name="outbox.trim")
        self._drained += len(docs)
        return len(docs)

    def _give_own(self) -> None:
        """Look whether a scope has grown large: after the first drain, and then now and then."""
        if self._drained >= self._look_at:
            give_own(self._context)
            self._drained, self._look_at = 0, max(_BATCH, self._context.exact_scan_limit // 10)
