"""MCP on a tally: a server with four tools, resources and prompts, and a bridge to others."""

from tallystick.errors import require

require("mcp", extra="mcp")

from tallystick_mcp.bridge import Bridge, fingerprint  # noqa: E402
from tallystick_mcp.server import TallyServer, serve  # noqa: E402
from tallystick_mcp.transports import http_app, run_http, run_stdio  # noqa: E402

__all__ = ["Bridge", "TallyServer", "fingerprint", "http_app", "run_http", "run_stdio", "serve"]
