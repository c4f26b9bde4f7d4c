"""A tally over HTTP: the sidecar with its routes, and a client with a bound tally's verbs."""

from tallystick.errors import require

require("fastapi", extra="server")

from tallystick_server.app import Server, create_app, openapi  # noqa: E402
from tallystick_server.client import (  # noqa: E402
    AsyncRemoteTally,
    RemoteRun,
    RemoteStep,
    RemoteTally,
)
from tallystick_server.serving import serve, serve_in_background  # noqa: E402

__all__ = [
    "AsyncRemoteTally",
    "RemoteRun",
    "RemoteStep",
    "RemoteTally",
    "Server",
    "create_app",
    "openapi",
    "serve",
    "serve_in_background",
]
