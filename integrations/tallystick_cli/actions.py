"""Commands whose first argument names an action, such as `tally task start ID`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import typer

from tallystick.errors import InvalidInput
from tallystick_cli.commands import EMPTY, Answer, Call, Command, View, answer_of, command
from tallystick_cli.inputs import POSITIONAL, word_of
from tallystick_cli.session import id_of

_NONE = inspect.Parameter.empty
_PLACED = (POSITIONAL, inspect.Parameter.VAR_POSITIONAL)


class Action(NamedTuple):
    """An operation, or what a function does by hand."""

    operation: str = ""
    takes: str = ""
    """Arguments of the operation that are typed by their places."""
    view: View | None = None
    empty: str = EMPTY
    run: Callable[..., Any] | None = None
    """Takes the Call, what is typed by its place, and options of its own."""

    def own(self) -> list[inspect.Parameter]:
        """Return what the function takes besides the Call."""
        taken = inspect.signature(self.run, eval_str=True).parameters if self.run else {}
        return list(taken.values())[1:]

    def places(self) -> dict[str, bool]:
        """Return the names of what is typed by its place; True for what cannot be left out."""
        by_hand = [each for each in self.own() if each.kind in _PLACED]
        needed = {each.name: each.default is _NONE and each.kind is POSITIONAL for each in by_hand}
        return dict.fromkeys(self.takes.split(), True) | needed

    def form(self) -> str:
        """Return what is typed behind the name of the action."""
        words = [f"{word_of(name)}{'…' * _is_several(name)}" for name in self.places()]
        needed = self.places().values()
        return "".join(
            f" {word}" if is_needed else f" [{word}]"
            for word, is_needed in zip(words, needed, strict=True)
        )

    def do(self, call: Call, texts: Sequence[str], options: Mapping[str, Any]) -> Answer:
        """Do it with what was typed by its place and as options of its own. Raises InvalidInput."""
        places = self.places()
        names = [*places, *[name for name in places if _is_several(name)] * len(texts)]
        if len(names) < len(texts) or sum(places.values()) > len(texts):
            raise InvalidInput(f"Write: tally {call.command} {call.action}{self.form()}")
        typed = [
            id_of(text) if _is_id(name) else text for name, text in zip(names, texts, strict=False)
        ]
        call.refuse(options.keys() - {each.name for each in self.own()})
        call.operations = (self.operation,)
        if self.run is None:
            return answer_of(
                call.do(**dict(zip(places, typed, strict=True))), self.view, self.empty
            )
        if not self.operation:
            call.take()
        return answer_of(self.run(call, *typed, **options), self.view, self.empty)


def action_command(
    description: str,
    actions: Mapping[str, Action],
    *,
    helps: Mapping[str, str] | None = None,
    without: Iterable[str] = (),
    **options: Any,
) -> Command:
    """Make a command of actions, by default the first; an option that the action does not take is
    refused. `helps`, `without` and other options are as of `command`.
    """

    def build() -> Callable[..., None]:
        own = {each.name: each for one in actions.values() for each in one.own()}
        optional = {name: each for name, each in own.items() if each.kind not in _PLACED}
        places = [list(one.places()) for one in actions.values()]

        def run(call: Call, name: str, /, *typed: Any, **values: Any) -> Answer:
            texts = [
                text for each in typed for text in (each if isinstance(each, tuple) else [each])
            ]
            chosen = {each: values[each] for each in values if values[each] != own[each].default}
            call.action = name
            return actions[name].do(call, [text for text in texts if text is not None], chosen)

        forms = ", ".join(f"{name}{action.form()}" for name, action in actions.items())
        about = (helps or {}).get("action", f"{forms}.")
        kind: Any = Literal[tuple(actions)]
        placed = [_parameter("action", kind, next(iter(actions)), "ACTION", about)]
        for number in range(max(map(len, places))):
            names = dict.fromkeys(each[number] for each in places if len(each) > number)
            placed.append(_place(number, list(names), helps or {}))
        run.__doc__ = description
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [_parameter("call", Call, _NONE, "", ""), *placed, *optional.values()]
        )
        operations = dict.fromkeys(each.operation for each in actions.values() if each.operation)
        absent = {*without, *(name for each in places for name in each)}
        made = command(*operations, without=tuple(absent), helps=helps, **options)
        return made(run).build()

    return Command(build)


def _place(number: int, names: Sequence[str], helps: Mapping[str, str]) -> inspect.Parameter:
    """Return the argument at a place, which has these names in the actions."""
    several, [first, *others] = any(map(_is_several, names)), names
    words = "|".join(dict.fromkeys(map(word_of, names)))
    ids = "|".join(dict.fromkeys(word_of(name) for name in names if _is_id(name)))
    about = f"{ids} by its id, or how that begins or ends." if ids else f"Of actions with {words}."
    kind: Any = list[str] if several else str | None
    place = f"place_{number}" if others else first
    return _parameter(place, kind, () if several else None, words, helps.get(first, about))


def _is_id(name: str) -> bool:
    return name.endswith(("_id", "_ids"))


def _is_several(name: str) -> bool:
    return name.endswith("_ids")


def _parameter(name: str, kind: Any, default: Any, word: str, help: str) -> inspect.Parameter:
    noted: Any = Annotated[kind, typer.Argument(metavar=f"[{word}]", help=help)]
    return inspect.Parameter(name, POSITIONAL, annotation=noted, default=default)
