"""Commands that look after one memory, and those of reflection and review."""

from __future__ import annotations

import sys
from typing import Annotated, Any, get_args

import typer

from tallystick.errors import InvalidInput
from tallystick.records import JsonObject, Proposal, Reflected, ReviewDecision
from tallystick.records.escaping import visible
from tallystick_cli.actions import Action, action_command
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.inputs import NAME_AND_JSON, read_attributes, read_json
from tallystick_cli.output import print_view
from tallystick_cli.session import confirm, id_of, require_person
from tallystick_cli.views import memories as views

inspect = operation_command("inspect", views.inspection_view)
history = operation_command("history", views.history_table)
correct = operation_command("correct", views.correction_view, positional=("correction",))
recover = operation_command("recover", views.change_line)
promote = operation_command("promote", views.crossing_view, positional=("into",))
share = operation_command("share", views.crossing_view, positional=("into",))


@command("modify", view=views.change_line)
def modify(
    call: Call,
    content: Annotated[str | None, "What it says from now on."] = None,
    tag: Annotated[tuple[str, ...], "Its tags from now on."] = (),
    kind: Annotated[str | None, "Its kind from now on."] = None,
    importance: Annotated[int | None, "Its importance from now on, 0 to 100."] = None,
    pinned: Annotated[
        bool | None, typer.Option("--pin/--unpin", help="Whether to keep it in every pack.")
    ] = None,
    lock: Annotated[bool, "Let no agent change it for a while."] = False,
    attribute: Annotated[tuple[str, ...], f"{NAME_AND_JSON}; null removes it"] = (),
    depends_on: Annotated[tuple[str, ...], "Id of a memory that comes before it"] = (),
    independent_of: Annotated[tuple[str, ...], "Id of one that comes before it no longer"] = (),
    related_to: Annotated[tuple[str, ...], "Id of a memory that it points to"] = (),
    unrelated_to: Annotated[tuple[str, ...], "Id of one that it points to no longer"] = (),
) -> Any:
    fields = {"content": content, "kind": kind, "importance": importance, "pinned": pinned}
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    changes |= call.arguments.pop("changes", {}) | ({"tags": list(tag)} if tag else {})
    if attribute:
        changes["attributes"] = read_attributes(attribute)
    for name, added, removed in (
        ("depends_on", depends_on, independent_of),
        ("related_to", related_to, unrelated_to),
    ):
        if added or removed:
            changes[name] = {"add": list(map(id_of, added)), "remove": list(map(id_of, removed))}
    override = call.arguments.pop("manual_override", lock)
    return call.do(changes=changes, manual_override=override)


@command(*("forget", "forget_matching"), without=("memory_id", "query"), scope="home")
def forget(
    call: Call,
    memory_or_query: Annotated[str | None, "Id of a memory; with --matching a query."] = None,
    /,
    matching: Annotated[bool, "Forget what recall finds for QUERY, or what filters keep."] = False,
    preview: Annotated[bool, "Only show what would be done."] = False,
) -> Any:
    """Take a memory out of recall; it can be recovered. With --matching: preview, then --apply with
    its --token.
    """
    arguments = call.arguments
    apply, force = arguments.get("mode") == "apply", "force" in arguments
    if preview and apply:
        raise InvalidInput("Give --preview or --apply, not both.")
    if force and matching:
        raise InvalidInput("--force is for one memory, not for --matching.")
    if matching:
        forgetting = call.do("forget_matching", query=memory_or_query)
        return Answer(forgetting, views.forgetting_view(forgetting))
    of_one = {"mode", "reason", "if_version", "force", "confirm_token", "idempotency_key"}
    if set(arguments) - of_one:
        raise InvalidInput("Filters choose among many memories: give --matching too.")
    if memory_or_query is None:
        raise InvalidInput("Name the memory to forget, or give --matching and filters.")
    memory_id = id_of(memory_or_query)
    if force and apply:
        require_person("tally forget --force --apply")
        confirm("forget it although it is pinned", "force")
    arguments.pop("mode", None)
    if preview or (force and not apply):
        call.take("reason", "force")
        reason = {"memory_id": memory_id, "reason": arguments["reason"], "force": force}
        correction = call.bound.corrections.make(correction="delete", **reason)
        # Without force nothing takes its token.
        value = correction if force else correction.dump()
        return Answer(value, views.correction_view(correction))
    change = call.do("forget", memory_id=memory_id)
    return Answer(change, views.change_line(change))


def _working_set(call: Call, name: str, value: str, /) -> Any:
    return call.do(name=name, value=read_json(value))


def _working_get(call: Call, name: str, /) -> Answer:
    kept = call.do(name=name)
    return Answer(kept, None if kept else "There is no such value.", kept is not None)


def _working_drop(call: Call, name: str, /) -> Answer:
    dropped = call.do(name=name)
    return Answer(dropped, "✓ dropped" if dropped else "There is no such value.", dropped)


working = action_command(
    "List what a run or a thread keeps in mind; read, set or drop one value of it.",
    {
        "list": Action("working_list", view=views.working_table, empty="Nothing is kept in mind."),
        "get": Action(
            "working_get", view=lambda kept: views.working_table([kept]), run=_working_get
        ),
        "set": Action(
            "working_set", view=lambda kept: views.working_table([kept]), run=_working_set
        ),
        "drop": Action("working_drop", run=_working_drop),
    },
    helps={
        "name": "Of the value: task, plan, questions, facts, or another.",
        "value": "Of set: JSON, or a text.",
    },
    scope="home",
)


reviews = operation_command(
    "reviews", views.proposal_table, scope="home", empty="Nothing waits for a person."
)


@command("reflect", positional=("sources",), scope="home")
def reflect(call: Call) -> Answer:
    reflected: Reflected = call.do()
    if reflected.processing == "queued":
        says = "`tally jobs show` says what came of it."
        return Answer(reflected, f"The job {reflected.job_id} will; {says}")
    read = f"{reflected.read} memories were read"
    line = f"{read}: {reflected.waiting} conclusions wait for `tally review`."
    proposals = [views.proposal_table(reflected.proposals)] if reflected.proposals else []
    return Answer(reflected, [*proposals, line])


@command(
    *("review", "proposal"), without=("proposal_id", "decision", "reason", "changes"), scope="home"
)
def review(
    call: Call,
    proposal: Annotated[str | None, "Id of a proposal, or how it begins or ends; else all."] = None,
    /,
) -> Answer:
    """Accept, edit, defer or reject a proposal, or undo what came of it, by a person and for a
    reason. Without PROPOSAL it walks through all that wait. A person answers at a terminal;
    elsewhere it lists them.
    """
    if proposal is None and not sys.stdin.isatty():
        listed = call.bound.reviews.list(limit=1_000)
        told = "A person decides about them at a terminal: tally review"
        shown = [views.proposal_table(listed), told] if listed else "Nothing waits for a person."
        return Answer(listed, shown)
    require_person("tally review")
    waiting = (
        call.bound.reviews.list(limit=1_000)
        if proposal is None
        else [call.bound.reviews.get(id_of(proposal)).proposal]
    )
    decided = []
    for each in waiting:
        if not call.as_json:
            print_view(views.proposal_view(each))
        if (answer := _ask(call, each)) is None:
            break
        decided.append(answer)
    count = f"{len(decided)} of {len(waiting)} proposals were decided."
    return Answer(decided, count if waiting else "Nothing waits for a person.")


def _ask(call: Call, proposal: Proposal) -> Proposal | None:
    """Return a proposal as the person at the terminal decided it; None where that one leaves."""
    choices = "accept, edit, defer or reject" if proposal.is_open else "undo"
    question = f"Type {choices}; anything else leaves"
    decision = typer.prompt(question, default="", err=True).strip()
    if decision not in get_args(ReviewDecision):
        return None
    changes: JsonObject | None = None
    if decision == "edit":
        words = "" if proposal.content is None else proposal.content.content
        # The words as a person sees them; whoever types nothing keeps them as they are.
        question = f"It says [{visible(words)}]"
        typed = typer.prompt(question, default=words, show_default=False, err=True)
        changes = {"content": typed}
    reason = typer.prompt("Why", err=True)
    review: Proposal = call.do(
        "review", proposal_id=proposal.id, decision=decision, reason=reason, changes=changes
    )
    return review
