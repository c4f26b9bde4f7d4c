"""The six memory tools for code that calls the Messages API itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tallystick.adapters import (
    ActorSource,
    PlainApproval,
    PlainMemoryTools,
    TallyElsewhere,
    ToolQuestion,
)
from tallystick.records import ModelAnswer, ModelToolCall, Scope, ToolSpec
from tallystick.tally import BoundTally, Tally
from tallystick_anthropic.provider import parse_message


def memory_tools(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: PlainApproval = "ask",
    ask: Callable[[ToolQuestion], bool | str] | None = None,
) -> MessagesMemoryTools:
    """Memory tools for `client.messages.create(…, tools=tools.definitions)`, and for compiles.

    `memory_modify` and `memory_forget` ask a person by `ask`, which answers True, False, or the
    reason against it; without it they are refused. With `approval="elsewhere"` they act at once,
    for agents whose own code asks. All go by the rules of the tally.
    """
    return MessagesMemoryTools(tally, actor=actor, scope=scope, approval=approval, ask=ask)


class MessagesMemoryTools(PlainMemoryTools):
    """The memory tools in Anthropic's form."""

    runtime = "anthropic"

    def _definition(self, spec: ToolSpec) -> dict[str, Any]:
        return {
            "name": spec.name,
            "description": spec.description,
            "input_schema": spec.parameters,
        }

    def _parse(self, response: Mapping[str, Any]) -> ModelAnswer:
        return parse_message(response)

    def _output(self, call: ModelToolCall, text: str) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call.id, "content": text}
