"""The Tallystick capability: recorder, memory tools, recalled context and rules, as leaves of one.

The recorder must be the outermost capability, to record requests as the others leave them, and the
policy the innermost; the tools have no order. Hooks hand over and return; the end of the run
acknowledges everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Literal

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
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.instrumented import InstrumentedModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition, ToolDenied
from pydantic_ai.toolsets import AbstractToolset

from tallystick.aio import in_thread
from tallystick.errors import InvalidInput
from tallystick.kit import (
    MEMORIES,
    MEMORY_BUDGET,
    ActorSource,
    AnswerFacts,
    Binder,
    Capture,
    ContextMode,
    OpenCall,
    RequestCompiler,
    RequestParts,
    RootRun,
    Speakers,
    StreamTimes,
    ToolCall,
    attribute_requests,
    begin_call,
    check_flag,
    checked_speakers,
    default_agent_name,
    has_rules,
    is_enforced,
    is_nested,
    record_approval,
    record_tool_call,
    record_tool_error,
    record_tool_result,
    refuse_unenforced,
    refuse_unenforced_model_call,
    rules_requests,
)
from tallystick.kit.binder import id_text
from tallystick.kit.rendering import without_frames
from tallystick.operations import NOTICE
from tallystick.recorder import Run, Step, current_run, current_step, status_for
from tallystick.records import Compaction, CompileConfig, Scope, StepKind, StepStatus
from tallystick.tally import BoundTally, Tally
from tallystick.tokens import usage_of
from tallystick_pydantic_ai.actors import call_of_run
from tallystick_pydantic_ai.deferral import Approval
from tallystick_pydantic_ai.messages import (
    answer_of,
    output_text,
    own_messages,
    prompt_part,
    prompt_text,
    request_of,
    with_part_behind,
)
from tallystick_pydantic_ai.policy import (
    EVERY_ATTEMPT,
    CheckedToolDefinition,
    OncePerAgent,
    TallyPolicy,
    model_facts,
    refuse_deferred,
    window_of,
)
from tallystick_pydantic_ai.render import added_part, read_request, render
from tallystick_pydantic_ai.toolset import memory_toolset

_LATE = "A recorder that is loaded late records nothing"


@dataclass(repr=False)
class TallyRecorder(OncePerAgent):
    """Records each run, model request and tool call, with receipts. The outermost capability.

    A call that a rule concerns and that nothing enforces is refused before it runs.
    """

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    """Who acts, by default what the run names (docs/policy.md, "Who acts")."""
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
        refuse_deferred(self, _LATE)
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
        refuse_deferred(self, _LATE)
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
        """Record the agent's run as a run; its end acknowledges everything in it."""
        root: RootRun | None = None
        # Of several recorders of one tally in the same run the outermost records it.
        self._is_silent = not self.guard.claim(ctx.run_id, self)
        if not self._is_silent:
            with self.guard():
                # Whoever begins to record writes files: a sign of life, who acts.
                root = await in_thread(self._join, ctx)
        try:
            if root is None:
                return await handler()
            if root.is_own:
                return await self._record_run(ctx, root.run, handler)
            result = await handler()
            with self.guard(root.run):
                await self._capture_turn(ctx, root.run, result)
            return result
        finally:
            self.guard.release(ctx.run_id, self)

    async def _record_run(
        self, ctx: RunContext[Any], run: Run, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        status: StepStatus = "completed"
        try:
            with run.active():
                result = await handler()
            with self.guard(run):
                if self._record_approvals(run, result):
                    status = "blocked"
                else:
                    await self._capture_turn(ctx, run, result)
            return result
        except BaseException as error:
            status = status_for(type(error))
            if status == "failed" and not run.has_noted(error):
                with self.guard(run):
                    run.step("other", name=run.record.agent_name).fail(error)
            raise
        finally:
            with anyio.CancelScope(shield=True), self.guard(run):
                await in_thread(run.end, status)

    async def _capture_turn(
        self, ctx: RunContext[Any], run: Run, result: AgentRunResult[Any]
    ) -> None:
        """Remember the prompt and the output, if turns are to be remembered."""
        if self.capture == "off" or is_nested() or isinstance(result.output, DeferredToolRequests):
            return
        bound = await in_thread(self._bound, ctx)
        answer = output_text(result.output)
        await in_thread(
            lambda: bound.keep_turn(
                run,
                user=prompt_text(ctx.prompt),
                assistant=answer if self.capture == "both" else None,
                unkept_answer=answer,
                observer="TallyRecorder",
            )
        )

    def _bound(self, ctx: RunContext[Any]) -> BoundTally:
        return self._binder.bound(call_of_run(self._binder, ctx))

    def _join(self, ctx: RunContext[Any]) -> RootRun:
        agent = getattr(ctx.agent, "name", None)
        # The runs of one conversation are those of one thread, as in every runtime.
        conversation = id_text(getattr(ctx, "conversation_id", None))
        thread = {"thread_id": conversation} if conversation else {}
        return RootRun.join(
            self._bound(ctx),
            self.agent_name or agent or default_agent_name(),
            goal=prompt_text(ctx.prompt) or _earlier_goal(ctx),
            metadata={"pydantic_ai_run_id": ctx.run_id, **thread},
        )

    def _record_approvals(self, run: Run, result: AgentRunResult[Any]) -> bool:
        """Record each tool that waits for a person; return True if any does.

        Such a tool is never executed, so it becomes a blocked step of its own, unless its step was
        blocked when it was about to run.
        """
        if not isinstance(result.output, DeferredToolRequests):
            return False
        for call in result.output.approvals:
            if call.tool_call_id in self._blocked:
                continue
            step = run.step("human_approval", name=call.tool_name)
            record_approval(step, ToolCall(call.tool_name, call.args, call.tool_call_id))
            step.end("blocked", wait=False)
        return bool(result.output.approvals)

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
            call.end()
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


@dataclass(repr=False)
class TallyMemory(OncePerAgent):
    """Offers the six memory tools, with instructions on memory text."""

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    scope: str | Scope | None = None
    approval: Approval = "auto"
    """Agents to which the tools that ask a person are offered; see `memory_toolset`."""
    working: bool = False
    """True to let the model keep its task and plan, by `memory_working`."""
    id: str | None = "tallystick"

    def __post_init__(self) -> None:
        self._binder = Binder(
            self.tally,
            runtime="pydantic_ai",
            piece="TallyMemory",
            actor=self.actor,
            scope=self.scope,
        )
        # One for all runs, so that what it has to say is said once.
        self._toolset = memory_toolset(
            self.tally,
            actor=self.actor,
            scope=self.scope,
            approval=self.approval,
            working=self.working,
        )

    def get_instructions(self) -> str:
        """Return static text, so that the prompt's prefix stays the same."""
        return (
            "You have a long-term memory: search it before you ask for what may be known, and "
            "store what should be "
            f"known next time. {NOTICE}"
        )

    def get_toolset(self) -> AbstractToolset[Any]:
        """Return the memory tools."""
        return self._toolset


@dataclass(repr=False)
class TallyContext(OncePerAgent):
    """Compiles each request to a budget: instructions, history, tools, and what is remembered.

    The history of the run stays as it is: what was recalled stands in its requests alone, framed as
    data, without the frames of earlier turns. Innermost but for the policy, so that it compiles
    what all other capabilities left.
    """

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    scope: str | Scope | None = None
    context: ContextMode = "request"
    """The part of a request that is compiled: all of it, or what memory adds."""
    budget: int | None = None
    """Tokens of a request; by default the window of the model, else 32,000."""
    memory_budget: int = MEMORY_BUDGET
    """Most tokens of recalled text."""
    memories: int = MEMORIES
    """Number of memories that are recalled to choose from."""
    history_share: int | None = None
    turn_share: int | None = None
    compile_config: CompileConfig | None = None
    compaction: Compaction = "cut"
    """What becomes of long memories that do not fit: `summary` takes theirs, where there is one."""
    task_type: str | None = None
    """Kind of task, as rules over items know it."""
    id: str | None = "tallystick_context"

    def __post_init__(self) -> None:
        self._binder = Binder(
            self.tally,
            runtime="pydantic_ai",
            piece="TallyContext",
            actor=self.actor,
            scope=self.scope,
        )
        refuse_deferred(self, "A context that is loaded late compiles nothing")
        self._compiler = RequestCompiler(
            context=self.context,
            budget=self.budget,
            memory_budget=self.memory_budget,
            memories=self.memories,
            history_share=self.history_share,
            turn_share=self.turn_share,
            compile_config=self.compile_config,
            compaction=self.compaction,
        )
        self._added: UserPromptPart | None = None

    async def for_run(self, ctx: RunContext[Any]) -> TallyContext:
        """Return a copy for one run, to which memory has added nothing yet."""
        return replace(self)

    def get_ordering(self) -> CapabilityOrdering:
        """Return the innermost place but that of the policy, which checks what is sent."""
        return CapabilityOrdering(position="innermost", wraps=[TallyPolicy])

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Compile a request, where there is one attempt at each."""
        return request_context if EVERY_ATTEMPT else await self._compiled(ctx, request_context)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Compile a request at each attempt, for the model that it goes to."""
        return await self._compiled(ctx, request_context)

    async def _compiled(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        # The recorder is outermost, so that the step of this request is open, and the compile is
        # part of it.
        return await in_thread(self._compile, ctx, request_context)

    def _compile(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request to send. Raises ApprovalRequired, ActionDenied, CompileError."""
        bound = self._binder.bound(call_of_run(self._binder, ctx))
        own_text = partial(without_frames, bound)
        prompt = prompt_part(request_context.messages, ctx.run_id, own_text)
        messages = own_messages(
            request_context.messages, own_text=own_text, run_id=ctx.run_id, prompt=prompt
        )
        provider, model = model_facts(request_context.model)
        request = read_request(
            messages,
            request_context.model_request_parameters,
            bound.tally.counter(model).count,
            prompt=prompt,
        )
        # A run that goes on without a prompt answers the latest one of the conversation.
        latest = None if prompt is None else prompt.content
        parts = RequestParts(
            items=request.items,
            tools=request.tools,
            text=prompt_text(ctx.prompt or latest) or "",
            turn=str(ctx.run_id),
            model=model,
            provider=provider,
            window=window_of(request_context.model),
            reserve=(request_context.model_settings or {}).get("max_tokens") or 0,
            untouched=request.untouched,
            task_type=self.task_type,
        )
        compiled = self._compiler.compile(bound, parts)
        added = self._added = added_part(compiled, self._added)
        if not self._compiler.is_whole:
            if added is not None:
                messages = with_part_behind(messages, prompt, added)
            # A list of its own goes to the model alone.
            return replace(request_context, messages=messages)
        rendered = render(compiled, request, added)
        # A prompt without a word is no candidate, and yet no request is without a message.
        messages = rendered.messages or [ModelRequest(parts=[UserPromptPart("")])]
        return replace(
            request_context,
            messages=messages,
            model_request_parameters=rendered.parameters,
        )


def Tallystick(
    tally: Tally | BoundTally,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    agent_name: str | None = None,
    record: bool = True,
    tools: bool = True,
    context: ContextMode | Literal[False] = "request",
    rules: bool = True,
    task_type: str | None = None,
    approval: Approval = "auto",
    working: bool = False,
    budget: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
    memories: int = MEMORIES,
    history_share: int | None = None,
    turn_share: int | None = None,
    compile_config: CompileConfig | None = None,
    compaction: Compaction = "cut",
    strict: bool = False,
    capture: Speakers = "off",
) -> CombinedCapability[Any]:
    """Memory, context and receipts for an agent: `Agent(model, capabilities=[Tallystick(tally)])`.

    `context` compiles each request to `budget` tokens, by default the window of the model, else
    32,000, with the best of `memories` recalled ones in at most `memory_budget`;
    `context="memory"` leaves all but these as it is, and False compiles nothing.
    `compaction="summary"` shortens memories by their summaries. `tools` offers the
    six memory tools; the two that ask a person need `DeferredToolRequests` in the agent's
    `output_type`, and are left out otherwise (`approval`, see `memory_toolset`); with `working` the
    model keeps its task and plan too. `record` makes receipts, and with `strict` a failure to
    record is raised. `capture` remembers the words of the `user`, or those of `both`, when a run
    ends; a typed output is remembered as its JSON text. `rules` enforces the rules of the tally
    over tool and model calls. `task_type` states the kind of task for all rules. Raises
    InvalidInput for an argument of a part that is switched off.
    """
    binder = Binder(tally, runtime="pydantic_ai", piece="Tallystick", actor=actor, scope=scope)
    switches = {"record": record, "tools": tools, "rules": rules}
    for name, switch in switches.items():
        check_flag(name, switch)
    switches["context"] = context is not False
    if not any(switches.values()):
        raise InvalidInput("Tallystick() with every part switched off does nothing. Leave it out.")
    _refuse_unused(
        switches,
        record={"agent_name": agent_name, "strict": strict, "capture": capture != "off"},
        tools={"approval": approval != "auto", "working": working},
        context={
            "budget": budget is not None,
            "memory_budget": memory_budget != MEMORY_BUDGET,
            "memories": memories != MEMORIES,
            "history_share": history_share is not None,
            "turn_share": turn_share is not None,
            "compile_config": compile_config is not None,
            "compaction": compaction != "cut",
        },
        rules={"task_type": task_type},
    )
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
        leaves.append(
            TallyMemory(tally, actor=actor, scope=scope, approval=approval, working=working)
        )
    if context is not False:
        leaves.append(
            TallyContext(
                tally,
                actor=actor,
                scope=scope,
                context=context,
                budget=budget,
                memory_budget=memory_budget,
                memories=memories,
                history_share=history_share,
                turn_share=turn_share,
                compile_config=compile_config,
                compaction=compaction,
                task_type=task_type,
            )
        )
    if rules:
        leaves.append(TallyPolicy(tally, actor=actor, scope=scope, task_type=task_type))
    off = {name: False for name, switch in switches.items() if not switch}
    return _Leaves(
        leaves,
        description_of_parts=binder.describe(
            **off, agent_name=agent_name, capture=None if capture == "off" else capture
        ),
    )


def _refuse_unused(switches: Mapping[str, bool], **arguments: Mapping[str, Any]) -> None:
    """Raise InvalidInput for an argument of a part that is switched off."""
    for part, values in arguments.items():
        unused = [name for name, is_given in values.items() if is_given]
        if unused and not switches[part]:
            raise InvalidInput(
                f"`{unused[0]}` does nothing with {part}=False. Leave one of the two out."
            )


@dataclass(repr=False)
class _Leaves(CombinedCapability[Any]):
    """The leaves as one capability, which must not be loaded late."""

    description_of_parts: str = "Tallystick()"
    """The line that made it, for `repr`."""

    def __repr__(self) -> str:
        return self.description_of_parts

    def __post_init__(self) -> None:
        refuse_deferred(self, _LATE)
        super().__post_init__()


@dataclass
class _Stream:
    """The streams of one request: an answer may come in several, each going on after the last."""

    partial: Callable[[], ModelResponse] | None = None
    """Return the answer of the stream under way so far."""
    error: BaseException | None = None
    """The error that broke it, or None."""


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

    if started is not None:
        # A model that falls back has waited for the first event already.
        setattr(response, _STARTED, timed_events(started))
    elif events is not None:
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
        async with self.wrapped.request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            call = self._recorder.request
            if call is not None:
                state = self._recorder.stream = self._recorder.stream or _Stream()
                with self._recorder.guard(call.step.run):
                    _watch(stream, state, call.times)
            yield stream

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


def _earlier_goal(ctx: RunContext[Any]) -> str | None:
    """Return the latest prompt of the conversation, for a run that goes on without one."""
    part = prompt_part(ctx.messages, None, lambda text: text)
    return None if part is None else prompt_text(part.content)


def _identity(ctx: RunContext[Any]) -> dict[str, Any]:
    return {"pydantic_ai_run_id": ctx.run_id, "run_step": ctx.run_step}
