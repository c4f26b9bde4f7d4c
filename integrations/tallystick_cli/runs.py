"""Commands that read recorded runs and steps, compare them, and compile a step anew."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType

from tallystick.errors import InvalidInput, NotFound
from tallystick.policy.rules import load_rules
from tallystick.records import RunRecord, Scope, StepRecord
from tallystick.tally import BoundTally, is_provider, model_provider, replay_call
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import terminal
from tallystick_cli.session import complete_id, find_run_or_step, step_of
from tallystick_cli.views import runs as views

_MOST = 1_000
"""Runs that are looked through for the scopes that have some."""
_WHOLE = 36
"""Characters of an id."""


@command("runs", scope="all")
def runs(call: Call) -> Answer:
    recordings, every = call.owner.recordings, call.owner.tally.scopes()
    scopes = every if call.scope is None else [Scope.parse(call.scope)]
    listed = recordings.runs_of(scopes, **({"limit": 20} | call.arguments))
    counts = recordings.step_counts(listed)
    rows = [(run, counts.get(run.id, 0)) for run in listed]
    if rows:
        value = [{**run.dump(), "steps": steps} for run, steps in rows]
        return Answer(value, views.run_table(rows))
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
    call: Call, step: Annotated[str, "Id of a step or run, or how it begins or ends."], /
) -> Answer:
    """Show a step: what the agent saw, why, what it did, and its receipt. For a run, its steps."""
    record, recordings = find_run_or_step(call.owner, step), call.owner.recordings
    if isinstance(record, RunRecord):
        steps: list[StepRecord] = call.do("steps", run_id=record.id)
        runs = views.run_table([(record, len(steps))])
        return Answer({**record.dump(), "steps": steps}, [runs, views.step_table(steps)])
    if call.arguments:
        raise InvalidInput("--after and --limit page the steps of a run: name a run.")
    entries = recordings.entries(record.id)
    receipt = _read_or_none(recordings.receipt, record.id)
    compiled = _read_or_none(recordings.compiled, record.id)
    run = recordings.run(record.run_id)
    places = _state_of(call.owner, record, run.scope)
    value = {**record.dump(), "entries": entries, "receipt": receipt, "state": places}
    parts = run, record, receipt, entries, compiled, places
    return Answer(value, lambda: views.step_view(*parts, width=terminal().width))


def _read_or_none(read: Any, step_id: str) -> Any:
    """Return what a step has; None where it has none."""
    try:
        return read(step_id)
    except NotFound:
        return None


def _state_of(owner: BoundTally, step: StepRecord, scope: Scope) -> list[str]:
    """Return the checkpoints that the task of this step wrote, as thread and checkpoint id."""
    thread, namespace = step.metadata.get("thread_id"), step.metadata.get("langgraph_checkpoint_ns")
    if not isinstance(thread, str) or not isinstance(namespace, str):
        return []
    if not owner.spaces.preview_access(scopes=[scope]).scopes[0].decision.allowed:
        # An operator looks into what was recorded; state is read by its own user alone.
        return []
    threads = owner.tally.bind(owner.actor, scope).on("cli").threads
    places = threads.places_of_task(thread, namespace.rpartition(":")[2])
    return [f"{thread} {id}" for _, id in places]


@command("knew", "unseen", "changed", "written", without=("run_id",))
def why(call: Call) -> Answer:
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
    nothing = "No context is kept that was compiled in this step."
    parts: list[RenderableType] = [
        nothing if compiled is None else views.decision_table(*compiled),
        *([] if changed is None else [views.step_diff_view(changed)]),
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
