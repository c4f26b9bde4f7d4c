"""Learning: have a model propose what memories state; a person decides about each proposal."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.records import (
    MemoryOrSourceIds,
    Reflected,
    ReflectMode,
    RunId,
    Words,
    checked_arguments,
)
from tallystick.records.memory import ScopeName
from tallystick.tally.memory_view import Part
from tallystick.tally.served_verbs import AsyncFace, Offered
from tallystick_learning.learner import learning_context
from tallystick_learning.learning_jobs import LEARN, has_learner, hasten_session, session_result
from tallystick_learning.reflection import Material, ReflectionRequest, reflect
from tallystick_learning.reflection_jobs import enqueue_reflection

_LONGEST_WAIT_MS = 120_000
"""How long the end of a session waits for its learner."""
WhenToReflect = Annotated[ReflectMode, Field(description="sync: in this call. async: by a job.")]


@checked_arguments
class Learning(Part):
    """What a model concludes from memories: `Learning(bound)`. What it proposes is among
    `bound.reviews`.
    """

    @property
    def aio(self) -> AsyncLearning:
        """The same verbs for `async def` callers, awaited."""
        return AsyncLearning(self)

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
        with self._view._observe_call("memory_write", "reflect") as call:
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
                    learning_context(services.memory, services.outbound),
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

    def end_session(
        self,
        conversation: Annotated[Words, Field(description="The conversation that ended.")],
        *,
        mode: WhenToReflect = "sync",
    ) -> Reflected:
        """Learn from a conversation that ended what was not learned yet, where the setting
        `learning` turned that on, else reflect on it where `reflection` did, unless an operator
        suspends what nobody asked for; `processing` says which. The turns are kept in every case,
        and can be reflected on later. Raises as `reflect`.
        """
        self._view._admit("write")
        services = self._view._services
        learns = has_learner(services.memory)
        if learns and not services.gate.is_autonomy_frozen():
            return self._learn(conversation, mode)
        if services.settings.reflection == "off" and not learns:
            return Reflected(scope=self._view.scope, processing="off")
        if services.gate.is_autonomy_frozen():
            return Reflected(scope=self._view.scope, processing="suspended")
        return self.reflect(conversation=conversation, mode=mode)

    def _learn(self, conversation: str, mode: ReflectMode) -> Reflected:
        view, services = self._view, self._view._services
        memory, scope = services.memory, view.scope
        services.gate.require(view.actor, "write", scope)
        job_id = hasten_session(memory, view.actor, scope, conversation)
        if job_id is None:
            return Reflected(scope=scope)
        if mode == "async":
            view._wake_worker()
            return Reflected(scope=scope, processing="queued", job_id=job_id)
        services.background.run_within([job_id], LEARN, _LONGEST_WAIT_MS)
        return session_result(memory, scope, job_id)


class LearningVerbs:
    """Verbs of `Learning`."""

    reflect = Offered(Learning.reflect)
    end_session = Offered(Learning.end_session)


class AsyncLearning(AsyncFace, LearningVerbs):
    """Same as `Learning`, awaited."""
