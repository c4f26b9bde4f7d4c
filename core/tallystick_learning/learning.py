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
from tallystick_learning.models import learning_context
from tallystick_learning.reflection import Material, ReflectionRequest, reflect
from tallystick_learning.reflection_jobs import enqueue_reflection

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
        """Reflect on a conversation that ended, where the setting `reflection` turned that on and
        no operator suspends what nobody asked for; `processing` says which. The turns are kept in
        every case, and can be reflected on later. Raises as `reflect`.
        """
        self._view._admit("write")
        services = self._view._services
        if services.settings.reflection == "off":
            return Reflected(scope=self._view.scope, processing="off")
        if services.gate.is_autonomy_frozen():
            return Reflected(scope=self._view.scope, processing="suspended")
        return self.reflect(conversation=conversation, mode=mode)


class LearningVerbs:
    """Verbs of `Learning`."""

    reflect = Offered(Learning.reflect)
    end_session = Offered(Learning.end_session)


class AsyncLearning(AsyncFace, LearningVerbs):
    """Same as `Learning`, awaited."""
