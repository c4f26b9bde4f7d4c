"""The worker: leases jobs and hands them to the handler of their kind, then lets Chroma catch up.

It works in the background of one tally, or when asked. Recall is right before, during and after.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from tallystick.errors import ClosedTally, TallystickError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.pipeline.chroma import ChromaDrain
from tallystick.pipeline.embedding import EmbeddingHandler
from tallystick.pipeline.reconcile import Progress, Reconciled, rebuild, reconcile
from tallystick.records import ReasonCode
from tallystick.storage import jobs, scopes

__all__ = ["Drained", "Handler", "Worker"]

_BATCH = 200
_LEASE_SECONDS = 120
_PAUSE_SECONDS = 0.5
_POLL_SECONDS = 5.0
"""The pause after which the background looks for writes of other processes and for due retries."""
_SWEEP_SECONDS = 60.0
"""The pause after which it looks for memories without a vector, which only a failure or a changed
embedder leaves.
"""


class Handler(Protocol):
    """Carries out the jobs of one kind."""

    @property
    def kind(self) -> str:
        """The kind of its jobs."""
        ...

    @property
    def retried(self) -> tuple[type[TallystickError], ...]:
        """Errors after which the jobs are tried again with growing delay; after any other their
        lease runs out.
        """
        ...

    def handle(self, leased: Sequence[jobs.Job]) -> None:
        """Carry out jobs whose authority was checked, and finish them in the transaction that
        stores their result.
        """


@dataclass(frozen=True)
class Drained:
    """The result of one round."""

    embedded: int
    """Vectors made, of jobs and of memories that had none of the current embedder."""
    indexed: int
    """Memories brought up to date in Chroma."""
    left: int
    """Outbox entries that still wait, because another process owns Chroma or it was not asked for.
    """


class Worker:
    """Carries out follow-up work of one tally: in the background, or when asked with `run`.

    One round runs at a time; `paused`, `reconcile` and `rebuild` wait for it.
    """

    def __init__(self, context: MemoryContext, *, eager: bool, drain_at: int = 1_000) -> None:
        self._context = context
        self._embedding = EmbeddingHandler(context, batch=_BATCH)
        self._handlers: tuple[Handler, ...] = (self._embedding,)
        self._chroma = ChromaDrain(context, eager=eager, drain_at=drain_at, batch=_BATCH)
        self.wake = threading.Event()
        if context.index is not None:
            context.index.on_doubt = self.wake.set
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._swept_at = 0.0
        self.failures = 0
        """Rounds that failed since the tally was opened."""

    def start(self) -> None:
        """Begin to work in the background."""
        self._thread = threading.Thread(target=self._work, name="tallystick-worker", daemon=True)
        self._thread.start()
        self.wake.set()

    def stop(self) -> None:
        """Stop after the piece of work under way."""
        self._stop.set()
        self.wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def run(self) -> Drained:
        """Do everything that waits, Chroma included, now. Raises EmbeddingError, StorageError."""
        with self._guard:
            embedded = indexed = 0
            while (count := self._run_jobs() + self._embedding.embed_missing()) > 0:
                embedded += count
            self._swept_at = time.monotonic()
            if self._chroma.owned:
                self._chroma.mend()
                while (count := self._chroma.drain()) > 0:
                    indexed += count
                self._chroma.give_own()
            return Drained(embedded, indexed, self._chroma.backlog())

    def reconcile(self, *, repair: bool) -> Reconciled:
        """Compare Chroma with the database, and with `repair` rebuild it where they differ."""
        with self._guard:
            result = reconcile(self._context)
            if result.whole or not repair:
                return result
            rebuild(self._context)
            self._chroma.checked = True
            return replace(result, rebuilt=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no round begin inside of this block."""
        with self._guard:
            yield

    def rebuild(self, progress: Progress) -> int:
        """Build Chroma's collections anew from the database; return the number of their vectors."""
        with self._guard:
            return rebuild(self._context, progress=progress)

    def _work(self) -> None:
        while not self._stop.is_set():
            self.wake.wait(_POLL_SECONDS)
            self.wake.clear()
            # A short pause gathers the writes of a burst, and keeps short scripts free of this
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
            while not self._stop.is_set() and self._run_jobs() > 0:
                pass
            if self._swept_at == 0.0 or time.monotonic() - self._swept_at > _SWEEP_SECONDS:
                while not self._stop.is_set() and self._embedding.embed_missing() > 0:
                    pass
                self._swept_at = time.monotonic()
            self._chroma.mend_in_background()
            if not self._chroma.is_due():
                return
            self._chroma.repair_once()
            while not self._stop.is_set() and self._chroma.drain() > 0:
                pass
            if not self._stop.is_set():
                self._chroma.give_own()

    def _run_jobs(self) -> int:
        """Lease a batch of each kind and carry it out; return 0 when no job is due."""
        return sum(self._run_batch(handler) for handler in self._handlers)

    def _run_batch(self, handler: Handler) -> int:
        database = self._context.store.database
        with database.read() as connection:
            if not jobs.due(connection, kind=handler.kind):
                return 0
        worker = f"{os.getpid()}-{id(self)}"
        leased = database.write(
            lambda tx: jobs.lease(
                tx, kind=handler.kind, worker=worker, most=_BATCH, seconds=_LEASE_SECONDS
            ),
            name="jobs.lease",
        )
        if not leased:
            return 0
        leased = self._authorised(leased)
        if not leased:
            return 1
        try:
            handler.handle(leased)
        except handler.retried as error:
            ids, kind = [job.id for job in leased], type(error).__name__
            database.write(lambda tx: jobs.fail(tx, ids, error=kind), name="jobs.fail")
            raise
        return len(leased)

    def _authorised(self, leased: list[jobs.Job]) -> list[jobs.Job]:
        """Return the jobs whose actor may still write in their scope; bury the others, which will
        never run.
        """
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
                # A freeze ends no authority: follow-up work changes nothing that was said.
                if not decision.allowed and decision.reason != "mutations_frozen":
                    unfit.setdefault("job_policy_context_stale", []).append(job.id)
        for reason, ids in unfit.items():
            database.write(partial(jobs.bury, job_ids=ids, error=reason), name="jobs.bury")
        buried = {job_id for ids in unfit.values() for job_id in ids}
        return [job for job in leased if job.id not in buried]
