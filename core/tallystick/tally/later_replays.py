"""Replays that wait in the queue: enqueued with their recipe, carried out as whoever asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tallystick.errors import InvalidInput
from tallystick.jobs import Ended, Work
from tallystick.records import Actor, Job, JsonObject, ReplayRecipe, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import job_list, jobs, scopes
from tallystick.tally.services import Services

REPLAY = "replay"
"""The kind of job that makes a recorded step again."""


class ReplayOutcome(NamedTuple):
    """What the replay of a job came to."""

    run_id: str
    step_id: str
    fidelity: str
    request_matches: bool | None


class _Recordings(Protocol):
    """The recordings of a tally as an actor sees them."""

    def _replay_once(self, step_id: str, recipe: ReplayRecipe, job_id: str) -> ReplayOutcome: ...


def enqueue_replay(
    services: Services, actor: Actor, scope: Scope, step_id: str, recipe: ReplayRecipe
) -> Job:
    """Enqueue the replay of a step in `scope`, that of its run; return the job, or the one with the
    same changes that is there already. Raises Denied, InvalidInput.
    """
    rewritten = [item for item, text in recipe.context_mutations.items() if text is not None]
    if rewritten:
        # A queue holds ids, never what somebody wrote.
        raise InvalidInput(
            "`recipe` replaces the text of an item, which no queue keeps: use replay, at once."
        )
    payload = {**recipe.dump(), "replay_id": "", "notes": ""}
    digest = hashlib.sha256(ReplayRecipe.load(payload).dumps().encode()).hexdigest()
    store = services.store

    def unit(tx: Connection) -> Job:
        services.gate.confirm(tx, actor, "write", scope)
        job_id = jobs.enqueue(
            tx,
            kind=REPLAY,
            subject_id=step_id,
            version=int(digest[:7], 16),
            payload=recipe.dump(),
            scope_id=scopes.ensure(tx, scope).id,
            actor=actor,
            job_id=store.ids.new(),
            at=store.clock.now(),
        )
        job = job_list.find(tx, job_id)
        assert job is not None
        return job

    job = store.database.write(unit, name="replay.enqueue", writes=Writes.of(scope))
    services.background.wake()
    return job


class ReplayHandler:
    """Carries out the jobs of the kind `REPLAY`: compiles the step anew, without a model."""

    kind = REPLAY
    batch = 1
    lease_seconds = 300
    is_upkeep = False
    changes_memory = False
    is_autonomous = False

    def __init__(self, recordings_of: Callable[[Actor], _Recordings]) -> None:
        """Take what returns the recordings as an actor sees them."""
        self._recordings_of = recordings_of

    def handle(self, work: Work) -> int:
        """Replay, as a run of its own, once; the job's result names it. Raises NotFound,
        NotReplayable, Denied, LeaseLost.
        """
        [job] = work.jobs
        assert job.actor is not None
        recipe = ReplayRecipe.load(job.payload)
        outcome = self._recordings_of(job.actor)._replay_once(job.subject_id, recipe, job.id)
        summary: JsonObject = outcome._asdict()

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            return {job.id: Ended("done", result=summary)}

        work.commit(unit)
        return 1
