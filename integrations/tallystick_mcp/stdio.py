"""Standard input and output: what a server over them has beside what the SDK's own has."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.stdio import stdio_server
from mcp_types import CompleteRequestParams, CompleteResult, Completion, Resource

from tallystick import __version__
from tallystick_mcp.malformed import AnsweredReads

_MOST_VALUES = 100
"""Values of one completion, as the protocol has it."""


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
        self._lowlevel_server.add_request_handler(
            "completion/complete", CompleteRequestParams, self._handle_complete
        )

    async def complete(
        self, params: CompleteRequestParams, context: Context[Any, Any]
    ) -> list[str]:
        """Return what an argument of a template or a prompt may become, by its beginning."""
        return []

    async def _handle_complete(self, request: Any, params: CompleteRequestParams) -> CompleteResult:
        context = Context[Any, Any](request_context=request, mcp_server=self)
        values = await self.complete(params, context)
        shown = values[:_MOST_VALUES]
        return CompleteResult(
            completion=Completion(
                values=shown, total=len(values), has_more=len(shown) < len(values)
            )
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
