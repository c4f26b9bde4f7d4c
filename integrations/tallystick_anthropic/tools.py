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
    memory_tool_specs,
    text_of,
)
from tallystick.records import Scope
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
    return MessagesMemoryTools(
        tally, runtime="anthropic", actor=actor, scope=scope, approval=approval, ask=ask
    )


class MessagesMemoryTools(PlainMemoryTools):
    """The memory tools in Anthropic's form."""

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools as `messages.create` takes them, by name."""
        return [
            {
                "name": spec.name,
                "description": spec.description,
                "input_schema": spec.parameters,
            }
            for spec in memory_tool_specs()
        ]

    def outputs(self, response: Any) -> list[dict[str, Any]]:
        """Run the memory tools that a Message calls; return the blocks for the next message of the
        user, behind the message itself.
        """
        body: Mapping[str, Any] = (
            response if isinstance(response, Mapping) else response.to_dict(mode="json")
        )
        return [
            {"type": "tool_result", "tool_use_id": call.id, "content": text_of(self.run(call))}
            for call in parse_message(body).tool_calls
            if self.has(call.name)
        ]
