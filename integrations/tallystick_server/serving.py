"""Serving: the application on a Unix socket, on a port, or on both."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tallystick.errors import InvalidInput
from tallystick.kit import has_rules
from tallystick.records import Actor
from tallystick.tally import BoundTally, Tally
from tallystick_hooks.quick import RULES_MARK
from tallystick_server.app import create_app
from tallystick_server.connections import (
    ACCEPTED_AT_ONCE,
    AdmittedProtocol,
    Connections,
    reserve_files,
)
from tallystick_server.dashboard import Entrance, make_ready_in_background
from tallystick_server.guard import WAITING, bind_port, bind_socket
from tallystick_server.routes import PREFIX
from tallystick_server.streams import STOPPING

_GRACE_SECONDS = 5


def serve(
    tally: Tally,
    *,
    uds: str | os.PathLike[str] | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    hosts: Iterable[str] = (),
    local: Actor | None = None,
    entrance: Entrance | None = None,
    started: Callable[[list[str]], None] = lambda addresses: None,
) -> None:
    """Serve a tally until it is stopped (Ctrl-C, SIGTERM): on a Unix socket at `uds` (`local`), on
    `port` of `host` (`team`), or on both (`hybrid`).

    On the socket, which nobody else may open, a caller without a token acts as `local`, by default
    the tally's owner. On a port every caller has a token. `hosts` are further names of this server.
    A browser comes into the dashboard by a link of the `entrance`. `started` is called with the
    addresses once they are bound. Raises InvalidInput.
    """
    with _bound(tally, uds, port, host, hosts, local, entrance) as (servers, addresses):
        started(addresses)
        asyncio.run(_run(servers))


def serve_dashboard(
    bound: BoundTally,
    *,
    port: int = 0,
    started: Callable[[str], None] = lambda link: None,
) -> None:
    """Serve a tally's dashboard on a port of the loopback, until it is stopped, for the person who
    has `bound`.

    `started` is called with the link that lets one browser in, once. The session that it begins
    ends with the server. What the first pages need is read in the background meanwhile. Raises
    InvalidInput, Denied where no person is at work.
    """
    tally = bound.tally
    entrance = Entrance(tally)
    session = bound.tokens.make("dashboard", token_class="session")
    assert session.secret is not None
    path = entrance.offer(session.secret)
    make_ready_in_background(bound)
    try:
        serve(
            tally,
            port=port,
            entrance=entrance,
            started=lambda addresses: started(f"{addresses[0]}{path}"),
        )
    finally:
        bound.tokens.revoke(session.id, reason="the dashboard was closed")


@contextmanager
def serve_in_background(
    tally: Tally,
    *,
    uds: str | os.PathLike[str] | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    hosts: Iterable[str] = (),
    local: Actor | None = None,
    entrance: Entrance | None = None,
) -> Iterator[list[str]]:
    """Same as `serve`, on a thread of its own, for as long as the block lasts: with the addresses
    for clients. Raises InvalidInput.
    """
    with _bound(tally, uds, port, host, hosts, local, entrance) as (servers, addresses):
        thread = threading.Thread(
            target=lambda: asyncio.run(_run(servers)), name="tallystick-server", daemon=True
        )
        thread.start()
        try:
            yield addresses
        finally:
            for server, _ in servers:
                server.should_exit = True
            thread.join()


@contextmanager
def _bound(
    tally: Tally,
    uds: str | os.PathLike[str] | None,
    port: int | None,
    host: str,
    hosts: Iterable[str],
    local: Actor | None,
    entrance: Entrance | None,
) -> Iterator[tuple[list[tuple[_Server, socket.socket]], list[str]]]:
    """Bind what is asked for; give the servers with their sockets, and their addresses."""
    if uds is None and port is None:
        raise InvalidInput("Say where to serve: on a Unix socket, on a port, or on both.")
    names = set(hosts)
    most = tally.settings.max_connections
    reserve_files(most)
    connections = Connections(most, always=[f"{PREFIX}/health"])
    with ExitStack() as stack:
        servers: list[tuple[_Server, socket.socket]] = []
        addresses: list[str] = []
        if uds is not None:
            app = create_app(tally, local=local or tally.owner, hosts=names, entrance=entrance)
            servers.append((_server(app, connections), stack.enter_context(bind_socket(uds))))
            stack.enter_context(_rules_marked(tally, uds))
            addresses.append(f"unix:{os.path.abspath(uds)}")
        if port is not None:
            app = create_app(tally, hosts={*names, host}, entrance=entrance)
            bound = stack.enter_context(bind_port(port, host=host))
            servers.append((_server(app, connections), bound))
            shown = f"[{host}]" if ":" in host else host
            addresses.append(f"http://{shown}:{bound.getsockname()[1]}")
        yield servers, addresses


@contextmanager
def _rules_marked(tally: Tally, uds: str | os.PathLike[str]) -> Iterator[None]:
    """Let a hook know beside the socket that this server has rules over tools, as long as it runs:
    where it does not answer, no tool runs unjudged.
    """
    mark = Path(f"{os.path.abspath(uds)}{RULES_MARK}")
    mark.unlink(missing_ok=True)  # of a server that was killed
    if not has_rules(tally, "tool_call"):
        yield
        return
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT, 0o600))
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it: uvicorn's own would raise them anew, and end
    the process before its socket is removed.
    """

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, with a queue in which others wait while some are taken."""
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(WAITING)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams of events, which would go on until they are cut off, then the rest."""
        self._stopping.set()
        await super().shutdown(sockets)


def _server(app: Any, connections: Connections) -> _Server:
    stopping = threading.Event()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scope[STOPPING] = stopping
        await app(scope, receive, send)

    config = uvicorn.Config(
        application,
        http=type("Protocol", (AdmittedProtocol, AutoHTTPProtocol), {"admission": connections}),
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    return _Server(config, stopping)


async def _run(servers: Sequence[tuple[_Server, socket.socket]]) -> None:
    """Run the servers until a signal, or until one of them ends, and end the others with it."""

    def stop() -> None:
        for server, _ in servers:
            server.should_exit = True

    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
    running = [asyncio.ensure_future(server.serve(sockets=[bound])) for server, bound in servers]
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    stop()
    await asyncio.gather(*running)
