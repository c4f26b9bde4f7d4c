"""A tally over HTTP: the sidecar with its routes, and a client with a bound tally's verbs."""

from tallystick_server.app import create_app, openapi
from tallystick_server.serving import serve

__all__ = ["create_app", "openapi", "serve"]
