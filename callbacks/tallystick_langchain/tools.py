"""The six memory tools for LangChain and LangGraph; those that change or forget ask a person
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from tallystick.errors import Blocked
from tallystick.kit import (
    ActorSource,
    TallyElsewhere,
    binder_of,
    check_flag,
    check_word,
    has_rules,
    is_enforced,
    run_memory_tool,
)
from tallystick.kit.binder import call_of_config
from tallystick.operations import MODEL_TOOLS, MemoryTool, not_approved, offered_tools
from tallystick.records import Scope
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick_langchain.approvals import ActionRequest, ask_person, check_with_approval
from tallystick_langchain.handler import ENFORCED

Approval = Literal["interrupt", "elsewhere"]


def memory_tools(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: Approval = "interrupt",
    working: bool = False,
) -> list[BaseTool]:
    """Memory tools for `create_agent(model, tools=[*memory_tools(tally), …])`.

    `memory_modify` and `memory_forget` stop the graph with an interrupt of the form that
    LangChain's own `HumanInTheLoopMiddleware` makes, until `Command(resume={"decisions": [{"type":
    "approve"}]})`: the graph needs a checkpointer. With `approval="elsewhere"` they act at
    once, for agents whose middleware asks. The tally may be one behind a server, whose rules hold
    there. With `working` the model keeps its task and plan by `memory_working`.
    """
    binder = binder_of(tally, runtime="langchain", piece="memory_tools", actor=actor, scope=scope)
    check_flag("working", working)
    check_word("approval", approval, Approval)

    def check_call(bound: BoundTally, tool: str, arguments: dict[str, Any]) -> AllowedToolCall:
        if not has_rules(bound, "tool_call") or is_enforced(bound, "tool_call", tool):
            return AllowedToolCall(checked=arguments)
        return check_with_approval(
            bound, lambda: bound.check_tool_call(tool, arguments, piece="memory_tools")
        )

    def answer(tool: str, config: RunnableConfig, arguments: dict[str, Any]) -> dict[str, Any]:
        memory_tool = MODEL_TOOLS[tool]
        bound = binder.bound(call_of_config(binder, config))
        check = AllowedToolCall(checked=arguments)
        if isinstance(bound, BoundTally):
            try:
                check = check_call(bound, tool, arguments)
            except Blocked as error:
                return {"error": error.code, "message": str(error)}
        if memory_tool.needs_approval and approval == "interrupt" and check.approval is None:
            decision = ask_person([ActionRequest(tool, arguments, memory_tool.description)])
            if decision is None:
                return not_approved(
                    tool, "Nobody can be asked: this is no graph with a checkpointer."
                )
            if not decision.is_approved:
                return not_approved(tool, decision.message)
        result: dict[str, Any] = check.result(run_memory_tool(bound, tool, check.arguments))
        return result

    def function_of(tool: MemoryTool) -> Callable[..., dict[str, Any]]:
        def call(*, config: RunnableConfig, **arguments: Any) -> dict[str, Any]:
            return answer(tool.name, config, tool.complete(arguments))

        return tool.sign(call, config=RunnableConfig)

    return [
        StructuredTool.from_function(
            function_of(tool),
            name=tool.name,
            description=tool.description,
            metadata={ENFORCED: not isinstance(tally, TallyElsewhere)},
        )
        for tool in offered_tools(working=working)
    ]
