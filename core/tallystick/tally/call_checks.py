"""Checks of calls: of a tool before it runs, and of a model before the request is sent.

Each is a function of a view, and a method of `BoundTally`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import SkipValidation

from tallystick.loading import late_names
from tallystick.records import ContextItem, JsonObject, ToolSpec
from tallystick.tally.call_rules import CallFacts
from tallystick.tally.memory_view import MemoryView

if TYPE_CHECKING:
    from tallystick.tally.enforcement import AllowedModelCall, AllowedToolCall
else:
    __getattr__ = late_names(
        "tallystick", {"tally.enforcement": "AllowedModelCall AllowedToolCall"}
    )

Fact = Annotated[str | None, SkipValidation]
"""A fact that a runtime states of a call, as it states it: what is no text never fits a rule that
allows.
"""

InputSchema = Annotated[JsonObject | None, SkipValidation]

_DIRECT = "direct call"
"""The piece that enforces where an application checks a call itself."""


def check_tool_call(
    view: MemoryView,
    name: str,
    arguments: Any = None,
    *,
    input_schema: InputSchema = None,
    tool_class: Fact = None,
    tool_call_id: Fact = None,
    approval_token: str | None = None,
    provider: Fact = None,
    model: Fact = None,
    task_type: Fact = None,
    environment: Fact = None,
    sensitivity: Fact = None,
    piece: str = _DIRECT,
) -> AllowedToolCall:
    """Check a tool call against the rules of the tally, before the tool runs.

    Run the tool with the `arguments` of the answer, a copy that nobody changes, and give its
    result to `result`, which a rule may have cleaned. Inside a run the check is recorded.
    `input_schema` is the tool's JSON Schema, by which `arguments` as a model wrote them are
    read first: validated strictly, with its defaults. Raises ActionDenied, ApprovalRequired,
    TokenRefused, Denied, or InvalidInput for arguments that the schema refuses, or that have
    no JSON form where a rule needs one.
    """
    from tallystick.tally.enforcement import AllowedToolCall, check_call, copied_arguments

    if input_schema is not None:
        from tallystick.policy.tool_schemas import read_by_schema

        arguments = read_by_schema(input_schema, arguments)
    if not view._services.call_rules.of("tool_call"):
        return AllowedToolCall(checked=arguments)
    facts = CallFacts(
        "tool_call",
        name,
        copied_arguments(arguments),
        tool_class=tool_class,
        call_id=tool_call_id,
        provider=provider,
        model=model,
        task_type=task_type,
        environment=environment,
        sensitivity=sensitivity,
    )
    return check_call(view, AllowedToolCall, facts, piece, approval_token)


def check_model_call(
    view: MemoryView,
    *,
    provider: Fact = None,
    model: Fact = None,
    request: Any = None,
    call_id: Fact = None,
    approval_token: str | None = None,
    task_type: Fact = None,
    environment: Fact = None,
    sensitivity: Fact = None,
    piece: str = _DIRECT,
    items: Annotated[Iterable[ContextItem], SkipValidation] = (),
    tools: Annotated[Iterable[ToolSpec], SkipValidation] = (),
) -> AllowedModelCall:
    """Check a model call against the rules of the tally, before the request is sent.

    `items` and `tools` are the parts of a request that nothing has compiled: it is refused
    (`not_enforced`) where a rule over context items would keep one of them from the model.

    An approval is bound to the exact `request`. Send the `request` of the answer, a copy that
    nobody changes, cleaned where a rule wants that; where you give none, give each text to
    `clean`. Inside a run the check is recorded. Raises ActionDenied, ApprovalRequired,
    TokenRefused, Denied, InvalidInput.
    """
    from tallystick.tally.enforcement import (
        AllowedModelCall,
        check_call,
        copied_arguments,
        refuse_withheld,
    )

    refuse_withheld(
        view,
        items,
        tools,
        provider=provider,
        model=model,
        task_type=task_type,
        environment=environment,
    )
    if not view._services.call_rules.of("model_call"):
        return AllowedModelCall(checked=request)
    facts = CallFacts(
        "model_call",
        model,
        copied_arguments(request),
        call_id=call_id,
        provider=provider,
        model=model,
        task_type=task_type,
        environment=environment,
        sensitivity=sensitivity,
    )
    return check_call(view, AllowedModelCall, facts, piece, approval_token)
