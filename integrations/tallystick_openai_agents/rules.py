"""Tool calls under the rules of the tally, by the SDK's own interruptions.

Tools are taken in hand where they are: around `on_invoke_tool`, and in `needs_approval`, by which
the SDK stops a run and asks. Outside of a run of ours such a tool does what it did before.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from agents import Agent, FunctionTool, Handoff, RunConfig, RunContextWrapper, RunState, handoff
from agents.tool import (
    _MISSING_FUNCTION_TOOL_WRAPPED_CALLABLE,
    _FailureHandlingFunctionToolInvoker,
)
from agents.tool_context import ToolContext

from tallystick.aio import in_thread
from tallystick.kit import ToolCall
from tallystick.kit.agent_runs import Answer
from tallystick_openai_agents.messages import as_json

Invoke = Callable[[Any, str], Awaitable[Any]]


class AroundTools(Protocol):
    """A run that has the calls of its tools in hand."""

    session: str | None

    def note_error(self, call_id: str | None, error: Exception) -> None:
        """Note an error that the SDK tells the model as a text."""

    async def needs_approval(self, tool: FunctionTool, arguments: Any, call_id: str) -> bool:
        """Whether a call has to wait for a person, by a rule."""
        ...

    async def call_tool(self, tool: FunctionTool, context: Any, input: str, invoke: Invoke) -> Any:
        """Check, carry out and record a call."""
        ...

    def check_handoff(self, over: Handoff[Any, Any], input: str) -> None:
        """Check that another agent may take over. Raises ActionDenied and ApprovalRequired."""
        ...


class RuledTool(FunctionTool):
    """A tool that goes by the rules of its tally, whatever runs it."""


on_tape: ContextVar[Callable[..., Awaitable[Any]] | None] = ContextVar(
    "tallystick_tape", default=None
)
"""What plays the tools of the run under way, on a tape."""

in_hand: ContextVar[AroundTools | None] = ContextVar("tallystick_openai_agents", default=None)
"""The run under way, which stands around its tools."""


class _Invoker(_FailureHandlingFunctionToolInvoker):
    """Calls a tool, through what has it in hand.

    Of the SDK's own class, which alone it asks what the arguments of a call would become, before a
    tool decides by them whether a person has to approve.
    """

    def __init__(self, tool: FunctionTool, invoke: Invoke) -> None:
        self.tool, self.invoke = tool, invoke

    def _get_wrapped_callable(self) -> object:
        return getattr(self.invoke, "_get_wrapped_callable", _no_callable)()

    def prepare_arguments(self, input: str, tool_name: str) -> Any:
        """Return what the arguments would become, where the tool itself decides by them."""
        approval = self.tool.needs_approval
        prepare = getattr(self.invoke, "prepare_arguments", None)
        if prepare is None or (isinstance(approval, _Approval) and not callable(approval.before)):
            return None
        return prepare(input, tool_name)

    async def __call__(self, ctx: ToolContext[Any], input: str) -> Any:
        around, play = in_hand.get(), on_tape.get()
        invoke = self.invoke
        if play is not None:
            invoke = partial(play, self.tool, invoke=invoke)
        if around is None:
            return await invoke(ctx, input)
        return await around.call_tool(self.tool, ctx, input, invoke)

    def __agents_bind_function_tool__(self, function_tool: FunctionTool) -> _Invoker:
        """Return the invoker of a copy of the tool, as the SDK asks for it."""
        if self.tool is function_tool:
            return self
        bind = getattr(self.invoke, "__agents_bind_function_tool__", None)
        return _Invoker(function_tool, self.invoke if bind is None else bind(function_tool))


def _no_callable() -> object:
    return _MISSING_FUNCTION_TOOL_WRAPPED_CALLABLE


def _handler_with_note(handle: Callable[..., None]) -> Callable[..., None]:
    """Return a handler of the errors that the SDK gives to the model as a text, which notes them
    before the SDK's own.
    """

    def note(tool: FunctionTool, error: Exception, input: str, context: Any) -> None:
        around = in_hand.get()
        if around is not None:
            around.note_error(getattr(context, "tool_call_id", None), error)
        handle(tool, error, input, context)

    return note


class _Approval:
    """Says whether a call has to wait for a person: because its tool says so, or a rule."""

    def __init__(self, tool: FunctionTool, before: Any) -> None:
        self.tool = tool
        self.before: Any = before

    async def __call__(
        self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        around = in_hand.get()
        asks: Any = self.before
        answer: Any = asks(context, arguments, call_id) if asks not in (True, False) else asks
        if (await answer) if inspect.isawaitable(answer) else answer:
            return True
        return around is not None and await around.needs_approval(self.tool, arguments, call_id)


def take_in_hand(tools: Iterable[Any], *, asks: bool = False) -> None:
    """Let runs stand around these tools, once each; with `asks` rules may want a person to be
    asked.
    """
    for tool in tools:
        if not isinstance(tool, FunctionTool):
            continue
        if not isinstance(tool.on_invoke_tool, _Invoker):
            invoke: Any = tool.on_invoke_tool
            if isinstance(invoke, _FailureHandlingFunctionToolInvoker):
                # Private, and the one place where the SDK shows the error behind such an answer.
                invoke._on_handled_error = _handler_with_note(invoke._on_handled_error)
            tool.on_invoke_tool = _Invoker(tool, invoke)
        if (asks or isinstance(tool, RuledTool)) and not isinstance(tool.needs_approval, _Approval):
            tool.needs_approval = _Approval(tool, tool.needs_approval)


class _HandingOver:
    """Hands over to another agent once the rules let it."""

    def __init__(self, over: Handoff[Any, Any]) -> None:
        self.over, self.invoke = over, over.on_invoke_handoff

    async def __call__(self, context: RunContextWrapper[Any], input: str) -> Any:
        around = in_hand.get()
        if around is not None:
            await in_thread(around.check_handoff, self.over, input)
        return await self.invoke(context, input)


def take_handoffs_in_hand(handoffs: Iterable[Any]) -> None:
    """Let runs stand around these handoffs, once each."""
    for each in handoffs:
        if isinstance(each, Handoff) and not isinstance(each.on_invoke_handoff, _HandingOver):
            each.on_invoke_handoff = _HandingOver(each)


def is_in_hand(tool: Any) -> bool:
    """Return True if runs stand around a tool."""
    return isinstance(getattr(tool, "on_invoke_tool", None), _Invoker)


def agents_from(agent: Agent[Any]) -> list[Agent[Any]]:
    """Return an agent and all that it may hand over to."""
    agents: list[Any] = [agent]
    for each in agents:
        for other in each.handoffs:
            find = getattr(other, "_agent_ref", None)
            target = find() if callable(find) else other
            if isinstance(target, Agent) and all(target is not known for known in agents):
                agents.append(target)
    return agents


def agent_tools(agent: Agent[Any]) -> list[Any]:
    """Return the tools that an agent and those that it hands over to have of their own."""
    return [tool for each in agents_from(agent) for tool in each.tools]


def handoff_calls(items: Iterable[Any], agents: Mapping[str, str]) -> dict[str, ToolCall]:
    """Return the calls among items of a model that hand over, by the name of the agent; `agents`
    names that of each tool.
    """
    return {
        agents[item["name"]]: ToolCall(
            item["name"], read_arguments(item.get("arguments")), item.get("call_id")
        )
        for item in map(as_json, items if agents else ())
        if item.get("type") == "function_call" and item.get("name") in agents
    }


def pending_handoffs(state: RunState[Any, Any], agent: Agent[Any]) -> dict[str, ToolCall]:
    """Return what a model called to hand over before its run stopped for a person."""
    agents = {
        each.tool_name: each.agent_name
        for each in (
            each if isinstance(each, Handoff) else handoff(each) for each in agent.handoffs
        )
    }
    responses = state._model_responses
    return handoff_calls(responses[-1].output if responses else (), agents)


def config_of(given: RunConfig | dict[str, Any] | None) -> RunConfig:
    return given if isinstance(given, RunConfig) else RunConfig(**(given or {}))


class Answered(NamedTuple):
    """What a person answered about a call in the SDK's own way; it counts for these arguments."""

    call: ToolCall
    answer: Answer


def answers_of(state: RunState[Any, Any]) -> dict[str, Answered]:
    """Return what a person has answered about the calls that a run stopped with, by their ids."""
    answers: dict[str, Answered] = {}
    # The SDK has no public way to read an answer, nor to find that for an agent that is a tool.
    find_inner = getattr(state, "_find_nested_approval_state", lambda item: None)
    for asked in state.get_interruptions():
        owner, item = find_inner(asked) or (state, asked)
        context = owner._context
        call_id, name = item.call_id, item.tool_name
        if context is None or not call_id or not name:
            continue
        names: dict[str, Any] = {"existing_pending": item, "tool_namespace": item.tool_namespace}
        approved = context.get_approval_status(name, call_id, current_invocation=item, **names)
        if approved is not None:
            why = None if approved else context.get_rejection_message(name, call_id, **names)
            reason = why or ("Approved" if approved else "Rejected") + " in the interrupted run."
            arguments = read_arguments(getattr(item.raw_item, "arguments", None))
            answers[call_id] = Answered(
                ToolCall(name, arguments, call_id), Answer(approved, reason)
            )
    return answers


def read_arguments(text: str | None) -> Any:
    """Return the arguments of a call as rules see them; text that is no object stays text."""
    try:
        values = json.loads(text or "{}")
    except ValueError:
        return text
    return values if isinstance(values, dict) else text
