"""Answers of tools: memory text is data under a notice, and every answer names actor and scope.

An answer is sent as structured content, and as its JSON in a text for clients that show their model
nothing else, behind a line for a person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, TextContent
from pydantic import BaseModel

from tallystick.errors import TallystickError
from tallystick.kit import has_rules
from tallystick.operations import error_json, framed_answer, wire_status
from tallystick.records import JsonObject
from tallystick.records.escaping import as_field
from tallystick.tally import BoundTally
from tallystick_mcp.callers import Caller


def result(caller: Caller, bound: BoundTally, text: str, fields: dict[str, Any]) -> CallToolResult:
    """Return an answer under the notice of remembered data."""
    named = {"actor": caller.name, "scope": str(bound.scope), **fields}
    line = f"{text} (as {caller.name}, in {bound.scope})"
    return _make_result(line, framed_answer(bound, named))


def failure(caller: Caller, error: TallystickError) -> CallToolResult:
    """Return an error on which a model can act. Raises MCPError for every other."""
    if wire_status(error).mcp is not None:
        raise protocol_error(error)
    described = {
        "actor": caller.name,
        "scope": str(caller.bound.scope),
        "error": error_json(error),
    }
    return _make_result(str(error), described, is_error=True)


def refusal(caller: Caller, fields: dict[str, Any]) -> CallToolResult:
    """Return what a person did not allow."""
    described = {"actor": caller.name, "scope": str(caller.bound.scope), "error": fields}
    return _make_result(str(fields["message"]), described, is_error=True)


def _make_result(text: str, answer: dict[str, Any], *, is_error: bool = False) -> CallToolResult:
    whole = json.dumps(answer, ensure_ascii=False, separators=(",", ":"))
    return CallToolResult(
        content=[TextContent(type="text", text=text), TextContent(type="text", text=whole)],
        structured_content=answer,
        is_error=is_error,
    )


def read_by_rules(
    bound: BoundTally,
    tool: str,
    arguments: JsonObject,
    read: Callable[[JsonObject], dict[str, Any]],
) -> dict[str, Any]:
    """Return what a resource or a prompt reads, as far as the rules let the memory tool of this
    name read it, with the arguments that they leave. Raises Blocked.
    """
    if not has_rules(bound, "tool_call"):
        return read(arguments)
    check = bound.check_tool_call(tool, arguments, piece="tallystick_mcp")
    fields: dict[str, Any] = check.result(read(check.arguments))
    return fields


def add_reader(caller: Caller, bound: BoundTally, text: str) -> str:
    """Return a text with who reads it and where, as every answer says."""
    return f"{text}\n\n(as {caller.name}, in {bound.scope})"


def protocol_error(error: TallystickError) -> MCPError:
    """Return an error as JSON-RPC has it, with our code and its facts."""
    described = error_json(error)
    code = wire_status(error).mcp or -32602
    data = {"code": described["code"], "facts": described["facts"]}
    return MCPError(code=code, message=described["message"], data=data)


def show_record(value: Any) -> Any:
    """Return a record, or records, as JSON without what is empty, and with every text as data: it
    can look like nothing but stored text.
    """
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if isinstance(value, str):
        return as_field(value)
    if isinstance(value, dict):
        return {name: show_record(item) for name, item in value.items()}
    if isinstance(value, Iterable):
        return [show_record(item) for item in value]
    return value
