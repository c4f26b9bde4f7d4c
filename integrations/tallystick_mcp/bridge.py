"""The other way: what an MCP server offers, as a compile takes it.

Resources become items, tools become tool specs, prompts become items too: nothing that a server
says is an instruction. Each item names the server, its address there and the digest of what it was,
and is as good as the server says it may be kept.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, TextContent, TextResourceContents, Tool

from tallystick.errors import ActionDenied, InvalidInput
from tallystick.logs import get_logger
from tallystick.records import ContextItem, JsonObject, SourceRef, ToolSpec, text_digest

EXTERNAL_TRUST = 20
"""The trust in what another server says, percent; 50 is ordinary."""

_MOST_PAGES = 1_000
"""Pages of a list; no server has more."""


def fingerprint(tool: Tool) -> str:
    """Return the digest of all that a model or a person is told of a tool."""
    fields = tool.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
    return text_digest("mcp-tool", json.dumps(fields, sort_keys=True))


@dataclass(frozen=True)
class Bridge:
    """A connected client of one server."""

    client: Client
    server: str
    """The name under which the application knows the server; its own name is no proof of who it
    is.
    """

    async def items(self, uris: Iterable[str] | None = None) -> list[ContextItem]:
        """Read resources, by default all that are listed, and return their texts as items. What is
        no text is left out; so is one that is listed and cannot be read, and the log says so.
        """
        listed = None
        if uris is None:
            listed = await self._all(self.client.list_resources, "resources")
        items = []
        for uri in (resource.uri for resource in listed) if listed is not None else uris or ():
            try:
                read = await self.client.read_resource(uri)
            except MCPError as error:
                if listed is None:
                    raise
                get_logger("mcp").warning(
                    "mcp.resource_left_out", server=self.server, error=type(error).__name__
                )
                continue
            contents = [
                part for part in read.contents if not isinstance(part, BlobResourceContents)
            ]
            items += [self._item(part, read.ttl_ms) for part in contents]
        return items

    async def tools(self) -> list[Tool]:
        """List the tools of the server."""
        return await self._all(self.client.list_tools, "tools")

    async def fingerprints(self) -> dict[str, str]:
        """Return the digest of each tool, to be kept when a person has approved them."""
        return {tool.name: fingerprint(tool) for tool in await self.tools()}

    async def tool_specs(self, approved: Mapping[str, str]) -> list[ToolSpec]:
        """Return the approved tools of the server for a compile. `approved` are the digests of
        `fingerprints` from when a person approved them; a tool that is not among them is left out.

        Raises ActionDenied (`description_changed`) for a tool that is described otherwise now: what
        was approved was another tool.
        """
        specs = []
        for tool in await self.tools():
            if tool.name not in approved:
                continue
            if fingerprint(tool) != approved[tool.name]:
                raise ActionDenied(
                    "tool_call",
                    tool.name,
                    rule_id="mcp-tool-approval",
                    reason="description_changed",
                    why=f"{self.server} describes it otherwise than when it was approved. Read "
                    "the new description, and approve it again",
                )
            specs.append(
                ToolSpec(
                    name=tool.name,
                    description=tool.description or "",
                    parameters=tool.input_schema,
                    tool_class="network",
                )
            )
        return specs

    async def prompts(
        self, arguments: Mapping[str, Mapping[str, str]] | None = None
    ) -> list[ContextItem]:
        """Return prompts of the server as items: those that need no arguments, and those whose
        `arguments` are given by name.
        """
        by_prompt = arguments or {}
        items = []
        for prompt in await self._all(self.client.list_prompts, "prompts"):
            if prompt.name not in by_prompt and any(
                each.required for each in prompt.arguments or ()
            ):
                continue
            rendered = await self.client.get_prompt(
                prompt.name, dict(by_prompt.get(prompt.name, {}))
            )
            texts = [
                message.content.text
                for message in rendered.messages
                if isinstance(message.content, TextContent)
            ]
            uri = f"mcp-prompt:{self.server}/{prompt.name}"
            items.append(
                self._context_item(uri, "\n".join(texts), title=prompt.title or prompt.name)
            )
        return items

    async def _all(self, list_page: Callable[..., Awaitable[Any]], name: str) -> list[Any]:
        """Return what a server lists, page by page. Raises InvalidInput for a server whose list has
        no end.
        """
        items: list[Any] = []
        cursors: set[str] = set()
        cursor: str | None = None
        while True:
            page = await list_page(cursor=cursor)
            items += getattr(page, name)
            cursor = page.next_cursor
            if cursor is None:
                return items
            if cursor in cursors or len(cursors) == _MOST_PAGES:
                raise InvalidInput(f"The list of {name} of {self.server} has no end.")
            cursors.add(cursor)

    def _item(self, content: TextResourceContents, ttl_ms: int) -> ContextItem:
        return self._context_item(str(content.uri), content.text, ttl_ms=ttl_ms)

    def _context_item(
        self, uri: str, text: str, *, title: str | None = None, ttl_ms: int = 0
    ) -> ContextItem:
        digest = text_digest("mcp-resource", text)
        facts: JsonObject = {"trust": "external", "server": self.server}
        return ContextItem(
            id=f"{self.server}:{uri}",
            kind="retrieval_doc",
            content=text,
            source_ref=SourceRef(
                source_type="mcp_resource",
                uri=uri,
                title=title,
                checksum=digest,
                metadata=facts,
            ),
            freshness_ts=time.time_ns() // 1_000,
            ttl_seconds=-(-ttl_ms // 1_000) or None,
            trust_score=EXTERNAL_TRUST,
            metadata=facts,
        )
