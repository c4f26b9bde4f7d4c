"""The worker: a thread that carries out follow-up work, round by round, until it is stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self

from tallystick.errors import ClosedTally, ForkedTally, InvalidInput
from tallystick.jobs.runner import Round
from tallystick.logs import get_logger

_PAUSE_SECONDS = 0.5
_POLL_SECONDS = 5.0
"""The pause after which it looks for writes of other processes and for due retries."""


class Worker:
    """Carries out the jobs of one tally in a thread: start, pause, resume, stop; or a `with` block.

    The thread ends with its tally and with its process. A process may have several workers, and a
    tally several processes: each job is carried out by one of them.
    """

    def __init__(self, turn: Callable[[Callable[[], bool]], Round]) -> None:
        """Use `Tally.worker`."""
        self._turn = turn
        self.wake = threading.Event()
        """Set it to let the worker look for work at once."""
        self._stopped = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self._thread: threading.Thread | None = None
        self.failures = 0
        """Rounds that failed since it was started."""

    @property
    def is_alive(self) -> bool:
        """True from `start` until it has stopped."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> Self:
        """Begin to work in the background. Raises InvalidInput where it was stopped."""
        if self._stopped.is_set():
            raise InvalidInput("This worker was stopped. Ask the tally for another: worker().")
        if self._thread is None:
            self._thread = threading.Thread(target=self.work, name="tallystick-worker", daemon=True)
            self._thread.start()
            self.wake.set()
        return self

    def pause(self) -> None:
        """Begin nothing more until `resume`; the piece of work under way comes to its end, and what
        was leased and not begun goes back.
        """
        self._running.clear()

    def resume(self) -> None:
        """Work again."""
        self._running.set()
        self.wake.set()

    def stop(self) -> None:
        """Stop after the piece of work under way, and wait for that. What was leased and not begun
        goes back.
        """
        self._stopped.set()
        self._running.set()
        self.wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def work(self) -> None:
        """Work in this thread until `stop` is called from another one, or the tally is closed."""
        while not self._stopped.is_set():
            self.wake.wait(_POLL_SECONDS)
            self.wake.clear()
            self._running.wait()
            # A short pause gathers the writes of a burst, and keeps short scripts free of this
            # work.
            if self._stopped.wait(_PAUSE_SECONDS):
                return
            try:
                self._turn(self._is_stopping)
            except (ClosedTally, ForkedTally):
                return
            except Exception as error:  # noqa: BLE001 - counted and logged; the next round may succeed
                self.failures += 1
                get_logger("jobs").warning(
                    "worker.failed", error=type(error).__name__, failures=self.failures
                )

    def _is_stopping(self) -> bool:
        return self._stopped.is_set() or not self._running.is_set()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
