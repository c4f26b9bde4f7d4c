"""MCP on a tally: a server with four tools, resources and prompts."""

from tallystick_mcp.server import TallyServer, serve

__all__ = ["TallyServer", "serve"]
