"""The Tallystick capability: an outermost recorder, the memory tools, and what is remembered, as
leaves of one.

The recorder must stand outermost to see what others made of a request; the tools need no place.
Hooks hand over and return; the end of the run acknowledges everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
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
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextContent,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset

from tallystick.aio import in_thread
from tallystick.compiler import FRAMED, outline
from tallystick.errors import InvalidInput
from tallystick.recorder import (
    Capture,
    Run,
    Speakers,
    Step,
    attribute_requests,
    current_run,
    current_step,
    status_for,
)
from tallystick.records import Scope, StepKind, StepStatus
from tallystick.tally import Binder, BoundTally, Tally
from tallystick.tokens import usage_of
from tallystick.toolkit import NOTICE
from tallystick_pydantic_ai.actors import ActorSource, actor_from_deps, conversation_of
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
    strict: bool = False
    """Whether a failure to record is raised into the run; otherwise it is counted, logged and told
    of by `verify`.
    """
    capture: Speakers = "off"
    """Whose words become memories when a run ends: nobody's, the `user`'s, or those of `both`."""
    id: str | None = "tallystick_recorder"
    counting: Capture | None = field(default=None, repr=False)
    """Counts what could not be recorded; the copies for each run share it."""

    def __post_init__(self) -> None:
        _refuse_deferred(self)
        self._binder = Binder[RunContext[Any]](
            self.tally,
            surface="pydantic_ai",
            actor=self.actor or actor_from_deps,
            scope=self.scope,
            session=conversation_of,
        )
        context = self._binder.tally.recording
        self._claims = context.claims
        self.capturing = self.counting or Capture(context, "pydantic_ai", strict=self.strict)
        self.counting = self.capturing
        # A streamed request is sent from another task than the hook around it, so that a context
        # variable would not reach it; requests of one run follow one another.
        self.asking: Step | None = None
        self._silent = False
        self.times: _Times | None = None

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self.capturing.failures

    def get_ordering(self) -> CapabilityOrdering:
        """Outermost, so that what is recorded is what the model got."""
        return CapabilityOrdering(position="outermost")

    async def for_run(self, ctx: RunContext[Any]) -> TallyRecorder:
        """A copy for one run, which knows the step of the request under way. Raises
        InvalidInput.
        """
        _refuse_deferred(self)
        return replace(self)

    def get_wrapper_model(self, model: Model) -> Model:
        """The model, noting each request as it is sent."""
        return _NotingModel(model, self)

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """The agent's run is a run; its end acknowledges everything in it."""
        key = ("pydantic_ai", ctx.run_id)
        run, owned = None, False
        # Of several recorders of one tally in the same run the outermost records it.
        self._silent = not self._claims.take(key, self)
        if not self._silent:
            with self.capturing():
                run, owned = self._joined(ctx)
        try:
            if run is None or not owned:
                return await handler()
            return await self._recorded(ctx, run, handler)
        finally:
            self._claims.release(key, self)

    async def _recorded(
        self, ctx: RunContext[Any], run: Run, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        status: StepStatus = "completed"
        try:
            with run.active():
                result = await handler()
            with self.capturing(run):
                if self._note_approvals(run, result):
                    status = "blocked"
                elif self.capture != "off":
                    await in_thread(
                        self._keep, self._binder.bound(ctx), run, ctx.prompt, result.output
                    )
            return result
        except BaseException as error:
            status = status_for(type(error))
            if status == "failed" and not run.has_noted(error):
                with self.capturing(run):
                    run.step("other", name=run.record.agent_name).fail(error)
            raise
        finally:
            with anyio.CancelScope(shield=True), self.capturing(run):
                await in_thread(run.end, status)

    def _keep(self, bound: BoundTally, run: Run, asked: Any, answer: Any) -> None:
        both = self.capture == "both"
        bound.keep_turn(
            run,
            user=asked if isinstance(asked, str) else None,
            assistant=answer if both and isinstance(answer, str) else None,
        )

    def _joined(self, ctx: RunContext[Any]) -> tuple[Run, bool]:
        agent = getattr(ctx.agent, "name", None)
        goal = ctx.prompt if isinstance(ctx.prompt, str) else None
        return self._binder.bound(ctx).join_run(
            self.agent_name or agent or "agent",
            goal=goal,
            metadata={"pydantic_ai_run_id": ctx.run_id},
        )

    def _note_approvals(self, run: Run, result: AgentRunResult[Any]) -> bool:
        """Tools that wait for a person never execute, so each becomes a blocked step of its own;
        whether any does.
        """
        waiting = result.output.approvals if isinstance(result.output, DeferredToolRequests) else []
        for call in waiting:
            step = run.step("human_approval", name=call.tool_name)
            asked = {
                "name": call.tool_name,
                "arguments": call.args,
                "tool_call_id": call.tool_call_id,
            }
            step.record("approval", asked, summary={"tool": call.tool_name, "state": "asked"})
            step.end("blocked", wait=False)
        return bool(waiting)

    def _begun(self, kind: StepKind, name: str, ctx: RunContext[Any]) -> tuple[Step | None, bool]:
        """The step of a call, and whether it is ours to end; None outside of a run, or where it
        cannot be recorded.
        """
        step, owned = None, False
        run = current_run()
        if run is not None and not self._silent:
            with self.capturing(run):
                step, owned = run.join(kind, name=name, metadata=_identity(ctx))
        return step, owned

    def _ended(
        self, step: Step, owned: bool, note: Callable[[], None], status: StepStatus = "completed"
    ) -> None:
        with self.capturing(step.run):
            note()
            if owned:
                step.end(status, wait=False)

    def _failed(self, step: Step, owned: bool, error: BaseException) -> None:
        with self.capturing(step.run):
            if owned:
                step.fail(error)

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """A model request is a step."""
        step, owned = self._begun("model_call", request_context.model.model_name, ctx)
        if step is None:
            return await handler(request_context)
        self.asking, self.times = step, None
        with step.active():
            try:
                response = await handler(request_context)
            except BaseException as error:
                self._broken(step, owned, error)
                raise
            finally:
                self.asking = None
        self._ended(step, owned, lambda: self._answered(step, response))
        return response

    def _answered(self, step: Step, response: ModelResponse) -> None:
        told, times = usage_of(response.usage), self.times
        summary = {
            **({"usage": told} if any(told.values()) else {}),
            **({"stream": times.told()} if times else {}),
        }
        step.record("response", answer_of(response), summary=summary)

    def _broken(self, step: Step, owned: bool, error: BaseException) -> None:
        """A request failed; what its stream said until then is kept."""
        times = self.times
        if times is not None and times.chunks and times.said is not None:
            with self.capturing(step.run):
                self._answered(step, times.said())
        # Whoever reads a stream meets its error first, and cancels the task of the request.
        self._failed(step, owned, error if times is None or times.broke is None else times.broke)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """A tool call is a step; one that waits for approval is blocked."""
        step, owned = self._begun("tool_call", call.tool_name, ctx)
        if step is None:
            return await handler(args)
        asked = {"name": call.tool_name, "arguments": args, "tool_call_id": call.tool_call_id}
        with self.capturing(step.run):
            summary = {
                "tool": call.tool_name,
                "tool_call_id": call.tool_call_id,
                "approved": ctx.tool_call_approved,
            }
            step.record("tool_call", asked, summary=summary)
        with step.active():
            try:
                result = await handler(args)
            except (ApprovalRequired, CallDeferred):
                waits = {"tool": call.tool_name, "state": "asked"}
                self._ended(
                    step, owned, lambda: step.record("approval", asked, summary=waits), "blocked"
                )
                raise
            except BaseException as error:
                self._failed(step, owned, error)
                raise
        self._ended(step, owned, lambda: step.record("tool_result", {"result": result}))
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
            "You have a long-term memory: search it before you ask for what may be known, and "
            "store what should be "
            f"known next time. {NOTICE}"
        )

    def get_toolset(self) -> AbstractToolset[Any]:
        """The memory tools."""
        return memory_toolset(self.tally, actor=self.actor, scope=self.scope)


@dataclass
class TallyContext(AbstractCapability[Any]):
    """Gives each run what is remembered of its prompt: once, framed as data, after the prompt.

    History is only appended to, so that the next request begins as the last one did. List it after
    compaction.
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
            self.tally,
            surface="pydantic_ai",
            actor=self.actor or actor_from_deps,
            scope=self.scope,
            session=conversation_of,
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
            # The recorder stands outermost, so that the step of this request is open: the compile
            # is part of it.
            text, receipt = await in_thread(self._compiled, self._binder.bound(ctx), ctx.prompt)
            if text:
                ctx.enqueue(UserPromptPart([TextContent(text, metadata={"tallystick": receipt})]))
        return request_context

    def _compiled(self, bound: BoundTally, prompt: str) -> tuple[str, str]:
        hits = bound.recall(prompt, limit=self.memories)
        compiled = bound.compile(list(hits), budget=self.budget, query=prompt, target=FRAMED)
        return outline(compiled).context, compiled.id


def Tallystick(
    tally: Tally | BoundTally,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    agent_name: str | None = None,
    record: bool = True,
    tools: bool = True,
    context: bool = True,
    budget: int = 2_000,
    memories: int = 8,
    strict: bool = False,
    capture: Speakers = "off",
) -> CombinedCapability[Any]:
    """Memory, context and receipts for an agent: `Agent(model, capabilities=[Tallystick(tally)])`.

    `context` gives each run the best of `memories` recalled ones in at most `budget` tokens;
    `tools` offers the six memory tools; `record` makes receipts, and with `strict` a failure to
    record is raised. `capture` remembers what the `user` said, or what `both` said, when a run
    ends.
    """
    leaves: list[AbstractCapability[Any]] = []
    if record:
        leaves.append(
            TallyRecorder(
                tally,
                actor=actor,
                scope=scope,
                agent_name=agent_name,
                strict=strict,
                capture=capture,
            )
        )
    if tools:
        leaves.append(TallyMemory(tally, actor=actor, scope=scope))
    if context:
        leaves.append(
            TallyContext(tally, actor=actor, scope=scope, budget=budget, memories=memories)
        )
    return _Together(leaves)


@dataclass
class _Together(CombinedCapability[Any]):
    """The leaves as one, of which none may come late."""

    def __post_init__(self) -> None:
        _refuse_deferred(self)
        super().__post_init__()


def _refuse_deferred(capability: AbstractCapability[Any]) -> None:
    if capability.defer_loading:
        raise InvalidInput(
            "A recorder that is loaded late records nothing until the model asks for it. Leave "
            "out `defer_loading`."
        )


@dataclass
class _Times:
    """When the chunks of a stream came, in microseconds from the start of its step."""

    step: Step
    chunks: int = 0
    first: int = 0
    last: int = 0
    said: Callable[[], ModelResponse] | None = None
    """What the stream under way has said so far."""
    broke: BaseException | None = None
    """What went wrong in it."""

    def note(self) -> None:
        """A chunk came."""
        self.last = self.step.run.context.store.clock.now() - self.step.started_at
        self.first = self.first if self.chunks else self.last
        self.chunks += 1

    def told(self) -> dict[str, int]:
        """As the receipt says it."""
        return {"chunks": self.chunks, "first_us": self.first, "last_us": self.last}


_EVENTS, _BEGUN = "_get_event_iterator", "_event_iterator"


def _timed(stream: StreamedResponse, times: _Times) -> None:
    """Note when the events of a stream come and what breaks it, where this release makes them as
    all did so far.
    """
    made, begun = getattr(stream, _EVENTS, None), getattr(stream, _BEGUN, None)
    times.said, times.broke = stream.get, None

    async def noted(
        events: AsyncIterator[ModelResponseStreamEvent],
    ) -> AsyncIterator[ModelResponseStreamEvent]:
        try:
            async for event in events:
                if isinstance(event, PartStartEvent | PartDeltaEvent):
                    times.note()
                yield event
        except Exception as error:
            times.broke = error
            raise

    if begun is not None:
        # A model that falls back has waited for the first event already.
        setattr(stream, _BEGUN, noted(begun))
    elif made is not None:
        setattr(stream, _EVENTS, lambda: noted(made()))


class _NotingModel(WrapperModel):
    """Notes in the step under way the request as it is sent: its final messages, settings and
    parameters.
    """

    def __init__(self, wrapped: Model, recorder: TallyRecorder) -> None:
        super().__init__(wrapped)
        self._recorder = recorder

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self._note(messages, model_settings, model_request_parameters)
        return await self.wrapped.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        self._note(messages, model_settings, model_request_parameters)
        async with self.wrapped.request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            step = self._recorder.asking
            if step is not None:
                # An answer may come in several streams, each of which goes on where the one before
                # ended.
                times = self._recorder.times = self._recorder.times or _Times(step)
                with self._recorder.capturing(step.run):
                    _timed(stream, times)
            yield stream

    def _note(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> None:
        step = self._recorder.asking or current_step()
        if step is None or not step.is_open or step.kind != "model_call":
            return
        attribute_requests(step)
        if step.has("request"):
            return
        with self._recorder.capturing(step.run):
            request = request_of(self.wrapped, messages, settings, parameters)
            step.record(
                "request", request, summary={"model": request["model"], "messages": len(messages)}
            )


def _identity(ctx: RunContext[Any]) -> dict[str, Any]:
    return {"pydantic_ai_run_id": ctx.run_id, "run_step": ctx.run_step}
