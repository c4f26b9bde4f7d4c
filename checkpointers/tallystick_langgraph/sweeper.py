"""The thread that forgets expired items of a store now and then, with LangGraph's signatures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context

from tallystick.errors import TallystickError
from tallystick.kit import TallyElsewhere, on_close
from tallystick.logs import get_logger
from tallystick.tally import Tally


class Sweeper:
    """Calls `sweep` at intervals, until it is stopped or the tally is closed. Thread-safe."""

    def __init__(self, tally: Tally | TallyElsewhere, sweep: Callable[[], int]) -> None:
        self._tally = tally
        self._sweep = sweep
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *, minutes: float) -> Future[None]:
        """Start the thread, unless it runs; return a future that ends with it, and whose cancelling
        ends it. It acts as the caller of this method does.
        """
        future: Future[None] = Future()
        with self._guard:
            if self._thread is None and isinstance(self._tally, Tally):
                # Not before: an application may make a store for each of its requests.
                on_close(self._tally, self.stop)
            if self._thread is None or not self._thread.is_alive():
                stopping = self._stopping = threading.Event()
                context = copy_context()
                self._thread = threading.Thread(
                    target=lambda: context.run(self._run, minutes * 60, stopping, future),
                    name="tallystick-sweeper",
                    daemon=True,
                )
                self._thread.start()
            stopping = self._stopping
        future.add_done_callback(lambda done: stopping.set() if done.cancelled() else None)
        return future

    def stop(self, timeout: float | None = None) -> bool:
        """End the thread; False if it has not ended after `timeout` seconds."""
        with self._guard:
            thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        self._stopping.set()
        thread.join(timeout)
        return not thread.is_alive()

    def _run(self, seconds: float, stopping: threading.Event, future: Future[None]) -> None:
        while not stopping.wait(seconds):
            try:
                self._sweep()
            except TallystickError as error:
                get_logger("langgraph").warning(
                    "store.sweep_failed", error=type(error).__name__, message=str(error)
                )
        if not future.cancelled():
            future.set_result(None)
