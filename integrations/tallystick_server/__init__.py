"""A tally over HTTP: the sidecar with its routes and its dashboard, and a client with a bound
tally's verbs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tallystick.errors import require

require("fastapi", extra="server")

from tallystick_server.app import Server, create_app, openapi  # noqa: E402
from tallystick_server.dashboard import Entrance  # noqa: E402
from tallystick_server.serving import (  # noqa: E402
    serve,
    serve_dashboard,
    serve_in_background,
)

if TYPE_CHECKING:
    from tallystick_server.client import AsyncRemoteTally, RemoteRun, RemoteStep, RemoteTally

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

_OF_CLIENT = ("AsyncRemoteTally", "RemoteRun", "RemoteStep", "RemoteTally")


def __getattr__(name: str) -> Any:
    # A server needs no client, nor the HTTP library of it.
    if name in _OF_CLIENT:
        return getattr(import_module("tallystick_server.client"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
