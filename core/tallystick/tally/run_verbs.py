"""The verbs of runs: compile, record, verify, replay, and keep what was said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count
from typing import Annotated, Any, NamedTuple, cast
from uuid import UUID

from pydantic import Field

from tallystick.access import Approvals
from tallystick.checkpoints import Threads
from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.memory import WorkingMemory
from tallystick.policy.rule_checks import CALLS, check_rules
from tallystick.ranking import UNRELATED, quantise
from tallystick.recorder import (
    Call,
    Recordings,
    Render,
    Run,
    current_run,
    current_step,
    neutral_request,
)
from tallystick.recorder.replay import recipe_for
from tallystick.records import (
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    Foil,
    Job,
    JsonObject,
    Limit,
    Moment,
    NewMemory,
    PolicyRule,
    Remembered,
    ReplayRecipe,
    ReplayResult,
    Retention,
    RunId,
    RunRecord,
    ScoreWeights,
    SourceRef,
    StepId,
    TargetProfile,
    ToolSpec,
    Verification,
    checked_arguments,
    tuple_of,
)
from tallystick.records.arguments import PAGE_BEFORE
from tallystick.records.wire import PROCESS_ONLY
from tallystick.storage import journal
from tallystick.storage.writes import Writes
from tallystick.tally.captured_turns import Captured, TurnsOfRun
from tallystick.tally.compiling import (
    Candidate,
    CandidateItems,
    candidates_of,
    compile_request,
    record_again,
    require_fitting_scopes,
)
from tallystick.tally.later_replays import ReplayOutcome, enqueue_replay
from tallystick.tally.review_verbs import ReviewVerbs
from tallystick.tally.session_turns import newest_exchange, scopes_of_session
from tallystick.tally.view import ObservedCall

Recipe = Annotated[ReplayRecipe | None, Field(description="What to change; without it nothing.")]


class JoinedRun(NamedTuple):
    """The run that an adapter records in."""

    run: Run
    is_own: bool
    """True if the adapter started the run and is to end it."""


@checked_arguments
class RunVerbs(ReviewVerbs):
    """What an actor does with runs, and with the context of their model calls."""

    def compile(
        self,
        items: CandidateItems,
        *,
        budget: int,
        model: str | None = None,
        provider: str | None = None,
        query: str | None = None,
        tools: Annotated[Sequence[ToolSpec], tuple_of(ToolSpec)] = (),
        reserve: int = 0,
        task: str | None = None,
        task_type: str | None = None,
        environment: str | None = None,
        rules: Annotated[Sequence[PolicyRule], tuple_of(PolicyRule)] = (),
        summaries: Mapping[str, str] | None = None,
        config: CompileConfig | None = None,
        target: TargetProfile | None = None,
        as_of: Moment | None = None,
        working: WorkingMemory | bool = True,
    ) -> CompiledContext:
        """Choose the best context that fits `budget` tokens, with a decision for every candidate.

        Relevance is measured against `query`, by default the latest user message. Age and ends are
        counted at `as_of`, by default now: the same candidates at the same moment give the same id.
        The `working` memory of the open run is a candidate too; False leaves it out, and that of
        another run takes its place. `rules` are added to those of the tally; a `config` that names
        no weights has those of the settings.

        Inside a step of a run the compile is recorded with it, and refused where a candidate stands
        in a scope that not all readers of the run may read. Raises InvalidInput, InvalidRecord,
        InvalidContext, BudgetInfeasible, Denied (`scope_crossing_requires_promotion`),
        RequestDenied when policy denies the latest request, ActionDenied, or ApprovalRequired when
        a rule wants an approval: the step is then `blocked`, and contains what is to be approved.
        """
        own = tuple(rules)
        if any(rule.applies_to in CALLS for rule in own):
            raise InvalidInput(
                "A compile decides over items and memories, not over calls. Give rules for calls "
                "where the tally is opened: Tally.open(…, rules=…)."
            )
        policy_rules = (*self._services.rules, *own)
        check_rules(policy_rules, error=InvalidInput)
        for kind in ("context_item", "memory"):
            self._services.call_rules.register(self.actor, kind, "compile")
        at = self._moment(as_of, "as_of")
        candidates = candidates_of(
            self._with_working(items, working),
            self._services.zone,
            self._services.memory.redactor,
        )
        with self._observed("compile", "compile") as call:
            if call.step is not None:
                require_fitting_scopes(self._services, self.actor, candidates, call.step.run.scope)
            request = CompilationRequest.load(
                {
                    "request_id": self._services.store.ids.new(),
                    "run_id": call.step.run.id if call.step else None,
                    "step_id": call.correlation_id,
                    "provider": provider,
                    "model": model,
                    "task_summary": task,
                    "query": query,
                    "context_items": candidates.items,
                    "tool_specs": tuple(tools),
                    "memory_records": candidates.memories,
                    # Recall has found them; words and vectors alone would miss an answer to a
                    # question.
                    "relevance": dict.fromkeys(sorted(candidates.found), quantise(UNRELATED)),
                    "tool_classes": self._services.call_rules.classes_of_schemas(
                        tools, policy_rules
                    ),
                    "policy_rules": policy_rules,
                    "token_budget": budget,
                    "response_reserve": reserve,
                    "as_of": self._services.store.clock.now() if at is None else at,
                    "compile_config": _weighted(config, self._services.settings.compile_weights),
                    "target": target or TargetProfile(),
                    "summaries": dict(summaries or {}),
                    "agent": self.actor.agent,
                    "task_type": task_type,
                    "environment": environment or self._services.settings.environment,
                }
            )
            return compile_request(self._services, request, call, self._approvals, home=self.scope)

    def _recompiled(
        self, compiled: CompiledContext, budget: int, call: ObservedCall
    ) -> CompiledContext:
        """Compile the candidates of a context again, for less. Raises BudgetInfeasible, and
        InvalidInput for a context that this tally did not compile.
        """
        request = self._services.compile_requests.of(compiled)
        if request is None:
            raise InvalidInput(
                "This context was not compiled by this opened tally, so it cannot be compiled "
                'again. Compile it here, or send it with preflight="refuse".'
            )
        smaller = request.model_copy(update={"token_budget": max(budget, 1)})
        return compile_request(self._services, smaller, call, self._approvals, home=self.scope)

    def _record_again(self, compiled: CompiledContext, call: ObservedCall) -> None:
        """Record a context, with its request, in the step of the model call that it is for."""
        record_again(self._services, self.actor, compiled, call)

    @property
    def _approvals(self) -> Approvals:
        services = self._services
        return Approvals(
            services.store, services.gate, services.memory.redactor, self.actor, self.scope
        )

    def _with_working(
        self, items: Iterable[Candidate], working: WorkingMemory | bool
    ) -> list[Candidate]:
        """Return the candidates with the working memory that belongs to them, unless one is among
        them already.
        """
        candidates = list(items)
        if isinstance(working, WorkingMemory):
            return [*candidates, working]
        if not working or any(isinstance(candidate, WorkingMemory) for candidate in candidates):
            return candidates
        of_run = self._working_of_run([self.scope])
        return candidates if of_run is None else [*candidates, of_run]

    @property
    def recordings(self) -> Recordings:
        """The recordings that this actor may read."""
        return self._recordings

    def run(
        self,
        agent_name: str,
        *,
        domain: str | None = None,
        goal: str | None = None,
        metadata: JsonObject | None = None,
        run_id: str | None = None,
        retention: Retention | None = None,
    ) -> Run:
        """Start a run; use it as a `with` block, or call its `end`. Raises Denied."""
        return self._recordings.start_run(
            agent_name,
            scope=self.scope,
            domain=domain,
            goal=goal,
            metadata=metadata,
            run_id=run_id,
            retention=retention,
        )

    def join_run(self, agent_name: str, **options: Any) -> JoinedRun:
        """Return the run for calls that an adapter sees.

        Inside a `run` block or an open step on this tally it is that run; otherwise a new one, with
        the options of `run`.
        """
        step = current_step()
        for active in (current_run(), step.run if step is not None and step.is_open else None):
            if (
                active is not None
                and active.context is self._services.recorder
                and active.record.ended_at is None
            ):
                active.add_surface(self.actor.surface)
                return JoinedRun(active, is_own=False)
        return JoinedRun(self.run(agent_name, **options), is_own=True)

    def runs(
        self,
        *,
        limit: Annotated[Limit, Field(description="Runs at most.")] = 20,
        before: Annotated[RunId | None, PAGE_BEFORE] = None,
    ) -> list[RunRecord]:
        """List the runs of the bound scope, newest first.

        Give the last id of a page as `before` for the next one. Raises NotFound for an unknown one.
        """
        return self._recordings.runs([self.scope], limit=limit, before=before)

    def verify(
        self,
        run_id: RunId,
        *,
        foil: Annotated[
            Foil | None, Field(description="The head that was kept elsewhere, to be matched.")
        ] = None,
    ) -> Verification:
        """Same as `recordings.verify`, with the checkpoint threads in which the run's steps ran.

        A thread of a scope that the actor may not read is named in `cannot_prove`. Raises NotFound.
        """
        verification = self._recordings.verify(run_id, foil=foil)
        names = {
            name
            for step in self._recordings.steps(run_id)
            if isinstance(name := step.metadata.get("thread_id"), str)
        }
        if not names:
            return verification
        problems, unread = [*verification.problems], [*verification.cannot_prove]
        checked: set[str] = set()
        try:
            run = self._recordings.run(run_id)
            threads = replace(self, scope=run.scope).threads
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

    def replay(
        self,
        /,
        step_id: StepId,
        *,
        call: Annotated[Call | None, PROCESS_ONLY] = None,
        recipe: Recipe = None,
        render: Annotated[Render, PROCESS_ONLY] = neutral_request,
        **changes: Annotated[Any, PROCESS_ONLY],
    ) -> ReplayResult:
        """Make a recorded model step again as the step of a new run, in the scope of its own run.

        The new receipt contains the recipe and the outcome. Same as `recordings.replay`, which
        records nothing. The result names the new run and step, which can be replayed in turn.
        Raises Denied as well.
        """
        return self._replay(step_id, None, call=call, recipe=recipe, render=render, **changes)

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
                earlier = self._recordings.run(run_id)
            except NotFound:
                result = self._replay(step_id, run_id, recipe=recipe)
                return ReplayOutcome(
                    run_id, result.step_id or "", result.fidelity, result.request_matches
                )
            if earlier.status == "completed":
                break
        step = self._recordings.steps(run_id)[-1].step_id
        [told] = [
            cast(dict[str, Any], entry.summary["replay"])
            for entry in self._recordings.entries(step)
            if "replay" in entry.summary
        ]
        return ReplayOutcome(run_id, step, told["fidelity"], told["request_matches"])

    def _replay(self, step_id: str, run_id: str | None, **options: Any) -> ReplayResult:
        step = self._recordings.step(step_id)
        run = self._recordings.run(step.run_id)
        # In the scope of its step: what it recorded has no other readers when it is made again.
        within = replace(self, scope=run.scope)
        origin: JsonObject = {"replay_of": {"run_id": run.run_id, "step_id": step_id}}
        with (
            within.run(
                run.agent_name,
                domain=run.domain,
                goal=run.user_goal,
                metadata=origin,
                run_id=run_id,
            ) as new_run,
            new_run.step("model_call", name=step.name, metadata=origin) as new_step,
        ):
            replayed = self._recordings.replayed(step_id, **options)
            replayed.record_in(new_step)
        return replayed.result.model_copy(update={"run_id": new_run.id, "step_id": new_step.id})

    def replay_later(
        self, /, step_id: StepId, *, recipe: Recipe = None, **changes: Annotated[Any, PROCESS_ONLY]
    ) -> Job:
        """Enqueue the replay of a recorded step, without a model, as a job; return the job.

        Its result names the new run and step. Asked for again with the same changes, it is the same
        job. Raises Denied, NotFound, InvalidInput.
        """
        step = self._recordings.step(step_id)
        services, run = self._services, self._recordings.run(step.run_id)
        wanted = recipe_for(step, recipe, changes, new_id=services.store.ids.new)
        return enqueue_replay(services, self.actor, run.scope, step_id, wanted)

    def keep_turn(
        self,
        run: Run,
        *,
        user: str | None = None,
        assistant: str | None = None,
        unkept_answer: str | None = None,
        observer: str = "application",
        idempotency_key: str | None = None,
    ) -> list[Remembered]:
        """Remember what was said in a run: the user's words and the agent's, as turns.

        The conversation is the thread that the run belongs to, else the run itself. Each turn is
        marked with the run and the last model call in it. Text that a tally supplied, such as
        recalled memories in a prompt, is left out; what is then empty answers `skipped`. What
        another `observer` has stored of this run answers `duplicate`, and the journal names both;
        so does what a hook has kept of the thread before the first run of an adapter in it. The
        agent's words that are not to be remembered are its `unkept_answer`: they tell this exchange
        from an earlier one with the same request. Raises what `remember_many` does.
        """
        spoken = {"user": user, "assistant": assistant}
        turns = {
            role: self._turn(run, role, text)
            for role, text in spoken.items()
            if text is not None and text.strip()
        }
        if idempotency_key is not None:
            # The caller says which call is which.
            key = f"keep_turn {idempotency_key}"
            return self.remember_many(turns.values(), idempotency_key=key) if turns else []
        captured = self._services.captured_turns.of(run.id)
        with captured.guard:
            if captured.is_new and turns:
                captured.is_new = False
                self._find_kept(run, captured, user, assistant or unkept_answer)
            results: dict[str, Remembered] = {}
            new: dict[str, NewMemory] = {}
            for role, turn in turns.items():
                words = captured.words(role, turn.content)
                earlier = captured.see(observer, words)
                if earlier is None:
                    key = f"turn {run.id} {words} {captured.number(words)}"
                    new[role] = turn.model_copy(update={"idempotency_key": key})
                else:
                    self._journal_duplicate(run, observer, earlier)
                    duplicate = {"status": "duplicate"}
                    results[role] = earlier.remembered.model_copy(update=duplicate)
            stored = self.remember_many(new.values()) if new else []
            for (role, turn), remembered in zip(new.items(), stored, strict=True):
                results[role] = remembered
                words = captured.words(role, turn.content)
                captured.add(words, Captured(observer, remembered, self.scope))
        return [results[role] for role in turns]

    def _find_kept(
        self, run: Run, captured: TurnsOfRun, user: str | None, answer: str | None
    ) -> None:
        """Note the turns of the first exchange of a session that a hook has kept already.

        It is the newest that the hook has kept, or none: what came before was over. It has the same
        request and, where both are known, the same answer; so the same words said twice are two
        turns. One that was answered when the run began is another exchange, unless the answer is
        the same.
        """
        services, session = self._services, run.record.metadata.get("thread_id")
        if user is None or not isinstance(session, str):
            return
        now = services.store.clock.now()
        if not services.sessions.is_new(self.actor, self.scope, session, now=now):
            return
        words = captured.words("user", user)
        answer = answer if answer is not None and answer.strip() else None
        for scope in scopes_of_session(self.actor, self.scope):
            kept = newest_exchange(services.memory, self.actor, scope, session)
            if kept is None or captured.words("user", kept.request.content) != words:
                continue
            spoken = None if kept.answer is None else captured.words("", kept.answer.content)
            is_same = answer is not None and captured.words("", answer) == spoken
            is_under_way = kept.request.created_at >= run.record.started_at
            if spoken is None or is_same or (answer is None and is_under_way):
                captured.add(words, kept.captured(kept.request))
                if is_same and kept.answer is not None and answer is not None:
                    captured.add(captured.words("assistant", answer), kept.captured(kept.answer))
                return

    def _turn(self, run: Run, role: str, text: str) -> NewMemory:
        thread = run.record.metadata.get("thread_id")
        step = run.latest("model_call")
        is_user = role == "user"
        speaker = self.actor.user if is_user else run.record.agent_name
        return NewMemory(
            content=text,
            kind="turn",
            speaker=speaker,
            conversation=thread if isinstance(thread, str) else run.id,
            source=SourceRef(
                source_type="user" if is_user else "other", uri=f"run:{run.id}", author=speaker
            ),
            source_run_id=run.id,
            source_step_ids=() if step is None else (step,),
        )

    def _journal_duplicate(self, run: Run, observer: str, earlier: Captured) -> None:
        """Journal that an observer saw a turn which another has stored, where it is stored."""
        store = self._services.store
        event = journal.Event(
            stream=f"scope:{earlier.scope}",
            event="turn.seen_again",
            actor=self._traced_actor,
            at=store.clock.now(),
            audit_id=store.ids.new(),
            subject_id=earlier.remembered.id,
            details={"run": run.id, "observer": observer, "stored_by": earlier.observer},
        )
        store.database.write(
            lambda tx: journal.append(tx, event),
            name="turn.seen_again",
            writes=Writes.of(earlier.scope),
        )

    @property
    def threads(self) -> Threads:
        """The checkpoint threads of the bound scope."""
        return Threads(self._services.checkpoints, self.actor, self.scope)


def _weighted(config: CompileConfig | None, weights: ScoreWeights) -> CompileConfig:
    """Return a configuration with the weights of the settings, unless it names its own."""
    if config is None:
        return CompileConfig(weights=weights)
    if "weights" in config.model_fields_set:
        return config
    return config.model_copy(update={"weights": weights})
