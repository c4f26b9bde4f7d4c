"""Spool: events that a process left beside an embedded tally for the next one that opens it.

Opening a tally costs more than telling it something, so a hook that needs no answer writes its
event to a file and ends. An event is one file, complete and on disk once `leave` returns; the names
of the files sort in the order in which they were left. `tallystick.tally.spooled` takes them. This
module loads quickly: it imports `json` and modules that Python has loaded anyway.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDER = "spool"
"""The folder of the events, in that of the tally."""
VERSION = 2
"""Of what is in the file of an event. A release takes what an earlier one left; what a later one
left waits for it.
"""
LEFT, BEGUN, _PARTIAL = ".json", ".begun", ".partial"
"""Ends of names: of an event, of one that a process has begun to take, and of one half written."""
_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_MOST = 500
"""Events that may wait; the next one is told to the tally itself, which takes the others too."""
_PARTIAL_SECONDS = 3_600.0
"""Seconds after which a file that is half written was left by a process that ended."""


def leave(place: str, by: str, body: dict[str, Any]) -> str | None:
    """Leave an event for whoever opens the tally at `place` next, and return its id. None where
    there is no tally in a folder, where it cannot be written there, and where too many events wait.

    `by` names who takes it, in the table of `tallystick.tally.spooled`. Raises TypeError and
    ValueError for a body that is no JSON.
    """
    folder = os.path.join(place, FOLDER)
    try:
        if not os.path.getsize(os.path.join(place, "tally.db")):
            return None
        os.makedirs(folder, mode=_FOLDER_MODE, exist_ok=True)
        names = list_events(place)
        if len(names) >= _MOST:
            return None
        # Later than the newest, also where the clock was set back.
        newest = int(names[-1].partition("-")[0]) if names else 0
        moment = time.time_ns()
        event_id = f"{max(moment, newest + 1):020}-{os.urandom(6).hex()}"
        event = {"v": VERSION, "id": event_id, "at": moment // 1_000, "by": by, "body": body}
        _write(folder, event_id, json.dumps(event).encode("ascii"))
    except OSError:
        return None
    return event_id


def list_events(place: str) -> list[str]:
    """Return the names of the files of events that wait, in the order in which they were left. What
    is half written is no event. Raises OSError.
    """
    try:
        names = os.listdir(os.path.join(place, FOLDER))
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith((LEFT, BEGUN)) and name[:20].isdigit())


def remove_partial(place: str) -> None:
    """Remove what processes have left half written. Raises OSError."""
    folder = os.path.join(place, FOLDER)
    for name in os.listdir(folder):
        file = os.path.join(folder, name)
        if name.endswith(_PARTIAL) and time.time() - os.path.getmtime(file) > _PARTIAL_SECONDS:
            os.remove(file)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Wait until the names of a folder are on disk, where the system lets folders be opened. Raises
    OSError.
    """
    if os.name == "nt":
        return
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _write(folder: str, event_id: str, text: bytes) -> None:
    """Write a file that is there whole, and on disk, or not at all. Raises OSError."""
    partial, whole = (os.path.join(folder, event_id + end) for end in (_PARTIAL, LEFT))
    number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(partial, whole)
        sync_folder(folder)
    except BaseException:
        # Who asked tells the tally itself.
        for file in (partial, whole):
            if os.path.exists(file):
                os.remove(file)
        raise
