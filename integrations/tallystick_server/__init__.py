"""A tally over HTTP: the sidecar with its routes and its dashboard, and a client with a bound
tally's verbs.
"""

from tallystick.errors import require

require("fastapi", extra="server")

from tallystick_server.app import Server, create_app, openapi  # noqa: E402
from tallystick_server.client import (  # noqa: E402
    AsyncRemoteTally,
    RemoteRun,
    RemoteStep,
    RemoteTally,
)
from tallystick_server.dashboard import Entrance  # noqa: E402
from tallystick_server.serving import (  # noqa: E402
    serve,
    serve_dashboard,
    serve_in_background,
)

__all__ = [
    "AsyncRemoteTally",
    "Entrance",
    "RemoteRun",
    "RemoteStep",
    "RemoteTally",
    "Server",
    "create_app",
    "openapi",
    "serve",
    "serve_dashboard",
    "serve_in_background",
]
