"""Commands of reflection and review: propose conclusions, list what waits, walk through it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, cast

import typer
from rich.text import Text

from tallystick.records import JsonObject, Proposal, ProposalState, ReflectMode, ReviewDecision
from tallystick.tally import BoundTally
from tallystick_cli import views
from tallystick_cli.options import AsJson, AtHome, Key, Limit, Where
from tallystick_cli.output import print_json, print_view
from tallystick_cli.person import require_person
from tallystick_cli.session import id_of, open_as_owner, view_in
from tallystick_cli.table_help import help_of

_EVERY = "all"
_WORDS: Mapping[str, ReviewDecision] = {
    "accept": "accept",
    "edit": "edit",
    "defer": "defer",
    "reject": "reject",
}


def reflect(
    source: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE", help=help_of("reflect", "sources")),
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help=help_of("reflect", "conversation"))
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help=help_of("reflect", "run"))] = None,
    into: Annotated[str | None, typer.Option("--into", help=help_of("reflect", "into"))] = None,
    mode: Annotated[ReflectMode, typer.Option("--mode", help=help_of("reflect", "mode"))] = "sync",
    where: Where = ".tally",
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """Propose the decisions, procedures, plans, tasks, artifacts, claims and relations that
    memories state; each waits for a person.
    """
    with open_as_owner(where) as owner:
        reflected = view_in(owner, scope).reflect(
            [id_of(each) for each in source or ()],
            conversation=conversation,
            run=None if run is None else id_of(run),
            into=into,
            mode=mode,
        )
    if as_json:
        print_json(reflected.dump())
        return
    if reflected.processing == "queued":
        print_view(
            Text(f"The job {reflected.job_id} will; `tally jobs show` says what came of it.")
        )
        return
    if reflected.proposals:
        print_view(views.proposal_table(reflected.proposals))
    print_view(
        Text(
            f"{reflected.read} memories were read: {reflected.waiting} conclusions wait for "
            "`tally review`."
        )
    )


def reviews(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Such as rejected; repeatable; `all` lists every state."),
    ] = None,
    after: Annotated[str | None, typer.Option("--after", help=help_of("reviews", "after"))] = None,
    limit: Limit = 20,
    where: Where = ".tally",
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """List the proposals that wait for a person, or were decided, oldest first."""
    states = state or ["pending", "deferred"]
    with open_as_owner(where) as owner:
        listed = view_in(owner, scope).reviews(
            states=() if _EVERY in states else cast("list[ProposalState]", states),
            limit=limit,
            after=None if after is None else id_of(after),
        )
    if as_json:
        print_json([proposal.dump() for proposal in listed])
    elif listed:
        print_view(views.proposal_table(listed))
    else:
        print_view(Text("Nothing waits for a person." if state is None else "There is none."))


def review(
    proposal: Annotated[
        str | None,
        typer.Argument(
            metavar="PROPOSAL", help="Id of a proposal, or how it begins or ends; else all."
        ),
    ] = None,
    key: Key = None,
    where: Where = ".tally",
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """Accept, edit, defer or reject a proposal, by a person and for a reason. Without PROPOSAL it
    walks through all that wait. A person answers at a terminal.
    """
    require_person("tally review")
    with open_as_owner(where) as owner:
        bound = view_in(owner, scope)
        waiting = (
            bound.reviews(limit=1_000)
            if proposal is None
            else [bound.proposal(id_of(proposal)).proposal]
        )
        decided = []
        for each in waiting:
            if not as_json:
                print_view(views.proposal_view(each))
            answered = _ask(bound, each, key)
            if answered is None:
                break
            decided.append(answered)
    if as_json:
        print_json([each.dump() for each in decided])
    elif not waiting:
        print_view(Text("Nothing waits for a person."))
    else:
        print_view(Text(f"{len(decided)} of {len(waiting)} proposals were decided."))


def _ask(bound: BoundTally, proposal: Proposal, key: str | None) -> Proposal | None:
    """Return a proposal as the person at the terminal decided it; None where that one leaves."""
    answer = typer.prompt(
        "Type accept, edit, defer or reject; anything else leaves", default="", err=True
    )
    decision = _WORDS.get(answer.strip())
    if decision is None:
        return None
    changes: JsonObject | None = None
    if decision == "edit":
        words = "" if proposal.content is None else proposal.content.content
        changes = {"content": typer.prompt("It says", default=words, err=True)}
    reason = typer.prompt("Why", err=True)
    return bound.review(proposal.id, decision, reason=reason, changes=changes, idempotency_key=key)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "reflect": reflect,
    "reviews": reviews,
    "review": review,
}
