"""A tally over HTTP: the sidecar with its routes and its dashboard, and a client with a bound
tally's verbs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tallystick.errors import require

if TYPE_CHECKING:
    from tallystick_server.app import Server, create_app, openapi
    from tallystick_server.client import AsyncRemoteTally, RemoteRun, RemoteStep, RemoteTally
    from tallystick_server.dashboard import Entrance
    from tallystick_server.serving import serve, serve_dashboard, serve_in_background

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

_MODULES = {
    "app": ("Server", "create_app", "openapi"),
    "client": ("AsyncRemoteTally", "RemoteRun", "RemoteStep", "RemoteTally"),
    "dashboard": ("Entrance",),
    "serving": ("serve", "serve_dashboard", "serve_in_background"),
}


def __getattr__(name: str) -> Any:
    # A server needs no client, a client no server, and the guard of both doors neither.
    for module, names in _MODULES.items():
        if name in names:
            # An application of one's own has some of them already.
            for package in ("fastapi", "httpx2", "jinja2", "prometheus_client", "uvicorn"):
                require(package, extra="server")
            return getattr(import_module(f"tallystick_server.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
