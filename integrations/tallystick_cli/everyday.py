"""Commands for every day: remember, recall, look around, and get memory as text for a model."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from tallystick.errors import InvalidInput
from tallystick.records import ContextPack, ExploreMode, Scope, SourceRef
from tallystick.tally import BoundTally
from tallystick_cli import views
from tallystick_cli.options import AsJson, AtHome, Before, Key, Limit, Scopes, Where
from tallystick_cli.output import print_json, print_older, print_view
from tallystick_cli.session import (
    id_of,
    open_as_owner,
    readable_scopes,
    view_in,
)
from tallystick_cli.table_help import help_of
from tallystick_cli.terminal import Terminal

_HERE = "-"
"""In place of a text: it comes on standard input."""


def remember(
    text: Annotated[
        str | None,
        typer.Argument(help="What to remember, word for word; - or nothing reads standard input."),
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help=help_of("remember", "kind"))] = "note",
    tag: Annotated[list[str] | None, typer.Option("--tag", help="A tag; repeatable.")] = None,
    subject: Annotated[
        str | None, typer.Option("--subject", help=help_of("remember", "subject"))
    ] = None,
    speaker: Annotated[
        str | None, typer.Option("--speaker", help=help_of("remember", "speaker"))
    ] = None,
    category: Annotated[
        str | None, typer.Option("--category", help=help_of("remember", "category"))
    ] = None,
    occurred_at: Annotated[
        str | None,
        typer.Option("--occurred-at", help="When it was said or happened, such as 2026-03-01."),
    ] = None,
    valid_from: Annotated[
        str | None, typer.Option("--valid-from", help="Since when it holds, such as 2026-03-01.")
    ] = None,
    valid_until: Annotated[
        str | None, typer.Option("--valid-until", help="Until when it holds.")
    ] = None,
    expires_at: Annotated[
        str | None, typer.Option("--expires-at", help="When it leaves every recall.")
    ] = None,
    importance: Annotated[
        int,
        typer.Option("--importance", min=0, max=100, help=help_of("remember", "importance")),
    ] = 50,
    confidence: Annotated[
        int,
        typer.Option("--confidence", min=0, max=100, help=help_of("remember", "confidence")),
    ] = 100,
    pinned: Annotated[bool, typer.Option("--pin", help=help_of("remember", "pinned"))] = False,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help=help_of("remember", "conversation"))
    ] = None,
    position: Annotated[
        int | None, typer.Option("--position", help=help_of("remember", "position"))
    ] = None,
    source_uri: Annotated[
        str | None, typer.Option("--source-uri", help="Address of where it came from.")
    ] = None,
    source_title: Annotated[
        str | None, typer.Option("--source-title", help="Title of where it came from.")
    ] = None,
    source_type: Annotated[
        str | None, typer.Option("--source-type", help="Such as file, tool or user.")
    ] = None,
    related_to: Annotated[
        list[str] | None, typer.Option("--related-to", help=help_of("remember", "related_to"))
    ] = None,
    depends_on: Annotated[
        list[str] | None, typer.Option("--depends-on", help=help_of("remember", "depends_on"))
    ] = None,
    entity: Annotated[
        list[str] | None, typer.Option("--entity", help=help_of("remember", "entities"))
    ] = None,
    mode: Annotated[
        Literal["auto", "sync", "async", "raw"],
        typer.Option("--mode", help=help_of("remember", "mode")),
    ] = "auto",
    timeout_ms: Annotated[
        int, typer.Option("--timeout-ms", min=1, help=help_of("remember", "timeout_ms"))
    ] = 2_500,
    key: Key = None,
    where: Where = ".tally",
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """Remember a text as it is; it can be recalled at once."""
    content = _standard_input() if text in (None, _HERE) else str(text)
    named = {"uri": source_uri, "title": source_title, "source_type": source_type}
    fields = {name: value for name, value in named.items() if value is not None}
    with open_as_owner(where) as owner:
        bound = view_in(owner, scope)
        stored = bound.remember(
            content,
            kind=kind,
            tags=tag or (),
            subject=subject,
            speaker=speaker,
            category=category,
            occurred_at=occurred_at,
            valid_from=valid_from,
            valid_until=valid_until,
            expires_at=expires_at,
            importance=importance,
            confidence=confidence,
            pinned=pinned,
            conversation=conversation,
            position=position,
            source=SourceRef.load(fields) if fields else None,
            related_to=[id_of(each) for each in related_to or ()],
            depends_on=[id_of(each) for each in depends_on or ()],
            entities=entity or (),
            mode=mode,
            timeout_ms=timeout_ms,
            idempotency_key=key,
        )
    if as_json:
        print_json(stored.dump())
    else:
        print_view(views.remembered_line(stored, bound.scope))
        _print_warnings(stored.warnings)


def recall(
    text: Annotated[str, typer.Argument(help=help_of("recall", "query"))],
    where: Where = ".tally",
    limit: Limit = 10,
    scope: Scopes = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help=help_of("recall", "kinds"))
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help=help_of("recall", "tags"))] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help=help_of("recall", "conversation"))
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help=help_of("recall", "source"))
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help=help_of("recall", "since"))] = None,
    until: Annotated[str | None, typer.Option("--until", help=help_of("recall", "until"))] = None,
    min_score: Annotated[
        float, typer.Option("--min-score", min=0, max=1, help=help_of("recall", "min_score"))
    ] = 0.0,
    status: Annotated[
        str | None, typer.Option("--status", help=help_of("recall", "status"))
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", help=help_of("recall", "project"))
    ] = None,
    assignee: Annotated[
        str | None, typer.Option("--assignee", help=help_of("recall", "assignee"))
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help=help_of("recall", "language"))
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recall memories that answer TEXT, with the reason for each."""
    with open_as_owner(where) as owner:
        scopes = [Scope.parse(name) for name in scope] if scope else readable_scopes(owner)
        hits = owner.recall(
            text,
            limit=limit,
            scopes=list[str | Scope](scopes),
            kinds=tuple(kind or ()),
            tags=tuple(tag or ()),
            conversation=conversation,
            source=source,
            since=since,
            until=until,
            min_score=min_score,
            status=status,
            project=project,
            assignee=assignee,
            language=language,
        )
        if as_json:
            print_json(
                {
                    "hits": [hit.dump() for hit in hits],
                    "scopes": [str(searched) for searched in scopes],
                    "path": hits.path,
                    "confident": hits.confident,
                    "warnings": list(hits.warnings),
                }
            )
            return
        _print_warnings(hits.warnings)
        if len(hits):
            print_view(views.hit_table(hits, query=text))
            return
        labels = (status, project, assignee, language)
        filters = any((kind, tag, conversation, source, since, until, min_score, *labels))
        print_view(
            Text(
                f"Nothing in {_listed(scopes)} answers this"
                f"{', with these filters' if filters else ''}."
            )
        )
        _print_elsewhere(owner, scopes)


def memories(
    where: Where = ".tally",
    scope: AtHome = None,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", help=help_of("memories", "kinds"))
    ] = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Such as deleted; repeatable.")
    ] = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", help=help_of("memories", "conversation"))
    ] = None,
    before: Before = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help=help_of("memories", "tags"))
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help=help_of("memories", "source"))
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help=help_of("memories", "since"))] = None,
    until: Annotated[str | None, typer.Option("--until", help=help_of("memories", "until"))] = None,
    status: Annotated[
        str | None, typer.Option("--status", help=help_of("memories", "status"))
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", help=help_of("memories", "project"))
    ] = None,
    assignee: Annotated[
        str | None, typer.Option("--assignee", help=help_of("memories", "assignee"))
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", help=help_of("memories", "language"))
    ] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List memories of a scope, newest first; what is hidden or forgotten comes without its
    text.
    """
    states: Any = tuple(state) if state else ("active",)
    with open_as_owner(where) as owner:
        bound = view_in(owner, scope)
        listed = bound.memories(
            kinds=tuple(kind or ()),
            states=states,
            conversation=conversation,
            limit=limit,
            before=None if before is None else id_of(before),
            tags=tuple(tag or ()),
            source=source,
            since=since,
            until=until,
            status=status,
            project=project,
            assignee=assignee,
            language=language,
        )
        if as_json:
            print_json([memory.dump() for memory in listed])
        elif listed:
            print_view(views.memory_table(listed))
            print_older(views.short(listed[-1].id), len(listed), limit)
        else:
            labels = status or project or assignee or language
            said = tag or source or since or until
            filters = kind or state or conversation or before or labels or said
            what = "Nothing with these filters" if filters else "Nothing"
            print_view(Text(f"{what} is remembered in {bound.scope}."))
            _print_elsewhere(owner, [bound.scope], states=not filters)


def explore(
    around: Annotated[
        str | None,
        typer.Argument(
            help="A scope such as project:apollo, or the id of a memory, or its beginning or end; "
            "with --mode about or communities a name."
        ),
    ] = None,
    mode: Annotated[
        ExploreMode | None, typer.Option("--mode", help=help_of("explore", "mode"))
    ] = None,
    depth: Annotated[
        int, typer.Option("--depth", min=1, max=3, help=help_of("explore", "depth"))
    ] = 1,
    limit: Limit = 50,
    before: Annotated[
        str | None, typer.Option("--before", help=help_of("explore", "before"))
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Look around: what there is, what stands in a scope, what hangs on a memory."""
    with open_as_owner(where) as owner:
        by_name = mode in ("about", "communities")
        if around is not None and not by_name and ":" not in around and around != "public":
            around = id_of(around)
        page = None if before is None else id_of(before)
        explored = owner.explore(
            around,
            mode=mode,
            depth=depth,
            limit=limit,
            before=page,
        )
        if as_json:
            print_json(explored.dump())
        elif mode == "communities" and not explored.communities:
            print_view(
                Text(
                    f"{explored.around} has no communities. They are made of the names in its "
                    "memories once the setting graph is on."
                )
            )
        elif explored.memories or (around is None and explored.scopes):
            print_view(views.explored_view(explored))
        elif around is not None:
            print_view(Text(f"Nothing active is remembered in {around}."))
            _print_elsewhere(owner, [owner.actor.home(around)])
        else:
            _print_nothing_anywhere(owner)


def wake(
    budget_tokens: Annotated[
        int, typer.Option("--budget", min=1, help=help_of("wake", "budget_tokens"))
    ] = 1_200,
    scope: Scopes = None,
    model: Annotated[str | None, typer.Option("--model", help=help_of("wake", "model"))] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Get pins, constraints, preferences, decisions and open tasks as one text."""
    with open_as_owner(where) as owner:
        scopes = [Scope.parse(name) for name in scope] if scope else readable_scopes(owner)
        pack = owner.wake(
            budget_tokens=budget_tokens, scopes=list[str | Scope](scopes), model=model
        )
        _print_pack(owner, pack, scopes, as_json, "is pinned, constrains, or is open")


def pack(
    query: Annotated[str, typer.Argument(help=help_of("context_pack", "query"))],
    budget_tokens: Annotated[
        int, typer.Option("--budget", min=1, help=help_of("context_pack", "budget_tokens"))
    ] = 2_000,
    scope: Scopes = None,
    model: Annotated[
        str | None, typer.Option("--model", help=help_of("context_pack", "model"))
    ] = None,
    where: Where = ".tally",
    as_json: AsJson = False,
) -> None:
    """Get what answers a question as one framed text within a budget."""
    with open_as_owner(where) as owner:
        scopes = [Scope.parse(name) for name in scope] if scope else readable_scopes(owner)
        answers = owner.context_pack(
            query, budget_tokens=budget_tokens, scopes=list[str | Scope](scopes), model=model
        )
        _print_pack(owner, answers, scopes, as_json, "answers this")


def _print_pack(
    owner: BoundTally, pack: ContextPack, scopes: Iterable[Scope], as_json: bool, nothing: str
) -> None:
    """Print the text of a pack alone on standard output, and its size beside it."""
    if as_json:
        print_json(pack.dump())
        return
    if not pack.items:
        print_view(Text(f"Nothing in {_listed(scopes)} {nothing}."))
        _print_elsewhere(owner, scopes)
        return
    print_view(Text(pack.text))
    size = f"{pack.tokens} of {pack.budget_tokens} tokens{'' if pack.exact else ' (estimated)'}"
    left_out = f"; {pack.left_out} more did not fit" if pack.left_out else ""
    Terminal(stderr=True).print(
        Text(f"{_counted(len(pack.items))}, {size}{left_out}", style="dim"), soft_wrap=True
    )


def _print_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print_view(Text(f"! {warning}", style="yellow"))


def _print_elsewhere(owner: BoundTally, scopes: Iterable[Scope], *, states: bool = True) -> None:
    """Print where else there are memories, by scope, and what states those of `scopes` have."""
    looked = {str(scope) for scope in scopes}
    explored = owner.explore().scopes
    others = [
        f"{found.scope} ({active})"
        for found in explored
        if found.readable and str(found.scope) not in looked
        if (active := found.states.get("active", 0))
    ]
    inactive = {
        state
        for found in explored
        if str(found.scope) in looked
        for state in found.states
        if state != "active"
    }
    if inactive and states:
        options = " ".join(f"--state {state}" for state in sorted(inactive))
        print_view(Text(f"What is no longer active there: tally memories {options}", style="dim"))
    if others:
        print_view(
            Text(
                f"There are memories in {', '.join(others)}: look there with --scope.", style="dim"
            )
        )
    elif not inactive:
        _print_nothing_anywhere(owner)


def _print_nothing_anywhere(owner: BoundTally) -> None:
    """Print that a tally is empty, or that what it has belongs to others."""
    explored = owner.explore().scopes
    if any(found.states for found in explored):
        return
    if owner.tally.scopes():
        text = (
            f"Nothing is remembered here that {owner.actor.user} may look into. "
            "`tally --as USER …` acts as somebody else; `tally runs` lists what was recorded."
        )
    else:
        text = 'This tally is empty. Remember something: tally remember "We indent with tabs."'
    print_view(Text(text, style="dim"))


def _counted(count: int) -> str:
    return f"{count} {'memory' if count == 1 else 'memories'}"


def _listed(scopes: Iterable[Scope]) -> str:
    return ", ".join(str(scope) for scope in scopes)


def _standard_input() -> str:
    """Return the text on standard input, without its last line end. Raises InvalidInput."""
    if sys.stdin.isatty():
        raise InvalidInput(
            'Give the text to remember, as in tally remember "We indent with tabs.", or pipe it in.'
        )
    try:
        return sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise InvalidInput("Standard input is no text in UTF-8.") from error


COMMANDS: Mapping[str, Callable[..., None]] = {
    "remember": remember,
    "recall": recall,
    "memories": memories,
    "explore": explore,
    "wake": wake,
    "pack": pack,
}
