"""Jobs: a step of a synthesis that a worker takes. One that dies is taken again: a step stores its
result in one commit, so that nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tallystick.errors import Denied, InvalidInput, MissingExtra, NotFound, StateConflict
from tallystick.jobs.runner import Ended, Work
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.recorder.outbound import Outbound
from tallystick.records import JsonObject
from tallystick.records.synthesis import SynthesisRun
from tallystick.storage.rows import scopes, synthesis_rows
from tallystick_synthesis.checking import verify
from tallystick_synthesis.collecting import collect
from tallystick_synthesis.desk import SYNTHESIZE, Desk
from tallystick_synthesis.drafting import draft
from tallystick_synthesis.keeping import refresh

_FOR_GOOD = (InvalidInput, MissingExtra, NotFound, Denied, StateConflict)
"""Errors that the next attempt would meet again."""
STEPS: dict[str, Callable[[Desk, str, JsonObject], SynthesisRun]] = {
    "sections": lambda desk, run_id, given: collect(desk, run_id),
    "draft": lambda desk, run_id, given: draft(
        desk,
        run_id,
        by_model=bool(given.get("by_model")),
        if_digest=str(given["if_digest"]) if given.get("if_digest") else None,
    ),
    "verify": lambda desk, run_id, given: verify(desk, run_id),
    "refresh": lambda desk, run_id, given: refresh(desk, run_id),
}
_REACHES = {
    "sections": ("collected", "drafted", "verified", "remembered"),
    "draft": ("drafted", "verified", "remembered"),
    "verify": ("verified", "remembered"),
}
"""Stages in which a step has been taken already."""


def enqueue(desk: Desk, run_id: str, step: str, given: JsonObject) -> SynthesisRun:
    """Leave a step to a worker; return the run with the id of the job. Raises NotFound, Denied,
    StateConflict.
    """
    run = desk.load(run_id, own=True)

    def leave(write: MemoryWrite, run: SynthesisRun) -> SynthesisRun:
        [row] = scopes.find(write.tx, [desk.scope])
        job_id = write.enqueue(
            SYNTHESIZE,
            run.id,
            row.id,
            actor=desk.actor,
            version=run.updated_at,
            payload={"step": step, "given": given, "stage": run.stage},
        )
        return run.replace(job_id=job_id)

    return desk.store(run, known_at=run.updated_at, event="synthesis.enqueue", also=leave)


class SynthesisHandler:
    """Carries out the jobs of the kind `SYNTHESIZE`."""

    kind = SYNTHESIZE
    batch = 1
    lease_seconds = 180
    is_upkeep = False
    changes_memory = True
    is_autonomous = False

    def __init__(self, context: MemoryContext, outbound: Outbound) -> None:
        self._context, self._outbound = context, outbound

    def handle(self, work: Work) -> int:
        """Take one step of a run; return 1, or 0 where it was taken before. Raises LeaseLost, and
        what a model raises.
        """
        [job] = work.jobs
        assert job.actor is not None
        assert job.scope_id is not None
        with self._context.store.database.read() as connection:
            scope = scopes.get_by_id(connection, job.scope_id).scope
            row = synthesis_rows.find_run(connection, job.subject_id)
        desk = Desk(self._context, self._outbound, job.actor, scope)
        payload: Any = job.payload
        step = str(payload["step"])
        is_taken = row is None or (
            row["stage"] != payload["stage"] and row["stage"] in _REACHES.get(step, ())
        )
        if is_taken:
            work.commit(lambda tx, allowed: {job.id: Ended("empty")})
            return 0
        try:
            run = STEPS[step](desk, job.subject_id, payload["given"])
        except _FOR_GOOD as error:
            code, text = error.code, str(error)
            work.commit(lambda tx, allowed: {job.id: Ended("dead", code=code, text=text)})
            return 0
        result: JsonObject = {"stage": run.stage}
        work.commit(lambda tx, allowed: {job.id: Ended("done", result=result)})
        return 1
