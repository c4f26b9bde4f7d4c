"""BoundRecordings: what was recorded in a scope: runs, reads and events; verify and replay them,
now or as a job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import count
from typing import Annotated, Any, NamedTuple, cast
from uuid import UUID

from pydantic import Field

from tallystick import memory
from tallystick.checkpoints import Threads
from tallystick.errors import CorruptTally, Denied, InvalidInput, NotFound
from tallystick.jobs import Ended, Work
from tallystick.recorder import (
    Call,
    Recordings,
    Render,
    neutral_request,
)
from tallystick.recorder.recordings import RecordedCompile
from tallystick.recorder.replay import recipe_for
from tallystick.records import (
    Activity,
    Actor,
    Count,
    Foil,
    Job,
    JsonObject,
    Labels,
    Limit,
    LoggedRead,
    Occasion,
    ReplayRecipe,
    ReplayResult,
    RunId,
    RunRecord,
    Scope,
    StepId,
    StepRecord,
    Verification,
    Words,
    checked_arguments,
)
from tallystick.records.arguments import PAGE_BEFORE
from tallystick.records.wire import PROCESS_ONLY
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import job_list, jobs, scopes
from tallystick.tally.memory_view import MemoryView
from tallystick.tally.model_calls import named_provider, replay_call, sorted_errors
from tallystick.tally.services import Services

REPLAY = "replay"
"""The kind of job that makes a recorded step again."""


class ReplayOutcome(NamedTuple):
    """What the replay of a job came to."""

    run_id: str
    step_id: str
    fidelity: str
    request_matches: bool | None


def enqueue_replay(
    services: Services, actor: Actor, scope: Scope, step_id: str, recipe: ReplayRecipe
) -> Job:
    """Enqueue the replay of a step in `scope`, that of its run; return the job, or the one with the
    same changes that is there already. Raises Denied, InvalidInput.
    """
    rewritten = [item for item, text in recipe.context_mutations.items() if text is not None]
    if rewritten:
        # A queue holds ids, never what a model is given.
        raise InvalidInput(
            "`recipe` replaces the text of an item, which no queue keeps: use replay, at once."
        )
    payload = {**recipe.dump(), "id": "", "notes": ""}
    digest = hashlib.sha256(ReplayRecipe.load(payload).dumps().encode()).hexdigest()
    store = services.store
    kept = cast(JsonObject, services.memory.redactor.redact_json(recipe.dump()).value)

    def unit(tx: Connection) -> Job:
        services.gate.confirm(tx, actor, "write", scope)
        job_id = jobs.enqueue(
            tx,
            kind=REPLAY,
            subject_id=step_id,
            version=int(digest[:7], 16),
            payload=kept,
            scope_id=scopes.ensure(tx, scope).id,
            actor=actor,
            job_id=store.ids.new(),
            at=store.clock.now(),
        )
        job = job_list.find(tx, job_id)
        assert job is not None
        return job

    job = store.database.write(unit, name="replay.enqueue", writes=Writes.of(scope))
    services.wake()
    return job


class ReplayHandler:
    """Carries out the jobs of the kind `REPLAY`: compiles the step anew, without a model."""

    kind = REPLAY
    batch = 1
    lease_seconds = 300
    is_upkeep = False
    changes_memory = False
    is_autonomous = False

    def __init__(self, recordings_of: Callable[[Actor], BoundRecordings]) -> None:
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


Recipe = Annotated[ReplayRecipe | None, Field(description="What to change; without it nothing.")]


@checked_arguments
class BoundRecordings(Recordings):
    """What was recorded, as one actor may read it from one scope. Thread-safe."""

    def __init__(self, view: MemoryView) -> None:
        services = view._services
        super().__init__(services.recorder, view.actor, counter=services.counter)
        self._view = view

    def runs(
        self,
        *,
        limit: Annotated[Limit, Field(description="Runs at most.")] = 20,
        before: Annotated[RunId | None, PAGE_BEFORE] = None,
    ) -> list[RunRecord]:
        """List the runs of the bound scope, newest first.

        Give the last id of a page as `before` for the next one. Raises NotFound for an unknown one.
        """
        return self.runs_of([self._view.scope], limit=limit, before=before)

    def verify(
        self,
        run_id: RunId,
        *,
        foil: Annotated[
            Foil | None, Field(description="The head that was kept elsewhere, to be matched.")
        ] = None,
    ) -> Verification:
        """Check stock and foil: every byte that the run's chain covers, and the checkpoint threads
        in which its steps ran.

        A thread of a scope that the actor may not read is named in `cannot_prove`. Raises NotFound.
        """
        verification = super().verify(run_id, foil=foil)
        try:
            steps = self.steps(run_id)
        except CorruptTally:  # the step that cannot be read is among the problems
            return verification
        names = {name for step in steps if isinstance(name := step.metadata.get("thread_id"), str)}
        if not names:
            return verification
        problems, unread = [*verification.problems], [*verification.cannot_prove]
        checked: set[str] = set()
        try:
            run = self.run(run_id)
            threads = Threads(self._view._services.checkpoints, self._actor, run.scope)
            checked = names & set(threads.names())
            for name in sorted(checked):
                problems += threads.verify(name)
        except Denied as error:
            checked = set()
            unread.append(f"its checkpoint threads, which this actor may not read ({error.reason})")
        return verification.model_copy(
            update={
                "ok": verification.ok and not problems,
                "problems": tuple(problems),
                "cannot_prove": tuple(unread),
                "threads_checked": len(checked),
            }
        )

    def compiled(self, step_id: StepId) -> RecordedCompile:
        """Return the request and the result of a step's compile, which can be sent to a model.
        Raises NotFound where it compiled or kept nothing.
        """
        recorded = super().compiled(step_id)
        self._view._services.compile_requests.note(recorded.compiled, recorded.request)
        return recorded

    def replay(
        self,
        /,
        step_id: StepId,
        *,
        call: Annotated[Call | None, PROCESS_ONLY] = None,
        recipe: Recipe = None,
        send: Annotated[
            bool,
            Field(
                description="Ask the model again, one of the setting `providers`; for a person, or "
                "with the approval of one."
            ),
        ] = False,
        approval_token: Annotated[
            str | None, Field(description="Of the grant to ask the model again.")
        ] = None,
        render: Annotated[Render, PROCESS_ONLY] = neutral_request,
        **changes: Annotated[Any, PROCESS_ONLY],
    ) -> ReplayResult:
        """Make a recorded model step again as the step of a new run, in the scope of its own run.

        The new receipt contains the recipe and the outcome. Same as `preview_replay`, which records
        nothing. The result names the new run and step, which can be replayed in turn. With `send`
        the request goes to the provider and model of the step, or of the changes, and the result
        has the difference of the answers. Raises Denied as well, and with `send` EgressDenied,
        ActionDenied, ApprovalRequired, TokenRefused, and ModelFailed and its like for what the
        provider raises.
        """
        if not send:
            return self._replay(step_id, None, call=call, recipe=recipe, render=render, **changes)
        if call is not None:
            raise InvalidInput("`send` asks a provider of the settings: leave `call` out.")
        step = self.step(step_id)
        recipe = recipe_for(step, recipe, changes, new_id=self._view._services.store.ids.new)
        name = self._model_of(step, recipe)
        provider = named_provider(self._view, name)
        again = replay_call(self._view, provider, approval_token=approval_token, piece="replay")
        with sorted_errors(name):
            return self._replay(step_id, None, call=again, recipe=recipe, render=provider.render)

    def _model_of(self, step: StepRecord, recipe: ReplayRecipe) -> str:
        """Return the name of the provider and model that a replay asks. Raises InvalidInput."""
        by_kind = {entry.kind: entry for entry in self.entries(step.id)}
        facts: dict[str, Any] = {}
        for kind in ("compile_request", "request"):
            if (entry := by_kind.get(kind)) is not None:
                payload = entry.payload if isinstance(entry.payload, dict) else {}
                facts |= {k: v for k, v in {**payload, **entry.summary}.items() if v is not None}
        provider = recipe.provider_override or facts.get("provider")
        model = recipe.model_override or facts.get("model") or step.name
        if provider is None or model is None:
            raise InvalidInput(
                "The step names no provider and model to ask: give provider_override and "
                "model_override."
            )
        return f"{provider}:{model}"

    def _replay_once(self, step_id: str, recipe: ReplayRecipe, job_id: str) -> ReplayOutcome:
        """Return what the replay of a job came to: of the run that an earlier attempt completed,
        whose worker died before the job ended, else of a new one.

        The ids of its runs follow from the job's, so that a run is stored with it.
        """
        attempts = count()
        while True:
            name = f"{job_id}/{next(attempts)}"
            run_id = str(UUID(bytes=sha256(name.encode()).digest()[:16]))
            try:
                earlier = self.run(run_id)
            except NotFound:
                result = self._replay(step_id, run_id, recipe=recipe)
                return ReplayOutcome(
                    run_id, result.step_id or "", result.fidelity, result.request_matches
                )
            if earlier.status == "completed":
                break
        step = self.steps(run_id)[-1].id
        [replay] = [
            cast(dict[str, Any], entry.summary["replay"])
            for entry in self.entries(step)
            if "replay" in entry.summary
        ]
        return ReplayOutcome(run_id, step, replay["fidelity"], replay["request_matches"])

    def _replay(self, step_id: str, run_id: str | None, **options: Any) -> ReplayResult:
        step = self.step(step_id)
        run = self.run(step.run_id)
        origin: JsonObject = {"replay_of": {"run_id": run.id, "step_id": step_id}}
        with (
            # In the scope of its step: what it recorded has no other readers when it is made again.
            self.start_run(
                run.agent_name,
                scope=run.scope,
                domain=run.domain,
                goal=run.goal,
                metadata=origin,
                run_id=run_id,
            ) as new_run,
            new_run.step("model_call", name=step.name, metadata=origin) as new_step,
        ):
            replayed = self.replayed(step_id, **options)
            replayed.record_in(new_step)
        return replayed.result.model_copy(update={"run_id": new_run.id, "step_id": new_step.id})

    def replay_later(
        self, /, step_id: StepId, *, recipe: Recipe = None, **changes: Annotated[Any, PROCESS_ONLY]
    ) -> Job:
        """Enqueue the replay of a recorded step, without a model, as a job; return the job.

        Its result names the new run and step. Asked for again with the same changes, it is the same
        job. Raises Denied, NotFound, InvalidInput.
        """
        step = self.step(step_id)
        services, run = self._view._services, self.run(step.run_id)
        wanted = recipe_for(step, recipe, changes, new_id=services.store.ids.new)
        return enqueue_replay(services, self._view.actor, run.scope, step_id, wanted)

    def activity(
        self,
        *,
        since: Occasion | None = None,
        until: Occasion | None = None,
        after: Count | None = None,
        limit: Limit = 100,
        newest: bool = False,
        events: Labels = (),
    ) -> list[Activity]:
        """List what happened in the bound scope, in the order of time: captures, changes,
        decisions, refusals, each with the memory that it is about as far as this actor may see it.

        Give the last `position` of a page as `after` for the next one. With `newest` the last
        events come first. `events` names those to list, such as `memory.imported`: they are looked
        for among the last 5,000 of the scope. Raises Denied, InvalidInput.
        """
        self._view._admit("read")
        return memory.activity(
            self._view._services.memory,
            self._view.actor,
            self._view.scope,
            since=self._view._ago(since, "since"),
            until=self._view._moment(until, "until", ahead=True),
            after=after,
            limit=limit,
            newest=newest,
            events=events,
        )

    def reads(
        self, *, operation: Words | None = None, limit: Limit = 100, before: Count | None = None
    ) -> list[LoggedRead]:
        """List who has read, newest first, from the access log: the lines of scopes that this actor
        may inspect, and its own. Give the last `number` of a page as `before` for the next one.
        Raises InvalidInput.
        """
        self._view._admit("read")
        return memory.reads(
            self._view._services.memory,
            self._view.actor,
            operation=operation,
            limit=limit,
            before=before,
        )
