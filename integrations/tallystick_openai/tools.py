"""The six memory tools for code that calls the Responses API itself."""

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
from tallystick_openai.provider import parse_response


def memory_tools(
    tally: Tally | BoundTally | TallyElsewhere,
    *,
    actor: ActorSource | None = None,
    scope: str | Scope | None = None,
    approval: PlainApproval = "ask",
    ask: Callable[[ToolQuestion], bool | str] | None = None,
) -> ResponsesMemoryTools:
    """Memory tools for `client.responses.create(…, tools=tools.definitions)`, and for compiles.

    `memory_modify` and `memory_forget` ask a person by `ask`, which answers True, False, or the
    reason against it; without it they are refused. With `approval="elsewhere"` they act at once,
    for agents whose own code asks. All go by the rules of the tally.
    """
    return ResponsesMemoryTools(
        tally, runtime="openai", actor=actor, scope=scope, approval=approval, ask=ask
    )


class ResponsesMemoryTools(PlainMemoryTools):
    """The memory tools in OpenAI's form."""

    @property
    def definitions(self) -> list[dict[str, Any]]:
        """The tools as `responses.create` takes them, by name."""
        return [
            {
                "type": "function",
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters,
                "strict": False,
            }
            for spec in memory_tool_specs()
        ]

    def outputs(self, response: Any) -> list[dict[str, Any]]:
        """Run the memory tools that a Response calls; return the items for the next `input`, behind
        the output of that Response.
        """
        body: Mapping[str, Any] = (
            response if isinstance(response, Mapping) else response.to_dict(mode="json")
        )
        return [
            {"type": "function_call_output", "call_id": call.id, "output": text_of(self.run(call))}
            for call in parse_response(body).tool_calls
            if self.has(call.name)
        ]
