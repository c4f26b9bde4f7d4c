"""Resources: memories, sources, runs and receipts by address, what to know at the start, and memory
as files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from tallystick.errors import InvalidScope, NotFound, TallystickError
from tallystick.kit import Asking, FilePermission
from tallystick.operations import OPERATIONS, framed_answer, memory_fields
from tallystick.records import JsonObject
from tallystick.tally import BoundTally, MemoryTree
from tallystick_mcp.answers import add_reader, protocol_error, read_by_rules, show_record
from tallystick_mcp.callers import Caller, Callers
from tallystick_mcp.tools import project_of

_JSON, _TEXT = "application/json", "text/plain"
CONTEXT = "tally://context/{scope}"
"""The template of what to know at the start, whose scope a client may complete."""


def add_to(server: MCPServer[Any], callers: Callers) -> None:
    """Add the templates of resources to a server."""

    def of(kind: str, operation: str, argument: str, context: Any, id: str) -> str:
        def read(caller: Caller, checked: JsonObject) -> dict[str, Any]:
            result = OPERATIONS[operation].call(caller.bound, checked)
            return {kind: memory_fields(result) if operation == "get" else show_record(result)}

        return _read(callers, context, f"memory_{operation}", {argument: id}, read)

    @server.resource("tally://memory/{id}", name="memory", mime_type=_JSON)
    def memory(id: str, context: Context[Any, Any]) -> str:
        """One memory, whole."""
        return of("memory", "get", "memory_id", context, id)

    @server.resource("tally://source/{id}", name="source", mime_type=_JSON)
    def source(id: str, context: Context[Any, Any]) -> str:
        """A source as it arrived, and the memories that were drawn from it."""
        return of("source", "source", "source_id", context, id)

    @server.resource("tally://run/{id}", name="run", mime_type=_JSON)
    def run(id: str, context: Context[Any, Any]) -> str:
        """A recorded run."""
        return of("run", "run", "run_id", context, id)

    @server.resource("tally://run/{id}/artifacts", name="artifacts", mime_type=_JSON)
    def artifacts(id: str, context: Context[Any, Any]) -> str:
        """What a run left behind: its steps, and what they wrote to memory."""

        def read(caller: Caller, checked: JsonObject) -> dict[str, Any]:
            steps = OPERATIONS["steps"].call(caller.bound, checked)
            written = OPERATIONS["written"].call(caller.bound, checked)
            return {"steps": show_record(steps), "written": show_record(written)}

        return _read(callers, context, "memory_steps", {"run_id": id}, read)

    @server.resource("tally://step/{id}/receipt", name="receipt", mime_type=_JSON)
    def receipt(id: str, context: Context[Any, Any]) -> str:
        """The receipt of a step: what the agent saw, why, and what it did."""
        return of("step", "receipt", "step_id", context, id)

    @server.resource(CONTEXT, name="context", mime_type=_TEXT)
    def context_of(scope: str, context: Context[Any, Any]) -> str:
        """What to know at the start; of a project what is handed over: blocked, open, decided,
        learned.
        """

        def read(caller: Caller) -> str:
            bound = _within(caller, scope)
            of_project: JsonObject = (
                {} if (project := project_of(bound)) is None else {"project": project}
            )
            wake = read_by_rules(
                bound,
                "memory_wake",
                of_project,
                lambda checked: {"text": OPERATIONS["wake"].call(bound, checked).text},
            )
            return add_reader(caller, bound, wake["text"])

        return _read_text(read, callers, context)

    @server.resource("tally://files/{+path}", name="file", mime_type=_TEXT)
    def file(path: str, context: Context[Any, Any]) -> str:
        """A file of memory, or the files in a folder; the root is tally://files/memories."""

        def read(caller: Caller) -> str:
            tree, whole = MemoryTree(caller.bound), f"/{path}"
            scope = tree.scope_of(whole)
            bound = caller.bound if scope is None else replace(caller.bound, scope=scope)
            permission = FilePermission(bound, Asking("ask", piece="tallystick_mcp"))
            text = MemoryTree(bound, permission=permission).view(whole)
            return add_reader(caller, bound, text)

        return _read_text(read, callers, context)


def _within(caller: Caller, scope: str) -> BoundTally:
    try:
        return caller.within(scope)
    except InvalidScope as error:
        raise NotFound(str(error)) from error


def _read(
    callers: Callers,
    context: Context[Any, Any],
    tool: str,
    arguments: JsonObject,
    read: Callable[[Caller, JsonObject], dict[str, Any]],
) -> str:
    def text(caller: Caller) -> str:
        fields = read_by_rules(caller.bound, tool, arguments, partial(read, caller))
        named = {"actor": caller.name, "scope": str(caller.bound.scope), **fields}
        return json.dumps(framed_answer(caller.bound, named), ensure_ascii=False)

    return _read_text(text, callers, context)


def _read_text(read: Callable[[Caller], str], callers: Callers, context: Context[Any, Any]) -> str:
    """Return the text of a resource. Raises the SDK's own errors: it would log a traceback of any
    other and answer with an internal error.
    """
    try:
        return read(callers(context))
    except NotFound as error:
        raise ResourceNotFoundError(str(error)) from error
    except TallystickError as error:
        raise protocol_error(error) from error
