"""The front of a server over standard input: it answers hello and lists, and opens the tally at the
first call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import anyio
from anyio import to_thread
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp_types import (
    CallToolResult,
    CompleteRequestParams,
    GetPromptResult,
    InputRequiredResult,
    Prompt,
    ResourceTemplate,
    Tool,
)
from pydantic.networks import AnyUrl

from tallystick.errors import TallystickError
from tallystick_mcp.stdio import StdioServer

if TYPE_CHECKING:
    from tallystick.records import Actor
    from tallystick_mcp.server import TallyServer


class Start(TypedDict):
    """What a front needs to serve a tally, and the answers that it gives without one; as JSON."""

    tally: str
    actor: dict[str, Any]
    scopes: list[str] | None
    rules: str | None
    approval: str
    person: bool
    name: str
    instructions: str
    tools: list[dict[str, Any]]
    templates: list[dict[str, Any]]
    prompts: list[dict[str, Any]]


class Front(StdioServer):
    """A server that has no tally before its first call, and is the server of one from then on."""

    def __init__(self, start: Start) -> None:
        super().__init__(start["name"], instructions=start["instructions"])
        self._start = start
        self._server: TallyServer | None = None
        self._opening = anyio.Lock()

    async def list_tools(self) -> list[Tool]:
        """Return the tools."""
        return [Tool.model_validate(each) for each in self._start["tools"]]

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the templates of resources."""
        return [ResourceTemplate.model_validate(each) for each in self._start["templates"]]

    async def list_prompts(self) -> list[Prompt]:
        """Return the prompts."""
        return [Prompt.model_validate(each) for each in self._start["prompts"]]

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: Context[Any, Any] | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool of the tally."""
        return await (await self._open_server()).call_tool(name, arguments, context)

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Read a resource of the tally."""
        return await (await self._open_server()).read_resource(uri, context)

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[Any, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """Return a prompt, with what the tally knows."""
        return await (await self._open_server()).get_prompt(name, arguments, context)

    async def complete(
        self, params: CompleteRequestParams, context: Context[Any, Any]
    ) -> list[str]:
        """Return what an argument may become, by what the tally knows."""
        return await (await self._open_server()).complete(params, context)

    def close(self) -> None:
        """Close the tally, if it was opened."""
        if self._server is not None:
            self._server.tally.close()

    async def _open_server(self) -> TallyServer:
        """Return the server of the tally, opened once. Where that fails, the next call tries again.
        Raises an error of the protocol.
        """
        async with self._opening:
            if self._server is None:
                try:
                    await to_thread.run_sync(self._open)
                except TallystickError as error:
                    from tallystick_mcp.answers import protocol_error

                    raise protocol_error(error) from error
        assert self._server is not None
        return self._server

    def _open(self) -> None:
        # On the thread: a call that is cut off meanwhile leaves nothing open that is not known.
        self._server = _server_of(self._start)


def run(start: Start) -> None:
    """Serve over standard input and output until the input ends."""
    front = Front(start)
    try:
        anyio.run(front.run_stdio_async)
    finally:
        front.close()


def _server_of(start: Start) -> TallyServer:
    """Open the tally and return its server. Raises TallystickError."""
    from tallystick.policy.rules import load_rules
    from tallystick.records import Actor
    from tallystick.tally import Tally
    from tallystick_mcp.server import serve

    rules = () if start["rules"] is None else load_rules(start["rules"])
    tally = Tally.open(start["tally"], create=False, background=True, rules=rules)
    try:
        return serve(
            tally,
            actor=Actor.load(start["actor"]),
            scopes=start["scopes"],
            approval="elsewhere" if start["approval"] == "elsewhere" else "ask",
            person=start["person"],
        )
    except BaseException:
        tally.close()
        raise


def report(
    pipe: int,
    server: TallyServer,
    *,
    tally: str,
    actor: Actor,
    scopes: Sequence[str] | None,
    rules: str | None,
    approval: str,
    person: bool,
) -> None:
    """Write to a pipe what a front needs to stand for a server."""

    async def start() -> Start:
        return Start(
            tally=tally,
            actor=json.loads(actor.dumps()),
            scopes=None if scopes is None else list(scopes),
            rules=rules,
            approval=approval,
            person=person,
            name=server.name,
            instructions=server.instructions or "",
            tools=_dump_items(await server.list_tools()),
            templates=_dump_items(await server.list_resource_templates()),
            prompts=_dump_items(await server.list_prompts()),
        )

    with open(pipe, "w", encoding="utf-8") as to:
        json.dump(anyio.run(start), to)


def _dump_items(items: Iterable[Any]) -> list[dict[str, Any]]:
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in items]
