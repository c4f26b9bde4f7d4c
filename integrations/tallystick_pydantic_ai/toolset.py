"""The six memory tools as a PydanticAI toolset; those that change or forget ask for approval."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool

from tallystick.kit import (
    ActorSource,
    Binder,
    RemoteBinder,
    TallyElsewhere,
    binder_of,
    check_flag,
    check_word,
    is_enforced,
    run_memory_tool,
)
from tallystick.operations import MemoryTool, offered_tools
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick_pydantic_ai.actors import call_of_run
from tallystick_pydantic_ai.deferral import Approval, can_defer
from tallystick_pydantic_ai.policy import CheckedToolDefinition, ToolRules

_log = logging.getLogger("tallystick.pydantic_ai")


def memory_toolset(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    id: str = "tallystick",
    approval: Approval = "auto",
    working: bool = False,
) -> FunctionToolset[Any]:
    """Memory tools for `Agent(…, toolsets=[memory_toolset(tally)])`.

    `memory_modify` and `memory_forget` end the run with `DeferredToolRequests` until somebody
    approves. They are offered to agents with that type in their `output_type`, and where a
    capability such as `HandleDeferredToolCalls` answers in place; others do not get them, which the
    log says once. `approval="deferred"` offers them always, for an `output_type` that is given to
    `run`, or hooks that answer. The tools go by the rules of the tally, with `TallyPolicy` or
    without. The tally may be one behind a server, whose rules hold there. With `working` the model
    keeps its task and plan by `memory_working`.
    """
    binder = binder_of(
        tally, runtime="pydantic_ai", piece="memory_toolset", actor=actor, scope=scope
    )
    check_word("approval", approval, Approval)
    check_flag("working", working)

    always_offered = approval == "deferred"
    tools: _OfferedMemory
    if isinstance(binder, Binder):
        rules = ToolRules(binder, "memory_toolset")
        tools = _RuledMemory(rules, id=id, always_offered=always_offered)
    else:
        tools = _OfferedMemory(binder, id=id, always_offered=always_offered)

    def function_of(tool: MemoryTool) -> Callable[..., dict[str, Any]]:
        def call(ctx: RunContext[Any], **arguments: Any) -> dict[str, Any]:
            bound = binder.bound(call_of_run(binder, ctx))
            return run_memory_tool(bound, tool.name, tool.complete(arguments))

        return tool.sign(call, ctx=RunContext[Any])

    for tool in offered_tools(working=working):
        tools.add_function(
            function_of(tool),
            takes_ctx=True,
            description=tool.description,
            requires_approval=tool.needs_approval,
        )
    return tools


class _OfferedMemory(FunctionToolset[Any]):
    """Tools of which those that ask a person are offered where a call can be deferred."""

    def __init__(self, binder: Binder | RemoteBinder, *, id: str, always_offered: bool) -> None:
        super().__init__(id=id)
        self._binder = binder
        self._always_offered = always_offered
        """True to offer the tools that ask a person to every run."""
        self._is_announced = False

    def __repr__(self) -> str:
        return self._binder.describe()

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools; those that ask a person only where a call can be deferred."""
        tools = await super().get_tools(ctx)
        if self._always_offered or can_defer(ctx):
            return tools
        asking = [name for name, tool in tools.items() if tool.tool_def.kind == "unapproved"]
        self._announce(ctx, asking)
        return {name: tool for name, tool in tools.items() if name not in asking}

    def _announce(self, ctx: RunContext[Any], names: list[str]) -> None:
        """Say once that tools are not offered, and what to do about it."""
        if names and not self._is_announced:
            self._is_announced = True
            _log.warning(
                "The agent %s is not offered %s: its output_type lacks DeferredToolRequests, by "
                "which a person is asked. Write Agent(…, output_type=[…, DeferredToolRequests]).",
                getattr(ctx.agent, "name", None) or "agent",
                " and ".join(names),
            )


class _RuledMemory(_OfferedMemory):
    """Tools that check the rules before they run, unless a policy of the run has done so."""

    def __init__(self, rules: ToolRules, *, id: str, always_offered: bool) -> None:
        super().__init__(rules.binder, id=id, always_offered=always_offered)
        self._rules = rules

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, marked for an observer as checked."""
        return {
            name: replace(tool, tool_def=CheckedToolDefinition.of(tool.tool_def))
            for name, tool in (await super().get_tools(ctx)).items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a tool, once the rules let it."""
        if is_enforced(self._rules.binder.tally, "tool_call", name, str(ctx.run_id)):
            return await super().call_tool(name, tool_args, ctx, tool)
        return await self._rules.call(name, tool_args, ctx, tool, super().call_tool)
