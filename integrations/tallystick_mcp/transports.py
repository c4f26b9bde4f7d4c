"""Transports: standard input and output of a process that a client starts, and HTTP."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context
from mcp.server.transport_security import TransportSecuritySettings
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from tallystick.errors import InvalidInput, Unauthenticated
from tallystick.records import Actor, Scope
from tallystick.tally import Tally
from tallystick_mcp.callers import Caller, Callers, caller_of
from tallystick_mcp.server import TallyServer, serve
from tallystick_server.connections import (
    ACCEPTED_AT_ONCE,
    AdmittedProtocol,
    Connections,
    reserve_files,
)
from tallystick_server.guard import BODY_LIMIT, CALLER, WAITING, Guard, bind_port, bind_socket
from tallystick_server.guard import Caller as GuardedCaller

PATH = "/mcp"
"""Where MCP is served over HTTP."""
_GRACE_SECONDS = 2


def run_stdio(server: TallyServer) -> None:
    """Serve over standard input and output until the input ends.

    Standard output has JSON-RPC alone: while the server runs, whatever else prints goes to standard
    error.
    """
    anyio.run(server.run_stdio_async)


def http_app(
    tally: Tally,
    *,
    scopes: Sequence[str | Scope] | None = None,
    local: Actor | None = None,
    hosts: Iterable[str] = (),
    **options: Any,
) -> Guard:
    """Return the ASGI application that serves MCP at `/mcp`, behind the guard of access tokens.

    Who calls, and for what, its token says; `scopes` bound every caller further. With `local` a
    caller without a token is that actor: only for a socket of `bind_socket`. There are no sessions:
    each request stands for itself. `options` are those of `serve`.
    """
    server = serve(tally, callers=callers_of_requests(tally, scopes), **options)
    return guarded(server, local=local, hosts=hosts)


def guarded(server: TallyServer, *, local: Actor | None = None, hosts: Iterable[str] = ()) -> Guard:
    """Return the ASGI application of a server whose callers are those of `callers_of_requests`."""
    # The guard has checked Host and Origin, and cut off what is too large.
    application = server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=BODY_LIMIT,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return Guard(application, server.tally, surface="mcp", local=local, hosts=hosts)


def callers_of_requests(tally: Tally, scopes: Sequence[str | Scope] | None) -> Callers:
    """Return what finds out who calls from what the guard knows of a request."""

    def caller(context: Context[Any, Any]) -> Caller:
        request = context.request_context.request
        guarded = None if request is None else request.scope.get(CALLER)
        if not isinstance(guarded, GuardedCaller):
            raise Unauthenticated
        return caller_of(tally, guarded.actor, scopes)

    return caller


def run_http(
    tally: Tally,
    *,
    uds: str | os.PathLike[str] | None = None,
    port: int | None = None,
    host: str = "127.0.0.1",
    local: Actor | None = None,
    started: Callable[[list[str]], None] = lambda addresses: None,
    **options: Any,
) -> None:
    """Serve over HTTP until a signal: on a Unix socket at `uds`, on `port`, or on both.

    On the socket, which nobody else may open, a caller without a token acts as `local`, by default
    the tally's owner; on a port every caller has a token. Raises InvalidInput.
    """
    if uds is None and port is None:
        raise InvalidInput("Say where to serve: on a Unix socket, on a port, or on both.")
    most = tally.settings.max_connections
    reserve_files(most)
    connections = Connections(most)
    with ExitStack() as stack:
        servers: list[tuple[_Server, socket.socket]] = []
        addresses = []
        if uds is not None:
            app = http_app(tally, local=local or tally.owner, **options)
            servers.append(
                (_Server(_config(app, connections)), stack.enter_context(bind_socket(uds)))
            )
            addresses.append(f"unix:{os.path.abspath(uds)}")
        if port is not None:
            app = http_app(tally, hosts=[host], **options)
            bound = stack.enter_context(bind_port(port, host=host))
            servers.append((_Server(_config(app, connections)), bound))
            addresses.append(f"http://{host}:{bound.getsockname()[1]}{PATH}")
        started(addresses)
        anyio.run(_run, servers)


class _Server(uvicorn.Server):
    """A server that leaves signals to whoever runs it, so that its socket is removed in the end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, with a queue in which others wait while some are taken."""
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(WAITING)


def _config(app: Any, connections: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=type("Protocol", (AdmittedProtocol, AutoHTTPProtocol), {"admission": connections}),
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


async def _run(servers: Sequence[tuple[_Server, socket.socket]]) -> None:
    """Run the servers until a signal, or until one of them ends, and end the others with it."""

    async def serve_one(server: _Server, bound: socket.socket) -> None:
        await server.serve(sockets=[bound])
        stop()

    def stop() -> None:
        for server, _ in servers:
            server.should_exit = True

    async def stop_at_signal() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                stop()

    async with anyio.create_task_group() as watching:
        if threading.current_thread() is threading.main_thread():
            watching.start_soon(stop_at_signal)
        async with anyio.create_task_group() as running:
            for server, bound in servers:
                running.start_soon(serve_one, server, bound)
        watching.cancel_scope.cancel()
