"""A tally over HTTP: the sidecar with its routes, and a client with a bound tally's verbs."""

from tallystick_server.app import Server, create_app, openapi
from tallystick_server.client import AsyncRemoteTally, RemoteRun, RemoteStep, RemoteTally
from tallystick_server.serving import serve, serve_in_background

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
