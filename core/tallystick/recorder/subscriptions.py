"""Subscriptions: listeners are called with what this process recorded, after it is committed.

The writer's thread only appends to bounded queues, so that no listener can hold it up. Each
subscription has a thread of its own, which decides what its actor may read and calls the listener.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from tallystick.errors import TallystickError
from tallystick.logs import get_logger
from tallystick.records import RunRecord, Scope, StepRecord

MAX_WAITING = 1_000
"""Events that wait for a listener; later ones are counted as missed."""


@dataclass(frozen=True)
class RecordingEvent:
    """A commit of the recorder: a run started, a step ended with its receipt, or a run ended."""

    kind: Literal["run_started", "step_ended", "run_ended"]
    run: RunRecord
    """The run as it was when this was committed."""
    step: StepRecord | None = None
    """The step, for `step_ended`."""


Listener = Callable[[RecordingEvent], None]


@dataclass(frozen=True)
class _Commit:
    """An event as the writer's thread hands it over: the step's record is built by the reader."""

    kind: Literal["run_started", "step_ended", "run_ended"]
    run: RunRecord
    step: Mapping[str, Any] | None

    def event(self) -> RecordingEvent:
        step = None if self.step is None else StepRecord.load(self.step)
        return RecordingEvent(self.kind, self.run, step)


class Subscription:
    """A listener, the events that wait for it, and the thread that calls it. Thread-safe.

    Made by `Recordings.subscribe`.
    """

    def __init__(
        self,
        listener: Listener,
        may_read: Callable[[Scope], bool],
        on_close: Callable[[Subscription], None],
        *,
        max_waiting: int,
    ) -> None:
        self._listener = listener
        self._may_read = may_read
        self._on_close = on_close
        self._queue: queue.Queue[_Commit | None] = queue.Queue(max_waiting)
        self._guard = threading.Lock()
        self._missed = 0
        self._failures = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tallystick-listener", daemon=True)
        self._thread.start()

    @property
    def missed(self) -> int:
        """Number of events that were dropped: the listener was too slow, or it was closed before
        they reached it. Events of scopes that the actor may not read may be among them.
        """
        return self._missed

    @property
    def failures(self) -> int:
        """Number of exceptions that the listener raised."""
        return self._failures

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    @property
    def is_alive(self) -> bool:
        """True while the thread that calls the listener runs; False in a forked child."""
        return self._thread.is_alive()

    def close(self, *, wait_seconds: float = 0.0) -> None:
        """Stop calling the listener, after at most `wait_seconds` for the events that wait.

        No call begins after this returns; one that is under way may still be running. Events that
        wait then are counted as missed. Closing twice is allowed.
        """
        if wait_seconds and self._thread is not threading.current_thread() and self.is_alive:
            with self._queue.all_tasks_done:
                self._queue.all_tasks_done.wait_for(
                    lambda: not self._queue.unfinished_tasks, wait_seconds
                )
        self._on_close(self)
        with self._guard:
            self._closed = True
        # A full queue keeps its thread awake without this.
        with suppress(queue.Full):
            self._queue.put_nowait(None)

    def offer(self, commit: _Commit) -> None:
        """Queue a commit for the listener, or count it as missed. Never blocks."""
        try:
            self._queue.put_nowait(commit)
        except queue.Full:
            with self._guard:
                self._missed += 1

    def _run(self) -> None:
        while not (self._closed and self._queue.empty()):
            commit = self._queue.get()
            try:
                if commit is not None:
                    self._deliver(commit)
            finally:
                self._queue.task_done()

    def _deliver(self, commit: _Commit) -> None:
        with self._guard:
            if self._closed:
                self._missed += 1
                return
        try:
            may_read = self._may_read(commit.run.scope)
        except TallystickError:
            # Not delivered if the right to read it cannot be decided.
            with self._guard:
                self._missed += 1
            return
        if not may_read:
            return
        try:
            self._listener(commit.event())
        except Exception as error:  # noqa: BLE001 - a listener never breaks the recorder; counted and logged
            with self._guard:
                self._failures += 1
            get_logger("recorder").warning(
                "listener.failed", error=type(error).__name__, failures=self._failures
            )


class Subscriptions:
    """The subscriptions to the recordings of one tally. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: tuple[Subscription, ...] = ()

    @property
    def any_open(self) -> bool:
        """True if anybody has subscribed."""
        return bool(self._open)

    def add(
        self, listener: Listener, may_read: Callable[[Scope], bool], *, max_waiting: int
    ) -> Subscription:
        """Start to call `listener` with events of scopes for which `may_read` is true."""
        subscription = Subscription(listener, may_read, self._remove, max_waiting=max_waiting)
        with self._guard:
            self._open = (*self._open, subscription)
        return subscription

    def publish(
        self,
        kind: Literal["run_started", "step_ended", "run_ended"],
        run: RunRecord,
        step: Mapping[str, Any] | None = None,
    ) -> None:
        """Queue a commit for every listener. Never blocks: called on the writer's thread."""
        for subscription in self._open:
            subscription.offer(_Commit(kind, run, step))

    def close(self, *, wait_seconds: float) -> None:
        """Close every subscription, each after at most `wait_seconds` for the events that wait."""
        for subscription in self._open:
            subscription.close(wait_seconds=wait_seconds)

    def _remove(self, subscription: Subscription) -> None:
        with self._guard:
            self._open = tuple(other for other in self._open if other is not subscription)
