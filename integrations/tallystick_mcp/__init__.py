"""MCP on a tally: a server with four tools, resources and prompts, and a bridge to others."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tallystick.errors import require

require("mcp", extra="mcp")

if TYPE_CHECKING:
    from tallystick_mcp.bridge import Bridge, fingerprint
    from tallystick_mcp.server import TallyServer, serve
    from tallystick_mcp.transports import http_app, run_http, run_stdio

__all__ = ["Bridge", "TallyServer", "fingerprint", "http_app", "run_http", "run_stdio", "serve"]

_MODULES = {
    "Bridge": "bridge",
    "fingerprint": "bridge",
    "TallyServer": "server",
    "serve": "server",
}
"""The module of each public name that is not among the transports."""


def __getattr__(name: str) -> Any:
    # A server that is asked nothing loads neither the core nor a bridge.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tallystick_mcp.{_MODULES.get(name, 'transports')}"), name)
