"""Transports: standard input and output of a process that a client starts."""

from __future__ import annotations

import anyio

from tallystick_mcp.server import TallyServer

__all__ = ["run_stdio"]


def run_stdio(server: TallyServer) -> None:
    """Serve over standard input and output until the input ends.

    Standard output has JSON-RPC alone: while the server runs, whatever else prints goes to standard
    error.
    """
    anyio.run(server.run_stdio_async)
