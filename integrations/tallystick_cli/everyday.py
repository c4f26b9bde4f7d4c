"""Commands for every day: remember, recall, look around, and get memory as text for a model."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from rich.console import RenderableType

from tallystick.errors import InvalidInput
from tallystick.records import ContextPack, Explored, Scope
from tallystick.tally import BoundTally
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.inputs import NAME_AND_JSON, read_attributes
from tallystick_cli.output import print_view
from tallystick_cli.session import readable_scopes
from tallystick_cli.views import memories as views
from tallystick_cli.views.common import note

_HERE = "-"
"""In place of a text: it comes on standard input."""
_READABLE = {
    "scopes": "Such as project:apollo; by default all that you may read.",
    "namespace": "Items of stores beneath this namespace as well, one part each time.",
}
_NAMESPACE = {"namespace": "Of the items of stores those beneath it, one part each time."}


@command(
    "remember",
    scope="home",
    tally="create",
    helps={"content": "What to remember, word for word; - or nothing reads standard input."},
)
def remember(
    call: Call,
    content: str | None = None,
    /,
    source_uri: Annotated[str | None, "Address of where it came from."] = None,
    source_title: Annotated[str | None, "Title of where it came from."] = None,
    source_type: Annotated[str | None, "Such as file, tool or user."] = None,
    attribute: Annotated[tuple[str, ...], NAME_AND_JSON] = (),
) -> Answer:
    text = _standard_input() if content in (None, _HERE) else content
    parts = {"uri": source_uri, "title": source_title, "source_type": source_type}
    source = call.arguments.pop("source", {}) | {each: parts[each] for each in parts if parts[each]}
    attributes = call.arguments.pop("attributes", None) or {}
    attributes = {**attributes, **read_attributes(attribute)} or None
    stored = call.do(content=text, source=source or None, attributes=attributes)
    line = views.remembered_line(stored, call.bound.scope)
    return Answer(stored, [line, *map(note, stored.warnings)])


@command("recall", positional=("query",), helps=_READABLE)
def recall(call: Call) -> Answer:
    scopes = _scopes(call)
    hits = call.do(scopes=scopes)
    facts = {"path": hits.path, "confident": hits.confident, "warnings": list(hits.warnings)}

    def show() -> list[RenderableType]:
        warnings = list(map(note, hits.warnings))
        if len(hits):
            return [*warnings, views.hit_table(hits, query=call.arguments["query"])]
        is_filtered = bool(set(call.arguments) - {"query", "limit", "scopes"})
        filters = ", with these filters" if is_filtered else ""
        nothing = f"Nothing in {', '.join(scopes)} answers this{filters}."
        return [*warnings, nothing, *_elsewhere(call.owner, scopes)]

    return Answer({"hits": list(hits), "scopes": scopes, **facts}, show)


@command("memories", view=views.memory_table, scope="home", helps=_NAMESPACE)
def memories(call: Call) -> Answer:
    listed = call.do()
    if listed:
        return Answer(listed)
    filters, here = set(call.arguments) - {"limit"}, call.bound.scope
    what = "Nothing with these filters" if filters else "Nothing"
    line = f"{what} is remembered in {here}."
    return Answer(listed, lambda: [line, *_elsewhere(call.owner, [here], states=not filters)])


@command("explore", positional=("around",))
def explore(call: Call) -> Answer:
    around, mode = call.arguments.get("around"), call.arguments.get("mode")
    explored: Explored = call.do()

    def show() -> Any:
        if mode == "communities" and not explored.communities:
            return (
                f"{explored.around} has no communities. They are made of the names in its "
                "memories once the setting graph is on."
            )
        if explored.memories or (around is None and explored.scopes):
            return views.explored_view(explored)
        if around is None:
            return list(_nothing_anywhere(call.owner))
        here = call.owner.actor.home(around)
        nothing = f"Nothing active is remembered in {around}."
        return [nothing, *_elsewhere(call.owner, [here])]

    return Answer(explored, show)


@command("wake", helps=_READABLE)
def wake(call: Call) -> Answer:
    return _pack(call, "is pinned, constrains, or is open")


@command("pack", positional=("query",), helps=_READABLE)
def pack(call: Call) -> Answer:
    return _pack(call, "answers this")


def _scopes(call: Call) -> tuple[str, ...]:
    """Return the scopes that were named, by default all that one may read."""
    return call.arguments.get("scopes") or tuple(map(str, readable_scopes(call.owner)))


def _pack(call: Call, nothing: str) -> Answer:
    """Return the text of a pack, alone on standard output, and its size beside it."""
    scopes = _scopes(call)
    packed: ContextPack = call.do(scopes=scopes)

    def show() -> list[RenderableType]:
        if not packed.items:
            return [f"Nothing in {', '.join(scopes)} {nothing}.", *_elsewhere(call.owner, scopes)]
        count = "1 memory" if len(packed.items) == 1 else f"{len(packed.items)} memories"
        size = f"{packed.tokens} of {packed.budget_tokens} tokens"
        left_out = f"; {packed.left_out} more did not fit" if packed.left_out else ""
        about = f"{count}, {size}{'' if packed.exact else ' (estimated)'}{left_out}"
        print_view(packed.text)
        print_view(about, style="dim", stderr=True)
        return []

    return Answer(packed, show)


_USERS = 5
"""Users that are named, where memories are theirs."""


def _elsewhere(
    owner: BoundTally, scopes: Iterable[str | Scope], *, states: bool = True
) -> Iterator[str]:
    """Yield where else there are memories, by scope, and what states those of `scopes` have."""
    looked = {str(scope) for scope in scopes}
    explored = owner.explore().scopes
    others = [
        f"{each.scope} ({active})"
        for each in explored
        if each.readable and str(each.scope) not in looked
        if (active := each.states.get("active", 0))
    ]
    inactive = {state for each in explored if str(each.scope) in looked for state in each.states}
    inactive -= {"active"}
    if inactive and states:
        options = " ".join(f"--state {state}" for state in sorted(inactive))
        yield f"What is no longer active there: tally memories {options}"
    users = sorted(
        each.scope.key
        for each in explored
        if each.scope.kind == "private" and not each.readable and each.states.get("active")
    )
    if others:
        yield f"There are memories in {', '.join(others)}: look there with --scope."
    if users:
        named = f"{', '.join(users[:_USERS])}{' and others' if len(users) > _USERS else ''}"
        yield f"There are memories of {named}: look as one of them, tally --as {users[0]} …"
    elif not others and not inactive:
        yield from _nothing_anywhere(owner)


def _nothing_anywhere(owner: BoundTally) -> Iterator[str]:
    """Yield that a tally is empty, or that what it has belongs to others."""
    if any(each.states for each in owner.explore().scopes):
        return
    if owner.tally.scopes():
        yield (
            f"Nothing is remembered here that {owner.actor.user} may look into. "
            "`tally --as USER …` acts as somebody else; `tally runs` lists what was recorded."
        )
    else:
        yield 'This tally is empty. Remember something: tally remember "We indent with tabs."'


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
