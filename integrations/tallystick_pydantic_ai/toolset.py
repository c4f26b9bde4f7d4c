"""The six memory tools as a PydanticAI toolset; those that change or forget ask for approval."""

from __future__ import annotations

from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset

from tallystick.adapters import ActorSource, Binder
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally
from tallystick_pydantic_ai.actors import actor_from_deps, conversation_of

__all__ = ["memory_toolset"]


def memory_toolset(
    tally: Tally | BoundTally,
    *,
    actor: ActorSource[RunContext[Any]] | None = None,
    scope: str | Scope | None = None,
    id: str = "tallystick",
) -> FunctionToolset[Any]:
    """Memory tools for `Agent(…, toolsets=[memory_toolset(tally)])`.

    `memory_modify` and `memory_forget` end the run with `DeferredToolRequests` until somebody
    approves: add that type to the agent's `output_type`.
    """
    binder = Binder[RunContext[Any]](
        tally,
        surface="pydantic_ai",
        actor=actor or actor_from_deps,
        scope=scope,
        session=conversation_of,
    )
    tools = FunctionToolset[Any](id=id)

    # PydanticAI reads the schema of a tool off its signature, so each is written out; it runs them
    # in threads.

    @tools.tool(description=MEMORY_TOOLS["memory_search"].description)
    def memory_search(ctx: RunContext[Any], query: str, limit: int = 5) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_search"].function(binder.bound(ctx), query, limit)

    @tools.tool(description=MEMORY_TOOLS["memory_store"].description)
    def memory_store(
        ctx: RunContext[Any], content: str, kind: str = "note", tags: list[str] | None = None
    ) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_store"].function(binder.bound(ctx), content, kind, tags)

    @tools.tool(description=MEMORY_TOOLS["memory_get"].description)
    def memory_get(ctx: RunContext[Any], memory_id: str) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_get"].function(binder.bound(ctx), memory_id)

    @tools.tool(description=MEMORY_TOOLS["memory_list"].description)
    def memory_list(
        ctx: RunContext[Any], limit: int = 20, before: str | None = None
    ) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_list"].function(binder.bound(ctx), limit, before)

    @tools.tool(description=MEMORY_TOOLS["memory_modify"].description, requires_approval=True)
    def memory_modify(
        ctx: RunContext[Any], memory_id: str, content: str, reason: str, if_version: int
    ) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_modify"].function(
            binder.bound(ctx), memory_id, content, reason, if_version
        )

    @tools.tool(description=MEMORY_TOOLS["memory_forget"].description, requires_approval=True)
    def memory_forget(ctx: RunContext[Any], memory_id: str, reason: str) -> dict[str, Any]:
        return MEMORY_TOOLS["memory_forget"].function(binder.bound(ctx), memory_id, reason)

    return tools
