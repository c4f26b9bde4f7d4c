"""The memory tools as tools of the SDK; those that change or forget ask for approval."""

from __future__ import annotations

import json
from typing import Any

from agents import FunctionTool, RunContextWrapper, Tool

from tallystick.aio import in_thread
from tallystick.errors import Blocked, InvalidInput
from tallystick.kit import (
    ActorSource,
    PlainApproval,
    TallyElsewhere,
    binder_of,
    check_flag,
    check_word,
    has_rules,
    memory_tool_specs,
    run_memory_tool,
    text_of,
    tool_arguments,
)
from tallystick.operations import MODEL_TOOLS, offered_tools
from tallystick.records import JsonObject, Scope
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick_openai_agents.rules import RuledTool, in_hand


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

    def answer(context: Any, name: str, text: str) -> str:
        try:
            given = json.loads(text or "{}")
            arguments = tool_arguments(name, given if isinstance(given, dict) else {})
        except (ValueError, InvalidInput) as error:
            return text_of({"error": "InvalidInput", "message": str(error)})
        run = in_hand.get()
        session = None if run is None else run.session
        bound = binder.bound(binder.call(context=context, session=session))
        check = AllowedToolCall(checked=arguments)
        # A runner has checked the call by the rules of its own tally.
        is_checked = run is not None and run.bound.tally is getattr(bound, "tally", None)
        if not is_checked and isinstance(bound, BoundTally) and has_rules(bound, "tool_call"):
            try:
                check = bound.check_tool_call(name, arguments, piece="memory_tools")
            except Blocked as error:
                return str(error)
        result: JsonObject = check.result(run_memory_tool(bound, name, check.arguments))
        return text_of(result)

    def tool(name: str, parameters: JsonObject) -> FunctionTool:
        async def invoke(context: RunContextWrapper[Any], input: str) -> str:
            return await in_thread(answer, context.context, name, input)

        return RuledTool(
            name=name,
            description=MODEL_TOOLS[name].description,
            params_json_schema=dict(parameters),
            on_invoke_tool=invoke,
            strict_json_schema=False,
            needs_approval=MODEL_TOOLS[name].needs_approval and approval == "ask",
        )

    schemas = {spec.name: spec.parameters for spec in memory_tool_specs(working=working)}
    names = [each.name for each in offered_tools(working=working)]
    return [tool(name, schemas[name]) for name in names]
