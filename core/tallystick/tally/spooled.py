"""Taking what was left in the spool: each event goes through the function that would have answered
it, in order, and its file is removed once that is committed.

One process takes at a time. A file is marked before its event is taken, so that the next process
knows of one that a process which died may have taken already.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from filelock import FileLock, Timeout

from tallystick.errors import RecorderError, StorageError
from tallystick.logs import get_logger
from tallystick.spool import BEGUN, FOLDER, LEFT, VERSION, list_events, remove_partial
from tallystick.storage.engine.private_files import is_own, open_regular

if TYPE_CHECKING:
    from tallystick.tally.services import Services

TAKERS = {"hook": "tallystick_hooks.taking"}
"""Modules that take events, by the name that an event has of them: each has a function `take`."""
_SECONDS = 10.0
"""Seconds to wait for another process that takes events."""


class _Opened(Protocol):
    """An open tally."""

    _services: Services

    def flush(self) -> None:
        """Same as `Tally.flush`."""


class _Taker(Protocol):
    def __call__(
        self, tally: Any, body: dict[str, Any], *, event_id: str, at: int, is_again: bool
    ) -> None:
        """Take an event that was left at a time in microseconds UTC. `is_again` says that a process
        which died may have taken it. What is refused at the gate is recorded as a gap of a run.
        """


def take_spooled(tally: _Opened) -> int:
    """Take the events that wait beside an embedded tally, and return how many.

    One that cannot be stored now, or that only another release or a package which is not installed
    understands, waits with those after it. One that is refused is counted for the doctor.
    """
    services = tally._services
    folder, database = services.store.location.folder, services.store.database
    if folder is None or database.unwritable is not None or not count_waiting(folder):
        return 0
    place = folder / FOLDER
    lock = FileLock(str(place / "lock"), timeout=_SECONDS, thread_local=False, mode=0o600)
    taken = 0
    try:
        with lock:
            remove_partial(str(folder))
            for name in list_events(str(folder)):
                if not _take(tally, place, name):
                    break
                taken += 1
    except (Timeout, OSError) as error:
        get_logger("spool").warning("spool.waits", error=type(error).__name__)
    return taken


def count_waiting(folder: Path) -> int:
    """Return how many events wait beside a tally; 0 where its spool cannot be read."""
    try:
        return len(list_events(str(folder)))
    except OSError:
        return 0


def _take(tally: _Opened, place: Path, name: str) -> bool:
    """Take one event; return False for one that waits. Raises OSError."""
    recorder = tally._services.recorder
    is_again, file = name.endswith(BEGUN), place / name
    try:
        with open_regular(place, name) as stream:
            event = json.load(stream) if is_own(stream) else {}
        if event["v"] > VERSION:
            return _wait(event["v"])
        taker: _Taker = import_module(TAKERS[event["by"]]).take
        if not is_again:
            file = file.rename(file.with_name(name.removesuffix(LEFT) + BEGUN))
        taker(tally, event["body"], event_id=event["id"], at=event["at"], is_again=is_again)
        tally.flush()
    except (StorageError, RecorderError, ImportError) as error:
        return _wait(type(error).__name__)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - the same would come of it in the next process
        # What is refused, or cannot be read, is counted for the doctor.
        recorder.count_gap("spool", error)
    file.unlink()
    return True


def _wait(error: object) -> bool:
    get_logger("spool").warning("spool.waits", error=str(error))
    return False
