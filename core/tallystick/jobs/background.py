"""The background of one tally: its jobs, and whatever is derived.

Recall is right before, during and after. Workers call `turn`; `run` does all of it at once.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tallystick.errors import ClosedTally, ForkedTally, TallystickError
from tallystick.jobs.chroma import ChromaDrain
from tallystick.jobs.derived import Conclusions, Derived, Objects, Progress, Segments, Words
from tallystick.jobs.embedding import EmbeddingHandler, ReembeddingHandler, Vectors
from tallystick.jobs.runner import FailedJob, Handler, JobRunner, Round
from tallystick.jobs.worker import Worker
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.memory.reconcile import Reconciled
from tallystick.records import RebuiltIndex

_SWEEP_SECONDS = 60.0
"""The pause after which it brings up to date what is derived."""
_INDEX_SECONDS = 2.0
"""The time after which filling Chroma lets jobs have their turn."""


@dataclass(frozen=True)
class Drained:
    """The result of one round."""

    embedded: int
    """Vectors made, of jobs and of memories that had none of the current embedder."""
    indexed: int
    """Memories brought up to date in Chroma, or into it where a scope has grown large."""
    left: int
    """Memories that still wait for Chroma, as another process owns it or it was not asked for."""
    jobs: int = 0
    """Jobs that were carried out, whatever came of them."""
    failed: tuple[FailedJob, ...] = ()
    """Of them those that failed: each ended so, or waits for its next attempt."""


@dataclass
class Chore:
    """Work that is looked after now and then, such as retention."""

    call: Callable[[], object]
    every: float
    """Seconds from one call to the next."""
    first: float = 0.0
    """Seconds from the opening to the first call."""
    done_at: float | None = None


class Background:
    """The follow-up work of one tally. Thread-safe.

    `pause`, `reconcile` and `rebuild` wait for the work under way.
    """

    def __init__(
        self,
        context: MemoryContext,
        handlers: Iterable[Handler] = (),
        *,
        derived: Sequence[Derived] = (),
        chores: Iterable[Chore] = (),
        eager: bool,
        drain_at: int = 1_000,
    ) -> None:
        self._context = context
        self.runner = JobRunner(
            context.store,
            context.gate,
            [
                EmbeddingHandler(context),
                ReembeddingHandler(context),
                *handlers,
            ],
        )
        self._chroma = ChromaDrain(context, eager=eager, drain_at=drain_at)
        self.derived: tuple[Derived, ...] = (
            Words(context),
            Vectors(context),
            self._chroma,
            Segments(context),
            Conclusions(context),
            Objects(context),
            *derived,
        )
        """What the doctor asks, and the background brings up to date."""
        self._chores = [
            *(Chore(patient(each.name, each.follow), _SWEEP_SECONDS) for each in self.derived),
            *chores,
        ]
        self._opened_at = time.monotonic()
        self._traffic = _Traffic()
        self._workers: list[Worker] = []
        self._hurried: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self.wakes: tuple[threading.Event, ...] = ()
        """What a write sets, so that each worker looks for its job at once."""
        if context.index is not None:
            context.index.on_doubt = self.wake

    def add_chores(self, chores: Iterable[Chore]) -> None:
        """Look after more, with what is looked after already."""
        self._chores += chores

    @property
    def failures(self) -> int:
        """Rounds that failed since the tally was opened."""
        return sum(worker.failures for worker in self._workers)

    def worker(self, kinds: Sequence[str] | None = None) -> Worker:
        """Return a new worker of this tally, for jobs of some kinds or for everything. It is not
        started. Raises InvalidInput for a kind that nothing handles.
        """
        self.runner.require_kinds(kinds)
        worker = Worker(lambda stopping: self.turn(stopping, kinds))
        self._workers.append(worker)
        self.wakes = tuple(each.wake for each in self._workers)
        return worker

    def wake(self) -> None:
        """Let the workers look for work at once."""
        for event in self.wakes:
            if not event.is_set():  # to look costs less than to set it anew
                event.set()

    def stop(self) -> None:
        """Stop every worker after the piece of work under way, and what `run_within` left behind:
        no later than its providers may take.
        """
        for worker in self._workers:
            worker.stop()
        for thread in list(self._hurried):
            thread.join()

    def turn(self, stopping: Callable[[], bool], kinds: Sequence[str] | None = None) -> Round:
        """Carry out what is due, for a worker; `stopping` ends it between two pieces."""
        is_pausing = self._traffic.is_closed
        with self._traffic.inside() as entered:
            if not entered:
                return Round()
            if kinds is None:
                self._do_chores()
            result = self.runner.run(kinds, is_stopping=lambda: stopping() or is_pausing())
        if kinds is None and not is_pausing():
            with self._chroma.turn(wait=False) as mine:
                if mine:
                    self._index_turn(lambda: stopping() or is_pausing())
        return result

    def run(self, progress: Progress = lambda count, total: None) -> Drained:
        """Do everything that waits, Chroma included, now. Raises StorageError, and the error of a
        provider that is away where no job could be done.
        """
        with self._traffic.inside(wait=True):
            for each in self.derived:
                each.follow()
            result = self.runner.run(drain=True, progress=progress)
        completed = {each.name: each.complete() for each in self.derived}
        if result.outage is not None and not result.ended:
            raise result.outage
        failed = tuple(result.failed.values())
        indexed, left = completed[self._chroma.name], self._chroma.backlog()
        return Drained(result.made, indexed, left, result.leased, failed)

    def run_one(self, job_id: str, kind: str) -> bool:
        """Carry out one job now, if it is due; return False where it is not."""
        with self._traffic.inside(wait=True):
            return self.runner.run_one(job_id, kind)

    def run_within(self, job_ids: Sequence[str], kind: str, timeout_ms: int) -> None:
        """Carry out jobs of a kind now, in a thread; what is not done in time goes on there."""

        def work() -> None:
            try:
                for job_id in job_ids:
                    self.run_one(job_id, kind)
            except TallystickError as error:
                get_logger("jobs").warning(f"{kind}.later", error=type(error).__name__)

        thread = threading.Thread(target=work, name=f"tallystick-{kind}", daemon=True)
        self._hurried.add(thread)
        thread.start()
        thread.join(timeout_ms / 1_000)
        self.wake()

    def reconcile(self, *, repair: bool) -> Reconciled:
        """Compare Chroma with the database, and with `repair` make it anew where they differ."""
        return self._chroma.reconcile(repair=repair)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Let no work begin inside of this block; what is under way comes to its end first."""
        with self._traffic.close_traffic(), self._chroma.guard:
            yield

    def rebuild(self, progress: Progress) -> RebuiltIndex:
        """Make anew what is derived: Chroma, what recall analysed, the graph. Raises StorageError
        where another process owns Chroma.
        """
        return RebuiltIndex(chroma=sum(each.rebuild(progress) for each in self.derived))

    def _do_chores(self) -> None:
        now = time.monotonic()
        for chore in self._chores:
            due_at = (
                self._opened_at + chore.first
                if chore.done_at is None
                else chore.done_at + chore.every
            )
            if now >= due_at:
                chore.call()
                chore.done_at = now

    def _index_turn(self, stopping: Callable[[], bool]) -> None:
        self._chroma.mend_in_background()
        self._chroma.look_for_grown()
        if not self._chroma.is_due():
            return
        self._chroma.repair_once()
        until = time.monotonic() + _INDEX_SECONDS
        while not stopping() and self._chroma.step() is not None:
            if time.monotonic() > until:
                self.wake()  # jobs have their turn in between
                return


def patient(name: str, call: Callable[[], object]) -> Callable[[], None]:
    """Return the call of a chore that logs what stops it, and is tried again at its next time;
    raises ClosedTally and ForkedTally, after which there is none.
    """

    def try_call() -> None:
        try:
            call()
        except (ClosedTally, ForkedTally):
            raise
        except TallystickError as error:
            get_logger("jobs").warning("chore.waiting", chore=name, error=type(error).__name__)

    return try_call


class _Traffic:
    """Counts who works, so that somebody who needs quiet can wait for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._closed = 0

    def is_closed(self) -> bool:
        """Return True while somebody wants quiet."""
        return self._closed > 0

    @contextmanager
    def inside(self, *, wait: bool = False) -> Iterator[bool]:
        """Work inside of this block; yields False, or waits, where somebody wants quiet."""
        with self._changed:
            while wait and self._closed:
                self._changed.wait()
            entered = not self._closed
            self._inside += entered
        try:
            yield entered
        finally:
            with self._changed:
                self._inside -= entered
                self._changed.notify_all()

    @contextmanager
    def close_traffic(self) -> Iterator[None]:
        """Nobody works inside of this block."""
        with self._changed:
            self._closed += 1
            while self._inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._closed -= 1
                self._changed.notify_all()
