"""The six memory tools as a PydanticAI toolset; those that change or forget ask for approval."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset, ToolsetTool

from tallystick.adapters import ActorSource, Binder, is_enforced
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick_pydantic_ai.actors import call_of_run
from tallystick_pydantic_ai.policy import CheckedToolDefinition, ToolRules

__all__ = ["memory_toolset"]


def memory_toolset(
    tally: Tally | BoundTally,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    id: str = "tallystick",
) -> FunctionToolset[Any]:
    """Memory tools for `Agent(…, toolsets=[memory_toolset(tally)])`.

    `memory_modify` and `memory_forget` end the run with `DeferredToolRequests` until somebody
    approves: add that type to the agent's `output_type`. The tools go by the rules of the tally,
    with `TallyPolicy` or without.
    """
    binder = Binder(tally, runtime="pydantic_ai", piece="memory_toolset", actor=actor, scope=scope)

    def bound(ctx: RunContext[Any]) -> BoundTally:
        return binder.bound(call_of_run(binder, ctx))

    tools = _RuledMemory(ToolRules(binder, "memory_toolset"), id=id)

    # PydanticAI reads the schema of a tool off its signature, so each is written out; it runs them
    # in threads.

    @tools.tool(description=MEMORY_TOOLS["memory_search"].description)
    def memory_search(ctx: RunContext[Any], query: str, limit: int = 5) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_search"].function(bound(ctx), query, limit)

    @tools.tool(description=MEMORY_TOOLS["memory_store"].description)
    def memory_store(
        ctx: RunContext[Any], content: str, kind: str = "note", tags: list[str] | None = None
    ) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_store"].function(bound(ctx), content, kind, tags)

    @tools.tool(description=MEMORY_TOOLS["memory_get"].description)
    def memory_get(ctx: RunContext[Any], memory_id: str) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_get"].function(bound(ctx), memory_id)

    @tools.tool(description=MEMORY_TOOLS["memory_list"].description)
    def memory_list(
        ctx: RunContext[Any], limit: int = 20, before: str | None = None
    ) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_list"].function(bound(ctx), limit, before)

    @tools.tool(description=MEMORY_TOOLS["memory_modify"].description, requires_approval=True)
    def memory_modify(
        ctx: RunContext[Any], memory_id: str, content: str, reason: str, if_version: int
    ) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_modify"].function(
            bound(ctx), memory_id, content, reason, if_version
        )

    @tools.tool(description=MEMORY_TOOLS["memory_forget"].description, requires_approval=True)
    def memory_forget(ctx: RunContext[Any], memory_id: str, reason: str) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_forget"].function(bound(ctx), memory_id, reason)

    return tools


class _RuledMemory(FunctionToolset[Any]):
    """Tools that check the rules before they run, unless a policy of the run has done so."""

    def __init__(self, rules: ToolRules, *, id: str) -> None:
        super().__init__(id=id)
        self._rules = rules

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, marked for an observer as checked."""
        tools = await super().get_tools(ctx)
        return {
            name: replace(tool, tool_def=CheckedToolDefinition.of(tool.tool_def))
            for name, tool in tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a tool, once the rules let it."""
        if is_enforced(self._rules.binder.tally, "tool_call", name, str(ctx.run_id)):
            return await super().call_tool(name, tool_args, ctx, tool)
        return await self._rules.call(name, tool_args, ctx, tool, super().call_tool)
