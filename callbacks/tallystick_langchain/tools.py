"""The six memory tools for LangChain and LangGraph; those that change or forget ask a person
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from tallystick.kit import (
    ActorSource,
    Asking,
    TallyElsewhere,
    ToolCall,
    answer_memory_call,
    binder_of,
    check_flag,
    check_word,
)
from tallystick.kit.binder import call_of_config
from tallystick.operations import MODEL_TOOLS, MemoryTool, not_approved, offered_tools
from tallystick.records import JsonObject, Scope
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick_langchain.approvals import ActionRequest, ask_person, check_with_approval
from tallystick_langchain.handler import ENFORCED

Approval = Literal["interrupt", "elsewhere"]


class _ByInterrupt(Asking):
    """Asks a person by an interrupt of the graph."""

    def check_answered(
        self, bound: BoundTally, call: ToolCall, check: Callable[[], AllowedToolCall]
    ) -> AllowedToolCall:
        """Same as that of any piece."""
        return check_with_approval(bound, check)

    def refusal(self, tool: str, arguments: JsonObject) -> JsonObject | None:
        """Same as that of any piece."""
        if not self.asks_about(tool):
            return None
        decision = ask_person([ActionRequest(tool, arguments, MODEL_TOOLS[tool].description)])
        if decision is None:
            return not_approved(tool, "Nobody can be asked: this is no graph with a checkpointer.")
        return None if decision.is_approved else not_approved(tool, decision.message)


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

    asking = _ByInterrupt("ask" if approval == "interrupt" else "elsewhere")

    def answer(tool: str, config: RunnableConfig, arguments: dict[str, Any]) -> dict[str, Any]:
        bound = binder.bound(call_of_config(binder, config))
        return answer_memory_call(bound, ToolCall(tool, arguments), asking)

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
