"""The six memory tools as a PydanticAI toolset; those that change or forget ask for approval."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Literal

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
from tallystick.operations import MEMORY_TOOLS, WORKING_TOOL
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

    def run(ctx: RunContext[Any], tool: str, /, **arguments: Any) -> dict[str, Any]:
        return run_memory_tool(binder.bound(call_of_run(binder, ctx)), tool, arguments)

    always_offered = approval == "deferred"
    tools: _OfferedMemory
    if isinstance(binder, Binder):
        rules = ToolRules(binder, "memory_toolset")
        tools = _RuledMemory(rules, id=id, always_offered=always_offered)
    else:
        tools = _OfferedMemory(binder, id=id, always_offered=always_offered)

    # PydanticAI reads the schema of a tool off its signature, so each is written out; it runs them
    # in threads.

    @tools.tool(description=MEMORY_TOOLS["memory_search"].description)
    def memory_search(ctx: RunContext[Any], query: str, limit: int = 5) -> dict[str, Any]:
        return run(ctx, "memory_search", query=query, limit=limit)

    @tools.tool(description=MEMORY_TOOLS["memory_store"].description)
    def memory_store(
        ctx: RunContext[Any],
        content: str,
        kind: str = "note",
        tags: list[str] | None = None,
        span: str | None = None,
        replaces: str | None = None,
        contradicts: list[str] | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        return run(
            ctx,
            "memory_store",
            content=content,
            kind=kind,
            tags=tags,
            span=span,
            replaces=replaces,
            contradicts=contradicts,
            attributes=attributes,
        )

    @tools.tool(description=MEMORY_TOOLS["memory_get"].description)
    def memory_get(ctx: RunContext[Any], memory_id: str) -> dict[str, Any]:
        return run(ctx, "memory_get", memory_id=memory_id)

    @tools.tool(description=MEMORY_TOOLS["memory_list"].description)
    def memory_list(
        ctx: RunContext[Any], limit: int = 20, before: str | None = None
    ) -> dict[str, Any]:
        return run(ctx, "memory_list", limit=limit, before=before)

    @tools.tool(description=MEMORY_TOOLS["memory_modify"].description, requires_approval=True)
    def memory_modify(
        ctx: RunContext[Any],
        memory_id: str,
        reason: str,
        if_version: int,
        content: str | None = None,
        attributes: dict[str, Any] | None = None,
        replace_attributes: bool = False,
    ) -> dict[str, Any]:
        return run(
            ctx,
            "memory_modify",
            memory_id=memory_id,
            reason=reason,
            if_version=if_version,
            content=content,
            attributes=attributes,
            replace_attributes=replace_attributes,
        )

    @tools.tool(description=MEMORY_TOOLS["memory_forget"].description, requires_approval=True)
    def memory_forget(ctx: RunContext[Any], memory_id: str, reason: str) -> dict[str, Any]:
        return run(ctx, "memory_forget", memory_id=memory_id, reason=reason)

    if working:

        @tools.tool(description=WORKING_TOOL.description)
        def memory_working(
            ctx: RunContext[Any],
            action: Literal["list", "set", "drop"],
            name: str = "",
            value: str | list[str] = "",
        ) -> dict[str, Any]:
            return run(ctx, "memory_working", action=action, name=name, value=value)

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
