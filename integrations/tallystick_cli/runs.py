"""Commands that read recorded runs: list them, show a run or a step, compile a step anew."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from tallystick.errors import InvalidInput, NotFound
from tallystick.policy.rules import load_rules
from tallystick.records import RunRecord, Scope, StepRecord
from tallystick.tally import BoundTally, is_provider, model_provider
from tallystick_cli import views
from tallystick_cli.options import AsJson, Before, InScope, Limit, StepId, Where
from tallystick_cli.output import print_json, print_older, print_view
from tallystick_cli.session import complete_id, id_of, open_as_owner, recorded
from tallystick_cli.terminal import Terminal

_MOST = 1_000
"""Runs that are looked through for the scopes that have some."""


def runs(
    where: Where = ".tally",
    limit: Limit = 20,
    before: Before = None,
    scope: InScope = None,
    as_json: AsJson = False,
) -> None:
    """List the recorded runs, newest first."""
    with open_as_owner(where) as owner:
        every = owner.tally.scopes()
        scopes = [Scope.parse(scope)] if scope else every
        last = None if before is None else id_of(before)
        listed = owner.recordings.runs(scopes, limit=limit, before=last)
        counts = owner.recordings.step_counts(listed)
        rows = [(run, counts.get(run.run_id, 0)) for run in listed]
        if as_json:
            print_json([{**run.dump(), "steps": steps} for run, steps in rows])
        elif rows:
            print_view(views.run_table(rows))
            print_older(views.short(listed[-1].run_id), len(listed), limit)
        elif scope and (others := owner.recordings.runs(every, limit=_MOST)):
            names = ", ".join(sorted({str(run.scope) for run in others}))
            print_view(Text(f"No runs are recorded in {scope}. There are some in {names}."))
        else:
            print_view(
                Text(
                    "No runs are recorded here yet that you may look into. An agent records its "
                    "runs with the line for its runtime, or your code with bound.run(…)."
                )
            )


def show(
    identity: Annotated[
        str, typer.Argument(metavar="STEP", help="Id of a step or run, or how it begins or ends.")
    ],
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Show a step: what the agent saw, why, what it did, and its receipt. For a run, its steps."""
    with open_as_owner(where) as owner:
        record = recorded(owner, identity)
        if isinstance(record, RunRecord):
            _show_run(owner, record, as_json)
        else:
            _show_step(owner, record, as_json)


def recompile(
    identity: StepId,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", help="Leave this item or memory out; repeatable."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option("--without-source", help="Leave out what comes from this source."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Compile for this model instead.")
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            "--provider",
            help="Compile for this provider instead, and make its request: openai, anthropic, or "
            "one of yours.",
        ),
    ] = None,
    send: Annotated[
        bool,
        typer.Option(
            "--send", help="Send the request to the provider, and compare its answer; needs a key."
        ),
    ] = False,
    weights: Annotated[
        list[str] | None,
        typer.Option(
            "--weights",
            help="NAME=VALUE of a score weight, in thousandths, or a TOML file of them; "
            "repeatable.",
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="Tokens, or a share of them such as 50%.")
    ] = None,
    rules: Annotated[
        Path | None, typer.Option("--rules", help="TOML file of rules to use instead.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Record it as a run of its own, with the changes.")
    ] = False,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Compile a recorded step anew with a change, and show what differs. No model is called but
    with --send.
    """
    with open_as_owner(where) as owner:
        step = recorded(owner, identity)
        if isinstance(step, RunRecord):
            raise InvalidInput(
                f"{identity} is a run. Name one of its steps; `tally show {identity}` lists them."
            )
        changes: dict[str, Any] = {
            **_left_out(owner, step, drop or (), source or ()),
            "model_override": model,
            "provider_override": provider,
            "score_weights": _weights(weights or ()),
        }
        if budget is not None:
            changes["token_budget"] = _budget(owner, step, budget)
        if rules is not None:
            changes["policy_rules"] = load_rules(rules)
        if send and provider is None:
            raise InvalidInput("Name the provider to send to: --provider openai --model gpt-5.")
        if provider is not None and is_provider(provider):
            changes |= _of_provider(owner, f"{provider}:{model or step.name}", send=send)
        elif send:
            raise InvalidInput(f"{provider} is no provider that is installed.")
        result = (owner.replay if keep else owner.recordings.replay)(step.step_id, **changes)
        if as_json:
            print_json(result.dump())
        else:
            print_view(views.replay_view(result))
            if result.step_id is not None:
                print_view(Text(f"Kept as step {result.step_id}.", style="dim"))


def _of_provider(owner: BoundTally, name: str, *, send: bool) -> dict[str, Any]:
    """Return how a replay makes the request of a provider, and sends it if it is to: by the rules
    over model calls, and refused before if it does not pair or there is no key.
    """
    provider = model_provider(name)

    def call(request: Any) -> Any:
        provider.check(request)
        provider.require_ready()
        check = owner.check_model_call(
            provider=provider.name, model=provider.model, request=request, piece="tally recompile"
        )
        body = provider.send(check.clean(request)).body
        return {"answer": provider.parse(body).recorded(), "native": body}

    return {"render": provider.render, **({"call": call} if send else {})}


def _left_out(
    owner: BoundTally, step: StepRecord, drop: Iterable[str], sources: Iterable[str]
) -> dict[str, Any]:
    """Return the items, memories and sources to leave out, by their whole ids; what is not among
    the candidates of the step is left for the replay to refuse.
    """
    try:
        request, _ = owner.recordings.compiled(step.step_id)
    except NotFound:
        return {"context_mutations": dict.fromkeys(drop), "without_sources": tuple(sources)}
    memories = request.memory_records
    items = {item.id for item in request.context_items} | {memory.id for memory in memories}
    origins = {source.source_id for memory in memories for source in memory.sources}
    return {
        "context_mutations": {complete_id(name, items, "candidate"): None for name in drop},
        "without_sources": tuple(complete_id(name, origins, "source") for name in sources),
    }


def _weights(texts: Iterable[str]) -> dict[str, int]:
    """Return the score weights that were typed, or are in the files that were named. Raises
    InvalidInput.
    """
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
    request = next(
        (e.payload for e in owner.recordings.entries(step.step_id) if e.kind == "compile_request"),
        None,
    )
    budget = request.get("token_budget") if isinstance(request, dict) else None
    if not isinstance(budget, int):
        raise InvalidInput(f"Step {step.step_id} recorded no compile.")
    return max(1, budget * int(number) // 100)


def _show_run(owner: BoundTally, run: RunRecord, as_json: bool) -> None:
    steps = owner.recordings.steps(run.run_id)
    if as_json:
        print_json({**run.dump(), "steps": [step.dump() for step in steps]})
        return
    print_view(views.run_table([(run, len(steps))]))
    print_view(views.step_table(steps))


def _show_step(owner: BoundTally, step: StepRecord, as_json: bool) -> None:
    recordings = owner.recordings
    entries = recordings.entries(step.step_id)
    try:
        receipt = recordings.receipt(step.step_id)
    except NotFound:
        receipt = None
    try:
        compiled = recordings.compiled(step.step_id)
    except NotFound:
        compiled = None
    places = _state_of(owner, step, recordings.run(step.run_id).scope)
    if as_json:
        fields: dict[str, Any] = {**step.dump(), "entries": [entry.dump() for entry in entries]}
        print_json({**fields, "receipt": receipt.dump() if receipt else None, "state": places})
        return
    print_view(
        views.step_view(
            recordings.run(step.run_id),
            step,
            receipt,
            entries,
            compiled,
            places,
            width=Terminal().width,
        )
    )


def _state_of(owner: BoundTally, step: StepRecord, scope: Scope) -> list[str]:
    """Return the checkpoints that the graph task of this step wrote, as thread and checkpoint
    id.
    """
    thread, namespace = step.metadata.get("thread_id"), step.metadata.get("langgraph_checkpoint_ns")
    if not isinstance(thread, str) or not isinstance(namespace, str):
        return []
    if not owner.preview_access(scopes=[scope]).scopes[0].decision.allowed:
        # An operator looks into what was recorded; state is read by its own user alone.
        return []
    threads = owner.tally.bind(owner.actor, scope).on("cli").threads
    return [
        f"{thread} {id}" for _, id in threads.places_of_task(thread, namespace.rpartition(":")[2])
    ]


COMMANDS: Mapping[str, Callable[..., None]] = {"runs": runs, "show": show, "recompile": recompile}
