"""TallyRecorder: each run, model request and tool call of an agent, with receipts.

The outermost capability, so that it records requests as the others leave them. Hooks hand over and
return; the end of the run acknowledges everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from pydantic_ai import RunContext
from pydantic_ai.capabilities import (
    CapabilityOrdering,
    WrapModelRequestHandler,
    WrapRunHandler,
    WrapToolExecuteHandler,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition, ToolDenied

from tallystick.aio import begin_in_thread, end_in_thread, in_thread
from tallystick.errors import InvalidInput
from tallystick.kit import (
    ActorSource,
    AnswerFacts,
    Binder,
    Capture,
    OpenCall,
    RootRun,
    Speakers,
    StreamTimes,
    ToolCall,
    attribute_requests,
    begin_call,
    check_flag,
    checked_speakers,
    has_rules,
    is_enforced,
    record_approval,
    record_tool_call,
    record_tool_error,
    record_tool_result,
    refuse_unenforced,
    refuse_unenforced_model_call,
    rules_requests,
)
from tallystick.kit.agent_runs import AgentRun, RunSettings
from tallystick.kit.binder import id_text
from tallystick.kit.rendering import output_text, without_frames
from tallystick.recorder import Run, Step, current_run, current_step
from tallystick.records import Scope, StepKind
from tallystick.tally import BoundTally, Tally
from tallystick.tokens import usage_of
from tallystick_pydantic_ai.actors import call_of_run
from tallystick_pydantic_ai.messages import (
    answer_of,
    prompt_part,
    prompt_text,
    request_of,
    unanswered_prompt,
)
from tallystick_pydantic_ai.policy import (
    CheckedToolDefinition,
    OncePerAgent,
    model_facts,
    output_call,
    refuse_deferred,
)
from tallystick_pydantic_ai.render import read_request

if TYPE_CHECKING:
    from pydantic_ai.output import OutputContext

LOADED_LATE = "A recorder that is loaded late records nothing"


@dataclass(repr=False)
class TallyRecorder(OncePerAgent):
    """Records each run, model request and tool call, with receipts. The outermost capability.

    A call that a rule concerns and that nothing enforces is refused before it runs.
    """

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    """Who acts, by default what the run names (docs/who-acts.md)."""
    scope: str | Scope | None = None
    """Scope of the runs; by default the actor's private one."""
    agent_name: str | None = None
    strict: bool = False
    """True to raise a failure to record into the run; otherwise it is counted, logged and reported
    by `verify`.
    """
    capture: Speakers = "off"
    """Speakers whose words become memories when a run ends: nobody, the `user`, or `both`. A typed
    output is remembered as its JSON text.
    """
    id: str | None = "tallystick_recorder"
    capture_guard: Capture | None = field(default=None, repr=False, compare=False)
    """Count of the events that could not be recorded; the copies for each run share it."""

    def __post_init__(self) -> None:
        self._binder = Binder(
            self.tally,
            runtime="pydantic_ai",
            piece="TallyRecorder",
            actor=self.actor,
            scope=self.scope,
        )
        refuse_deferred(self, LOADED_LATE)
        checked_speakers(self.capture)
        check_flag("strict", self.strict)
        self.guard = self.capture_guard or Capture(
            self._binder.tally, "pydantic_ai", strict=self.strict
        )
        self.capture_guard = self.guard
        # A streamed request is sent from another task than the hook around it, so that a context
        # variable would not reach it; requests of one run follow one another.
        self.request: OpenCall | None = None
        self.stream: _Stream | None = None
        self._context: RunContext[Any] | None = None
        self._blocked: set[str] = set()
        self._is_silent = False

    @property
    def failures(self) -> int:
        """Events that could not be recorded."""
        return self.guard.failures

    def get_ordering(self) -> CapabilityOrdering:
        """Return the outermost place, so that requests are recorded as the model got them."""
        return CapabilityOrdering(position="outermost")

    async def for_run(self, ctx: RunContext[Any]) -> TallyRecorder:
        """Return a copy for one run, with the step of its request under way. Raises
        InvalidInput.
        """
        refuse_deferred(self, LOADED_LATE)
        return replace(self)

    def get_wrapper_model(self, model: Model) -> Model:
        """Return the model, which records each request as it is sent.

        No hook sees a request after the last capability has prepared it, so that a wrapper is
        needed. It stands within the instrumentation of the user's own, and has the streams that the
        model has.
        """
        if type(model) is InstrumentedModel:
            recorded = self.get_wrapper_model(model.wrapped)
            return InstrumentedModel(recorded, model.instrumentation_settings)
        if type(model).request_stream is Model.request_stream:
            return _without_streams(type(model).__name__)(model, self)
        return _RecordedModel(model, self)

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Record the agent's run as a run; its end acknowledges everything in it. Raises
        InvalidInput under a durable agent that sends requests past every capability.
        """
        _refuse_durable_agent(ctx)
        # The list of messages grows with the run.
        prompt = prompt_text(ctx.prompt) or _prompt_to_answer(ctx)
        run: AgentRun | None = None
        # Of several recorders of one tally in the same run the outermost records it.
        self._is_silent = not self.guard.claim(ctx.run_id, self)
        try:
            if not self._is_silent:
                with self.guard():
                    # Whoever begins to record writes files: a sign of life, who acts.
                    run = await begin_in_thread(
                        lambda: self._begin_run(ctx, prompt), lambda begun: begun.end("cancelled")
                    )
            if run is None or run.root is None:
                return await handler()
            try:
                with run.active() if run.root.is_own else nullcontext():
                    result = await handler()
            except BaseException as error:
                await end_in_thread(run.fail, error)
                raise
            await end_in_thread(self._finish, run, run.root, result)
            return result
        finally:
            self.guard.release(ctx.run_id, self)

    def _begin_run(self, ctx: RunContext[Any], prompt: str | None) -> AgentRun:
        settings = RunSettings(
            "TallyRecorder", self.guard, self.capture, self.agent_name, rules=False
        )
        # The runs of one conversation are those of one thread, as in every runtime.
        session = id_text(getattr(ctx, "conversation_id", None))
        bound = self._binder.bound(call_of_run(self._binder, ctx))
        run = AgentRun(settings, bound, words=prompt, session=session)
        goal = prompt_text(ctx.prompt) or _earlier_goal(ctx)
        run.start(getattr(ctx.agent, "name", None), goal=goal, pydantic_ai_run_id=ctx.run_id)
        return run

    def _finish(self, run: AgentRun, root: RootRun, result: AgentRunResult[Any]) -> None:
        """End the run with its outcome, and remember the turn, if turns are to be remembered."""
        is_waiting = False
        try:
            if isinstance(result.output, DeferredToolRequests):
                with self.guard(root.run):
                    is_waiting = root.is_own and self._record_approvals(root.run, result.output)
            else:
                run.keep_turn(output_text(result.output))
        finally:
            run.end("blocked" if is_waiting else "completed")

    def _record_approvals(self, run: Run, requests: DeferredToolRequests) -> bool:
        """Record each tool that waits for a person; return True if any does.

        Such a tool is never executed, so it becomes a blocked step of its own, unless its step was
        blocked when it was about to run.
        """
        for call in requests.approvals:
            if call.tool_call_id in self._blocked:
                continue
            step = run.step("human_approval", name=call.tool_name)
            record_approval(step, ToolCall(call.tool_name, call.args, call.tool_call_id))
            step.end("blocked", wait=False)
        return bool(requests.approvals)

    def _begin(self, kind: StepKind, name: str, ctx: RunContext[Any]) -> OpenCall | None:
        """Open the step of a call; None outside of a run, or where it cannot be recorded."""
        run = current_run()
        if run is not None and not self._is_silent:
            with self.guard(run):
                return begin_call(run, kind, name=name, metadata=_identity(ctx))
        return None

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Record a model request as a step."""
        self._context = ctx
        call = self._begin("model_call", request_context.model.model_name, ctx)
        if call is None:
            return await handler(request_context)
        call.provider, call.model = model_facts(request_context.model)
        self.request, self.stream = call, None
        with call.step.active():
            try:
                response = await handler(request_context)
            except BaseException as error:
                self._fail_request(call, error)
                raise
            finally:
                self.request = None
        with self.guard(call.step.run):
            _record_response(call, response)
            is_whole = self.stream is None or self.stream.is_whole
            call.end("completed" if is_whole else "cancelled")
        return response

    def _fail_request(self, call: OpenCall, error: BaseException) -> None:
        """Record that a request failed, with the answer of its stream until then."""
        stream = self.stream
        if stream is not None and call.times.chunks and stream.partial is not None:
            with self.guard(call.step.run):
                _record_response(call, stream.partial())
        # The reader of a stream meets its error first, and then cancels the task of the request.
        cause = error if stream is None or stream.error is None else stream.error
        with self.guard(call.step.run):
            call.fail(cause)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Record a tool call as a step; one that waits for approval is blocked."""
        open_call = self._begin("tool_call", call.tool_name, ctx)
        tool_call = ToolCall(call.tool_name, args, call.tool_call_id)
        if open_call is None:
            await self._refuse_unenforced(ctx, tool_call, tool_def)
            return await handler(args)
        step = open_call.step
        with self.guard(step.run):
            record_tool_call(step, tool_call, approved=ctx.tool_call_approved)
        with step.active():
            try:
                await self._refuse_unenforced(ctx, tool_call, tool_def)
                result = await handler(args)
            except (ApprovalRequired, CallDeferred):
                self._blocked.add(call.tool_call_id)
                with self.guard(step.run):
                    if not step.has("approval"):
                        record_approval(step, tool_call)
                    open_call.end("blocked")
                raise
            except SkipToolExecution as skipped:
                with self.guard(step.run):
                    _record_skipped(open_call, skipped)
                raise
            except BaseException as error:
                with self.guard(step.run):
                    open_call.fail(error)
                raise
        with self.guard(step.run):
            record_tool_result(step, result)
            open_call.end()
        return result

    async def wrap_output_process(
        self,
        ctx: RunContext[Any],
        *,
        output_context: OutputContext,
        output: Any,
        handler: Callable[[Any], Awaitable[Any]],
    ) -> Any:
        """Refuse a function of the output that a rule concerns and that nothing enforces."""
        tally = self._binder.tally
        if output_context.has_function and has_rules(tally, "tool_call"):
            bound = self._binder.bound(call_of_run(self._binder, ctx))
            call = await in_thread(output_call, bound, output_context, output)
            if not is_enforced(tally, "tool_call", call.name, str(ctx.run_id)):
                await in_thread(refuse_unenforced, bound, call)
        return await handler(output)

    async def _refuse_unenforced(
        self, ctx: RunContext[Any], call: ToolCall, tool: ToolDefinition
    ) -> None:
        """Raise ActionDenied for a ruled call that no enforcing piece of this run has in hand."""
        tally = self._binder.tally
        if isinstance(tool, CheckedToolDefinition) or not has_rules(tally, "tool_call"):
            return
        if not is_enforced(tally, "tool_call", call.name, str(ctx.run_id)):
            bound = self._binder.bound(call_of_run(self._binder, ctx))
            await in_thread(refuse_unenforced, bound, call)

    async def refuse_unenforced_request(
        self,
        model: Model,
        messages: list[ModelMessage],
        parameters: ModelRequestParameters,
        step: Step | None,
    ) -> None:
        """Same as for a tool call, for a request that is about to be sent."""
        ctx, tally = self._context, self._binder.tally
        if ctx is None or not rules_requests(tally):
            return
        bound = self._binder.bound(call_of_run(self._binder, ctx))
        provider, name = model_facts(model)
        with nullcontext() if step is None else step.active():
            await in_thread(
                lambda: refuse_unenforced_model_call(
                    bound,
                    provider=provider,
                    model=name,
                    call_id=str(ctx.run_id),
                    **read_request(messages, parameters).for_rules(partial(without_frames, bound)),
                )
            )


def _record_skipped(call: OpenCall, skipped: SkipToolExecution) -> None:
    """Record the result of a tool that did not run: a denial, or whatever a hook put in place."""
    if isinstance(skipped.result, ToolDenied):
        record_tool_error(call.step, skipped.__cause__, skipped.result.message)
        call.end("failed")
        return
    record_tool_result(call.step, skipped.result)
    call.end()


def _record_response(call: OpenCall, response: ModelResponse) -> None:
    usage = usage_of(response.usage)
    answer = AnswerFacts(
        usage if any(usage.values()) else {},
        model=response.model_name,
        stop=response.finish_reason,
        provider=response.provider_name,
    )
    summary = call.answer_summary(answer)
    call.step.record("response", answer_of(response), summary=summary)


@dataclass
class _Stream:
    """The streams of one request: an answer may come in several, each going on after the last."""

    partial: Callable[[], ModelResponse] | None = None
    """Return the answer of the stream under way so far."""
    error: BaseException | None = None
    """The error that broke it, or None."""
    is_whole: bool = True
    """False for one that its reader left before its end."""


_EVENTS, _STARTED = "_get_event_iterator", "_event_iterator"


def _watch(response: StreamedResponse, stream: _Stream, times: StreamTimes) -> None:
    """Time the events of a stream and note the error that breaks it.

    The attributes are private to PydanticAI: a release without them is recorded without times.
    """
    events, started = getattr(response, _EVENTS, None), getattr(response, _STARTED, None)
    stream.partial, stream.error = response.get, None

    async def timed_events(
        events: AsyncIterator[ModelResponseStreamEvent],
    ) -> AsyncIterator[ModelResponseStreamEvent]:
        try:
            async for event in events:
                if isinstance(event, PartStartEvent | PartDeltaEvent):
                    times.add_chunk()
                yield event
        except Exception as error:
            stream.error = error
            raise
        stream.is_whole = True

    if started is not None:
        # A model that falls back has waited for the first event already.
        stream.is_whole = False
        setattr(response, _STARTED, timed_events(started))
    elif events is not None:
        stream.is_whole = False
        setattr(response, _EVENTS, lambda: timed_events(events()))


class _RecordedModel(WrapperModel):
    """Records the request as it is sent: its final messages, settings and parameters."""

    def __init__(self, wrapped: Model, recorder: TallyRecorder) -> None:
        super().__init__(wrapped)
        self._recorder = recorder

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        step = self._record(messages, model_settings, model_request_parameters)
        await self._recorder.refuse_unenforced_request(
            self.wrapped, messages, model_request_parameters, step
        )
        return await self.wrapped.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        step = self._record(messages, model_settings, model_request_parameters)
        await self._recorder.refuse_unenforced_request(
            self.wrapped, messages, model_request_parameters, step
        )
        call = self._recorder.request
        try:
            async with self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            ) as stream:
                if call is not None:
                    state = self._recorder.stream = self._recorder.stream or _Stream()
                    with self._recorder.guard(call.step.run):
                        _watch(stream, state, call.times)
                yield stream
        except Exception as error:
            if self._recorder.stream is None:
                # It could not begin, of which the reader of the stream hears first.
                self._recorder.stream = _Stream(error=error)
            raise

    def _record(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        parameters: ModelRequestParameters,
    ) -> Step | None:
        """Record a request, once; return its step."""
        call = self._recorder.request
        step = current_step() if call is None else call.step
        if step is None or not step.is_open or step.kind != "model_call":
            return None
        attribute_requests(step)
        if step.has("request"):
            return step
        with self._recorder.guard(step.run):
            request = request_of(self.wrapped, messages, settings, parameters)
            provider, _ = model_facts(self.wrapped)
            asked = {} if provider is None else {"provider": provider}
            step.record(
                "request",
                request,
                summary={"model": request["model"], **asked, "messages": len(messages)},
            )
        return step


@lru_cache(maxsize=64)
def _without_streams(name: str) -> type[_RecordedModel]:
    """Return the wrapper of a model without streams, under its name: PydanticAI says which model
    has none, and knows it by the method.
    """
    wrapper: Any = type(name, (_RecordedModel,), {})
    # Set afterwards: PydanticAI wraps what is in the body of a class, and it would be another one.
    wrapper.request_stream = Model.request_stream
    cls: type[_RecordedModel] = wrapper
    return cls


def _prompt_to_answer(ctx: RunContext[Any]) -> str | None:
    part = unanswered_prompt(ctx.messages)
    return None if part is None else prompt_text(part.content)


_STEP_MODELS = {
    "pydantic_ai.durable_exec.dbos._model": ("DBOSAgent", "DBOSDurability"),
    "pydantic_ai.durable_exec.prefect._model": ("PrefectAgent", "PrefectDurability"),
    "pydantic_ai.durable_exec.temporal._model": ("TemporalAgent", "TemporalDurability"),
}
"""Modules of models that send a request in a step of their own, with their agents and the
capabilities that replace these.
"""


def _refuse_durable_agent(ctx: RunContext[Any]) -> None:
    """Raise InvalidInput for an agent whose model no capability can wrap: its requests could not be
    recorded as they are sent.
    """
    model: Any = ctx.model
    while isinstance(model, WrapperModel) and type(model).__module__ not in _STEP_MODELS:
        model = model.wrapped
    names = _STEP_MODELS.get(type(model).__module__)
    if names is not None:
        agent, capability = names
        raise InvalidInput(
            f"{agent} sends requests in steps of its own, which no capability sees. Give the agent "
            f"itself Agent(…, capabilities=[{capability}(), Tallystick(tally)]), or leave the "
            f"receipts out with Tallystick(tally, record=False)."
        )


def _earlier_goal(ctx: RunContext[Any]) -> str | None:
    """Return the latest prompt of the conversation, for a run that goes on without one."""
    part = prompt_part(ctx.messages, None, lambda text: text)
    return None if part is None else prompt_text(part.content)


def _identity(ctx: RunContext[Any]) -> dict[str, Any]:
    return {"pydantic_ai_run_id": ctx.run_id, "run_step": ctx.run_step}
