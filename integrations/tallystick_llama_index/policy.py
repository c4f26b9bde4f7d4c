"""Rules over tool calls for LlamaIndex: tools that check before they run.

LlamaIndex has no hook that may stop a tool: the exceptions of its handlers are swallowed. So the
tool itself is the hook: `ruled_tools` returns them, to be given to an agent in place of the
original ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from llama_index.core.llms.llm import LLM
from llama_index.core.tools import (
    AsyncBaseTool,
    BaseTool,
    FunctionTool,
    ToolMetadata,
    ToolOutput,
)
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent
from pydantic import AliasChoices
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from tallystick.aio import in_thread
from tallystick.errors import ActionDenied, ApprovalRequired, InvalidInput
from tallystick.kit import (
    ActorSource,
    Binder,
    SchemaReader,
    ToolCall,
    check_model,
    check_word,
    decide_as_person,
    describe_value,
    has_rules,
    is_denial,
    register_enforcer,
    with_optional,
)
from tallystick.records import Approval, CallContext, Scope
from tallystick.tally import AllowedToolCall, BoundTally, Tally
from tallystick.tally.enforcement import copied_arguments
from tallystick_llama_index.actors import call_of_tags, call_of_workflow
from tallystick_llama_index.messages import description_of, model_of

ApprovalRoute = Literal["event", "elsewhere"]
"""Where a person is asked: by the events of the workflow, or by the application."""

_YES = frozenset({"yes", "y", "approve", "approved", "true", "ok"})
RULED = "tallystick_ruled"
"""Attribute of the tools and models that check the rules: the tally of these rules."""
_CONTEXT = "tallystick_context"
"""Name under which an agent passes the context of its workflow to a tool that wants none."""

_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
"""Parameters that take any number of arguments."""
_POSITIONAL = "args"
"""The name under which rules see arguments that have none."""


def ruled_tools(
    tally: Tally | BoundTally,
    tools: Sequence[Any],
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: ApprovalRoute = "event",
    llm: LLM | None = None,
    provider: str | None = None,
    task_type: str | None = None,
) -> list[FunctionTool]:
    """Tools that go by the rules of the tally: `FunctionAgent(tools=ruled_tools(tally, tools))`.

    Functions become tools as agents make them. A denied call is an output with `is_error`. One that
    waits for a person puts an `InputRequiredEvent` into the stream and waits for the
    `HumanResponseEvent` of the same `waiter_id`, which is the id of the approval; outside of a
    workflow, and with `approval="elsewhere"`, it raises ApprovalRequired. `llm`, `provider` and
    `task_type` state facts of the calls: what is not stated counts against them.
    """
    binder = Binder(
        tally,
        runtime="llama_index",
        piece="ruled_tools",
        actor=actor,
        scope=scope,
        usage="ruled_tools({}, tools)",
    )
    check_word("approval", approval, ApprovalRoute)
    if llm is not None:
        check_model(llm, LLM, "ruled_tools(tally, tools, llm=OpenAI(…))")
    if not isinstance(tools, Iterable) or isinstance(tools, str | Mapping):
        raise InvalidInput(
            f"`tools` is {describe_value(tools)} where a list is meant: ruled_tools(tally, [tool])."
        )
    tools = list(tools)
    for tool in tools:
        if not isinstance(tool, BaseTool) and not callable(tool):
            raise InvalidInput(f"`tools` holds {describe_value(tool)}, which is no tool.")
    model = None if llm is None else model_of(description_of(llm))
    rules = ToolRules(
        binder, "ruled_tools", approval, provider=provider, model=model, task_type=task_type
    )
    base_tools = [
        tool if isinstance(tool, BaseTool) else FunctionTool.from_defaults(tool) for tool in tools
    ]
    return [
        tool
        if isinstance(tool, FunctionTool) and is_ruled(tool, binder.tally)
        else _RuledTool(rules, tool)
        for tool in base_tools
    ]


def is_ruled(piece: Any, tally: Tally) -> bool:
    """Return True for a tool or model that checks the rules of this tally."""
    return getattr(piece, RULED, None) is tally


def is_approval(response: Any) -> bool:
    """Return True if the answer of a person says yes."""
    return response is True or str(response).strip().lower() in _YES


class ToolRules:
    """The rules over tool calls, for one piece that runs tools."""

    def __init__(
        self,
        binder: Binder,
        piece: str,
        approval: ApprovalRoute,
        *,
        provider: str | None = None,
        model: str | None = None,
        task_type: str | None = None,
    ) -> None:
        self._binder, self._piece, self._approval = binder, piece, approval
        self._facts: dict[str, Any] = {"provider": provider, "model": model, "task_type": task_type}
        register_enforcer(binder.tally, "tool_call", piece)

    @property
    def tally(self) -> Tally:
        """The tally of the rules."""
        return self._binder.tally

    @property
    def is_empty(self) -> bool:
        """True if there are no rules over tool calls."""
        return not has_rules(self.tally, "tool_call")

    def check_now(self, call: ToolCall) -> AllowedToolCall:
        """Check a call outside of a workflow. Raises ActionDenied, ApprovalRequired."""
        return self._check(self._bound(call_of_tags(self._binder)), call)

    async def check(self, ctx: Context | None, call: ToolCall) -> AllowedToolCall:
        """Check a call, and ask a person by the events of the workflow where a rule wants it.

        To wait is to be called again: the same approval is asked for, and its answer found.
        """
        bound = self._bound(await call_of_workflow(self._binder, ctx))
        try:
            return await in_thread(self._check, bound, call)
        except ApprovalRequired as error:
            if ctx is None or self._approval != "event":
                raise
            [approval] = error.approvals
        response = await _answer(ctx, call, approval)
        await in_thread(_decide, bound, approval, response)
        return await self.check(ctx, call)

    def _bound(self, call: CallContext) -> BoundTally:
        return self._binder.bound(call)

    def _check(self, bound: BoundTally, call: ToolCall) -> AllowedToolCall:
        return bound.check_tool_call(
            call.name,
            call.arguments,
            tool_call_id=call.tool_call_id,
            piece=self._piece,
            **self._facts,
        )


async def _answer(ctx: Context, call: ToolCall, approval: Any) -> Any:
    """Return the answer of the person, by the events of the workflow."""
    fields: dict[str, Any] = {
        "prefix": f"{call.name}: {approval.reason}",
        "waiter_id": approval.id,
        "tool": call.name,
        "arguments": call.arguments,
        "approval": approval.id,
        "rule": approval.rule_id,
    }
    event = await ctx.wait_for_event(
        HumanResponseEvent,
        waiter_id=approval.id,
        waiter_event=InputRequiredEvent(**fields),
        requirements={"waiter_id": approval.id},
        timeout=None,
    )
    return event.get("response")


def _decide(bound: BoundTally, approval: Approval, response: Any) -> None:
    approved = is_approval(response)
    reason = "Approved in the workflow." if approved else str(response).strip() or "Not approved."
    decide_as_person(bound, [approval], approved=approved, reason=reason)


class _RuledTool(FunctionTool):
    """A tool that is checked before it runs. A function, because to those an agent passes the
    context of its workflow.
    """

    def __init__(self, rules: ToolRules, like: BaseTool) -> None:
        def run(**arguments: Any) -> None:
            """Accept whatever arguments the model gives."""

        super().__init__(fn=run, metadata=like.metadata)
        self._rules, self._like = rules, like
        self._inner_context = getattr(like, "ctx_param_name", None)
        self.requires_context = True
        self.ctx_param_name = self._inner_context or _CONTEXT
        setattr(self, RULED, rules.tally)

    def call(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Call the tool, once the rules let it, with the arguments that its schema reads.

        Raises ApprovalRequired where a person is asked, and the ValidationError of the schema.
        """
        name, ctx = self.metadata.get_name(), kwargs.pop(self.ctx_param_name or "", None)
        if self._rules.is_empty:
            return self._run(*args, **kwargs, **self._context(ctx))
        read = _ReadArguments(self._like, args, kwargs)
        try:
            check = self._rules.check_now(ToolCall(name, read.values))
        except ActionDenied as error:
            return denied_output(name, args, kwargs, error)
        positional, named = read.allowed_arguments(check)
        return _clean_output(check, self._run(*positional, **named, **self._context(ctx)))

    async def acall(self, *args: Any, **kwargs: Any) -> ToolOutput:
        """Same as `call`; asks the person by the events of the workflow."""
        name, ctx = self.metadata.get_name(), kwargs.pop(self.ctx_param_name or "", None)
        if self._rules.is_empty:
            return await self._arun(*args, **kwargs, **self._context(ctx))
        read = _ReadArguments(self._like, args, kwargs)
        try:
            check = await self._rules.check(ctx, ToolCall(name, read.values))
        except ActionDenied as error:
            return denied_output(name, args, kwargs, error)
        positional, named = read.allowed_arguments(check)
        output = await self._arun(*positional, **named, **self._context(ctx))
        return _clean_output(check, output)

    def _context(self, ctx: Context | None) -> dict[str, Any]:
        """Return the context as the tool itself takes it."""
        return {} if ctx is None or self._inner_context is None else {self._inner_context: ctx}

    def _run(self, *args: Any, **kwargs: Any) -> ToolOutput:
        if isinstance(self._like, AsyncBaseTool):
            return self._like.call(*args, **kwargs)
        return self._like(*args, **kwargs)

    async def _arun(self, *args: Any, **kwargs: Any) -> ToolOutput:
        if isinstance(self._like, AsyncBaseTool):
            return await self._like.acall(*args, **kwargs)
        return await in_thread(lambda: self._like(*args, **kwargs))


def denied_output(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], error: ActionDenied
) -> ToolOutput:
    """Return the output by which the model reads that a call was denied. Raises the error itself
    where the application is to mend it.
    """
    if not is_denial(error):
        raise error
    # Early releases have no field for the exception.
    accepted = inspect.signature(ToolOutput.__init__).parameters
    fields: dict[str, Any] = {"exception": error} if "exception" in accepted else {}
    return ToolOutput(
        content=str(error),
        tool_name=name,
        raw_input={"args": list(args), "kwargs": dict(kwargs)},
        raw_output=str(error),
        is_error=True,
        **fields,
    )


class _ReadArguments:
    """The arguments of a call as the tool gets them: by name, in the types of its schema, and with
    its defaults. Those that are bound to the tool count as far as they have a JSON form.
    """

    def __init__(self, tool: BaseTool, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raises ValidationError for what the schema of the tool refuses."""
        self._bound: dict[str, Any] = {}
        self._positional, named = list(args), dict(kwargs)
        defaults: dict[str, Any] = {}
        parameters: Mapping[str, inspect.Parameter] = {}
        variable: dict[str, Any] = {}
        takes_any = True
        if isinstance(tool, FunctionTool):
            signature = inspect.signature(tool.real_fn)
            by_name = _by_name(signature, args)
            if by_name is not None:
                self._positional, named = [], {**by_name, **kwargs}
            parameters = signature.parameters
            defaults = {
                name: default
                for name, parameter in parameters.items()
                if name != tool.ctx_param_name and _is_plain(default := _default(parameter))
            }
            self._bound = {
                name: value
                for name, value in tool.partial_params.items()
                if name not in named and _is_plain(value)
            }
            variable = {name: each.kind for name, each in parameters.items() if each.kind in _ANY}
            takes_any = inspect.Parameter.VAR_KEYWORD in variable.values()
        written, of_schema = _convert_arguments(tool, named, frozenset(variable))
        of_schema = {
            name: value for name, value in of_schema.items() if takes_any or name in parameters
        }
        positional = {_POSITIONAL: self._positional} if self._positional else {}
        self.values = {**of_schema, **defaults, **self._bound, **written, **positional}

    def allowed_arguments(self, check: AllowedToolCall) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a check, by place and by name. What is bound to the tool stays
        with it, unless a rule redacts.
        """
        named = dict(check.arguments)
        positional = list(named.pop(_POSITIONAL)) if self._positional else []
        if not check.redacts:
            named = {name: value for name, value in named.items() if name not in self._bound}
        return positional, named


def _by_name(signature: inspect.Signature, args: tuple[Any, ...]) -> dict[str, Any] | None:
    """Return arguments without a name by their names; None for a function that takes any number."""
    try:
        values = signature.bind_partial(*args).arguments
    except TypeError:
        return None
    kinds = {signature.parameters[name].kind for name in values}
    return None if inspect.Parameter.VAR_POSITIONAL in kinds else dict(values)


def _convert_arguments(
    tool: BaseTool, given: Mapping[str, Any], variable: frozenset[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return arguments as the schema of the tool reads them, with those that it does not know, and
    its defaults for what is missing. Raises ValidationError.
    """
    metadata = tool.metadata
    if type(metadata).get_parameters_dict is not ToolMetadata.get_parameters_dict:
        return SchemaReader(metadata.get_parameters_dict()).validate_python(dict(given)), {}
    schema = metadata.fn_schema
    if schema is None:
        return dict(given), {}
    # Early releases count `*args` and `**kwargs` among the fields, and want them.
    schema = with_optional(schema, variable) if variable else schema
    record = schema.model_validate(copied_arguments(given))
    known = {alias for name, each in schema.model_fields.items() for alias in _names(name, each)}
    unknown = {name: value for name, value in given.items() if name not in known}
    values = {name: getattr(record, name) for name in schema.model_fields if name not in variable}
    written = {name: values[name] for name in values if name in record.model_fields_set}
    return {**unknown, **written}, values


def _names(name: str, field: FieldInfo) -> list[str]:
    other = field.validation_alias
    names = [name, field.alias, *(other.choices if isinstance(other, AliasChoices) else [other])]
    return [each for each in names if isinstance(each, str)]


def _default(parameter: inspect.Parameter) -> Any:
    """Return the default of a parameter; empty if it has none that rules could see."""
    default = parameter.default
    if isinstance(default, FieldInfo):
        if default.is_required():
            return inspect.Parameter.empty
        default = default.get_default(call_default_factory=True)
    return default if _is_plain(default) else inspect.Parameter.empty


def _is_plain(value: Any) -> bool:
    if value is inspect.Parameter.empty:
        return False
    try:
        to_jsonable_python(value)
    except (PydanticSerializationError, ValueError):
        return False
    return True


def _clean_output(check: AllowedToolCall, output: ToolOutput) -> ToolOutput:
    """Return the output as the model may read it; pictures and sound stay as they are."""
    if not check.redacts:
        return output
    clean = output.model_copy(deep=False)
    clean.blocks = [
        block.model_copy(update={"text": check.result(block.text)})  # type: ignore[union-attr]
        if isinstance(getattr(block, "text", None), str)
        else block
        for block in output.blocks
    ]
    clean.raw_output = check.result(output.raw_output)
    clean.raw_input = check.result(output.raw_input)
    return clean
