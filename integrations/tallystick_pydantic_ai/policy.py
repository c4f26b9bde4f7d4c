"""TallyPolicy: rules over tool calls and model calls, at PydanticAI's own hooks.

A tool call is checked with the arguments that the tool gets, after every other capability; a model
request as the last hook leaves it, at each attempt. A call that waits for a person is deferred as
any of PydanticAI's is, and the answer that a run brings along counts for exactly what was asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel
from pydantic_ai import CallToolsNode, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, WrapRunHandler
from pydantic_ai.exceptions import (
    ApprovalRequired,
    ModelRetry,
    SkipToolExecution,
    ToolFailed,
    UserError,
)
from pydantic_ai.messages import ToolCallPart, ToolReturn
from pydantic_ai.models import AbstractModel, Model, ModelRequestContext
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from tallystick import errors
from tallystick.aio import in_thread
from tallystick.errors import ActionDenied, InvalidInput
from tallystick.kit import (
    ActorSource,
    Binder,
    CallKind,
    SchemaReader,
    ToolCall,
    claim_enforcement,
    decide_as_person,
    has_rules,
    is_denial,
    is_enforced,
    judge_tool_call,
    plain_arguments,
    register_enforcer,
    release_enforcement,
    rules_requests,
)
from tallystick.kit.rendering import without_frames
from tallystick.records import Scope, json_bytes
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick_pydantic_ai.actors import call_of_run
from tallystick_pydantic_ai.messages import clean_value, comparable, request_of
from tallystick_pydantic_ai.render import read_request

if TYPE_CHECKING:
    from pydantic_ai.output import OutputContext

_KINDS: tuple[CallKind, ...] = ("tool_call", "model_call")
_DEFERRED = ("unapproved", "external")
"""Kinds of tools whose calls PydanticAI defers without running anything."""
EVERY_ATTEMPT = hasattr(AbstractCapability, "prepare_model_request")
"""True where PydanticAI has a hook for each attempt at a request; early releases make only one."""

_READS_NOTHING = ("any", "dict[str,any]")
"""Titles of the validators of tools that have a JSON Schema alone."""

_RunTool = Callable[[str, dict[str, Any], RunContext[Any], ToolsetTool[Any]], Awaitable[Any]]


class _Passed(NamedTuple):
    """A check that used up a grant before PydanticAI runs the tool."""

    arguments: Any
    check: AllowedToolCall


@dataclass
class ToolRules:
    """The rules over tool calls, for one piece that runs tools."""

    binder: Binder
    piece: str
    task_type: str | None = None
    passed: dict[str, _Passed] = field(default_factory=dict)
    """Checks of calls that PydanticAI defers by itself, by the id of the call."""
    waiting: list[str] = field(default_factory=list)
    """Ids of the approvals that this run waits for."""

    async def call(
        self,
        name: str,
        arguments: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
        run: _RunTool,
    ) -> Any:
        """Run a tool, once the rules let it, with the arguments that they leave.

        A denial becomes the result that the model reads; what waits is deferred. Raises
        ActionDenied where a receipt or an enforcer is missing, TokenRefused, Denied, InvalidInput.
        """
        tally, key = self.binder.tally, f"{ctx.run_id}:{ctx.tool_call_id}:{name}"
        if not has_rules(tally, "tool_call") or is_enforced(tally, "tool_call", name, key):
            return await run(name, arguments, ctx, tool)
        call = ToolCall(name, arguments, ctx.tool_call_id)
        claim_enforcement(tally, "tool_call", key)
        try:
            try:
                check = await self.check(ctx, call)
            except ActionDenied as error:
                if not is_denial(error):
                    raise
                raise SkipToolExecution(ToolDenied(str(error))) from error
            except errors.ApprovalRequired as error:
                raise self.deferral(error, call) from error
            result = await run(name, check.arguments, ctx, tool)
            return _clean_result(check, result)
        finally:
            release_enforcement(tally, "tool_call", key)

    async def check(self, ctx: RunContext[Any], call: ToolCall) -> AllowedToolCall:
        """Check a call; the answer that the run brings along for it decides what was asked before.

        Changed arguments were never asked for, so that an answer does not count for them.
        """
        passed = self.passed.pop(call.tool_call_id or "", None)
        if passed is not None and passed.arguments == plain_arguments(call.arguments):
            return passed.check
        bound = self.binder.bound(call_of_run(self.binder, ctx))
        metadata = ctx.tool_call_metadata
        token = metadata.get("approval_token") if isinstance(metadata, Mapping) else None
        provider, model = model_facts(ctx.model)

        def check() -> AllowedToolCall:
            return bound.check_tool_call(
                call.name,
                call.arguments,
                tool_call_id=call.tool_call_id,
                piece=self.piece,
                approval_token=token,
                provider=provider,
                model=model,
                task_type=self.task_type,
            )

        try:
            return await in_thread(check)
        except errors.ApprovalRequired as error:
            if not ctx.tool_call_approved or error.new:
                raise
            approvals = error.approvals
        reason = "Approved in the deferred tool results."
        await in_thread(partial(decide_as_person, bound, approvals, approved=True, reason=reason))
        return await in_thread(check)

    async def deny(self, ctx: RunContext[Any], call: ToolCall, message: str) -> None:
        """Deny what a call waits for, as the person who did not approve it."""
        try:
            await self.check(ctx, call)
        except errors.ApprovalRequired as error:
            bound = self.binder.bound(call_of_run(self.binder, ctx))
            decide = partial(decide_as_person, bound, error.approvals, approved=False)
            await in_thread(partial(decide, reason=message or "Not approved."))
        except ActionDenied:
            # It was denied before, which the journal has.
            return

    def deferral(self, error: errors.ApprovalRequired, call: ToolCall) -> ApprovalRequired:
        """Return the exception by which PydanticAI defers a call, with the approval it waits for.

        The digest is of the exact arguments, as canonical JSON: SHA-256.
        """
        [approval] = error.approvals
        self.waiting.append(approval.id)
        return ApprovalRequired(
            metadata={
                "approval": approval.id,
                "action": approval.action,
                "rule": approval.rule_id,
                "reason": approval.reason,
                "arguments_digest": hashlib.sha256(
                    json_bytes(plain_arguments(call.arguments))
                ).hexdigest(),
            }
        )


class OncePerAgent(AbstractCapability[Any]):
    """Base of our capabilities, of which an agent has each once."""

    _binder: Binder

    def __repr__(self) -> str:
        return self._binder.describe()

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[Any]]) -> AbstractCapability[Any]:
        """Return the one of several that say the same. Raises InvalidInput if they differ: nobody
        could tell which one counts.
        """
        first, *others = capabilities
        for other in others:
            for each in fields(cls):
                if each.compare and getattr(first, each.name) != getattr(other, each.name):
                    raise InvalidInput(
                        f"The agent has {cls.__name__} {len(capabilities)} times, and their "
                        f"`{each.name}` differs. Give one Tallystick(…) to the agent; one that is "
                        f"given to a run replaces it."
                    )
        return first


@dataclass(repr=False)
class TallyPolicy(OncePerAgent):
    """Enforces the rules of the tally over tool calls and model requests. The innermost capability.

    A denied tool call is a result with the outcome `denied`, which the model reads; a denied
    request raises ActionDenied. A tool call that waits ends the run with `DeferredToolRequests`; a
    request that waits raises ApprovalRequired, and passes with the same history once granted.
    """

    tally: Tally | BoundTally
    _: KW_ONLY
    actor: ActorSource | None = None
    """Who acts, by default what the run names (docs/who-acts.md)."""
    scope: str | Scope | None = None
    """Scope of the approvals; by default the actor's private one."""
    task_type: str | None = None
    """Kind of task, as rules know it. What is not stated counts against a call."""
    id: str | None = "tallystick_policy"

    def __post_init__(self) -> None:
        self._binder = Binder(
            self.tally,
            runtime="pydantic_ai",
            piece="TallyPolicy",
            actor=self.actor,
            scope=self.scope,
        )
        refuse_deferred(self, "A policy that is loaded late enforces nothing")
        self._rules = ToolRules(self._binder, "TallyPolicy", self.task_type)
        self.tools: Mapping[str, ToolsetTool[Any]] = {}

    def get_ordering(self) -> CapabilityOrdering:
        """Return the innermost place, so that rules see what tools and models really get."""
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: RunContext[Any]) -> TallyPolicy:
        """Return a copy for one run, in which nothing waits yet. Raises InvalidInput."""
        return replace(self)

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Return the tools, which are checked before they run."""
        return _RuledToolset(toolset, self)

    async def wrap_run(
        self, ctx: RunContext[Any], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        """Have the calls of a run in hand, so that an observer lets them through."""
        tally, run_id = self._binder.tally, str(ctx.run_id)
        for kind in _KINDS:
            if has_rules(tally, kind):
                await in_thread(register_enforcer, tally, kind, "TallyPolicy")
            claim_enforcement(tally, kind, run_id)
        try:
            return await handler()
        except UserError as error:
            if self._rules.waiting and "DeferredToolRequests" in str(error):
                ids = ", ".join(self._rules.waiting)
                error.add_note(
                    f"A rule of the tally asks a person (approval {ids}). Add "
                    f"`DeferredToolRequests` to the agent's output_type to be asked in the run, or "
                    f"grant it by bound.approvals.approve or `tally approve`, and run again."
                )
            raise
        finally:
            for kind in _KINDS:
                release_enforcement(tally, kind, run_id)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
        run: _RunTool,
    ) -> Any:
        """Run a tool, once the rules let it."""
        return await self._rules.call(name, arguments, ctx, tool, run)

    async def after_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
    ) -> dict[str, Any]:
        """Check a call that PydanticAI defers by itself, before it does: a person is asked once,
        and a tool that runs elsewhere is checked at all.
        """
        if (
            tool_def.kind not in _DEFERRED
            or ctx.tool_call_approved
            or ctx.partial_output
            or not has_rules(self._binder.tally, "tool_call")
        ):
            return args
        tool_call = ToolCall(call.tool_name, args, call.tool_call_id)
        try:
            check = await self._rules.check(ctx, tool_call)
        except ActionDenied as error:
            if not is_denial(error):
                raise
            raise ToolFailed(str(error)) from error
        except errors.ApprovalRequired as error:
            if tool_def.kind == "external":
                # PydanticAI can defer it once only: the application grants it and runs again.
                raise
            raise self._rules.deferral(error, tool_call) from error
        if check.redacts and tool_def.kind == "external":
            raise ActionDenied(
                "tool_call",
                call.tool_name,
                rule_id=check.rule_id or "",
                reason="not_enforced",
                why="the tool runs elsewhere, with the arguments as the model gave them, which "
                "nothing here can redact",
            )
        if check.approval is not None:
            self._rules.passed[call.tool_call_id] = _Passed(plain_arguments(args), check)
        return args

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Approve the calls whose exact arguments a person has granted already."""
        granted = {
            call.tool_call_id: ToolApproved()
            for call in requests.approvals
            if call.tool_call_id in self._rules.passed
        }
        return DeferredToolResults(approvals=dict(granted)) if granted else None

    async def wrap_output_process(
        self,
        ctx: RunContext[Any],
        *,
        output_context: OutputContext,
        output: Any,
        handler: Callable[[Any], Awaitable[Any]],
    ) -> Any:
        """Check a function of the output before it runs: what it does is done as by a tool.

        The model reads a denial, and may answer otherwise. Nobody can be asked in the run: a call
        that waits raises ApprovalRequired, and passes once granted.
        """
        if not output_context.has_function or not has_rules(self._binder.tally, "tool_call"):
            return await handler(output)
        bound = self._binder.bound(call_of_run(self._binder, ctx))
        call = await in_thread(output_call, bound, output_context, output)
        if ctx.partial_output:
            # It would run before its arguments are whole, and so before they are checked.
            if await in_thread(judge_tool_call, bound, call.name, call.arguments):
                raise ModelRetry("A rule is about this call, whose arguments are not whole yet.")
            return await handler(output)
        try:
            check = await self._rules.check(ctx, call)
        except ActionDenied as error:
            if not is_denial(error):
                raise
            raise ModelRetry(str(error)) from error
        return await handler(_cleaned_output(check, output) if check.redacts else output)

    async def after_node_run(self, ctx: RunContext[Any], *, node: Any, result: Any) -> Any:
        """Record the denials that a run brought along: their tools are never called."""
        results = node.tool_call_results if isinstance(node, CallToolsNode) else None
        if results and has_rules(self._binder.tally, "tool_call", "require_approval"):
            for call in node.model_response.tool_calls:
                answer = results.get(call.tool_call_id)
                tool = self.tools.get(call.tool_name)
                if isinstance(answer, ToolDenied) and tool is not None:
                    denied = ToolCall(
                        call.tool_name, _validate_arguments(tool, call), call.tool_call_id
                    )
                    await self._rules.deny(ctx, denied, answer.message)
        return result

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Check a request, where there is one attempt at each."""
        return request_context if EVERY_ATTEMPT else await self._check(ctx, request_context)

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Check a request at each attempt, with the model that it goes to."""
        return await self._check(ctx, request_context)

    async def _check(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request as the model may read it; the history stays as it is."""
        if not rules_requests(self._binder.tally):
            return request_context
        bound = self._binder.bound(call_of_run(self._binder, ctx))
        provider, model = model_facts(request_context.model)
        messages = request_context.messages
        parameters = request_context.model_request_parameters
        request = request_of(
            request_context.model, messages, request_context.model_settings, parameters
        )
        check = await in_thread(
            lambda: bound.check_model_call(
                piece="TallyPolicy",
                provider=provider,
                model=model,
                request=comparable(request),
                task_type=self.task_type,
                **read_request(messages, parameters).for_rules(partial(without_frames, bound)),
            )
        )
        if not check.redacts:
            return request_context
        instructions = clean_value(parameters.instruction_parts, check.clean)
        return replace(
            request_context,
            messages=clean_value(list(messages), check.clean),
            model_request_parameters=replace(parameters, instruction_parts=instructions),
        )


@dataclass
class _RuledToolset(WrapperToolset[Any]):
    """The tools of a run, which the policy checks."""

    policy: TallyPolicy

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools of a step."""
        tools = await super().get_tools(ctx)
        if has_rules(self.policy.tally, "tool_call"):
            tools = {name: _read_by_schema(tool) for name, tool in tools.items()}
        self.policy.tools = tools
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a tool, once the rules let it."""
        return await self.policy.call_tool(name, tool_args, ctx, tool, self.wrapped.call_tool)


@dataclass(repr=False, kw_only=True)
class CheckedToolDefinition(ToolDefinition):
    """The definition of a tool that checks the rules by itself, whatever capabilities there are."""

    @classmethod
    def of(cls, tool: ToolDefinition) -> CheckedToolDefinition:
        """Return the definition as one of this class."""
        return cls(**{each.name: getattr(tool, each.name) for each in fields(tool) if each.init})


def refuse_deferred(capability: AbstractCapability[Any], harm: str) -> None:
    """Raise InvalidInput for a capability that is to be loaded late."""
    if capability.defer_loading:
        raise InvalidInput(f"{harm} until the model asks for it. Leave out `defer_loading`.")


def model_facts(model: AbstractModel) -> tuple[str | None, str | None]:
    """Return the provider and the name of a model; neither of one that may turn to another."""
    inner = _one_model(model)
    return (None, None) if inner is None else (inner.system, inner.model_name)


def window_of(model: AbstractModel) -> int | None:
    """Return the most tokens that a model reads, where its profile says so."""
    inner = _one_model(model)
    tokens = None if inner is None else inner.profile.get("context_window")
    return tokens if isinstance(tokens, int) and tokens > 0 else None


def _one_model(model: AbstractModel) -> Model | None:
    """Return the model inside of its wrappers; None for one that may turn to another."""
    inner: Any = model
    while isinstance(inner, WrapperModel):
        inner = inner.wrapped
    return None if isinstance(inner, FallbackModel) or not isinstance(inner, Model) else inner


def _read_by_schema(tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
    """Return a tool with a JSON Schema alone as one whose arguments are read by it."""
    validator: Any = tool.args_validator
    if getattr(validator, "title", None) not in _READS_NOTHING or not validator.isinstance_python(
        {"\0": object()}
    ):
        return tool
    return replace(tool, args_validator=SchemaReader(tool.tool_def.parameters_json_schema))


def _validate_arguments(tool: ToolsetTool[Any], call: ToolCallPart) -> Any:
    """Return the arguments of a call as the tool would have got them."""
    validate = tool.args_validator
    try:
        if isinstance(call.args, str):
            return validate.validate_json(call.args or "{}")
        return validate.validate_python(call.args or {})
    except ValueError:
        return call.args


def output_call(bound: BoundTally, context: OutputContext, output: Any) -> ToolCall:
    """Return a function of the output as the call that rules see: by the name that a rule names, of
    the tool that the model calls or its own, with its arguments by their names.
    """
    tool = context.tool_call
    known = (None if tool is None else tool.tool_name, context.function_name)
    names = [name for name in known if name] or ["output"]
    arguments = _output_arguments(context, output)
    ruled = (name for name in names if judge_tool_call(bound, name, arguments))
    return ToolCall(next(ruled, names[0]), arguments, None if tool is None else tool.tool_call_id)


def _output_arguments(context: OutputContext, output: Any) -> Any:
    if isinstance(output, BaseModel):
        return output.model_dump(mode="json")
    if isinstance(output, dict):
        return plain_arguments(output)
    schema = {} if context.object_def is None else context.object_def.json_schema
    names = list(schema.get("properties", ()))
    return {names[0] if len(names) == 1 else "output": plain_arguments(output)}


def _cleaned_output(check: AllowedToolCall, value: Any) -> Any:
    """Return what a function of the output gets under a rule that redacts."""
    arguments = dict(check.arguments)
    if isinstance(value, BaseModel):
        return type(value).model_validate(arguments)
    return arguments if isinstance(value, dict) else next(iter(arguments.values()))


def _clean_result(check: AllowedToolCall, result: Any) -> Any:
    """Return the result as the model may read it; pictures and files stay as they are."""
    if not check.redacts:
        return result
    if isinstance(result, ToolReturn):
        return replace(
            result,
            return_value=clean_value(result.return_value, check.result),
            content=clean_value(result.content, check.result),
        )
    return clean_value(result, check.result)
