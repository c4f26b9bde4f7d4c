"""Work off the event loop: what a hook cannot await, the lane of checkpoints, jobs carried out for
engines of workflows, and reading ahead for a person.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from tallystick import memory
from tallystick.aio import on_event_loop
from tallystick.kit.arguments import check_count, check_tally
from tallystick.records import Job
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of


def on_close(tally: Tally, callback: Callable[[], object]) -> None:
    """Call `callback` when the tally is closed, before anything of it is: for threads of an
    adapter.
    """
    services_of(tally).closing.append(callback)


class Background:
    """One worker thread of an adapter. A flush or the close of its tally waits for what it has, so
    that a reader in this process sees it and nothing is lost. Thread-safe.
    """

    def __init__(self, tally: Tally) -> None:
        self._guard = threading.Lock()
        self._worker: ThreadPoolExecutor | None = None
        self._running: set[Future[None]] = set()
        self._is_worker = threading.local()
        self._database = services_of(tally).store.database

    def run(self, function: Callable[[], None]) -> None:
        """Call `function` now; on an event loop later, in the worker thread and in a copy of this
        context.
        """
        if not on_event_loop():
            function()
            return
        context = copy_context()
        with self._guard:
            if self._worker is None:
                self._worker = ThreadPoolExecutor(1, "tallystick-hooks", self._note_worker)
                # Not before: an application may make an observer for each of its requests.
                self._database.on_flush(self.finish)
            future = self._worker.submit(context.run, function)
            self._running.add(future)
        future.add_done_callback(self._drop)

    def finish(self) -> None:
        """Wait until everything that was handed over has run."""
        # The work itself reads and writes the tally: it must not wait for its own end.
        if not getattr(self._is_worker, "value", False):
            with self._guard:
                running = list(self._running)
            wait(running)

    def _note_worker(self) -> None:
        self._is_worker.value = True

    def _drop(self, future: Future[None]) -> None:
        with self._guard:
            self._running.discard(future)


def warm(bound: BoundTally) -> None:
    """Count scopes and map indexes for the actor of a view, so that their first list and their
    first recall find them. Nothing is logged, changed or sent. Raises StorageError, EmbeddingError.
    """
    memory.warm(services_of(bound).memory, bound.actor)


T = TypeVar("T")


def is_remote(tally: Tally) -> bool:
    """Return True if the tally is on a server, so that reads take longest on their way there."""
    return services_of(tally).store.database.is_remote


async def run_in_lane(tally: Tally, call: Callable[[], Callable[[], T]]) -> T:
    """Run a short call in the lane that all tasks share: one worker, so that they share commits.

    `call` begins the work; what it returns waits for its end.
    """
    return await services_of(tally).checkpoints.lane.run(call)


class JobRunning:
    """The jobs of a tally, of some kinds or of all. Thread-safe.

    Whatever an engine does twice, or at the same time on two hosts, is stored once: a job is leased
    before it is carried out, and its end is committed with what it makes.
    """

    def __init__(self, tally: Tally, kinds: Sequence[str] | None, *, usage: str) -> None:
        """Take what the piece was given; `usage` is the line to write. Raises InvalidInput."""
        check_tally(tally, usage)
        self._runner = services_of(tally).background.runner
        self._runner.require_kinds(kinds)
        self.kinds = tuple(kinds or self._runner.handlers)

    def due(self, *, limit: int = 1_000) -> list[Job]:
        """Return the jobs that can be leased now, the oldest first, in turn from each scope. Raises
        InvalidInput, StorageError.
        """
        check_count("limit", limit, least=1)
        return self._runner.due(self.kinds, limit=limit)

    def carry_out(self, job_id: str, kind: str) -> bool:
        """Carry out one job if it is due, and store how it ended; return False where it is not due,
        or another worker has it. What its handler raises is written into its trail.
        """
        return self._runner.run_one(job_id, kind)
