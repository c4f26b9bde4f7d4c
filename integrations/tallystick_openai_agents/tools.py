"""The memory tools as tools of the SDK; those that change or forget ask for approval."""

from __future__ import annotations

from typing import Any

from agents import FunctionTool, RunContextWrapper, Tool

from tallystick.aio import in_thread
from tallystick.errors import Blocked
from tallystick.kit import (
    ActorSource,
    Asking,
    PlainApproval,
    TallyElsewhere,
    ToolCall,
    binder_of,
    check_flag,
    check_word,
    memory_tool_specs,
    run_memory_call,
    text_of,
)
from tallystick.operations import MODEL_TOOLS, offered_tools
from tallystick.records import Scope, ToolSpec
from tallystick.tally import BoundTally, Tally
from tallystick_openai_agents.rules import RuledTool, in_hand, read_arguments


def memory_tools(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: PlainApproval = "ask",
    working: bool = False,
) -> list[Tool]:
    """Return the memory tools for `Agent(…, tools=memory_tools(tally))`.

    `memory_modify` and `memory_forget` interrupt the run until somebody approves; with
    `approval="elsewhere"` they act at once, for applications that ask elsewhere. All go by the
    rules of the tally, with a TallyRunner or without. The tally may be one behind a server, whose
    rules hold there. With `working` the model keeps its task and plan by `memory_working`.
    """
    binder = binder_of(
        tally, runtime="openai_agents", piece="memory_tools", actor=actor, scope=scope
    )
    check_word("approval", approval, PlainApproval)
    check_flag("working", working)

    asking = Asking()

    def answer(context: Any, name: str, text: str) -> str:
        run, arguments = in_hand.get(), read_arguments(text)
        session = None if run is None else run.session
        bound = binder.bound(binder.call(context=context, session=session))
        try:
            return text_of(run_memory_call(bound, ToolCall(name, arguments), asking))
        except Blocked as error:
            return str(error)

    def tool(spec: ToolSpec) -> FunctionTool:
        async def invoke(context: RunContextWrapper[Any], input: str) -> str:
            return await in_thread(answer, context.context, spec.name, input)

        return RuledTool(
            name=spec.name,
            description=spec.description,
            params_json_schema=dict(spec.parameters),
            on_invoke_tool=invoke,
            strict_json_schema=False,
            needs_approval=MODEL_TOOLS[spec.name].needs_approval and approval == "ask",
        )

    specs = {spec.name: spec for spec in memory_tool_specs(working=working)}
    return [tool(specs[each.name]) for each in offered_tools(working=working)]
