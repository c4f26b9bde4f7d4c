"""Reviews: have conclusions proposed, and decide those that wait for a person."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.jobs.reflection import Material, ReflectionRequest, reflect
from tallystick.jobs.reflection_jobs import enqueue_reflection
from tallystick.jobs.reviews import decide, listed, review_of
from tallystick.records import (
    JsonObject,
    Limit,
    MemoryOrSourceIds,
    Proposal,
    ProposalId,
    ProposalStates,
    Reflected,
    ReflectMode,
    ReviewDecision,
    Reviewed,
    RunId,
    Words,
    checked_arguments,
)
from tallystick.records.arguments import PAGE_BEFORE, IdempotencyKey, Reason
from tallystick.records.memory import ScopeName
from tallystick.tally.memory_view import Part

WhenToReflect = Annotated[ReflectMode, Field(description="sync: in this call. async: by a job.")]


@checked_arguments
class Reviews(Part):
    """What a model concludes from memories, and what a person decides about it."""

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
        with self._view._observed("memory_write", "review") as call:
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

    def reflect(
        self,
        sources: Annotated[
            MemoryOrSourceIds, Field(description="Ids of memories or sources to reflect on.")
        ] = (),
        *,
        conversation: Annotated[
            Words | None, Field(description="Or a conversation of the bound scope.")
        ] = None,
        run: Annotated[
            RunId | None, Field(description="Or a run whose memories to reflect on.")
        ] = None,
        into: Annotated[
            ScopeName | None,
            Field(description="The scope of the conclusions; by default the bound one."),
        ] = None,
        mode: WhenToReflect = "sync",
    ) -> Reflected:
        """Have a model propose the decisions, procedures, plans, tasks, artifacts, claims and
        relations that memories state: those of `sources` (their ids, or those of sources), of a
        `conversation` or of a `run` of the bound scope.

        Each waits as one of the `reviews`. Nothing is proposed twice. Conclusions are of the bound
        scope, or of `into`, and never get more readers than their sources, but for sources of
        several scopes with the broadest of these named. With the mode `async` a job does it: the
        answer has its `job_id`, and its result the ids of the proposals. Raises InvalidInput,
        NotFound, Denied (`mixed_scopes`, `scope_crossing_requires_promotion`), and ExtractionError
        where no model answers.
        """
        services = self._view._services
        with self._view._observed("memory_write", "reflect") as call:
            self._view._admit("write")
            request = ReflectionRequest(
                self._view.scope,
                Material(tuple(sources), conversation, run),
                into=None if into is None else self._view.actor.home(into),
                mode=services.settings.reflection,
            )
            if mode == "async":
                reflected = enqueue_reflection(services.memory, self._view._traced_actor, request)
            else:
                reflected = reflect(
                    services.learning,
                    self._view._traced_actor,
                    request,
                    correlation_id=call.correlation_id,
                )
            summary = {
                "proposals": [proposal.id for proposal in reflected.proposals],
                "waiting": reflected.waiting,
                "processing": reflected.processing,
            }
            call.record("memory_write", reflected, summary=summary, scopes=[reflected.scope])
        self._view._wake_worker()
        return reflected

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
        return listed(
            self._view._services.memory,
            self._view.actor,
            self._view.scope,
            states=tuple(states),
            limit=limit,
            after=after,
        )
