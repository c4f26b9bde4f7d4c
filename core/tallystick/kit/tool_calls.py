"""Tool calls, their results and approvals: the same fields in every runtime's receipt."""

from __future__ import annotations

from typing import Any, NamedTuple

from tallystick.recorder import Step


class ToolCall(NamedTuple):
    """A call of a tool as a runtime makes it."""

    name: str
    arguments: Any
    """As the tool gets them: a mapping, or the text that a model gave."""
    tool_call_id: str | None = None

    def payload(self) -> dict[str, Any]:
        """Return the call as it is recorded."""
        return {
            "name": self.name,
            "arguments": self.arguments,
            "tool_call_id": self.tool_call_id,
        }

    def summary(self) -> dict[str, Any]:
        """Return the summary of the call in a receipt, which has no payload."""
        return {"tool": self.name, "tool_call_id": self.tool_call_id}


def record_tool_call(step: Step, call: ToolCall, *, approved: bool = False) -> None:
    """Record a call; `approved` is True if a person allowed it."""
    summary = call.summary()
    if approved:
        summary["approved"] = True
    step.record("tool_call", call.payload(), summary=summary)


def record_tool_result(step: Step, result: Any) -> None:
    """Record the result of a call, which may be a failure that the model reads."""
    step.record("tool_result", {"result": result})


def record_tool_error(step: Step, error: BaseException | None, message: str) -> None:
    """Record that a tool failed without an exception: its runtime turned it into an answer."""
    kind = type(error).__name__ if error is not None else "ToolError"
    step.record("error", {"type": kind, "message": message}, summary={"type": kind})


def record_approval(step: Step, call: ToolCall) -> None:
    """Record that a call waits for a person."""
    step.record("approval", call.payload(), summary={**call.summary(), "state": "asked"})
