"""The Tallystick capability: an outermost recorder, the memory tools, and what is remembered, as leaves of one.

The recorder must stand outermost to see what others made of a request; the tools need no place.
Hooks hand over and return; the end of the run acknowledges everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import anyio
from pydantic_ai import RunContext
from pydantic_ai.capabilities import (
    AbstractCapability,
    CapabilityOrdering,
    CombinedCapability,
    WrapModelRequestHandler,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import ModelMessage, ModelResponse, TextContent, ToolCallPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset

from tallystick.compiler import FRAMED, outline
from tallystick.edge import in_thread
from tallystick.recorder import Run, Step, current_run, current_step, status_for
from tallystick.records import Scope, StepStatus
from tallystick.tally import Binder, BoundTally, Tally
from tallystick.toolkit import NOTICE
from tallystick_pydantic_ai.actors import ActorSource, actor_from_deps
from tallystick_pydantic_ai.messages import answer_of, request_of
from tallystick_pydantic_ai.toolset import memory_toolset

__all__ = ["TallyContext", "TallyMemory", "TallyRecorder", "Tallystick"]


@dataclass
class TallyRecorder(AbstractCapability[Any]):
    """Records each run, model request and tool call, with receipts. Stands outermost."""

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    """Who acts; by default the Actor in the deps, else the bound one or the owner."""
    scope: str | Scope | None = None
    """Where runs are recorded; by default the actor's private scope."""
    agent_name: str | None = None
    id: str | None = "tallystick_recorder"

    def __post_init__(self) -> None:
        self._binder = Binder[RunContext[Any]](
            self.tally, surface="pydantic_ai", actor=self.actor or actor_from_deps, scope=self.scope
        )
        # A streamed request is sent from another task than the hook around it, so that a context variable
        # would not reach it; requests of one run follow one another.
        self.asking: Step | None = None

    def get_ordering(self) -> CapabilityOrdering:
        """Outermost, so that what is recorded is what the model got."""
        return CapabilityOrdering(position="outermost")

    async def for_run(self, ctx: RunContext[Any]) -> TallyRecorder:
        """A copy for one run, which knows the step of the request under way."""
        return replace(self)

    def get_wrapper_model(self, model: Model) -> Model:
        """The model, noting each request as it is sent."""
        return _NotingModel(model, self)

    async def wrap_run(self, ctx: RunContext[Any], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """The agent's run is a run; its end acknowledges everything in it."""
        agent = getattr(ctx.agent, "name", None)
        bound = self._binder.bound(ctx)
        goal = ctx.prompt[:500] if isinstance(ctx.prompt, str) else None
        run, owned = bound.join_run(
            self.agent_name or agent or "agent", goal=goal, metadata={"pydantic_ai_run_id": ctx.run_id}
        )  # fmt: skip
        if not owned:
            return await handler()
        status: StepStatus = "completed"
        try:
            with run.active():
                result = await handler()
            self._note_approvals(run, result)
            return result
        except BaseException as error:
            status = status_for(type(error))
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await in_thread(run.end, status)

    def _note_approvals(self, run: Run, result: AgentRunResult[Any]) -> None:
        """Tools that wait for a person never execute, so each becomes a blocked step of its own."""
        waiting = result.output.approvals if isinstance(result.output, DeferredToolRequests) else []
        for call in waiting:
            step = run.step("human_approval", name=call.tool_name)
            asked = {"name": call.tool_name, "arguments": call.args, "tool_call_id": call.tool_call_id}
            step.record("approval", asked, summary={"tool": call.tool_name, "state": "asked"})
            step.close("blocked")

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """A model request is a step."""
        run = current_run()
        if run is None:
            return await handler(request_context)
        name = request_context.model.model_name
        step, owned = run.join("model_call", name=name, metadata=_identity(ctx))
        self.asking = step
        with step.active():
            try:
                response = await handler(request_context)
            except BaseException as error:
                if owned:
                    step.fail(error)
                raise
            finally:
                self.asking = None
        step.record("response", answer_of(response), summary={"usage": _usage(response)})
        if owned:
            step.close()
        return response

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:  # fmt: skip
        """A tool call is a step; one that waits for approval is blocked."""
        run = current_run()
        if run is None:
            return await handler(args)
        step, owned = run.join("tool_call", name=call.tool_name, metadata=_identity(ctx))
        asked = {"name": call.tool_name, "arguments": args, "tool_call_id": call.tool_call_id}
        summary = {"tool": call.tool_name, "tool_call_id": call.tool_call_id, "approved": ctx.tool_call_approved}
        step.record("tool_call", asked, summary=summary)
        with step.active():
            try:
                result = await handler(args)
            except (ApprovalRequired, CallDeferred):
                step.record("approval", asked, summary={"tool": call.tool_name, "state": "asked"})
                if owned:
                    step.close("blocked")
                raise
            except BaseException as error:
                if owned:
                    step.fail(error)
                raise
        step.record("tool_result", {"result": result})
        if owned:
            step.close()
        return result


@dataclass
class TallyMemory(AbstractCapability[Any]):
    """Offers the six memory tools and says what memory text is."""

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    scope: str | Scope | None = None
    id: str | None = "tallystick"

    def get_instructions(self) -> str:
        """Static, so that the prompt's prefix stays the same."""
        return (
            "You have a long-term memory: search it before you ask for what may be known, and store what should be "
            f"known next time. {NOTICE}"
        )

    def get_toolset(self) -> AbstractToolset[Any]:
        """The memory tools."""
        return memory_toolset(self.tally, actor=self.actor, scope=self.scope)


@dataclass
class TallyContext(AbstractCapability[Any]):
    """Gives each run what is remembered of its prompt: once, framed as data, after the prompt.

    History is only appended to, so that the next request begins as the last one did. List it after compaction.
    """

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    scope: str | Scope | None = None
    budget: int = 2_000
    """Tokens of what is given, at most."""
    memories: int = 8
    """How many memories are recalled to choose from."""
    id: str | None = "tallystick_context"

    def __post_init__(self) -> None:
        self._binder = Binder[RunContext[Any]](
            self.tally, surface="pydantic_ai", actor=self.actor or actor_from_deps, scope=self.scope
        )
        self._given = False

    async def for_run(self, ctx: RunContext[Any]) -> TallyContext:
        """A copy for one run, which has given nothing yet."""
        return replace(self)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Add what is remembered to the first request of a run."""
        if not self._given and isinstance(ctx.prompt, str) and ctx.prompt.strip():
            self._given = True
            # The recorder stands outermost, so that the step of this request is open: the compile is part of it.
            text, receipt = await in_thread(self._compiled, self._binder.bound(ctx), ctx.prompt)
            if text:
                ctx.enqueue(UserPromptPart([TextContent(text, metadata={"tallystick": receipt})]))
        return request_context

    def _compiled(self, bound: BoundTally, prompt: str) -> tuple[str, str]:
        hits = bound.recall(prompt, limit=self.memories)
        compiled = bound.compile(list(hits), budget=self.budget, query=prompt, target=FRAMED)
        return outline(compiled).context, compiled.id


def Tallystick(
    tally: Tally | BoundTally, *, actor: ActorSource | None = None, scope: str | Scope | None = None,
    agent_name: str | None = None, record: bool = True, tools: bool = True, context: bool = True, budget: int = 2_000,
    memories: int = 8,
) -> CombinedCapability[Any]:  # fmt: skip
    """Memory, context and receipts for an agent: `Agent(model, capabilities=[Tallystick(tally)])`.

    `context` gives each run the best of `memories` recalled ones in at most `budget` tokens; `tools` offers the six
    memory tools; `record` makes receipts.
    """
    leaves: list[AbstractCapability[Any]] = []
    if record:
        leaves.append(TallyRecorder(tally, actor=actor, scope=scope, agent_name=agent_name))
    if tools:
        leaves.append(TallyMemory(tally, actor=actor, scope=scope))
    if context:
        leaves.append(TallyContext(tally, actor=actor, scope=scope, budget=budget, memories=memories))
    return CombinedCapability(leaves)


class _NotingModel(WrapperModel):
    """Notes in the step under way the request as it is sent: its final messages, settings and parameters."""

    def __init__(self, wrapped: Model, recorder: TallyRecorder) -> None:
        super().__init__(wrapped)
        self._recorder = recorder

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:  # fmt: skip
        self._note(messages, model_settings, model_request_parameters)
        return await self.wrapped.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters, run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:  # fmt: skip
        self._note(messages, model_settings, model_request_parameters)
        async with self.wrapped.request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            yield stream

    def _note(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> None:
        step = self._recorder.asking or current_step()
        if step is not None and step.is_open and step.kind == "model_call":
            request = request_of(self.wrapped, messages, settings, parameters)
            step.record("request", request, summary={"model": request["model"], "messages": len(messages)})


def _identity(ctx: RunContext[Any]) -> dict[str, Any]:
    return {"pydantic_ai_run_id": ctx.run_id, "run_step": ctx.run_step}


def _usage(response: ModelResponse) -> dict[str, int]:
    usage = response.usage
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
