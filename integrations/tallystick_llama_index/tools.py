"""The six memory tools for LlamaIndex agents; those that change or forget ask a person first."""

# LlamaIndex looks for the class of a parameter itself, so annotations stay objects in this module.

from typing import Any, Literal

from llama_index.core.tools import FunctionTool, ToolOutput
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from tallystick.adapters import ActorSource, Binder
from tallystick.aio import in_thread
from tallystick.operations import MEMORY_TOOLS, not_approved
from tallystick.records import Scope, json_bytes, text_digest
from tallystick.tally import BoundTally, Tally
from tallystick_llama_index.actors import call_of_workflow

__all__ = ["memory_tools"]

Approval = Literal["event", "elsewhere"]
_APPROVALS = frozenset({"yes", "y", "approve", "approved", "true", "ok"})


def memory_tools(
    tally: Tally | BoundTally,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: Approval = "event",
) -> list[FunctionTool]:
    """Memory tools for `FunctionAgent(tools=[*memory_tools(tally), …])`.

    `memory_modify` and `memory_forget` put an `InputRequiredEvent` into the agent's stream and wait
    for the `HumanResponseEvent` of the same `waiter_id`, whose `response` is `yes` or a reason
    against it. With `approval="elsewhere"` they act at once.
    """
    binder = Binder(tally, runtime="llama_index", piece="memory_tools", actor=actor, scope=scope)

    async def answer(ctx: Context | None, tool: str, **arguments: Any) -> dict[str, Any]:
        call = await call_of_workflow(binder, ctx)
        return await in_thread(lambda: MEMORY_TOOLS[tool].function(binder.bound(call), **arguments))

    async def answer_if_approved(
        ctx: Context | None, tool: str, **arguments: Any
    ) -> dict[str, Any]:
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
            if response is not True and str(response).strip().lower() not in _APPROVALS:
                return not_approved(tool, str(response))
        return await answer(ctx, tool, **arguments)

    async def memory_search(query: str, limit: int = 5, *, ctx: Context) -> dict[str, Any]:
        return await answer(ctx, "memory_search", query=query, limit=limit)

    async def memory_store(
        content: str, kind: str = "note", tags: list[str] | None = None, *, ctx: Context
    ) -> dict[str, Any]:
        return await answer(ctx, "memory_store", content=content, kind=kind, tags=tags)

    async def memory_get(memory_id: str, *, ctx: Context) -> dict[str, Any]:
        return await answer(ctx, "memory_get", memory_id=memory_id)

    async def memory_list(
        limit: int = 20, before: str | None = None, *, ctx: Context
    ) -> dict[str, Any]:
        return await answer(ctx, "memory_list", limit=limit, before=before)

    async def memory_modify(
        memory_id: str, content: str, reason: str, if_version: int, *, ctx: Context
    ) -> dict[str, Any]:
        return await answer_if_approved(
            ctx,
            "memory_modify",
            memory_id=memory_id,
            content=content,
            reason=reason,
            if_version=if_version,
        )

    async def memory_forget(memory_id: str, reason: str, *, ctx: Context) -> dict[str, Any]:
        return await answer_if_approved(ctx, "memory_forget", memory_id=memory_id, reason=reason)

    functions = (memory_search, memory_store, memory_get, memory_list, memory_modify, memory_forget)
    return [
        _MemoryTool.from_defaults(
            async_fn=function,
            name=function.__name__,
            description=MEMORY_TOOLS[function.__name__].description,
        )
        for function in functions
    ]


class _MemoryTool(FunctionTool):
    """A tool that an agent calls with the context of its workflow, and others without one."""

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool."""
        return super().call(*args, **{"ctx": None, **kwargs})

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Same as `call`."""
        return await super().acall(*args, **{"ctx": None, **kwargs})
