"""The verbs of reflection and review: propose conclusions, and decide what waits for a person."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.pipeline.reflection import Material, ReflectionRequest, reflect
from tallystick.pipeline.reflection_jobs import enqueue_reflection
from tallystick.pipeline.reviews import decide, listed, review_of
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
from tallystick.tally.memory_verbs import MemoryVerbs

WhenToReflect = Annotated[ReflectMode, Field(description="sync: in this call. async: by a job.")]


@checked_arguments
class ReviewVerbs(MemoryVerbs):
    """What an actor concludes from memories, and what a person decides about it."""

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
        services = self._services
        with self._observed("memory_write", "reflect") as call:
            self._admit("write")
            request = ReflectionRequest(
                self.scope,
                Material(tuple(sources), conversation, run),
                into=None if into is None else self.actor.home(into),
                mode=services.settings.reflection,
            )
            if mode == "async":
                reflected = enqueue_reflection(services.memory, self._traced_actor, request)
            else:
                reflected = reflect(
                    services.learning,
                    self._traced_actor,
                    request,
                    correlation_id=call.correlation_id,
                )
            summary = {
                "proposals": [proposal.id for proposal in reflected.proposals],
                "waiting": reflected.waiting,
                "processing": reflected.processing,
            }
            call.record("memory_write", reflected, summary=summary, scopes=[reflected.scope])
        self._wake_worker()
        return reflected

    def end_session(
        self,
        conversation: Annotated[Words, Field(description="The conversation that ended.")],
        *,
        mode: WhenToReflect = "sync",
    ) -> Reflected:
        """Reflect on a conversation that ended, where the setting `reflection` turned that on and
        no operator suspends what nobody asked for; `processing` says which. The turns are kept in
        every case, and can be reflected on later. Raises as `reflect`.
        """
        self._admit("write")
        settings, gate = self._services.settings, self._services.gate
        if settings.reflection == "off":
            return Reflected(scope=self.scope, processing="off")
        if gate.is_autonomy_frozen():
            return Reflected(scope=self.scope, processing="suspended")
        return self.reflect(conversation=conversation, mode=mode)

    def reviews(
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
        self._admit("read")
        return listed(
            self._services.memory,
            self.actor,
            self.scope,
            states=tuple(states),
            limit=limit,
            after=after,
        )

    def proposal(self, proposal_id: ProposalId) -> Reviewed:
        """Return a proposal with its history. Raises NotFound."""
        self._admit("read")
        return review_of(self._services.memory, self.actor, proposal_id)

    def review(
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
        with self._observed("memory_write", "review") as call:
            self._admit("write")
            decided = decide(
                self._services.memory,
                self._traced_actor,
                proposal_id,
                decision,
                reason=reason,
                changes=changes or {},
                idempotency_key=idempotency_key,
                correlation_id=call.correlation_id,
            )
            summary = {"id": decided.id, "state": decided.state, "made": decided.made}
            call.record("memory_write", {"reason": reason}, summary=summary)
        self._wake_worker()
        return decided
