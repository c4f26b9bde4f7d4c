"""Work of a hook that would wait for a disk, for runtimes that call hooks on their event loop and
cannot await them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context

from tallystick.aio import on_event_loop
from tallystick.tally import Tally
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
