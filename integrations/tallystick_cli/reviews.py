"""Commands of reflection and review: propose conclusions, list what waits, walk through it."""

from __future__ import annotations

from typing import Annotated, get_args

import typer

from tallystick.records import JsonObject, Proposal, Reflected, ReviewDecision
from tallystick.records.escaping import visible
from tallystick_cli.commands import Answer, Call, command, operation_command
from tallystick_cli.output import print_view
from tallystick_cli.session import id_of, require_person
from tallystick_cli.views import memories as views

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
    """Accept, edit, defer or reject a proposal, by a person and for a reason. Without PROPOSAL it
    walks through all that wait. A person answers at a terminal.
    """
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
    question = "Type accept, edit, defer or reject; anything else leaves"
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
