"""The six memory tools for LangChain and LangGraph; those that change or forget ask a person
first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from tallystick.adapters import Binder
from tallystick.operations import MEMORY_TOOLS
from tallystick.records import Actor, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_langchain.graph import session_of

__all__ = ["memory_tools"]

ActorSource = Actor | Callable[[Mapping[str, Any]], Actor | None]
"""Who acts: an Actor, or a callable from the metadata of the call."""

Approval = Literal["interrupt", "elsewhere"]


def memory_tools(
    tally: Tally | BoundTally,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: Approval = "interrupt",
) -> list[BaseTool]:
    """Memory tools for `create_agent(model, tools=[*memory_tools(tally), …])`.

    `memory_modify` and `memory_forget` stop the graph with an interrupt of the form that
    LangChain's own `HumanInTheLoopMiddleware` makes, until `Command(resume={"decisions": [{"type":
    "approve"}]})`: the graph needs a checkpointer. With `approval="elsewhere"` they do what they
    are told, for agents whose middleware asks.
    """
    binder = Binder[Mapping[str, Any]](
        tally, surface="langchain", actor=actor, scope=scope, session=session_of
    )

    def answer(tool: str, config: RunnableConfig, given: dict[str, Any]) -> dict[str, Any]:
        known = MEMORY_TOOLS[tool]
        if known.needs_approval and approval == "interrupt":
            refused = _asked(tool, given, known.description)
            if refused is not None:
                return refused
        return known.function(binder.bound(config.get("metadata") or {}), **given)

    # LangChain reads the schema of a tool off its signature, so each is written out; it hands in
    # the config.

    def memory_search(query: str, config: RunnableConfig, limit: int = 5) -> dict[str, Any]:
        return answer("memory_search", config, {"query": query, "limit": limit})

    def memory_store(
        content: str, config: RunnableConfig, kind: str = "note", tags: list[str] | None = None
    ) -> dict[str, Any]:
        return answer("memory_store", config, {"content": content, "kind": kind, "tags": tags})

    def memory_get(memory_id: str, config: RunnableConfig) -> dict[str, Any]:
        return answer("memory_get", config, {"memory_id": memory_id})

    def memory_list(
        config: RunnableConfig, limit: int = 20, before: str | None = None
    ) -> dict[str, Any]:
        return answer("memory_list", config, {"limit": limit, "before": before})

    def memory_modify(
        memory_id: str, content: str, reason: str, if_version: int, config: RunnableConfig
    ) -> dict[str, Any]:
        given = {
            "memory_id": memory_id,
            "content": content,
            "reason": reason,
            "if_version": if_version,
        }
        return answer("memory_modify", config, given)

    def memory_forget(memory_id: str, reason: str, config: RunnableConfig) -> dict[str, Any]:
        return answer("memory_forget", config, {"memory_id": memory_id, "reason": reason})

    functions = (memory_search, memory_store, memory_get, memory_list, memory_modify, memory_forget)
    return [
        StructuredTool.from_function(
            function,
            name=function.__name__,
            description=MEMORY_TOOLS[function.__name__].description,
        )
        for function in functions
    ]


def _asked(tool: str, given: dict[str, Any], description: str) -> dict[str, Any] | None:
    """Ask a person. None when it was approved, else what the model is told."""
    try:
        from langgraph.types import interrupt
    except ImportError:
        return _refusal(tool, "Nobody can be asked outside of LangGraph.")
    try:
        said = interrupt(
            {
                "action_requests": [{"name": tool, "args": given, "description": description}],
                "review_configs": [
                    {"action_name": tool, "allowed_decisions": ["approve", "reject"]}
                ],
            }
        )
    except (RuntimeError, KeyError):
        # No graph, or one that cannot stop: LangGraph's interrupts need a checkpointer.
        return _refusal(tool, "Nobody can be asked: this is no graph with a checkpointer.")
    decisions = said.get("decisions") if isinstance(said, Mapping) else None
    decision = decisions[0] if isinstance(decisions, list) and decisions else said
    kind = decision.get("type") if isinstance(decision, Mapping) else decision
    if kind is True or kind == "approve":
        return None
    reason = decision.get("message") if isinstance(decision, Mapping) else None
    return _refusal(tool, str(reason or "A person said no."))


def _refusal(tool: str, message: str) -> dict[str, Any]:
    return {
        "error": "Denied",
        "reason": "not_approved",
        "message": f"{tool} was not done. {message}",
    }
