"""The same calls in Python and over MCP, for tests that compare what they leave behind."""

from __future__ import annotations

import json
from typing import Any

from mcp import Client

from tallystick.errors import TallystickError
from tallystick.tally import BoundTally


def direct(bound: BoundTally) -> list[str]:
    """Make the calls on a bound tally; return the codes of those that were refused."""
    refused: list[str] = []

    def attempt(function: Any, *arguments: Any, **options: Any) -> None:
        try:
            function(*arguments, **options)
        except TallystickError as error:
            refused.append(error.code)

    tabs = bound.remember("We indent with tabs.", kind="preference", tags=["style"])
    office = bound.remember("The office is in Bern.", kind="fact", importance=80)
    bound.remember("We indent with tabs.", kind="preference")
    bound.recall("tabs", limit=5, scopes=["private:ann", "project:apollo", "project:hermes"])
    bound.modify(office.id, reason="moved", content="The office is in Zurich.")
    bound.modify(tabs.id, reason="keep", pinned=True)
    attempt(bound.modify, office.id, reason="", content="x")
    attempt(bound.modify, office.id, reason="x", content="y", if_version=1)
    attempt(bound.forget, tabs.id, reason="pinned")
    bound.forget(office.id, reason="closed")
    attempt(bound.get, office.id)
    bound.recover(office.id, reason="not closed")
    attempt(bound.corrections.promote, office.id, "team:nobody", reason="x")
    preview = bound.corrections.make(office.id, "mark_stale", reason="old")
    bound.corrections.make(
        office.id, "mark_stale", reason="old", mode="apply", confirm_token=preview.confirm_token
    )
    attempt(bound.get, "01900000-0000-7000-8000-000000000000")
    return refused


async def over_mcp(client: Client, said: list[Any]) -> list[str]:
    """Make the calls with the tools, whose answers are added to `said`; return the codes of those
    that were refused.
    """
    refused: list[str] = []

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        result = await client.call_tool(tool, arguments)
        answer: dict[str, Any] = result.structured_content or {}
        line, written = [getattr(part, "text", "") for part in result.content]
        assert json.loads(written) == answer
        said.append({"tool": tool, "arguments": arguments, "answer": answer, "texts": [line]})
        if result.is_error:
            refused.append(answer["error"]["code"])
        return answer

    async def apply(action: str, identity: str, **arguments: Any) -> None:
        await call("manage", action=action, id=identity, mode="apply", **arguments)

    tabs = (await call("add", content="We indent with tabs.", kind="preference", tags=["style"]))[
        "id"
    ]
    office = (await call("add", content="The office is in Bern.", kind="fact", importance=80))["id"]
    await call("add", content="We indent with tabs.", kind="preference")
    await call("search", query="tabs")
    await apply("modify", office, reason="moved", changes={"content": "The office is in Zurich."})
    await apply("pin", tabs, reason="keep")
    await apply("modify", office, reason="", changes={"content": "x"})
    await apply("modify", office, reason="x", changes={"content": "y"}, if_version=1)
    await apply("forget", tabs, reason="pinned")
    await apply("forget", office, reason="closed")
    await call("explore", mode="get", id=office)
    await apply("recover", office, reason="not closed")
    await call("manage", action="promote", id=office, into="team:nobody", reason="x")
    correction = {"action": "correct", "id": office, "correction": "mark_stale", "reason": "old"}
    await call("manage", **correction)
    await call("manage", **correction, mode="apply")
    await call("explore", mode="get", id="01900000-0000-7000-8000-000000000000")
    return refused
