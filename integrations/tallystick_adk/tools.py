"""The memory tools as tools of ADK; those that change or forget ask for a confirmation."""

from __future__ import annotations

from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.kit import (
    ActorSource,
    Asking,
    Binder,
    PlainApproval,
    RemoteBinder,
    TallyElsewhere,
    ToolCall,
    answer_memory_call,
    binder_of,
    check_flag,
    check_word,
    memory_tool_specs,
    tool_arguments,
)
from tallystick.operations import MODEL_TOOLS
from tallystick.records import JsonObject, Scope, ToolSpec
from tallystick.tally import BoundTally, Tally
from tallystick_adk.under_way import answer_in, ask, call_key


def memory_tools(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: PlainApproval = "ask",
    working: bool = False,
) -> list[BaseTool]:
    """Return the memory tools for `LlmAgent(…, tools=memory_tools(tally))`.

    `memory_modify` and `memory_forget` ask by ADK's own confirmation of tools; with
    `approval="elsewhere"` they act at once, for applications that ask elsewhere. All go by the
    rules of the tally, with a TallyPlugin or without. The tally may be one behind a server, whose
    rules hold there. With `working` the model keeps its task and plan by `memory_working`.
    """
    binder = binder_of(tally, runtime="adk", piece="memory_tools", actor=actor, scope=scope)
    check_word("approval", approval, PlainApproval)
    check_flag("working", working)
    return [
        _MemoryTool(binder, spec, asks=approval == "ask" and MODEL_TOOLS[spec.name].needs_approval)
        for spec in memory_tool_specs(working=working)
    ]


class _MemoryTool(BaseTool):
    """A memory tool, for the user of the session that calls it."""

    def __init__(self, binder: Binder | RemoteBinder, spec: ToolSpec, *, asks: bool) -> None:
        super().__init__(name=spec.name, description=spec.description)
        self._binder, self._spec, self._asks = binder, spec, asks

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=dict(self._spec.parameters),
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        """Run the tool. Its answer tells a refusal or an error, as the other memory tools do."""
        try:
            arguments = tool_arguments(self.name, args)
        except InvalidInput as error:
            return {"error": "InvalidInput", "message": str(error)}
        answer = answer_in(tool_context)
        if self._asks and answer is None:
            return ask(tool_context, f"{self.name} changes what is remembered.")
        if self._asks and answer is not None and not answer.approved:
            return {"error": answer.reason}
        return await in_thread(self._answer, arguments, tool_context)

    def _answer(self, arguments: JsonObject, context: ToolContext) -> JsonObject:
        session = context.session
        bound = self._binder.bound(
            self._binder.call(session=session.id, configurable={"user_id": session.user_id})
        )
        call = ToolCall(self.name, arguments, context.function_call_id)
        return answer_memory_call(bound, call, Asking(key=call_key(context)))
