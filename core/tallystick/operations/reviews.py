"""Operations of reflection and review: propose conclusions, list what waits, decide it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.operations.operation import Arguments, IdempotencyKey, Operation, Reason
from tallystick.records import (
    JsonObject,
    Proposal,
    ProposalState,
    Reflected,
    ReflectMode,
    ReviewDecision,
    Reviewed,
)

_REFLECT_ERRORS = (
    "denied",
    "invalid_input",
    "not_found",
    "rate_limited",
    "extraction_error",
    "model_unavailable",
    "egress_denied",
    "budget_spent",
)
ProposalId = Annotated[str, Field(description="Id of a proposal.")]


class Reflect(Arguments):
    """Arguments of `reflect`."""

    sources: Annotated[
        tuple[str, ...], Field(description="Ids of memories or sources to reflect on.")
    ] = ()
    conversation: Annotated[
        str | None, Field(description="Or a conversation of the bound scope.")
    ] = None
    run: Annotated[str | None, Field(description="Or a run whose memories to reflect on.")] = None
    into: Annotated[
        str | None, Field(description="The scope of the conclusions; by default the bound one.")
    ] = None
    mode: Annotated[ReflectMode, Field(description="sync: in this call. async: by a job.")] = "sync"


class EndSession(Arguments):
    """Arguments of `end_session`."""

    conversation: Annotated[str, Field(description="The conversation that ended.")]
    mode: Annotated[ReflectMode, Field(description="sync: in this call. async: by a job.")] = "sync"


class Reviews(Arguments):
    """Arguments of `reviews`."""

    states: Annotated[
        tuple[ProposalState, ...], Field(description="States of the proposals; none lists all.")
    ] = ("pending", "deferred")
    limit: Annotated[int, Field(description="Proposals at most.", ge=1)] = 50
    after: Annotated[str | None, Field(description="The last id of the page before.")] = None


class OfProposal(Arguments):
    """Arguments of `proposal`."""

    proposal_id: ProposalId


class Review(Arguments):
    """Arguments of `review`."""

    proposal_id: ProposalId
    decision: Annotated[ReviewDecision, Field(description="accept, edit, defer or reject.")]
    reason: Reason
    changes: Annotated[
        JsonObject | None, Field(description="With edit: content, kind and others, changed.")
    ] = None
    idempotency_key: IdempotencyKey = None


OPERATIONS = (
    Operation(
        name="reflect",
        title="Reflect",
        description="Have a model propose the decisions, procedures, plans, tasks, artifacts, "
        "claims and relations that memories state; each waits for a person.",
        effect="change",
        arguments=Reflect,
        result=Reflected,
        errors=_REFLECT_ERRORS,
        verb="reflect",
    ),
    Operation(
        name="end_session",
        title="End a session",
        description="Reflect on a conversation that ended, where the tally does that; `processing` "
        "says whether it did.",
        effect="change",
        arguments=EndSession,
        result=Reflected,
        errors=_REFLECT_ERRORS,
        verb="end_session",
    ),
    Operation(
        name="reviews",
        title="List reviews",
        description="List the proposals that wait for a person, or were decided, oldest first.",
        effect="read",
        arguments=Reviews,
        result=list[Proposal],
        errors=("denied", "invalid_input", "not_found", "rate_limited"),
        verb="reviews",
    ),
    Operation(
        name="proposal",
        title="Read a proposal",
        description="Read one proposal with everything that happened to it.",
        effect="read",
        arguments=OfProposal,
        result=Reviewed,
        errors=("not_found", "rate_limited"),
        verb="proposal",
    ),
    Operation(
        name="review",
        title="Decide a proposal",
        description="Accept, edit, defer or reject a proposal, by a person and for a reason.",
        effect="change",
        arguments=Review,
        result=Proposal,
        errors=(
            "denied",
            "invalid_input",
            "invalid_record",
            "not_found",
            "state_conflict",
            "idempotency_mismatch",
            "rate_limited",
        ),
        verb="review",
    ),
)
"""In the order in which surfaces list them."""
