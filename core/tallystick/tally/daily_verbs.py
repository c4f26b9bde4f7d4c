"""Daily verbs: what an actor does every day, in one scope, beside the verbs of memory.

Each is a function of a view, and a method of `BoundTally`, which lists them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

from pydantic import Field

from tallystick import memory
from tallystick.errors import InvalidInput
from tallystick.loading import late_names
from tallystick.memory.fields import labels_of
from tallystick.policy.rules import CALLS, check_rules
from tallystick.recorder import current_run, current_step
from tallystick.records import (
    Compaction,
    CompilationRequest,
    CompileConfig,
    CompiledContext,
    ContextPack,
    Coverage,
    EdgeKind,
    Explored,
    ExploreMode,
    Forgotten,
    JsonObject,
    Limit,
    MemoryId,
    Moment,
    PackItem,
    PolicyRule,
    Retention,
    Scope,
    TargetProfile,
    Texts,
    ToolSpec,
    WorkingSet,
    tuple_of,
)
from tallystick.records.arguments import (
    PAGE_BEFORE,
    Force,
    IdempotencyKey,
    IfVersion,
    KindFilter,
    Name,
    OtherScopes,
    Reason,
    StateFilter,
    StatusFilter,
)
from tallystick.records.memory import ScopeName
from tallystick.tally.memory_view import (
    MemoryView,
    TokenBudget,
    TokenModel,
)

if TYPE_CHECKING:
    from tallystick.memory import WorkingMemory
    from tallystick.recorder import Run
    from tallystick.tally.compiling import Candidate, CandidateItems
    from tallystick.tally.observed_calls import ObservedCall
else:
    # What few processes do, such as compiling and checking calls, loads when it is first done.
    __getattr__ = late_names(
        "tallystick",
        {
            "memory": "WorkingMemory",
            "recorder": "Run",
            "tally.compiling": "Candidate CandidateItems",
        },
    )

V = TypeVar("V", bound=MemoryView)

_ABOUT = 200
"""Memories about a name that a pack chooses from, the newest."""


class JoinedRun(NamedTuple):
    """The run that an adapter records in."""

    run: Run
    is_own: bool
    """True if the adapter started the run and is to end it."""


def on(
    view: V,
    surface: str | None = None,
    *,
    request_id: str | None = None,
    session_id: str | None = None,
) -> V:
    """Return the same view for calls that come through `surface`, such as `langgraph`, or that
    belong to a request or session; the history names them.
    """
    actor = view.actor if surface is None else view.actor.on(surface)
    return replace(view, actor=actor.traced(request_id=request_id, session_id=session_id))


def forget(
    view: MemoryView,
    memory_id: MemoryId,
    *,
    reason: Reason,
    if_version: IfVersion = None,
    force: Force = False,
    confirm_token: Annotated[
        str | None,
        Field(description="With force: the token of the preview by `correct`."),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> Forgotten:
    """Remove a memory from every recall; it can be recovered until `recoverable_until`.

    A pinned memory is refused (`pinned_memory`). With `force` an operator forgets it, with the
    token of a preview by `corrections.make(memory_id, "delete", reason=…, force=True)`. Raises
    as that.
    """
    if force:
        from tallystick.tally.corrections import Corrections

        corrected = Corrections(view).make(
            memory_id,
            "delete",
            reason=reason,
            mode="apply",
            confirm_token=confirm_token,
            if_version=if_version,
            force=True,
            idempotency_key=idempotency_key,
        )
        assert corrected.result is not None
        return Forgotten(
            **corrected.result.model_dump(),
            recoverable_until=corrected.reversible_until,
            derived=corrected.affected.derived,
        )
    if confirm_token is not None:
        raise InvalidInput("`confirm_token` goes with `force`; else nothing is previewed.")
    with view._observe_call("memory_write", "forget") as call:
        view._admit("forget")
        forgotten = memory.forget(
            view._services.memory,
            view._traced_actor,
            memory_id,
            reason=reason,
            if_version=if_version,
            idempotency_key=idempotency_key,
            correlation_id=call.correlation_id,
        )
        view._record_change(call, forgotten, {"reason": reason})
    return forgotten


def explore(
    view: MemoryView,
    around: Annotated[
        MemoryId | ScopeName | None,
        Field(description="A scope such as project:apollo, the id of a memory, or a name."),
    ] = None,
    *,
    mode: Annotated[
        ExploreMode | None,
        Field(
            description="dependencies of a memory or scope; about: everything about a name; "
            "communities: what a scope, a name or words belong to."
        ),
    ] = None,
    depth: Annotated[int, Field(description="Links away from the middle; levels.", ge=1, le=3)] = 1,
    limit: Annotated[Limit, Field(description="Memories at most.")] = 50,
    before: Annotated[MemoryId | None, PAGE_BEFORE] = None,
    states: StateFilter = ("active",),
    kinds: KindFilter = (),
    status: StatusFilter = None,
    links: Annotated[
        Sequence[EdgeKind],
        tuple_of(EdgeKind),
        Field(description="Only links of these kinds, and what has one."),
    ] = (),
) -> Explored:
    """Look around without a query: the scopes, the contents of one, the links of a memory.

    `kinds`, `status` and `links` narrow what is in a scope, or around a memory.

    Without `around` it lists the scopes that this actor may look into, with counts; around a
    scope its memories of these `states`, newest first (the last id of a page is `before` for
    the next one); around a memory's id what it is linked with, up to `depth` (1 to 3) links
    away. `mode="dependencies"` lists what a memory, or those of a scope, depend on: each after
    those that it depends on, with the circles. `mode="about"` gives everything about a name, or
    an entity's id: what mentions it, what is said of it, and from a depth of 2 what is
    mentioned along with it. `mode="communities"` gives the groups of entities that memories
    mention together, in `depth` levels: those of a scope, or those that a name or words are
    about. What the actor may not read is neither shown nor named. Raises Denied, NotFound,
    InvalidInput, MissingExtra.
    """
    view._admit("read")
    context = view._services.memory
    with view._observe_call("memory_read", "explore") as call:
        modes = {
            name: explore
            for extension in context.extensions
            for name, explore in extension.modes.items()
        }
        only = memory.ExploreFilter(tuple(kinds), status, tuple(links))
        if any(only) and (mode is not None or around is None):
            raise InvalidInput(
                "Filters are for a scope, or what is around a memory: leave `mode`.",
                argument="mode",
            )
        from tallystick.memory.explore import scope_around

        is_paged = before is not None or tuple(states) != ("active",)
        if is_paged and (mode is not None or scope_around(view.actor, around) is None):
            raise InvalidInput(
                "`before` and `states` are for the memories of a scope: name it as `around`, and "
                "leave `mode`.",
                argument="states" if before is None else "before",
            )
        if mode in modes:
            explored = modes[mode](context, view.actor, view.scope, around, depth, limit)
        elif mode == "dependencies":
            middle = view.scope if around is None else around
            from tallystick.memory.dependencies import dependencies

            explored = dependencies(context, view.actor, middle, limit=limit)
        else:
            from tallystick.memory.explore import explore as explore_memories

            explored = explore_memories(
                context,
                view.actor,
                around,
                depth=depth,
                limit=limit,
                before=before,
                states=states,
                only=only,
            )
        if explored.memories:
            ids = [listed.id for listed in explored.memories]
            shown = [listed.scope for listed in explored.memories]
            call.record("memory_read", explored, summary={"memories": ids}, scopes=shown)
    return explored


def working_set(
    view: MemoryView,
    text: Annotated[str, Field(description="The latest request of the user.")] = "",
    *,
    conversation: Annotated[
        Name | None, Field(description="The session; its own turns are left out.")
    ] = None,
    in_prompt: Annotated[
        bool, Field(description="False where the prompt lacks the turns of the session.")
    ] = True,
    turn: Annotated[
        Name | None, Field(description="The turn: asked again, it has the same pieces.")
    ] = None,
    memories: Annotated[
        int, Field(description="Memories that the request adds at most; 0 for none.", ge=0, le=20)
    ] = 3,
    profile_budget: Annotated[
        int | None, Field(description="Tokens of the profile; by default as set.", ge=0)
    ] = None,
    namespace: Annotated[
        Texts | None, Field(description="Items of stores beneath this namespace as well.")
    ] = None,
    scopes: OtherScopes = None,
) -> WorkingSet:
    """Return what memory shows in a session, for its prompt: give the pieces to `compile`.

    The first turn of a `conversation` has a profile: what is pinned, instructions, preferences and
    facts, then what else the user said that tells most, within `profile_budget` tokens (the setting
    of that name). Each turn adds what its request finds, where the match is unusual for this user,
    and keeps what was there until it changes: then `replaced` and `withdrawn` name it. After a
    pause (the setting `session_pause_hours`) the session begins anew. Without a conversation the
    turn is a session of its own. Raises Denied.
    """
    view._admit("read")
    settings, readable = view._services.settings, view._scopes(scopes)
    request = memory.SessionTurn(
        text=text,
        conversation=conversation,
        in_prompt=in_prompt,
        turn=turn,
        namespace=None if namespace is None else labels_of(namespace),
        most=memories,
        budget=settings.profile_budget if profile_budget is None else profile_budget,
        pause=round(settings.session_pause_hours * 3600),
    )
    with view._observe_call("memory_read", "working_set") as call:
        from tallystick.memory.working_set import working_set as choose

        chosen = choose(
            view._services.memory,
            view.actor,
            readable,
            view.scope,
            request,
            counter=view._services.counter(None),
        )
        if call.step is not None and not chosen.asked_again:
            pieces = [
                [piece.hit.memory.id, piece.hit.memory.version, piece.chosen_as, piece.new]
                for piece in chosen.pieces
            ]
            summary = {
                "memories": [[memory_id, version] for memory_id, version, *_ in pieces],
                "replaced": list(chosen.replaced),
                "withdrawn": list(chosen.withdrawn),
                **({"warnings": list(chosen.warnings)} if chosen.warnings else {}),
            }
            call.record("memory_read", {"query": text, "pieces": pieces}, summary=summary)
    return chosen


def pack(
    view: MemoryView,
    query: Annotated[str, Field(description="What the text should answer.")],
    *,
    budget_tokens: TokenBudget = 2_000,
    conversation: Annotated[
        Name | None, Field(description="The session whose turn asks: its working set answers.")
    ] = None,
    about: Annotated[
        bool, Field(description="Everything about the name that the query is, from the graph.")
    ] = False,
    scopes: OtherScopes = None,
    model: TokenModel = None,
) -> ContextPack:
    """Return what answers `query` as text for an agent, within the budget; for a turn of a
    `conversation` its working set, to which the turn adds; with `about` everything that mentions
    the name `query` in the graph of the bound scope.

    The text is framed as data and secrets are replaced. Each item names its source, who may see
    it, why it is there and whether it is still valid. Raises as `recall`.
    """
    view._admit("read")
    readable = view._scopes(scopes)
    session, named = None, None
    if about:
        if conversation is not None or scopes is not None:
            raise InvalidInput("`about` looks into the bound scope alone, without a conversation.")
        explored = explore(view, query, mode="about", limit=_ABOUT)
        named = [each.id for each in explored.memories if each.kind != "entity"]
    if conversation is not None:
        session = working_set(view, query, conversation=conversation, scopes=scopes)
    with view._observe_call("memory_read", "pack") as call:
        packed = memory.pack(
            view._services.memory,
            view.actor,
            readable,
            query,
            budget_tokens=budget_tokens,
            counter=view._services.counter(model),
            working=_pack_items(view._working_of_run(readable)),
            home=view.scope,
            session=session,
            named=named,
        )
        _record_pack(call, {"query": query}, packed)
    return packed


def wake(
    view: MemoryView,
    *,
    budget_tokens: TokenBudget = 1_200,
    conversation: Annotated[
        Name | None, Field(description="The session that begins, or goes on.")
    ] = None,
    project: Annotated[
        Name | None, Field(description="What is handed over in this project.")
    ] = None,
    scopes: OtherScopes = None,
    model: TokenModel = None,
) -> ContextPack:
    """Return a pack without a query: pins, constraints, preferences, decisions, open tasks,
    summaries and the latest notes. For a `conversation` its working set comes first, in place of
    the latest notes, and what its later turns add follows from there.

    Of a `project` the pack is the handover: what is blocked, open, decided and learned in it, in
    the bound scope and that of the project; with a `conversation` it comes before the rest.
    """
    view._admit("read")
    readable = view._scopes(scopes)
    if project is not None and scopes is None:
        readable = [*readable, *_scope_of_project(view, project, readable)]
    session = None
    if conversation is not None:
        session = working_set(view, conversation=conversation, memories=0, scopes=scopes)
    with view._observe_call("memory_read", "wake") as call:
        pack = memory.wake(
            view._services.memory,
            view.actor,
            readable,
            budget_tokens=budget_tokens,
            counter=view._services.counter(model),
            working=_pack_items(view._working_of_run(readable)),
            home=view.scope,
            session=session,
            project=project,
        )
        _record_pack(call, {} if project is None else {"project": project}, pack)
    return pack


def _record_pack(call: ObservedCall, request: Mapping[str, Any], pack: ContextPack) -> None:
    ids = [item.id for item in pack.items if item.chosen_as != "working"]
    summary = {"memories": ids, "tokens": pack.tokens}
    call.record("memory_read", {**request, "items": ids}, summary=summary)


def _pack_items(working: WorkingMemory | None) -> tuple[PackItem, ...]:
    return () if working is None else working.pack_items()


def _scope_of_project(view: MemoryView, project: str, readable: Sequence[Scope]) -> list[Scope]:
    """Return the scope of a project where the actor may read it, and it is not read anyway."""
    if project not in view.actor.projects:
        return []
    scope = view.actor.home(f"project:{project}")
    return [] if scope in readable else [scope]


def compile(
    view: MemoryView,
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
    coverage: Coverage = "whole",
    compaction: Compaction = "cut",
) -> CompiledContext:
    """Choose the best context that fits `budget` tokens, with a decision for every candidate.

    Relevance is measured against `query`, by default the latest user message. Age and ends are
    counted at `as_of`, by default now: the same candidates at the same moment give the same id.
    The `working` memory of the open run is a candidate too; False leaves it out, and that of
    another run takes its place. `rules` are added to those of the tally; a `config` that names
    no weights has those of the settings. Say `coverage="recalled"` where you add what it
    returns to a request that holds more: no receipt says then that it is all that was sent.
    With `compaction="summary"` a memory that does not fit goes in by its summary, where there is
    one; where there is none a job makes it for a later compile (docs/reference/compiler.md,
    "Summaries").

    Inside a step of a run the compile is recorded with it, and refused where a candidate stands
    in a scope that not all readers of the run may read. Raises InvalidInput, InvalidRecord,
    InvalidContext, BudgetInfeasible, Denied (`scope_crossing_requires_promotion`),
    RequestDenied when policy denies the latest request, ActionDenied, or ApprovalRequired when
    a rule wants an approval: the step is then `blocked`, and contains what is to be approved.
    """
    from tallystick.memory.item_summaries import queue_wishes, read_summaries
    from tallystick.ranking import UNRELATED, quantise
    from tallystick.tally.compiling import (
        apply_weights,
        candidates_of,
        compile_request,
        require_fitting_scopes,
    )

    own = tuple(rules)
    if any(rule.applies_to in CALLS for rule in own):
        raise InvalidInput(
            "A compile decides over items and memories, not over calls. Give rules for calls "
            "where the tally is opened: Tally.open(…, rules=…)."
        )
    policy_rules = (*view._services.rules, *own)
    check_rules(policy_rules, error=InvalidInput)
    for kind in ("context_item", "memory"):
        view._services.call_rules.register(view.actor, kind, "compile")
    at = view._moment(as_of, "as_of")
    candidates = candidates_of(
        _with_working(view, items, working),
        view._services.zone,
        view._services.memory.redactor,
    )
    kept: dict[str, str] = {}
    if compaction == "summary":
        kept = read_summaries(view._services.memory, [each.id for each in candidates.memories])
        # A summary that is a candidate itself stands for itself: nothing is said twice.
        said = {each.content for each in candidates.memories}
        kept = {key: summary for key, summary in kept.items() if summary not in said}
    with view._observe_call("compile", "compile") as call:
        if call.step is not None:
            require_fitting_scopes(view._services, view.actor, candidates, call.step.run.scope)
        request = CompilationRequest.load(
            {
                "request_id": view._services.store.ids.new(),
                "run_id": call.step.run.id if call.step else None,
                "step_id": call.correlation_id,
                "provider": provider,
                "model": model,
                "task_summary": task,
                "query": query,
                "context_items": candidates.items,
                "tool_specs": tuple(tools),
                "memory_records": candidates.memories,
                "contradictions": memory.pairs_among(
                    view._services.memory,
                    view.actor,
                    candidates.memories,
                    candidates.contradicted_by,
                ),
                # Recall has found them; words and vectors alone would miss an answer to a
                # question.
                "relevance": dict.fromkeys(sorted(candidates.found), quantise(UNRELATED)),
                "chosen_as": dict(candidates.chosen_as),
                "profile": candidates.profile,
                "tool_classes": view._services.call_rules.classes_of_schemas(tools, policy_rules),
                "policy_rules": policy_rules,
                "token_budget": budget,
                "response_reserve": reserve,
                "as_of": view._services.store.clock.now() if at is None else at,
                "compile_config": apply_weights(config, view._services.settings.compile_weights),
                "target": target or TargetProfile(),
                "summaries": kept | dict(summaries or {}),
                "agent": view.actor.agent,
                "task_type": task_type,
                "environment": environment or view._services.settings.environment,
                "coverage": coverage,
            }
        )
        compiled = compile_request(view._services, request, call, view._approvals, home=view.scope)
    if compaction == "summary" and queue_wishes(
        view._services.memory, view.actor, compiled.wishes, candidates.memories
    ):
        view._wake_worker()
    return compiled


def compile_again(
    view: MemoryView, compiled: CompiledContext, budget: int, call: ObservedCall
) -> CompiledContext:
    """Compile the candidates of a context again, for less. Raises BudgetInfeasible, and
    InvalidInput for a context that this tally did not compile.
    """
    from tallystick.tally.compiling import compile_request

    request = view._services.compile_requests.of(compiled)
    if request is None:
        raise InvalidInput(
            "This context was not compiled by this opened tally, so it cannot be compiled "
            'again. Compile it here, or send it with preflight="refuse".'
        )
    smaller = request.model_copy(update={"token_budget": max(budget, 1)})
    return compile_request(view._services, smaller, call, view._approvals, home=view.scope)


def _with_working(
    view: MemoryView, items: Iterable[Candidate], working: WorkingMemory | bool
) -> list[Candidate]:
    """Return the candidates with the working memory that belongs to them, unless one is among
    them already.
    """
    from tallystick.memory import WorkingMemory

    candidates = list(items)
    if isinstance(working, WorkingMemory):
        return [*candidates, working]
    if not working or any(isinstance(candidate, WorkingMemory) for candidate in candidates):
        return candidates
    of_run = view._working_of_run([view.scope])
    return candidates if of_run is None else [*candidates, of_run]


def run(
    view: MemoryView,
    agent_name: str,
    *,
    domain: str | None = None,
    goal: str | None = None,
    metadata: JsonObject | None = None,
    run_id: str | None = None,
    retention: Retention | None = None,
) -> Run:
    """Start a run; use it as a `with` block, or call its `end`. Raises Denied."""
    return view._recordings.start_run(
        agent_name,
        scope=view.scope,
        domain=domain,
        goal=goal,
        metadata=metadata,
        run_id=run_id,
        retention=retention,
    )


def join_run(view: MemoryView, agent_name: str, **options: Any) -> JoinedRun:
    """Return the run for calls that an adapter sees.

    Inside a `run` block or an open step on this tally it is that run; otherwise a new one, with
    the options of `run`.
    """
    step = current_step()
    for active in (current_run(), step.run if step is not None and step.is_open else None):
        if (
            active is not None
            and active.context is view._services.recorder
            and active.record.ended_at is None
        ):
            active.add_surface(view.actor.surface)
            return JoinedRun(active, is_own=False)
    return JoinedRun(run(view, agent_name, **options), is_own=True)
