"""Standard input and output: what a server over them has beside what the SDK's own has."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server
from mcp_types import Resource

from tallystick import __version__
from tallystick_mcp.malformed import AnsweredReads


class StdioServer(MCPServer[Any]):
    """An MCP server of Tallystick, which leaves the root logger to the application."""

    def __init__(self, name: str, *, instructions: str) -> None:
        with _root_logger_as_it_is():
            super().__init__(
                name,
                version=__version__,
                instructions=instructions,
                log_level="WARNING",
            )

    async def list_resources(self) -> list[Resource]:
        """Return the root of memory as files. It is the same for everybody: who reads it is known
        when it is read.
        """
        return [
            Resource(
                uri="tally://files/memories",
                name="memories",
                description="Memory as files: what the root holds. A file: tally://files and its "
                "path.",
                mime_type="text/plain",
            )
        ]

    async def run_stdio_async(self) -> None:
        """Serve over standard input and output until the input ends. A line that is no message is
        answered with an error of the protocol.
        """
        lowlevel = self._lowlevel_server
        async with stdio_server() as (read, write):
            options = lowlevel.create_initialization_options()
            await lowlevel.run(AnsweredReads(read, write), write, options)


@contextmanager
def _root_logger_as_it_is() -> Iterator[None]:
    """Leave the root logger as it is: the SDK would give it a handler of its own."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
