"""Reflections that wait in the queue: enqueued by name, carried out as whoever asked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.jobs.runner import Ended, Work
from tallystick.memory import MemoryContext
from tallystick.records import Actor, JsonObject, Proposal, Reflected, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import jobs, scopes
from tallystick_learning.providers import LearningContext
from tallystick_learning.reflection import (
    Material,
    Reflection,
    ReflectionRequest,
    material_of,
    plan_reflection,
)

REFLECT = "reflect"
"""The kind of job that proposes what models conclude from memories."""


def enqueue_reflection(
    context: MemoryContext, actor: Actor, request: ReflectionRequest
) -> Reflected:
    """Enqueue a reflection after the checks that `reflect` makes; return the id of its job, which
    is that of the same reflection where one waits with nothing newer to read. Raises as `reflect`.
    """
    origins = material_of(context, actor, request)
    material, store = request.material, context.store
    # A queue holds ids, never what somebody wrote.
    payload: JsonObject = {
        "bound": str(request.bound),
        "into": None if request.into is None else str(request.into),
        "sources": list(material.ids),
        "conversation": material.conversation,
        "run": material.run,
    }
    text = json.dumps([actor.user, payload], sort_keys=True)

    def unit(tx: Connection) -> str:
        context.gate.confirm(tx, actor, "reflect", request.target)
        return jobs.enqueue(
            tx,
            kind=REFLECT,
            subject_id=hashlib.sha256(text.encode()).hexdigest()[:32],
            # What is said after a job began is for the next one.
            version=max((each.doc for each in origins), default=0),
            scope_id=scopes.ensure(tx, request.target).id,
            payload=payload,
            actor=actor,
            job_id=store.ids.new(),
            at=store.clock.now(),
        )

    with context.gate.journaling(actor):
        job_id = store.database.write(
            unit, name="reflect.enqueue", writes=Writes.of(request.target)
        )
    return Reflected(scope=request.target, processing="queued", job_id=job_id)


class ReflectionHandler:
    """Carries out the jobs of the kind `REFLECT`."""

    kind = REFLECT
    batch = 1
    lease_seconds = 180
    is_upkeep = False
    changes_memory = True
    is_autonomous = False

    def __init__(self, context: LearningContext, mode: Reflection) -> None:
        """Take the models of this tally, and whether it reflects."""
        self._context = context
        self._mode: Reflection = mode

    def handle(self, work: Work) -> int:
        """Reflect, and store the proposals in the commit that ends the job. What may not or cannot
        be reflected on any more ends as dead. Raises ExtractionError, LeaseLost.
        """
        [job] = work.jobs
        assert job.actor is not None
        proposals: list[Proposal] = []
        try:
            request = _request(job.payload, self._mode)
            plan = plan_reflection(self._context, job.actor, request, job_id=job.id)

            def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
                proposals[:] = plan.store(tx, job_id=job.id, correlation_id=job.id)
                result: JsonObject = {
                    "read": len(plan.origins),
                    "proposals": [each.id for each in proposals],
                    "waiting": sum(each.is_open for each in proposals),
                }
                cost = {"texts": len(plan.origins)}
                return {job.id: Ended("done" if proposals else "empty", result=result, cost=cost)}

            work.commit(unit, scopes=plan.scopes)
        except (Denied, InvalidInput, NotFound) as error:
            ended = Ended("dead", code=error.code, text=str(error))
            work.commit(lambda tx, allowed: {job.id: ended})
            return 0
        return len(proposals)


def _request(payload: JsonObject, mode: Reflection) -> ReflectionRequest:
    stored: dict[str, Any] = {**payload}
    into = stored["into"]
    return ReflectionRequest(
        bound=Scope.parse(stored["bound"]),
        material=Material(tuple(stored["sources"]), stored["conversation"], stored["run"]),
        into=None if into is None else Scope.parse(into),
        mode=mode,
    )
