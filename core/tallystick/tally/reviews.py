"""Reviews: list what models proposed, and decide what waits for a person."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.memory.reviews import decide, list_proposals, review_of
from tallystick.records import (
    JsonObject,
    Limit,
    Proposal,
    ProposalId,
    ProposalStates,
    ReviewDecision,
    Reviewed,
    checked_arguments,
)
from tallystick.records.arguments import PAGE_BEFORE, IdempotencyKey, Reason
from tallystick.tally.memory_view import Part


@checked_arguments
class Reviews(Part):
    """What models concluded from memories, and what a person decides about it."""

    def get(self, proposal_id: ProposalId) -> Reviewed:
        """Return a proposal with its history. Raises NotFound."""
        self._view._admit("read")
        return review_of(self._view._services.memory, self._view.actor, proposal_id)

    def decide(
        self,
        proposal_id: ProposalId,
        decision: Annotated[ReviewDecision, Field(description="accept, edit, defer or reject.")],
        *,
        reason: Reason,
        changes: Annotated[
            JsonObject | None, Field(description="With edit: content, kind and others, changed.")
        ] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> Proposal:
        """Accept, edit, defer or reject a proposal, for a reason that is kept. A person decides.

        `edit` accepts it with `changes`: its content, kind, subject, attributes, confidence or
        valid_from. What it replaces stays as history, with the reason; what it withdraws can be
        recovered. Raises NotFound, Denied (`person_required`, or the reason for which a source may
        not be concluded from any more), InvalidInput, InvalidRecord, StateConflict where it was
        decided or its target changed, IdempotencyMismatch; then nothing changed.
        """
        with self._view._observe_call("memory_write", "review") as call:
            self._view._admit("write")
            decided = decide(
                self._view._services.memory,
                self._view._traced_actor,
                proposal_id,
                decision,
                reason=reason,
                changes=changes or {},
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            summary = {"id": decided.id, "state": decided.state, "made": decided.made}
            call.record("memory_write", {"reason": reason}, summary=summary)
        self._view._wake_worker()
        return decided

    def list(
        self,
        *,
        states: Annotated[
            ProposalStates, Field(description="States of the proposals; none lists all.")
        ] = ("pending", "deferred"),
        limit: Annotated[Limit, Field(description="Proposals at most.")] = 50,
        after: Annotated[ProposalId | None, PAGE_BEFORE] = None,
    ) -> list[Proposal]:
        """List the proposals of the bound scope in some states, oldest first; with `states=()` of
        every state. Give the last id of a page as `after` for the next one. The words of a proposal
        whose sources this actor may not see are left out. Raises Denied, InvalidInput, NotFound.
        """
        self._view._admit("read")
        return list_proposals(
            self._view._services.memory,
            self._view.actor,
            self._view.scope,
            states=tuple(states),
            limit=limit,
            after=after,
        )
