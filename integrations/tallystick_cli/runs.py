"""Commands that read recorded runs, steps and checkpoints, compare them, or compile a step anew."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType

from tallystick.costs import costs_in
from tallystick.errors import InvalidInput, NotFound, require
from tallystick.kit import closed_to, journal_opened
from tallystick.policy.rules import load_rules
from tallystick.records import RunRecord, Scope, StepRecord
from tallystick.tally import BoundRecordings, BoundTally, is_provider, model_provider, replay_call
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import progress_bar, terminal
from tallystick_cli.session import complete_id, find_run_or_step, step_of
from tallystick_cli.views import runs as views

_MOST = 1_000
"""Runs that are looked through for the scopes that have some."""
Opened = Annotated[bool, "Also the memories of somebody else; each look is journaled."]
_WHOLE = 36
"""Characters of an id."""


@command("runs", scope="all")
def runs(call: Call) -> Answer:
    recordings, every = call.owner.recordings, call.owner.tally.scopes()
    scopes = every if call.scope is None else [Scope.parse(call.scope)]
    listed = recordings.runs_of(scopes, **({"limit": 20} | call.arguments))
    counts = recordings.step_counts(listed)
    if listed:
        value = [{**run.dump(), "steps": counts.get(run.id, 0)} for run in listed]
        return Answer(value, views.run_table(listed, counts))
    if call.scope and (others := recordings.runs_of(every, limit=_MOST)):
        names = ", ".join(sorted({str(run.scope) for run in others}))
        return Answer([], f"No runs are recorded in {call.scope}. There are some in {names}.")
    return Answer(
        [],
        "No runs are recorded here yet that you may look into. An agent records its runs with the "
        "line for its runtime, or your code with bound.run(…).",
    )


@command(*("run", "steps", "step", "entries", "receipt"), without=("run_id", "step_id"))
def show(
    call: Call,
    step: Annotated[str, "Id of a step or run, or how it begins or ends."],
    /,
    open: Opened = False,
    costs: Annotated[
        bool, "What the pieces of the step took, where `record_costs` is set."
    ] = False,
) -> Answer:
    """Show a step: what the agent saw, why, what it did, and its receipt. For a run, its steps."""
    record, recordings = find_run_or_step(call.owner, step), call.owner.recordings
    if isinstance(record, RunRecord):
        steps: list[StepRecord] = call.do("steps", run_id=record.id)
        runs = views.run_table([record], {record.id: len(steps)})
        return Answer({**record.dump(), "steps": steps}, [runs, views.step_table(steps)])
    if call.arguments:
        raise InvalidInput("--after and --limit page the steps of a run: name a run.")
    if costs:
        return _costs_of(record)
    entries = recordings.entries(record.id)
    receipt = _read_or_none(recordings.receipt, record.id)
    compiled = _read_or_none(recordings.compiled, record.id)
    run = recordings.run(record.run_id)
    places = _state_of(call.owner, record, run.scope)
    value = {**record.dump(), "entries": entries, "receipt": receipt, "state": places}
    parts = run, record, receipt, entries, compiled, places
    is_opened = open or call.as_json
    closed = _closed_or_opened(call.owner, recordings, record, run.scope, is_opened=is_opened)
    return Answer(value, lambda: views.step_view(*parts, closed=closed, width=terminal().width))


def _costs_of(step: StepRecord) -> Answer:
    if not (taken := costs_in(step.metadata)):
        return Answer(
            {},
            "Nothing counted what this step took. Open the tally with record_costs=True, or set "
            "TALLYSTICK_RECORD_COSTS=1, and record a step.",
        )
    return Answer(taken, views.cost_table(taken))


def _read_or_none(read: Any, step_id: str) -> Any:
    """Return what a step has; None where it has none."""
    try:
        return read(step_id)
    except NotFound:
        return None


def _closed_or_opened(
    owner: BoundTally,
    recordings: BoundRecordings,
    step: StepRecord,
    scope: Scope,
    *,
    is_opened: bool,
) -> str | None:
    """Return whose memories of a step stay closed, or None; those that are opened are journaled,
    each by its id, before they are shown. `recordings` journal one look at a step.
    """
    closed = closed_to(owner, scope)
    if closed is None or not is_opened:
        return closed
    items = _read_or_none(recordings.candidates, step.id) or []
    journal_opened(owner, scope, items, step_id=step.id)
    return None


def _state_of(owner: BoundTally, step: StepRecord, scope: Scope) -> list[str]:
    """Return the checkpoints that the task of this step wrote, as thread and checkpoint id."""
    thread, namespace = step.metadata.get("thread_id"), step.metadata.get("langgraph_checkpoint_ns")
    if not isinstance(thread, str) or not isinstance(namespace, str):
        return []
    if closed_to(owner, scope) is not None:
        # An operator looks into what was recorded; state is read by its own user alone.
        return []
    threads = owner.tally.bind(owner.actor, scope).on("cli").threads
    places = threads.places_of_task(thread, namespace.rpartition(":")[2])
    return [f"{thread} {id}" for _, id in places]


@command("knew", "unseen", "changed", "written", without=("run_id",))
def why(call: Call, /, open: Opened = False) -> Answer:
    """Say what the agent knew at a step and why, what it did not see, what changed since the step
    before, and what it wrote.
    """
    record, recordings = step_of(call.owner, call.arguments["step_id"]), call.owner.recordings
    compiled = _read_or_none(recordings.compiled, record.id)
    knew, unseen = (
        (recordings.knew(record.id), recordings.unseen(record.id))
        if compiled is not None
        else ([], [])
    )
    changed = _read_or_none(recordings.changed, record.id)
    written = [each for each in recordings.written(record.run_id) if each.step_id == record.id]
    scope = recordings.run(record.run_id).scope
    closed = _closed_or_opened(
        call.owner, recordings, record, scope, is_opened=open or call.as_json
    )
    nothing = "No context is kept that was compiled in this step."
    parts: list[RenderableType] = [
        nothing
        if compiled is None
        else views.decision_table(
            *compiled,
            entries=recordings.entries(record.id),
            closed=closed,
        ),
        # The lines of two requests have the texts of memories.
        *([] if changed is None or closed is not None else [views.step_diff_view(changed)]),
        *(f"wrote {each.event} {each.memory_id} by {each.by.get('user')}" for each in written),
    ]
    value = {
        "coverage": None if compiled is None else compiled.compiled.coverage,
        "knew": list(knew),
        "unseen": list(unseen),
        "changed": changed,
        "written": written,
    }
    return Answer(value, parts)


@command("trace", positional=("text",))
def trace(call: Call) -> Answer:
    origins = call.do(step_id=step_of(call.owner, call.arguments["step_id"]).id)
    return Answer(origins, [views.origin_text(origin) for origin in origins])


@command("uses")
def uses(call: Call) -> Answer:
    memory, memory_uses = call.arguments["memory_id"], call.do()
    if not memory_uses and len(memory) < _WHOLE:
        # Of a memory that was erased its whole id is all there is to ask with.
        call.owner.inspect(memory)
    if not memory_uses:
        return Answer([], "No recorded step had to do with it.")
    lines = [
        f"{each.step.id[-8:]}  {', '.join(each.how).replace('_', ' ')}" for each in memory_uses
    ]
    return Answer(memory_uses, [views.step_table([each.step for each in memory_uses]), *lines])


@command("diff", view=views.step_diff_view, positional=("before", "after"))
def diff(call: Call) -> Any:
    steps = {name: step_of(call.owner, text).id for name, text in call.arguments.items()}
    return call.do(**steps)


@command(
    "replay",
    without=("recipe", "approval_token"),
    helps={
        "provider": "Compile for this provider instead, and make its request: openai, anthropic, "
        "or one of yours.",
        "send": "Send the request to the provider, and compare its answer; needs a key.",
        "weights": "NAME=VALUE of a score weight, in thousandths, or a TOML file of them.",
    },
)
def recompile(
    call: Call,
    drop: Annotated[tuple[str, ...], "Leave this item or memory out."] = (),
    without_source: Annotated[tuple[str, ...], "Leave out what comes from this source."] = (),
    model: Annotated[str | None, "Compile for this model instead."] = None,
    provider: str | None = None,
    send: bool = False,
    weights: tuple[str, ...] = (),
    budget: Annotated[str | None, "Tokens, or a share of them such as 50%."] = None,
    rules: Annotated[str | None, "TOML file of rules to use instead."] = None,
    keep: Annotated[bool, "Record it as a run of its own, with the changes."] = False,
) -> Answer:
    """Compile a recorded step anew with a change. No model is called but with --send."""
    owner, record = call.owner, step_of(call.owner, call.arguments["step_id"])
    changes: dict[str, Any] = {
        **_left_out(owner, record, drop, without_source),
        "model_override": model,
        "provider_override": provider,
        "score_weights": _weights(weights),
    }
    if budget is not None:
        changes["token_budget"] = _budget(owner, record, budget)
    if rules is not None:
        changes["policy_rules"] = load_rules(rules)
    if send and provider is None:
        raise InvalidInput("Name the provider to send to: --provider openai --model gpt-5.")
    if provider is not None and is_provider(provider):
        chosen = model_provider(f"{provider}:{model or record.name}")
        changes["render"] = chosen.render
        if send:
            changes["call"] = replay_call(owner, chosen, piece="tally recompile")
    elif send:
        raise InvalidInput(f"{provider} is no provider that is installed.")
    result = (owner.recordings.replay if keep else owner.recordings.preview_replay)(
        record.id, **changes
    )
    lines = [] if result.step_id is None else [f"Kept as step {result.step_id}."]
    return Answer(result, [views.replay_view(result), *lines])


def _left_out(
    owner: BoundTally, step: StepRecord, drop: Iterable[str], sources: Iterable[str]
) -> dict[str, Any]:
    """Return what to leave out, by whole ids; what is no candidate the replay refuses."""
    compiled = _read_or_none(owner.recordings.compiled, step.id)
    if compiled is None:
        return {"context_mutations": dict.fromkeys(drop), "without_sources": tuple(sources)}
    memories = compiled[0].memory_records
    items = {each.id for each in (*compiled[0].context_items, *memories)}
    origins = {source.source_id for memory in memories for source in memory.sources}
    return {
        "context_mutations": {complete_id(name, items, "candidate"): None for name in drop},
        "without_sources": tuple(complete_id(name, origins, "source") for name in sources),
    }


def _weights(texts: Iterable[str]) -> dict[str, int]:
    """Return the score weights that were typed, or are in the files. Raises InvalidInput."""
    weights: dict[str, int] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if separator:
            if not value.strip().removeprefix("-").isdecimal():
                raise InvalidInput(f"{text!r}: a score weight is a whole number, in thousandths.")
            weights[name.strip()] = int(value)
            continue
        try:
            table = tomllib.loads(Path(text).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{text} is not TOML: {error}.") from error
        named = table.get("compile_weights", table)
        if not isinstance(named, dict) or any(type(each) is not int for each in named.values()):
            raise InvalidInput(f"{text}: score weights are whole numbers by name, in thousandths.")
        weights |= named
    return weights


def _budget(owner: BoundTally, step: StepRecord, text: str) -> int:
    """Return tokens, or a share of the step's budget."""
    number = text.removesuffix("%")
    if not number.isdigit() or int(number) < 1:
        raise InvalidInput(
            f"--budget takes tokens (2000) or a share of the step's budget (50%), not {text!r}."
        )
    if number == text:
        return int(number)
    entries = owner.recordings.entries(step.id)
    payload = next((each.payload for each in entries if each.kind == "compile_request"), None)
    budget = payload.get("token_budget") if isinstance(payload, dict) else None
    if isinstance(budget, int):
        return max(1, budget * int(number) // 100)
    raise InvalidInput(f"Step {step.id} recorded no compile.")


_NAMED = 10
"""Threads that are named where the one asked for is not there."""


@command(
    view=views.state_table,
    scope="home",
    helps={
        "checkpoint": "Id of a checkpoint, or how it begins or ends; without it the newest ones."
    },
)
def state(
    call: Call,
    thread: Annotated[str, "Name of a thread of checkpoints."],
    checkpoint: str | None = None,
    /,
    limit: Annotated[int, "Checkpoints at most."] = 10,
) -> list[dict[str, Any]]:
    """Show the checkpoints of a thread, what was written at each, and the steps that wrote it."""
    threads = call.bound.threads
    checkpoints = list(threads.history(thread))
    if not checkpoints:
        names = ", ".join(threads.names()[:_NAMED]) or "none"
        raise NotFound(
            f"There is no thread {thread} in {call.bound.scope}; its threads: {names}. Other "
            "scopes are named with --scope."
        )
    if checkpoint is not None:
        whole_id = complete_id(checkpoint, [each.id for each in checkpoints], "checkpoint")
        checkpoints = [each for each in checkpoints if each.id == whole_id]
    rows = []
    for each in checkpoints[:limit]:
        tasks: dict[str, list[str]] = {}
        for task, channel in threads.tasks_at(
            thread, namespace=each.namespace, checkpoint_id=each.id
        ):
            tasks.setdefault(task, []).append(channel)
        writes = [
            {
                "task": task,
                "channels": channels,
                "steps": [step.id for step in call.owner.recordings.steps_of_task(task)],
            }
            for task, channels in tasks.items()
        ]
        rows.append(
            {
                "checkpoint": each.id,
                "namespace": each.namespace,
                "parent": each.parent_id,
                "metadata": dict(each.metadata),
                "channels": sorted(each.channels),
                "writes": writes,
            }
        )
    return rows


@command(scope="home")
def verify_threads(
    call: Call,
    thread: Annotated[str | None, "Name of a thread; without it all of the scope."] = None,
    /,
) -> Answer:
    """Check every checkpoint and every piece of state. Exits with 1 when one does not match."""
    threads, scope = call.bound.threads, call.bound.scope
    names = threads.names() if thread is None else [thread]
    problems = threads.verify(thread)
    listed = [{"where": each.where, "problem": each.problem} for each in problems]
    lines = [f"✗ {each.where}: {each.problem}" for each in problems]
    if not problems and names:
        lines = [f"✓ {len(names)} threads match what was put"]
    value = {"scope": str(scope), "threads": len(names), "problems": listed}
    none = f"There are no threads in {scope}; --scope names another."
    return Answer(value, lines or none, not problems)


@command(scope="home", tally="create")
def import_checkpoints(
    call: Call,
    source: Annotated[str, "File of a SqliteSaver, or postgresql://… of a PostgresSaver."],
    /,
    allow: Annotated[tuple[str, ...], "Type that state may hold, as module:Name."] = (),
) -> Answer:
    """Copy the threads of LangGraph's own savers into the tally and compare every checkpoint."""
    require("langgraph", extra="langgraph")
    import tallystick_langgraph

    types = [tuple(name.split(":", 1)) for name in allow]
    if any(len(name) != 2 for name in types):
        raise InvalidInput("--allow takes a type as module:Name, such as shop.state:Order.")
    saver = tallystick_langgraph.TallySaver(call.bound, allow=types)
    with progress_bar("Importing", "threads", hidden=call.as_json) as advance:
        counts = tallystick_langgraph.import_checkpoints(source, saver, progress=advance)
    value = {name: getattr(counts, name) for name in ("threads", "checkpoints", "writes")}
    of = f"{counts.checkpoints} checkpoints and {counts.writes} writes"
    return Answer(value, f"✓ {counts.threads} threads with {of}, each compared")
