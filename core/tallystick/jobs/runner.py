"""The runner: leases jobs, hands them to the handler of their kind, and ends each with a trail.

It has no thread of its own: workers call it. Several may run at once, in one process or in many.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

from tallystick.access import Gate
from tallystick.errors import (
    BudgetSpent,
    ClosedTally,
    ForkedTally,
    InsideTransaction,
    InvalidInput,
    LeaseLost,
    StorageError,
    TallystickError,
)
from tallystick.jobs.culprits import Suspects, Tried, blames_provider, retry_of, take_apart
from tallystick.jobs.leases import worker_name
from tallystick.logs import get_logger, log_operation
from tallystick.records import Job, JobState, JsonObject, ReasonCode, Scope
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import EVERYTHING, JOBS, Writes
from tallystick.storage.rows import job_list, jobs, scopes
from tallystick.storage.rows.jobs import TALLY_ACTOR

_LONGEST_REST = 60.0
"""Seconds for which a kind rests at most while what it needs is away."""
_PROBE = 2
"""Jobs with which a provider is asked whether it is back: different ones, so that none is blamed
alone.
"""


class Ended(NamedTuple):
    """The end of one job, stored in the transaction that stores its result."""

    state: JobState = "done"
    result: JsonObject | None = None
    cost: Mapping[str, int] | None = None
    """What it took of a provider, which shows that one answered; None where none was asked."""
    code: str = ""
    text: str = ""


class Handler(Protocol):
    """Carries out the jobs of one kind."""

    @property
    def kind(self) -> str:
        """The kind of its jobs."""
        ...

    @property
    def batch(self) -> int:
        """The most jobs that it takes at once; 1 where each takes long."""
        ...

    @property
    def lease_seconds(self) -> int:
        """The time for which they are leased. The lease is renewed while the handler works."""
        ...

    @property
    def is_upkeep(self) -> bool:
        """True if its jobs are the tally's own and change nothing that somebody said."""
        ...

    @property
    def changes_memory(self) -> bool:
        """True if it waits while an operator has suspended changes of memory."""
        ...

    @property
    def is_autonomous(self) -> bool:
        """True if nobody asked for its jobs: they wait while an operator suspends such work."""
        ...

    def handle(self, work: Work) -> int:
        """Carry out the jobs of `work`, whose authority was checked, and end each by `commit`.

        Return how many things were made. It may be called with the same job again: after an error,
        or after the death of a worker. An error that it raises is the runner's to judge.
        """
        ...


@runtime_checkable
class GivesUp(Protocol):
    """A handler that stores more where a job of its kind fails for good."""

    def give_up(self, tx: Connection, job: jobs.LeasedJob) -> None:
        """Store it, in the transaction that ends the job as `failed` or `dead`."""
        ...


class Work:
    """Leased jobs in the hands of a handler, and the only way to store what they make."""

    def __init__(
        self,
        runner: JobRunner,
        handler: Handler,
        leased: Sequence[jobs.LeasedJob],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._runner = runner
        self._handler = handler
        self._is_stopping = is_stopping
        self._begun = time.monotonic()
        self.jobs = tuple(leased)
        """The jobs, as they were leased."""
        self.ended = 0
        """Jobs of which the end is stored."""
        self.is_proof = False
        """True if the provider answered for one of them."""

    @property
    def is_stopping(self) -> bool:
        """True if the worker was told to stop: a handler returns then, between two commits."""
        return self._is_stopping()

    def commit(
        self,
        unit: Callable[[Connection, Sequence[jobs.LeasedJob]], Mapping[str, Ended]],
        *,
        scopes: Iterable[Scope] = (),
    ) -> None:
        """Store results in one transaction, and the end of the jobs that `unit` names.

        `unit` is given the jobs whose lease still holds and whose actor may still write: for the
        others nothing is stored. It writes to the scopes of the jobs, and relies on nothing else
        but `scopes`; where it reaches further it is called again, so that it must change nothing
        but what the transaction undoes. Raises LeaseLost where there are no such jobs.
        """
        runner, handler = self._runner, self._handler
        ended: dict[str, Ended] = {}

        def commit_allowed(tx: Connection) -> bool:
            # Held until the commit: leases are taken and taken back without the lock of a scope.
            allowed = runner.authorise_jobs(tx, handler, jobs.hold(tx, self.jobs))
            if not allowed:
                return False
            by_id = {job.id: job for job in allowed}
            ends = unit(tx, allowed)
            ended.clear()
            ended.update(ends)
            for job_id, end in ends.items():
                job = by_id[job_id]
                if end.state in ("done", "empty"):
                    jobs.finish(tx, [job], state=end.state, result=end.result, cost=end.cost)
                else:
                    jobs.end(tx, [job], end.state, code=end.code, text=end.text)
            return True

        writes = runner.writes_of(self.jobs, scopes)
        database, name = runner.store.database, f"job.{handler.kind}"
        if not database.write_mostly(commit_allowed, name=name, writes=writes):
            raise LeaseLost("None of these jobs may be carried on: nothing was stored.")
        self.ended += len(ended)
        self.is_proof |= any(end.cost for end in ended.values())
        for job_id, end in ended.items():
            log_operation(
                "job",
                outcome=end.state,
                duration_ms=1_000 * (time.monotonic() - self._begun),
                stage=handler.kind,
                job_id=job_id,
                reason=end.code or None,
            )

    def note_progress(
        self,
        job: jobs.LeasedJob,
        finished: int,
        total: int | None = None,
        cost: Mapping[str, int] | None = None,
    ) -> None:
        """Store how far a job is. Raises LeaseLost."""
        database = self._runner.store.database
        if not database.write(
            lambda tx: jobs.note_progress(tx, job, finished, total, cost),
            name="job.progress",
            writes=_LEASES,
        ):
            raise LeaseLost
        self.is_proof |= bool(cost and any(cost.values()))


@dataclass
class Round:
    """What one round of work did."""

    leased: int = 0
    made: int = 0
    ended: int = 0
    """Jobs whose handler ended them."""
    outage: BaseException | None = None
    """The error by which something that jobs need was away, if it was."""
    failed: dict[str, FailedJob] = field(default_factory=dict)
    """Jobs that failed, by id, as they are after their last attempt."""


@dataclass(frozen=True)
class FailedJob:
    """A job that failed, and what became of it."""

    id: str
    kind: str
    state: JobState
    code: str
    text: str


@dataclass
class _Rest:
    """A kind, or a kind in one scope, that is not leased for a while, because what it needs is
    away.
    """

    count: int = 0
    until: float = 0.0


@dataclass
class _Provider:
    """What this process knows of the provider behind a kind of job."""

    suspects: Suspects = field(default_factory=Suspects)
    is_back: bool = False
    """True if what waited for it was made due since it was last away."""


class JobRunner:
    """Carries out the jobs of the kinds that have a handler. Thread-safe."""

    def __init__(self, store: Store, gate: Gate, handlers: Iterable[Handler]) -> None:
        self.store = store
        self.gate = gate
        self.handlers = {handler.kind: handler for handler in handlers}
        self._guard = threading.Lock()
        self._rests: dict[tuple[str, int | None], _Rest] = {}
        self._providers: dict[str, _Provider] = {}

    def add(self, handler: Handler) -> None:
        """Carry out the jobs of another kind too."""
        self.handlers = {**self.handlers, handler.kind: handler}

    def require_kinds(self, kinds: Sequence[str] | None) -> None:
        """Raise InvalidInput for a kind that nothing handles."""
        unknown = sorted(set(kinds or ()) - set(self.handlers))
        if unknown:
            raise InvalidInput(
                f"`kinds` names {', '.join(unknown)}; there is {', '.join(sorted(self.handlers))}."
            )

    def run(
        self,
        kinds: Sequence[str] | None = None,
        *,
        drain: bool = False,
        is_stopping: Callable[[], bool] = lambda: False,
        progress: Callable[[int, int], None] = lambda finished, total: None,
    ) -> Round:
        """Carry out what is due, in turn a batch of each kind, until nothing is.

        With `drain` whatever waits for a time is due at once, and no kind rests.
        """
        result = Round()
        chosen = [self.handlers[kind] for kind in kinds or self.handlers]
        names = [handler.kind for handler in chosen]
        if drain:
            self.hurry(names, first=True)
            for name in names:
                self._wake(name)
        while not is_stopping():
            leased = 0
            for handler in chosen:
                if not is_stopping():
                    leased += self._run_batch(handler, result, is_stopping)
            if drain:
                with self.store.database.read() as connection:
                    left = job_list.open_count(connection, names)
                progress(result.leased, result.leased + left)
            if not leased:
                break
        return result

    def run_one(self, job_id: str, kind: str) -> bool:
        """Carry out one job, if it is due; return False where it is not."""
        handler = self.handlers[kind]
        leased = self._lease(handler, job_id)
        self._carry_out(handler, leased, Round(), lambda: False)
        return bool(leased)

    def due(self, kinds: Sequence[str], *, limit: int) -> list[Job]:
        """Return the jobs of these kinds that can be leased now, in turn from each scope, the
        oldest first; leases that ran out are taken back first.
        """
        with self.store.database.read() as connection:
            if not jobs.due(connection, kinds):
                return []
        self._write(jobs.reap, "jobs.reap")
        with self.store.database.read() as connection:
            return jobs.due_in_turn(connection, kinds, limit=limit)

    def authorise_jobs(
        self, tx: Connection, handler: Handler, leased: Sequence[jobs.LeasedJob]
    ) -> list[jobs.LeasedJob]:
        """Return the jobs whose actor may still write in their scope; the others end here."""
        allowed, unfit = self._sort_by_refusal(tx, handler, leased)
        for reason, refused in unfit.items():
            if reason in _SUSPENDED:
                jobs.wait(tx, refused, code=reason, text=_SUSPENDED[reason])
            else:
                jobs.end(tx, refused, "dead", code=reason, text=_UNFIT[reason])
        return allowed

    def _sort_by_refusal(
        self, connection: Connection, handler: Handler, leased: Sequence[jobs.LeasedJob]
    ) -> tuple[list[jobs.LeasedJob], dict[ReasonCode, list[jobs.LeasedJob]]]:
        allowed: list[jobs.LeasedJob] = []
        unfit: dict[ReasonCode, list[jobs.LeasedJob]] = {}
        for job in leased:
            reason = self._refusal(connection, handler, job)
            if reason is None:
                allowed.append(job)
            else:
                unfit.setdefault(reason, []).append(job)
        return allowed, unfit

    def _refusal(
        self, connection: Connection, handler: Handler, job: jobs.LeasedJob
    ) -> ReasonCode | None:
        if job.actor is None:
            return "job_policy_context_missing"
        if handler.is_autonomous and scopes.is_frozen(connection, name=scopes.AUTONOMY_FROZEN):
            return "autonomy_frozen"
        if handler.is_upkeep:
            if job.actor != TALLY_ACTOR:
                return "job_policy_context_stale"
            is_held = handler.changes_memory and scopes.is_frozen(connection)
            return "mutations_frozen" if is_held else None
        if job.scope_id is None:
            return "job_policy_context_missing"
        scope = scopes.get_by_id(connection, job.scope_id).scope
        decision = self.gate.decide(connection, job.actor, "write", scope)
        if decision.allowed:
            return None
        if decision.reason != "mutations_frozen":
            return "job_policy_context_stale"
        # A freeze ends no authority: work that changes nothing that was said goes on.
        return "mutations_frozen" if handler.changes_memory else None

    def _run_batch(self, handler: Handler, result: Round, is_stopping: Callable[[], bool]) -> int:
        resting = self._resting(handler.kind)
        if None in resting:
            return 0
        with self.store.database.read() as connection:
            if not jobs.due(connection, (handler.kind,), without=resting):
                return 0
        leased = self._lease(handler)
        self._carry_out(handler, leased, result, is_stopping)
        # Jobs that were leased and may not run have ended: behind them others may be due.
        return max(1, len(leased))

    def _lease(self, handler: Handler, job_id: str | None = None) -> list[jobs.LeasedJob]:
        def unit(tx: Connection) -> list[jobs.LeasedJob]:
            leased = jobs.lease(
                tx,
                kind=handler.kind,
                worker=worker_name(),
                # One that is away is asked with no more than shows that it is back.
                most=min(handler.batch, _PROBE)
                if self._suspects(handler).is_away
                else handler.batch,
                seconds=handler.lease_seconds,
                job_id=job_id,
                without=() if job_id else self._resting(handler.kind),
            )
            # Before anything of theirs is read, or leaves for a model.
            return self.authorise_jobs(tx, handler, leased)

        return self.store.database.write(unit, name="jobs.lease", writes=_LEASES)

    def _carry_out(
        self,
        handler: Handler,
        leased: Sequence[jobs.LeasedJob],
        result: Round,
        is_stopping: Callable[[], bool],
    ) -> None:
        """Hand jobs to their handler, and end or reschedule those that it left."""
        if not leased:
            return
        result.leased += len(leased)
        suspects = self._suspects(handler)
        try:
            with self._heartbeat(handler, leased):
                tried = take_apart(
                    leased,
                    lambda part: self._attempt(handler, part, result, is_stopping),
                    suspects,
                    key=lambda job: job.subject_id,
                    is_stopping=is_stopping,
                )
        except (ClosedTally, ForkedTally, InsideTransaction):
            raise
        except BaseException as error:
            # The database, or somebody who ends the process: it counts for no job.
            self._release(leased, error)
            raise
        for job, failure in tried.failed:
            self._settle(handler, job, failure, result, is_proven=tried.is_proven)
        if tried.outage is not None:
            self._rest(handler.kind, None)
            result.outage = result.outage or tried.outage
            self._provider(handler).is_back = False
            self._wait(handler, tried.left, tried.outage, result)
        elif tried.left:
            self._write(partial(jobs.release, jobs=tried.left), "jobs.release")

    def _attempt(
        self,
        handler: Handler,
        part: Sequence[jobs.LeasedJob],
        result: Round,
        is_stopping: Callable[[], bool],
    ) -> Tried[jobs.LeasedJob]:
        """Hand some of the leased jobs to their handler once."""
        work = Work(self, handler, part, is_stopping)
        try:
            result.made += handler.handle(work)
        except LeaseLost:
            return Tried((), None, work.is_proof)  # cancelled, or taken over: its holder goes on
        except (StorageError, KeyboardInterrupt):
            raise
        except BaseException as error:
            if isinstance(error, SystemExit) and threading.current_thread() is _MAIN:
                raise  # a signal's, which ends the process
            get_logger("jobs").warning(
                "job.failed", kind=handler.kind, error=type(error).__name__, count=len(part)
            )
            with self.store.database.read() as connection:
                return Tried(jobs.list_held(connection, part), error, work.is_proof)
        finally:
            result.ended += work.ended
        for job in part:
            result.failed.pop(job.id, None)
        self._wake(handler.kind, {job.scope_id for job in part})
        self._left_over(part, is_stopping())
        if work.is_proof:
            self._hurry_once(handler, part)
        return Tried((), None, work.is_proof)

    def _hurry_once(self, handler: Handler, part: Sequence[jobs.LeasedJob]) -> None:
        """Let what waited be due at once, after the first success since the provider was away."""
        provider = self._provider(handler)
        if provider.is_back or not any(job.waits for job in part):
            return
        provider.is_back = True
        # These results are stored whatever becomes of that: the others are due at their own time.
        try:
            self.hurry([handler.kind])
        except StorageError as error:
            get_logger("jobs").warning("jobs.not_hurried", error=type(error).__name__)

    def _left_over(self, leased: Sequence[jobs.LeasedJob], stopping: bool) -> None:
        """Give back what a stopped handler left; what it forgot counts as an attempt."""

        def unit(tx: Connection) -> None:
            rest = jobs.list_held(tx, leased)
            if stopping:
                jobs.release(tx, rest)
            else:
                jobs.retry(tx, rest, code="unfinished", text="Its handler ended without it.")

        with self.store.database.read() as connection:
            if not jobs.list_held(connection, leased):
                return
        self._write(unit, "jobs.left")

    def _release(self, leased: Sequence[jobs.LeasedJob], error: BaseException) -> None:
        """Give jobs back, where an error that goes on to the caller is none of theirs."""
        try:
            self._write(partial(jobs.release, jobs=leased), "jobs.release")
        except StorageError as second:
            get_logger("jobs").warning("lease.kept", error=type(second).__name__)
            raise error from second

    def _settle(
        self,
        handler: Handler,
        job: jobs.LeasedJob,
        error: BaseException,
        result: Round,
        *,
        is_proven: bool,
    ) -> None:
        """Decide what becomes of a job that failed by itself: it waits until the provider is back,
        or until another text has shown whose fault it is; else it is counted, or ends.
        """
        retry, suspects = retry_of(error), self._suspects(handler)
        is_own_fault = not blames_provider(error) or is_proven or self._is_proven(job)
        needs_proof = isinstance(error, TallystickError) and error.needs_proof
        if retry == "until_back":
            result.outage = result.outage or error
            if isinstance(error, BudgetSpent):
                self._rest(handler.kind, job.scope_id if error.holds == "scope" else None)
            self._wait(handler, [job], error, result)
        elif not is_own_fault and (needs_proof or suspects.are_several):
            self._wait(handler, [job], error, result)
        else:
            self._count(handler, job, error, result, is_last=retry == "never")

    def _is_proven(self, job: jobs.LeasedJob) -> bool:
        """Return True if the provider has answered for another job since this one failed before."""
        if job.failed_at is None:
            return False
        with self.store.database.read() as connection:
            return job_list.has_answer(connection, job.kind, job.id, since=job.failed_at)

    def _wait(
        self,
        handler: Handler,
        leased: Sequence[jobs.LeasedJob],
        error: BaseException,
        result: Round,
    ) -> None:
        code, text = _describe_error(error)
        self._write(partial(jobs.wait, jobs=leased, code=code, text=text), "jobs.wait")
        for job in leased:
            failed = FailedJob(job.id, handler.kind, "retry_scheduled", code, text)
            result.failed[job.id] = failed

    def _count(
        self,
        handler: Handler,
        job: jobs.LeasedJob,
        error: BaseException,
        result: Round,
        *,
        is_last: bool,
    ) -> None:
        """Count the attempt, and end the job after its last one."""
        code, text = _describe_error(error)
        last = error.end_state if isinstance(error, TallystickError) else "dead"

        def unit(tx: Connection) -> JobState | None:
            if not jobs.hold(tx, [job]):
                return None
            if is_last:
                jobs.end(tx, [job], last, code=code, text=text)
            elif not jobs.retry(tx, [job], code=code, text=text, last=last):
                return "retry_scheduled"
            if isinstance(handler, GivesUp):
                handler.give_up(tx, job)
            return last

        database, writes = self.store.database, self.writes_of([job], ())
        state = database.write_mostly(unit, name="jobs.failed", writes=writes)
        if state is not None:
            result.failed[job.id] = FailedJob(job.id, handler.kind, state, code, text)

    def _provider(self, handler: Handler) -> _Provider:
        with self._guard:
            return self._providers.setdefault(handler.kind, _Provider())

    def _suspects(self, handler: Handler) -> Suspects:
        return self._provider(handler).suspects

    @contextmanager
    def _heartbeat(self, handler: Handler, leased: Sequence[jobs.LeasedJob]) -> Iterator[None]:
        """Renew the leases while the handler works."""
        stop = threading.Event()
        seconds = handler.lease_seconds

        def beat() -> None:
            while not stop.wait(seconds / 3):
                try:
                    renewed = partial(jobs.renew, jobs=leased, seconds=seconds)
                    self._write(renewed, "jobs.renew")
                except StorageError as error:
                    get_logger("jobs").warning("lease.kept", error=type(error).__name__)

        # A daemon: it ends with the process, whatever the handler does.
        thread = threading.Thread(target=beat, name="tallystick-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def hurry(self, kinds: Sequence[str], *, first: bool = False) -> None:
        """Let the jobs of these kinds that wait for their next attempt be due at once; with `first`
        also those that wait for their first one.
        """
        self._write(lambda tx: jobs.hurry(tx, kinds, first=first), "jobs.hurry")

    def writes_of(self, leased: Iterable[jobs.LeasedJob], further: Iterable[Scope]) -> Writes:
        """Return what is declared where something of these jobs is stored: their scopes, which is
        under whose locks such jobs are enqueued, and `further` ones. A job without a scope may
        write anything.
        """
        numbers = {job.scope_id for job in leased}
        if None in numbers:
            return EVERYTHING
        with self.store.database.read() as connection:
            own = [scopes.get_by_id(connection, number).scope for number in numbers if number]
        return Writes.of(*own, *further)

    def _write(self, unit: Callable[[Connection], object], name: str) -> None:
        self.store.database.write(unit, name=name, writes=_LEASES)

    def _rest(self, kind: str, scope_id: int | None) -> None:
        with self._guard:
            rest = self._rests.setdefault((kind, scope_id), _Rest())
            rest.count += 1
            rest.until = time.monotonic() + min(_LONGEST_REST, 2.0 ** min(rest.count, 10))

    def _wake(self, kind: str, scope_ids: Collection[int | None] | None = None) -> None:
        """End the rest of a kind as a whole, and in these scopes or in all."""
        with self._guard:
            for key in [key for key in self._rests if key[0] == kind]:
                if scope_ids is None or key[1] is None or key[1] in scope_ids:
                    del self._rests[key]

    def _resting(self, kind: str) -> set[int | None]:
        """Return the scopes in which a kind rests now, with None where it rests in all of them."""
        with self._guard:
            rests = {key[1]: rest.until for key, rest in self._rests.items() if key[0] == kind}
        now = time.monotonic() if rests else 0.0
        return {scope_id for scope_id, until in rests.items() if now < until}


def enqueue_in_scope(store: Store, kind: str, subject_id: str, scope_id: int) -> None:
    """Enqueue a job of upkeep for a scope, under the lock of the scope as all jobs of it; one that
    is over starts anew, and one that failed does not.
    """

    def unit(tx: Connection) -> None:
        jobs.enqueue(
            tx,
            kind=kind,
            subject_id=subject_id,
            scope_id=scope_id,
            actor=TALLY_ACTOR,
            job_id=store.ids.new(),
            at=store.clock.now(),
            restart=("done", "empty"),
        )

    with store.database.read() as connection:
        scope = scopes.get_by_id(connection, scope_id).scope
    store.database.write(unit, name="jobs.enqueue", writes=Writes.of(scope))


def _describe_error(error: BaseException) -> tuple[str, str]:
    """Return the code and the text of an error, as a job keeps them."""
    if isinstance(error, TallystickError):
        return error.code, str(error)
    return type(error).__name__, ""  # the message of a foreign error may repeat what somebody said


_MAIN = threading.main_thread()
_LEASES = Writes.of(JOBS)
"""What leases take part in: rows of jobs that nobody else moves meanwhile, and nothing of a scope.
"""
_SUSPENDED: Mapping[str, str] = {
    "mutations_frozen": "Changes of memory are suspended.",
    "autonomy_frozen": "Autonomous work is suspended.",
}
_UNFIT: Mapping[str, str] = {
    "job_policy_context_missing": "It does not say under whose authority it runs.",
    "job_policy_context_stale": "Whoever caused it may no longer write there.",
}
