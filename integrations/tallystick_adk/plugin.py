"""TallyPlugin: memory, rules and receipts around every agent of a runner of ADK."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext

from tallystick.aio import begin_in_thread, end_in_thread, in_thread
from tallystick.kit import MEMORIES, MEMORY_BUDGET, ActorSource, ContextMode, Speakers
from tallystick.kit.agent_runs import AgentPiece
from tallystick.records import Compaction, CompileConfig, Scope
from tallystick.tally import BoundTally, Tally
from tallystick_adk.under_way import InvocationUnderWay


class TallyPlugin(AgentPiece, BasePlugin):
    """Memory, rules and receipts for a runner: `App(…, plugins=[TallyPlugin(tally)])`.

    Each invocation is recorded as a run; each request is compiled to `budget` tokens with what is
    remembered; the rules of the tally hold over tools and requests. A tool call that waits for a
    person asks by ADK's own confirmation of tools.
    """

    _runtime, _piece = "adk", "TallyPlugin"

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        name: str = "tallystick",
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        agent_name: str | None = None,
        record: bool = True,
        context: ContextMode | bool = "request",
        rules: bool = True,
        task_type: str | None = None,
        budget: int | None = None,
        memory_budget: int = MEMORY_BUDGET,
        memories: int = MEMORIES,
        history_share: int | None = None,
        turn_share: int | None = None,
        compile_config: CompileConfig | None = None,
        compaction: Compaction = "cut",
        strict: bool = False,
        capture: Speakers = "off",
    ) -> None:
        """`actor` says who acts, by default the user of the session. `context="memory"` leaves all
        of a request but the memories as it is, and False compiles nothing; the budgets are those of
        the other runtimes. `record` makes receipts, and with `strict` a failure to record is
        raised. `capture` remembers the words of the `user`, or those of `both`, when an invocation
        ends. `rules` enforces the rules of the tally; `task_type` states the kind of task for them.
        Raises InvalidInput.
        """
        BasePlugin.__init__(self, name)
        AgentPiece.__init__(
            self,
            tally,
            actor=actor,
            scope=scope,
            agent_name=agent_name,
            record=record,
            context=context,
            rules=rules,
            task_type=task_type,
            budget=budget,
            memory_budget=memory_budget,
            memories=memories,
            history_share=history_share,
            turn_share=turn_share,
            compile_config=compile_config,
            compaction=compaction,
            strict=strict,
            capture=capture,
        )
        self._under_way: dict[str, InvocationUnderWay] = {}

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Begin the run of an invocation. Raises Denied."""
        await self._cut_off(invocation_context.invocation_id)
        invocation = await begin_in_thread(
            lambda: self._begin(invocation_context), InvocationUnderWay.cut_off
        )
        self._under_way[invocation.id] = invocation
        if invocation.run is not None:
            invocation.cleanup.callback(invocation.run.enter())
        task = asyncio.current_task()
        if task is not None:

            def end_with(_: Any) -> None:
                self._forget(invocation)

            task.add_done_callback(end_with)
            invocation.cleanup.callback(task.remove_done_callback, end_with)

    def _begin(self, context: InvocationContext) -> InvocationUnderWay:
        session = context.session
        call = self.binder.call(session=session.id, configurable={"user_id": session.user_id})
        bound = self.binder.bound(call)
        invocation = InvocationUnderWay(self.settings, bound, context)
        agent = getattr(context.agent, "name", None)
        invocation.start(agent, app_name=session.app_name, invocation_id=invocation.id)
        return invocation

    async def on_event_callback(
        self, *, invocation_context: InvocationContext, event: Event
    ) -> None:
        """See the words of an agent."""
        invocation = self._under_way.get(invocation_context.invocation_id)
        if invocation is not None:
            invocation.see(event)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """End the run of an invocation; return when it is stored."""
        invocation = self._leave(invocation_context)
        if invocation is not None:
            await end_in_thread(invocation.finish)

    async def on_run_error_callback(
        self, *, invocation_context: InvocationContext, error: Exception
    ) -> None:
        """End the run of an invocation that failed; return when it is stored."""
        invocation = self._leave(invocation_context)
        if invocation is not None:
            await end_in_thread(invocation.fail, error)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Compile, check and record a request. One that a rule refuses is answered by an error."""
        invocation = await self._invocation_of(callback_context)
        answer = await in_thread(invocation.before_model, callback_context, llm_request)
        invocation.attribute_wire(callback_context)
        return answer

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> None:
        """Record an answer."""
        invocation = self._under_way.get(callback_context.invocation_id)
        if invocation is not None:
            invocation.after_model(callback_context, llm_response)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        """Record that a model failed."""
        invocation = self._under_way.get(callback_context.invocation_id)
        if invocation is not None:
            invocation.model_failed(callback_context, error)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Check and record a call. One that a rule denies is answered by why; one that waits for a
        person asks for a confirmation.
        """
        invocation = await self._invocation_of(tool_context)
        answer = await in_thread(invocation.before_tool, tool, tool_args, tool_context)
        invocation.enter_tool(tool_context)
        return answer

    async def after_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        result: dict[str, Any],
    ) -> dict[str, Any] | None:
        """Record a result; return it cleaned, where a rule redacts it."""
        invocation = self._under_way.get(tool_context.invocation_id)
        if invocation is None:
            return None
        invocation.leave_tool(tool_context)
        return cast(
            "dict[str, Any] | None",
            await in_thread(invocation.after_tool, tool, tool_context, result),
        )

    async def on_tool_error_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: dict[str, Any],
        tool_context: ToolContext,
        error: Exception,
    ) -> None:
        """Record that a tool failed."""
        invocation = self._under_way.get(tool_context.invocation_id)
        if invocation is not None:
            invocation.leave_tool(tool_context)
            invocation.tool_failed(tool_context, error)

    async def close(self) -> None:
        """End the runs of invocations that were left."""
        for id in list(self._under_way):
            await self._cut_off(id)

    async def _invocation_of(self, context: CallbackContext) -> InvocationUnderWay:
        """Return the invocation of a call. One that nobody has begun, or that was left, begins
        here: no call is made outside of the rules.
        """
        invocation = self._under_way.get(context.invocation_id)
        if invocation is None:
            await self.before_run_callback(invocation_context=context._invocation_context)
            invocation = self._under_way[context.invocation_id]
        return invocation

    def _leave(self, context: InvocationContext) -> InvocationUnderWay | None:
        invocation = self._under_way.pop(context.invocation_id, None)
        if invocation is not None:
            invocation.cleanup.close()
        return invocation

    async def _cut_off(self, id: str) -> None:
        invocation = self._under_way.pop(id, None)
        if invocation is not None:
            await end_in_thread(invocation.cut_off)

    def _forget(self, invocation: InvocationUnderWay) -> None:
        """End a run whose task has ended without the end of its invocation: it was cancelled."""
        if self._under_way.get(invocation.id) is invocation:
            del self._under_way[invocation.id]
            invocation.cut_off()
