"""A process of the soak: threads that write to one PostgreSQL tally, and tell what they were told.

Called with the address of the database, a schema, that of Chroma (or ""), the name of the process,
and for each thread the number of its first round and of its last. A line of the output is
`THREAD ROUND WHAT ID`, printed after the call has returned.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import select

from tallystick import Actor, BoundTally, Scope, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.errors import BusyTally, StorageError
from tallystick.jobs import Ended, JobRunner, Work
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine import tables
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import jobs, journal, scopes
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder

T = TypeVar("T")
KIND = "soak"
SHARED = "project:soak"
_AWAY = re.compile("could not be reached, or it ended|may or may not be there")
_PATIENCE = 120.0
"""Seconds for which one call is repeated while the server is away."""
_lines = threading.Lock()


class Noting:
    """Carries out jobs of the soak: what one does is an entry of its scope's stream."""

    kind = KIND
    batch = 4
    lease_seconds = 5
    is_upkeep = False
    changes_memory = False
    is_autonomous = False

    def __init__(self, tally: Tally) -> None:
        self._store = services_of(tally).store

    def handle(self, work: Work) -> int:
        """Write an entry for each job, with its end."""

        def unit(tx: Connection, held: Any) -> dict[str, Ended]:
            for job in held:
                event = journal.Event(
                    stream=f"scope:{SHARED}",
                    event="soak.job",
                    actor=job.actor,
                    at=self._store.clock.now(),
                    audit_id=self._store.ids.new(),
                    subject_id=job.subject_id,
                )
                journal.append(tx, event)
            return {job.id: Ended() for job in held}

        work.commit(unit)
        return len(work.jobs)


def _repeated(call: Callable[[], T]) -> T:
    """Call until the server answers; only what says that the server is away is repeated."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return call()
        except BusyTally:
            if time.monotonic() > until:
                raise
        except StorageError as error:
            if time.monotonic() > until or _AWAY.search(str(error)) is None:
                raise
        time.sleep(0.05)


def _drain(tally: Tally) -> None:
    """Bring Chroma up to date. The last request of a client that was killed may reach it after what
    replaced it: then it is mended, as the background does.
    """
    try:
        tally.drain()
    except StorageError as error:
        if "does not match the database" not in str(error):
            raise
        tally.reconcile_index()


def _told(*words: object) -> None:
    with _lines:
        sys.stdout.write(" ".join(map(str, words)) + "\n")
        sys.stdout.flush()


class Writer:
    """A thread's rounds of ten commits or so, in a scope of its own and in one that all share."""

    def __init__(self, tally: Tally, process: str, thread: int) -> None:
        self._thread = thread
        self._name = f"{process}-{thread}"
        self._actor = Actor(user=self._name, projects=frozenset({"soak"}))
        self._mine, self._ours = tally.bind(self._actor), tally.bind(self._actor, SHARED)
        self._store = services_of(tally).store

    def write(self, number: int) -> None:
        """Make each call until it is acknowledged, under a key of its own, and tell its id."""
        key = f"{self._name}-{number}"
        alone = [self._remembered(self._mine, f"{key}-{n}") for n in range(3)]
        for n, memory_id in enumerate(alone):
            _told(self._thread, number, f"alone{n}", memory_id)
        calls: dict[str, Callable[[], str]] = {
            "shared": lambda: self._remembered(self._ours, key),
            "changed": lambda: self._changed(alone[0], key),
            "gone": lambda: (
                self._mine.forget(alone[1], reason="told twice", idempotency_key=key).id
            ),
            "job": lambda: self._enqueued(key),
            "step": lambda: self._played(number),
            "state": lambda: self._put(number),
        }
        for what, call in calls.items():
            _told(self._thread, number, what, _repeated(call))

    def _remembered(self, bound: BoundTally, key: str) -> str:
        return _repeated(lambda: bound.remember(f"{key} was here", idempotency_key=key)).id

    def _changed(self, memory_id: str, key: str) -> str:
        changed = self._mine.modify(
            memory_id, content=f"{key} changed", reason="a slip", idempotency_key=key
        )
        return f"{changed.id}:{changed.version}"

    def _enqueued(self, key: str) -> str:
        """A job of one subject is one, however often it is asked for while it waits; once it has
        run it is not asked for again here.
        """
        store = self._store

        def unit(tx: Connection) -> str:
            known = select(tables.jobs.c.id).where(tables.jobs.c.subject_id == key)
            if (found := tx.execute(known).scalar()) is not None:
                return str(found)
            return jobs.enqueue(
                tx,
                kind=KIND,
                subject_id=key,
                scope_id=scopes.ensure(tx, Scope.parse(SHARED)).id,
                actor=self._actor,
                job_id=store.ids.new(),
                at=store.clock.now(),
            )

        return store.database.write(unit, name="soak.enqueue", writes=Writes.of(SHARED))

    def _played(self, number: int) -> str:
        with self._mine.run("soaker") as run:
            step = run.step("model_call", name=f"{number}")
            step.record("request", {"prompt": f"number {number}"})
            step.record("response", {"text": "done"})
            return f"{run.id}:{step.end().digest}"

    def _put(self, number: int) -> str:
        place = f"{number:08}"
        body = Leaf("json", f'{{"x": "{"y" * 200}{number}"}}'.encode())
        state = NewCheckpoint("", place, None, {"source": "loop"}, body, {"messages": body})
        self._mine.threads.put(self._name, state)
        return place


@contextmanager
def _closing(tally: Tally) -> Iterator[None]:
    """Close the tally after the block."""
    try:
        yield
    finally:
        tally.close()


def main(arguments: list[str]) -> int:
    """Write, work and drain until all rounds are acknowledged; 1 where a thread failed."""
    url, schema, chroma, process, *rounds = arguments
    settings = Settings.read(
        busy_timeout_ms=20_000, **({"chroma": chroma, "vector_search": "chroma"} if chroma else {})
    )
    failed = threading.Event()
    tally = _repeated(
        lambda: Tally.open(
            url, schema=schema, embedder=HashEmbedder(), background=False, settings=settings
        )
    )
    with _closing(tally):
        services = services_of(tally)
        runner = JobRunner(services.store, services.gate, [Noting(tally)])
        done = threading.Event()

        def guarded(work: Callable[[], object]) -> None:
            try:
                work()
            except BaseException:  # noqa: BLE001 - told, and the process ends with 1
                traceback.print_exc()
                failed.set()

        def working() -> None:
            while not done.is_set():
                _repeated(runner.run)
                if chroma:
                    _repeated(lambda: _drain(tally))
                done.wait(0.05)

        def writing(thread: int, first: int, last: int) -> None:
            writer = Writer(tally, process, thread)
            for number in range(first, last):
                writer.write(number)

        writers = []
        for thread, given in enumerate(rounds):
            first, last = map(int, given.split(":"))
            work = partial(writing, thread, first, last)
            writers.append(threading.Thread(target=guarded, args=(work,)))
        worker = threading.Thread(target=guarded, args=(working,))
        for each in [*writers, worker]:
            each.start()
        for each in writers:
            each.join()
        done.set()
        worker.join()
    return 1 if failed.is_set() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
