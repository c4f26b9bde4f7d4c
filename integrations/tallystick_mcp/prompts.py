"""Prompts that a person picks in the client: recall first, hand over, review memory."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer

from tallystick.errors import TallystickError
from tallystick.operations import OPERATIONS
from tallystick.records import JsonObject
from tallystick_mcp.answers import add_reader, protocol_error, read_by_rules
from tallystick_mcp.callers import Callers


def add_to(server: MCPServer[Any], callers: Callers) -> None:
    """Add the prompts to a server."""

    @server.prompt()
    def recall_first(request: str, context: Context[Any, Any]) -> str:
        """Answer a request with what memory knows about it."""
        caller = callers(context)
        scopes = [str(scope) for scope in caller.scopes]

        def read(checked: JsonObject) -> dict[str, Any]:
            arguments = {**checked, "scopes": scopes}
            pack = OPERATIONS["pack"].call(caller.bound, arguments)
            return {"text": pack.text, "request": checked["query"]}

        try:
            answer = read_by_rules(caller.bound, "memory_pack", {"query": request}, read)
        except TallystickError as error:
            raise protocol_error(error) from error
        text = add_reader(caller, caller.bound, answer["text"] or "Memory has nothing about it.")
        return f"{text}\n\nWith that in mind, and naming the ids you rely on: {answer['request']}"

    @server.prompt()
    def hand_over() -> str:
        """Store what the next session needs to go on from here."""
        return (
            "Hand this session over. Search memory for what is known already, then add, one "
            "statement each: decisions with their reasons, constraints and preferences the user "
            "stated, and open tasks with the next step. Do not add what can be read in the "
            "repository. At the end list what you added, with the ids."
        )

    @server.prompt()
    def review_memory() -> str:
        """Look through memory for what is wrong, stale or said twice."""
        return (
            "Review the memory of this project: explore it with mode list, page by page. Name "
            "memories that contradict one another, are outdated, repeat another or look "
            "sensitive, each with its id and what you would do. Change nothing before the user "
            "agrees; then use manage, and preview each change."
        )
