"""A writer that keeps its unit open, so that a test sees who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from tallystick import Tally
from tallystick.storage.engine.writes import Writes
from tallystick.tally.services import services_of

SECONDS = 30


@contextmanager
def held(
    tally: Tally, writes: Writes, unit: Callable[[Any], None] = lambda _: None
) -> Iterator[None]:
    """Hold a unit open that declared `writes`."""
    begun, ended = threading.Event(), threading.Event()

    def waiting(tx: Any) -> None:
        unit(tx)
        begun.set()
        assert ended.wait(SECONDS)

    database = services_of(tally).store.database
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(database.write, waiting, name="held", writes=writes)
        try:
            assert begun.wait(SECONDS)
            yield
        finally:
            ended.set()
        answer.result()
