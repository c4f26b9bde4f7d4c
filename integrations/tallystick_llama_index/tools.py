"""The six memory tools for LlamaIndex agents; those that change or forget ask a person first."""

# LlamaIndex looks for the class of a parameter itself, so annotations stay objects in this module.

from collections.abc import Awaitable, Callable
from typing import Any

from llama_index.core.tools import FunctionTool, ToolOutput
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from tallystick.aio import in_thread
from tallystick.errors import ActionDenied
from tallystick.kit import (
    ActorSource,
    Binder,
    TallyElsewhere,
    ToolCall,
    binder_of,
    check_flag,
    check_word,
    run_memory_tool,
    tool_arguments,
)
from tallystick.operations import MemoryTool, not_approved, offered_tools
from tallystick.records import Scope, json_bytes, text_digest
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick_llama_index.actors import call_of_workflow
from tallystick_llama_index.policy import (
    RULED,
    ApprovalRoute,
    ToolRules,
    denied_output,
    is_approval,
)


def memory_tools(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: ApprovalRoute = "event",
    working: bool = False,
) -> list[FunctionTool]:
    """Memory tools for `FunctionAgent(tools=[*memory_tools(tally), …])`.

    `memory_modify` and `memory_forget` put an `InputRequiredEvent` into the agent's stream and wait
    for the `HumanResponseEvent` of the same `waiter_id`, whose `response` is `yes` or a reason
    against it. With `approval="elsewhere"` they act at once. All go by the rules of the tally, as
    `ruled_tools` do; a person whom a rule has asked is not asked again. The
    tally may be one behind a server, whose rules hold there. With `working` the model
    keeps its task and plan by `memory_working`.
    """
    binder = binder_of(tally, runtime="llama_index", piece="memory_tools", actor=actor, scope=scope)
    check_flag("working", working)
    check_word("approval", approval, ApprovalRoute)
    rules = ToolRules(binder, "memory_tools", approval) if isinstance(binder, Binder) else None

    async def check_call(
        ctx: Context | None, tool: str, arguments: dict[str, Any]
    ) -> AllowedToolCall:
        if rules is None or rules.is_empty:
            return AllowedToolCall(checked=arguments)
        return await rules.check(ctx, ToolCall(tool, arguments))

    async def answer(ctx: Context | None, tool: str, **arguments: Any) -> dict[str, Any]:
        check = await check_call(ctx, tool, arguments)
        return await act(ctx, tool, check)

    async def act(ctx: Context | None, tool: str, check: AllowedToolCall) -> dict[str, Any]:
        call = await call_of_workflow(binder, ctx)
        result: dict[str, Any] = await in_thread(
            lambda: check.result(run_memory_tool(binder.bound(call), tool, check.arguments))
        )
        return result

    async def answer_if_approved(
        ctx: Context | None, tool: str, **arguments: Any
    ) -> dict[str, Any]:
        check = await check_call(ctx, tool, arguments)
        if check.approval is not None:
            return await act(ctx, tool, check)
        if approval == "event" and ctx is None:
            return not_approved(tool, "Nobody can be asked outside of a workflow.")
        if approval == "event" and ctx is not None:
            # An answer counts for one call with exactly these arguments, also beside others.
            waiter = text_digest("tallystick/question/v1", json_bytes([tool, arguments]))
            fields: dict[str, Any] = {
                "prefix": f"{tool}: {arguments['reason']}",
                "waiter_id": waiter,
                "tool": tool,
                "arguments": arguments,
            }
            event = await ctx.wait_for_event(
                HumanResponseEvent,
                waiter_id=waiter,
                waiter_event=InputRequiredEvent(**fields),
                requirements={"waiter_id": waiter},
                timeout=None,
            )
            response = event.get("response")
            if not is_approval(response):
                return not_approved(tool, str(response))
        return await act(ctx, tool, check)

    def function_of(tool: MemoryTool) -> Callable[..., Awaitable[dict[str, Any]]]:
        ask = answer_if_approved if tool.needs_approval else answer

        async def call(*, ctx: Context | None, **arguments: Any) -> dict[str, Any]:
            return await ask(ctx, tool.name, **tool_arguments(tool.name, arguments))

        return tool.sign(call, ctx=Context)

    tools = [
        _MemoryTool.from_defaults(
            async_fn=function_of(tool), name=tool.name, description=tool.description
        )
        for tool in offered_tools(working=working)
    ]
    for tool in tools:
        if isinstance(binder, Binder):
            setattr(tool, RULED, binder.tally)
    return tools


class _MemoryTool(FunctionTool):
    """A tool that an agent calls with the context of its workflow, and others without one."""

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool."""
        try:
            return super().call(*args, **{"ctx": None, **kwargs})
        except ActionDenied as error:
            return self._deny(args, kwargs, error)

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Same as `call`."""
        try:
            return await super().acall(*args, **{"ctx": None, **kwargs})
        except ActionDenied as error:
            return self._deny(args, kwargs, error)

    def _deny(self, args: Any, kwargs: dict[str, Any], error: ActionDenied) -> ToolOutput:
        arguments = {name: value for name, value in kwargs.items() if name != "ctx"}
        return denied_output(self.metadata.get_name(), args, arguments, error)
