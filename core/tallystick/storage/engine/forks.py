"""Forks: no connection is open while this process forks, so that a child may open the tally anew.

SQLite keeps a table of the locks that its process holds, and a child inherits it: what the parent
held at that moment the child believes to hold for good. A socket to PostgreSQL would have two
users. So before a fork every open database waits for the write and the reads under way, a few
milliseconds, and closes its connections; afterwards the parent opens them again as it needs them.

Where that cannot be had, because the thread that forks is inside a write or a read itself or
somebody else's takes too long, the child of an SQLite tally is refused it (ForkedTally): nothing in
a child can make the inherited table right. What a child inherits refuses every use.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from typing import Any, Protocol

from tallystick.errors import ForkedTally


class Forkable(Protocol):
    """A database as a fork sees it."""

    @property
    def fork_wait(self) -> float:
        """Seconds that a fork waits for it at most."""
        ...

    def pause(self, until: float) -> bool:
        """Close all connections and let nobody open one; False where that takes longer than
        `until`, of the monotonic clock.
        """
        ...

    def resume(self) -> None:
        """Undo `pause`, in the parent."""
        ...

    def forget(self, *, paused: bool) -> str | None:
        """Drop what was inherited, in the child; return the file that it cannot open again."""
        ...


_IMPORT_SECONDS = 10.0
"""Seconds that a fork waits at most for imports of other threads."""

_watched: weakref.WeakSet[Forkable] = weakref.WeakSet()
_guard = threading.RLock()
"""One fork at a time: each holds several databases."""
_forks: list[list[tuple[Forkable, bool]]] = []
"""For each fork under way the databases, and True for those that are paused."""
_unsafe: set[str] = set()
"""Files of SQLite that this process must not open."""


def watch(database: Forkable) -> None:
    """Let forks of this process wait for `database`."""
    with _guard:
        _watched.add(database)


def refuse_unsafe(file: str) -> None:
    """Raise ForkedTally for a file whose locks this process inherited."""
    if os.path.realpath(file) in _unsafe:
        raise ForkedTally(
            "This process was forked while its parent was inside a write or a read of this tally: "
            "SQLite cannot open it here. Fork outside of one, or start processes by `spawn`."
        )


def abandon(part: object, *, readable: frozenset[str] = frozenset()) -> None:
    """Let every use of `part`, but of attributes that are `readable`, raise ForkedTally.

    Its locks may be held by threads that the child does not have: whoever waited for one would wait
    for ever.
    """
    kind: Any = type(part)

    def refuse(self: object, name: str) -> Any:
        if name in readable or (name.startswith("__") and name.endswith("__")):
            return object.__getattribute__(self, name)
        raise ForkedTally

    inherited = type(kind.__name__, (kind,), {"__getattribute__": refuse, "__slots__": ()})
    object.__setattr__(part, "__class__", inherited)


def _imports_elsewhere() -> bool:
    """Return True while another thread imports a module: what is heavy is imported on first use,
    and a child that wants it too would wait for a thread that it does not have.
    """
    # Importlib shows its locks nowhere else; without them nothing is waited for.
    locks = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    here = (None, threading.get_ident())
    return any(getattr(lock(), "owner", None) not in here for lock in list(locks.values()))


def _before() -> None:
    _guard.acquire()
    until = time.monotonic() + _IMPORT_SECONDS
    while _watched and _imports_elsewhere() and time.monotonic() < until:
        time.sleep(0.001)
    paused: list[tuple[Forkable, bool]] = []
    _forks.append(paused)
    for database in list(_watched):
        paused.append((database, database.pause(time.monotonic() + database.fork_wait)))


def _after_in_parent() -> None:
    if _forks:
        for database, paused in _forks.pop():
            if paused:
                database.resume()
        _guard.release()


def _after_in_child() -> None:
    global _guard
    paused = dict(_forks[-1]) if _forks else {}
    _forks.clear()
    _guard = threading.RLock()
    for database in list(_watched):
        file = database.forget(paused=paused.get(database, False))
        if file is not None:
            _unsafe.add(os.path.realpath(file))
    _watched.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
