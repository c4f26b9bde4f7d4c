"""ToolRules: the rules of a tally over tool calls, at the hook of LangGraph's ToolNode.

Rules see the arguments that the schema of the tool makes of what the model wrote, and the tool runs
with exactly these. What the graph injects arrives as ever, and is no part of them. A call that a
rule or a person denied does not run: the model reads why, as the error of the tool, and may go on.
A call that wants an approval stops the graph with an interrupt until a person has decided.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.runnables.config import ensure_config
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command

from tallystick.aio import in_thread
from tallystick.errors import ActionDenied
from tallystick.kit import (
    ActorSource,
    Binder,
    ToolCall,
    enforcing,
    has_rules,
    is_denial,
    plain_arguments,
    register_enforcer,
)
from tallystick.kit.binder import call_of_config
from tallystick.recorder import Run
from tallystick.records import Scope
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick_langchain.approvals import approved_async, check_with_approval
from tallystick_langchain.handler import handler_run
from tallystick_langchain.tool_arguments import ReadArguments

Result = ToolMessage | Command[Any]


class ToolRules:
    """Rules over the tools of a graph: `ToolNode(tools, wrap_tool_call=rules.wrap_tool_call,
    awrap_tool_call=rules.awrap_tool_call)`. TallyMiddleware has them built in.
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
    ) -> None:
        """`actor` says who acts, by default what the call names (docs/who-acts.md)."""
        self._binder = Binder(
            tally, runtime="langgraph", piece="ToolRules", actor=actor, scope=scope
        )
        register_enforcer(self._binder.tally, "tool_call", "ToolRules")

    def __repr__(self) -> str:
        return self._binder.describe()

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Check the call, then run it."""
        if not has_rules(self._binder.tally, "tool_call"):
            return handler(request)
        return RuledToolCall(self._bound(), request, "ToolRules").run(handler)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Same as `wrap_tool_call`."""
        if not has_rules(self._binder.tally, "tool_call"):
            return await handler(request)
        bound = await in_thread(self._bound)
        return await RuledToolCall(bound, request, "ToolRules").arun(handler)

    def _bound(self) -> BoundTally:
        return self._binder.bound(call_of_config(self._binder, ensure_config()))


class RuledToolCall:
    """A tool call of a graph under the rules of a tally."""

    def __init__(self, bound: BoundTally, request: ToolCallRequest, piece: str) -> None:
        self._bound = bound
        self._request = request
        self._piece = piece
        metadata = getattr(request.tool, "metadata", None) or {}
        self._tool_class: str | None = metadata.get("tool_class")
        call = request.tool_call
        self._read: ReadArguments | None = None
        arguments: Any = call["args"]
        if request.tool is not None:
            self._read = ReadArguments(request.tool, arguments, call["id"])
            arguments = self._read.values
        self._call = ToolCall(call["name"], arguments, call["id"])

    def run(self, handler: Callable[[ToolCallRequest], Result]) -> Result:
        """Run the tool as far as the rules let it; a denial is its error, which the model reads.
        What the schema of the tool refuses stays the tool's own error.
        """
        if self._read is not None and self._read.refusal is not None:
            if not self._read.is_replaced:
                return self._denial(self._read.refusal)
            return handler(self._request.override(tool=self._read.never_running()))
        try:
            check = check_with_approval(self._bound, self._check)
        except ActionDenied as error:
            if not is_denial(error):
                raise
            return self._denial(error)
        with enforcing(self._bound, "tool_call", self._call.name):
            return _clean_result(check, handler(self._allow_request(check)))

    async def arun(self, handler: Callable[[ToolCallRequest], Awaitable[Result]]) -> Result:
        """Same as `run`."""
        if self._read is not None and self._read.refusal is not None:
            if not self._read.is_replaced:
                return self._denial(self._read.refusal)
            return await handler(self._request.override(tool=self._read.never_running()))
        try:
            check = await approved_async(self._bound, lambda: in_thread(self._check))
        except ActionDenied as error:
            if not is_denial(error):
                raise
            return self._denial(error)
        with enforcing(self._bound, "tool_call", self._call.name):
            return _clean_result(check, await handler(self._allow_request(check)))

    def around(
        self, handler: Callable[[ToolCallRequest], Result]
    ) -> Callable[[ToolCallRequest], Result]:
        """Return a handler of this call that is `run`."""
        return lambda _: self.run(handler)

    def async_around(
        self, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Callable[[ToolCallRequest], Awaitable[Result]]:
        """Same as `around`."""
        return lambda _: self.arun(handler)

    def _check(self) -> AllowedToolCall:
        with _recorded_by(handler_run()):
            return self._bound.check_tool_call(
                self._call.name,
                self._call.arguments,
                tool_class=self._tool_class,
                tool_call_id=self._call.tool_call_id,
                piece=self._piece,
            )

    def _allow_request(self, check: AllowedToolCall) -> ToolCallRequest:
        """Return the request of a call that gets the arguments of its check and no others."""
        request, read = self._request, self._read
        is_replaced = read is not None and read.is_replaced
        if check.redacts or not is_replaced:
            injected = {} if read is None else read.injected
            # A tool that reads by itself gets the values in the types that its schema made.
            is_plain = read is None or is_replaced
            values = plain_arguments(check.arguments) if is_plain else check.arguments
            tool_call: Any = {**request.tool_call, "args": {**injected, **values}}
            request = request.override(tool_call=tool_call)
        if read is None or not is_replaced:
            # A piece that comes after this one brings the tool, or the tool reads by itself.
            return request
        return request.override(tool=read.running_with(check, request.tool_call["args"]))

    def _denial(self, error: Exception) -> ToolMessage:
        return ToolMessage(
            str(error),
            name=self._call.name,
            tool_call_id=str(self._call.tool_call_id),
            status="error",
        )


def _recorded_by(run: Run | None) -> AbstractContextManager[Any]:
    """Record the check in the run of a handler, which has no step open before the tool runs."""
    return nullcontext() if run is None else run.active()


def _clean_result(check: AllowedToolCall, result: Result) -> Result:
    if not check.redacts:
        return result
    if isinstance(result, ToolMessage):
        return _cleaned_message(check, result)
    update = result.update
    messages = update.get("messages") if isinstance(update, Mapping) else None
    if not isinstance(update, Mapping) or not isinstance(messages, list):
        return result
    cleaned = [
        _cleaned_message(check, message) if isinstance(message, ToolMessage) else message
        for message in messages
    ]
    return Command(
        graph=result.graph,
        update={**update, "messages": cleaned},
        resume=result.resume,
        goto=result.goto,
    )


def _cleaned_message(check: AllowedToolCall, message: ToolMessage) -> ToolMessage:
    return message.model_copy(update={"content": check.result(message.content)})
