"""Opening a tally for one command, a person at a terminal, and ids by a part of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import typer

from tallystick.errors import InvalidInput, NotFound, TallyNotFound
from tallystick.policy.rules import load_rules
from tallystick.records import Actor, RunRecord, Scope, StepRecord
from tallystick.records.escaping import visible
from tallystick.tally import BoundTally, Tally
from tallystick_cli.output import print_view

SHORTEST = 6
"""Characters of an id that a person gives at least."""

_ACTING: ContextVar[Actor | None] = ContextVar("tallystick_cli_acting", default=None)
_PROJECTS: ContextVar[frozenset[str]] = ContextVar("tallystick_cli_projects", default=frozenset())


def set_actor(user: str | None, projects: Iterable[str]) -> None:
    """Set the actor of the commands that follow, or projects of the owner. Raises InvalidRecord."""
    names = frozenset(projects)
    _ACTING.set(None if user is None else Actor.load({"user": user, "projects": names}))
    _PROJECTS.set(names)


def acting() -> Actor | None:
    """Return the actor named with `--as`, for a tally that is not open; None for its owner."""
    named = _ACTING.get()
    return None if named is None else named.replace(role="operator", surface="cli")


@contextmanager
def open_as_owner(
    where: str, *, create: bool = False, background: bool = False, rules: str | None = None
) -> Iterator[BoundTally]:
    """Open the tally as its owner, or as the actor named with `--as`, with the rules of a TOML
    file; close it afterwards.

    With `create` it is made where there is none, and its place printed. With `background` follow-up
    work is done meanwhile. Where a tally has an owner, the owner alone
    operates it; without one, whoever may write to its database.
    """
    chosen = () if rules is None else load_rules(rules)
    try:
        opened = Tally.open(where, create=False, background=background, rules=chosen)
    except TallyNotFound as error:
        if not create:
            from tallystick.kit.arguments import shown_place

            place = shown_place(where)
            raise TallyNotFound(
                f"{error} `tally remember TEXT --tally {place}` makes one, and so does "
                "`tally init`; or name another with --tally."
            ) from error
        opened = Tally.open(where, background=background, rules=chosen)
        print_view(f"A new tally: {opened.location}", stderr=True)
    with opened as tally:
        if tally.read_only is not None:
            print_view(f"Read only: {tally.read_only}", stderr=True)
        acting, owner, projects = _ACTING.get(), tally.owner, _PROJECTS.get()
        if owner is None and acting is None:
            raise InvalidInput(
                "This tally has no owner. Name who acts, before the command: tally --as ada "
                "--project apollo memories …"
            )
        if owner is None and acting is not None:
            acting = acting.replace(role="operator")
        elif owner is not None and (projects if acting is None else acting.user == owner.user):
            acting = owner.replace(projects=owner.projects | projects)
        yield tally.bind(acting).on("cli")


def view_in(owner: BoundTally, scope: str | None) -> BoundTally:
    """Return the owner's view in a scope, by default its own. Raises InvalidScope."""
    return owner if scope is None else owner.tally.bind(owner.actor, scope).on("cli")


def readable_scopes(owner: BoundTally) -> list[Scope]:
    """Return the scopes that the owner may read: its own, its projects, others with memories."""
    actor = owner.actor
    projects = [
        Scope(kind="project", key=name, organization=actor.organization)
        for name in sorted(actor.projects)
    ]
    others = [explored.scope for explored in owner.explore().scopes if explored.readable]
    return list(dict.fromkeys([actor.private_scope, *projects, *others]))


def complete_id(fragment: str, ids: Iterable[str], what: str) -> str:
    """Return the one of `ids` that has `fragment` at an end. Raises InvalidInput, NotFound."""
    candidates = set(ids)
    matching = {each for each in candidates if each.startswith(fragment) or each.endswith(fragment)}
    if fragment in candidates:
        return fragment
    if len(fragment) < SHORTEST:
        raise InvalidInput(f"Give at least {SHORTEST} characters of the id of the {what}.")
    if len(matching) > 1:
        raise InvalidInput(
            f"The ids of {len(matching)} {what}s begin or end with {fragment}. Give more of it."
        )
    if not matching:
        raise NotFound(f"There is no {what} {fragment} here that you may see.")
    return matching.pop()


def find_run_or_step(owner: BoundTally, text: str) -> RunRecord | StepRecord:
    """Return the run or step of an id, or a part of it. Raises InvalidInput, NotFound."""
    return owner.recordings.find(id_of(text))


def run_id_of(owner: BoundTally, text: str) -> str:
    """Return the id of a run, by its own or by that of one of its steps. Raises InvalidInput,
    NotFound.
    """
    record = find_run_or_step(owner, text)
    return record.id if isinstance(record, RunRecord) else record.run_id


def step_of(owner: BoundTally, text: str) -> StepRecord:
    """Same as `find_run_or_step`, for a step. Raises InvalidInput for a run."""
    record = find_run_or_step(owner, text)
    if isinstance(record, RunRecord):
        raise InvalidInput(
            f"{text} is a run. Name one of its steps; `tally show {text}` lists them."
        )
    return record


def id_of(text: str) -> str:
    """Return an id, or the part of one that a verb completes. Raises InvalidInput."""
    if len(text) < SHORTEST:
        raise InvalidInput(f"Give at least {SHORTEST} characters of the id.")
    return text


def require_person(action: str) -> None:
    """Raise InvalidInput unless a person can answer: standard input is a terminal."""
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"{action} needs a person at a terminal: run it there. No option skips that, and "
            "nothing was done."
        )


def confirm(action: str, word: str) -> None:
    """Let the person type `word`; raise Abort for every other answer."""
    question = f"Type {word} to {visible(action)}; anything else leaves it"
    if typer.prompt(question, default="", show_default=False, err=True).strip() != word:
        raise typer.Abort
