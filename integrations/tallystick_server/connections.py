"""Connections: how many a server has at once, and how long one may wait without a request.

Whoever can reach a port can open connections, without any token. So a connection costs a server
little, and never keeps another caller out: where there are too many, the one that has waited
longest makes room, and only requests of callers whom the guard let in count as work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from tallystick.errors import InvalidInput
from tallystick_server.guard import ADMISSION, Application, Receive, Scope, Send

_HEAD_SECONDS = 30
"""The time in which a request must begin, and its headers arrive."""
_LONGEST_HEAD = 64 * 1024
"""Bytes that may arrive before the headers are complete."""
_SPARE = 64
"""Connections beyond the most, whose requests are refused, or ask whether the server runs."""
ACCEPTED_AT_ONCE = 64
"""Connections that a server takes before it counts them."""
_OTHER_FILES = 256
"""Files that a process has open beside connections."""


class Connections:
    """The connections of one process, over all sockets that it serves. For its event loop alone."""

    def __init__(self, most: int, *, always: Iterable[str] = ()) -> None:
        """Allow `most` at once; the paths in `always` are answered beyond that."""
        self._most = most
        self._always = frozenset(always)
        # In each the one that waits longest is first.
        self._strangers: dict[AdmittedProtocol, None] = {}
        """Those of whom the guard let nobody in."""
        self._idle: dict[AdmittedProtocol, None] = {}
        """Those between two requests."""
        self._busy: set[AdmittedProtocol] = set()

    def open(self, connection: AdmittedProtocol) -> None:
        """Count a connection, and close the one that waits longest where there are too many."""
        self._strangers[connection] = None
        count = len(self._strangers) + len(self._idle) + len(self._busy)
        if count <= self._most:
            return
        waiting = self._strangers if len(self._strangers) > 1 else self._idle
        if waiting:
            next(iter(waiting)).drop()
        elif count > self._most + _SPARE:
            connection.drop()

    def begin(self, connection: AdmittedProtocol, path: str) -> bool:
        """Count a request that is answered; False where there are too many."""
        if len(self._busy) >= self._most and path not in self._always:
            return False
        self.close(connection)
        self._busy.add(connection)
        return True

    def wait(self, connection: AdmittedProtocol) -> None:
        """Count a connection among those that wait for their next request."""
        if connection in self._busy:
            self._busy.remove(connection)
            self._idle[connection] = None

    def close(self, connection: AdmittedProtocol) -> None:
        """Forget a connection."""
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)
        self._busy.discard(connection)


class AdmittedProtocol(asyncio.Protocol):
    """Mixed into a protocol of uvicorn: its connections are counted, and closed where no request
    comes.
    """

    admission: ClassVar[Connections]
    app: Application
    cycle: Any
    """The request that came last."""
    transport: asyncio.Transport

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._serve, self.app = self.app, self._answer
        self._head = self._requests = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()
        self.admission.open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        self.admission.close(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what was sent; close the connection where headers have no end."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._stop_waiting()
        elif self._timer is not None:
            self._head += len(data)
            if self._head > _LONGEST_HEAD:
                self.drop()

    def drop(self) -> None:
        """Close it, without an answer."""
        self._stop_waiting()
        self.admission.close(self)
        self.transport.abort()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ADMISSION] = lambda: self.admission.begin(self, scope["path"])
        # A client may send its next request before the answer to this one is complete.
        self._requests += 1
        self._stop_waiting()
        try:
            await self._serve(scope, receive, send)
        finally:
            self._requests -= 1
            if not self._requests and not self.transport.is_closing():
                self.admission.wait(self)
                self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        self._head = 0
        self._timer = asyncio.get_running_loop().call_later(_HEAD_SECONDS, self.drop)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def reserve_files(most: int) -> None:
    """Let this process open as many files as `most` connections need. Raises InvalidInput where the
    system does not allow it.
    """
    try:
        import resource
    except ImportError:  # a system without such a limit
        return
    wanted = most + _SPARE + 3 * ACCEPTED_AT_ONCE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise InvalidInput(
            f"`max_connections` {most:,} needs {wanted:,} open files, and this process may have "
            f"{hard:,}. Lower the setting, or raise the limit (`ulimit -n`)."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
