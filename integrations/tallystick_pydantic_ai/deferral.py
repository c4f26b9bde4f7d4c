"""Runs that can defer a tool call: those whose output may be `DeferredToolRequests`, or in which a
capability answers in place.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, Hooks
from pydantic_ai.capabilities.wrapper import WrapperCapability
from pydantic_ai.tools import DeferredToolRequests

from tallystick_pydantic_ai.policy import TallyPolicy

Approval: TypeAlias = Literal["auto", "deferred"]
"""Runs in which the tools that ask a person are offered: those that can defer a call, or all."""
_PASSIVE = (TallyPolicy, WrapperCapability, Hooks)
"""Capabilities that have the hook and ask nobody by themselves."""


def can_defer(ctx: RunContext[Any]) -> bool:
    """Return True if a tool call of this run may be deferred to a person.

    PydanticAI raises for a deferred call in any other run. An `output_type` that is given to one
    run is not seen here: that of the agent counts.
    """
    agent = ctx.agent
    if agent is None or _has_requests(agent.output_type):
        return True
    answering: list[AbstractCapability[Any]] = []

    def visit(capability: AbstractCapability[Any]) -> None:
        hook = type(capability).handle_deferred_tool_calls
        if hook is not AbstractCapability.handle_deferred_tool_calls and not isinstance(
            capability, _PASSIVE
        ):
            answering.append(capability)

    root = getattr(ctx, "root_capability", None)
    if root is not None:
        root.apply(visit)
    return bool(answering)


def _has_requests(output: Any) -> bool:
    """Return True if `DeferredToolRequests` is among the types of an output."""
    if output is DeferredToolRequests:
        return True
    if isinstance(output, Sequence) and not isinstance(output, str):
        return any(map(_has_requests, output))
    if get_origin(output) in (Union, types.UnionType):
        return any(map(_has_requests, get_args(output)))
    alias = getattr(output, "__value__", None)  # of `type Output = …`
    return alias is not None and _has_requests(alias)
