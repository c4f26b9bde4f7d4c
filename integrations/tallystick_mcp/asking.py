"""Asking a person: through the client where it can ask, else with the token of a preview.

On a modern connection a question is an answer of its own, and the client calls again with what the
person said; the state that it brings back is sealed by the SDK and bound to the call. On an older
one the server asks in the middle of the call.
"""

from __future__ import annotations

from typing import Any, Literal

from mcp.server.elicitation import AcceptedElicitation, render_elicitation_schema
from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import is_version_at_least
from pydantic import BaseModel, Field

_SEVERAL_ROUNDS = "2026-07-28"
"""The revision since which a question is an answer of its own."""
_KEY = "confirm"

Verdict = Literal["yes", "no", "unanswered"]


class _Confirmation(BaseModel):
    """The form that a person fills in."""

    confirm: bool = Field(description="True to do it.")


class Question(BaseModel):
    """A question to a person, and what the call needs to know when the answer comes."""

    text: str
    state: str


def can_ask(context: Context[Any, Any]) -> bool:
    """Return True if the client can ask a person."""
    if context.protocol_version is None:
        return False  # no client calls: the application does
    capabilities = context.client_capabilities
    elicitation = None if capabilities is None else capabilities.elicitation
    # A bare `elicitation: {}`, the only form before there were modes, is a form.
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def verdict(context: Context[Any, Any]) -> tuple[Verdict, str] | None:
    """Return what the person said to the question of the round before, and its state; None where
    nothing was asked yet.
    """
    if not _in_several_rounds(context) or context.request_state is None:
        return None
    answer = (context.input_responses or {}).get(_KEY)
    if not isinstance(answer, ElicitResult):
        return None
    outcome: Verdict = "unanswered" if answer.action == "cancel" else "no"
    if answer.action == "accept" and (answer.content or {}).get("confirm") is True:
        outcome = "yes"
    return outcome, context.request_state


async def put(
    context: Context[Any, Any], question: Question
) -> tuple[Verdict, str] | InputRequiredResult:
    """Put a question to the person: return the answer, or the question where the client calls
    again.
    """
    if _in_several_rounds(context):
        schema = render_elicitation_schema(_Confirmation)
        form = ElicitRequestFormParams(message=question.text, requested_schema=schema)
        return InputRequiredResult(
            input_requests={_KEY: ElicitRequest(params=form)}, request_state=question.state
        )
    try:
        answer = await context.elicit(question.text, _Confirmation)
    except ValueError:  # accepted with something else than the form
        return "no", question.state
    if isinstance(answer, AcceptedElicitation):
        return ("yes" if answer.data.confirm else "no"), question.state
    return ("unanswered" if answer.action == "cancel" else "no"), question.state


def _in_several_rounds(context: Context[Any, Any]) -> bool:
    version = context.protocol_version
    return version is not None and is_version_at_least(version, _SEVERAL_ROUNDS)
