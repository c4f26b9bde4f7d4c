"""Arguments as a person types them: their options, and what is read of a text."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tallystick.errors import InvalidInput
from tallystick.records import Foil
from tallystick_cli.session import id_of

_SPELLINGS = {
    "idempotency_key": "--key",
    "confirm_token": "--token",
    "budget_tokens": "--budget",
    "pinned": "--pin",
    "contradict": "--contradicts",
    "statuse": "--status",
}
"""Options that a person types under another name than the argument's."""
_LETTERS = {"--reason": "-r", "--limit": "-n", "--scope": "-s", "--out": "-o"}
_MODES = {"preview": "Only preview it.", "apply": "Do it, instead of a preview."}
_EVERY = "all"
"""The choice that stands for every state."""
POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}


def option_of(name: str, *, is_several: bool = False) -> str:
    """Return the option of an argument, such as `--kind` for the several `kinds`."""
    if is_several:
        name = f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")
    return _SPELLINGS.get(name, f"--{name.replace('_', '-')}")


def word_of(name: str) -> str:
    """Return the word that stands for an argument in the line of a command."""
    return re.sub("_ids?$", "", name).replace("_or_", "|").upper()


NAME_AND_JSON = "A further field, NAME=JSON or NAME=text, such as priority=high"
"""The help of an attribute."""


def read_attributes(typed: Iterable[str], option: str = "--attribute") -> dict[str, Any]:
    """Return the attributes that were typed as NAME=JSON; what is no JSON is a text. Raises
    InvalidInput.
    """
    attributes: dict[str, Any] = {}
    for each in typed:
        name, sign, value = each.partition("=")
        if not sign or not name.strip():
            raise InvalidInput(f"{option} takes NAME=JSON, not {each!r}.", argument=option[2:])
        attributes[name.strip()] = read_json(value)
    return attributes


def read_json(text: str) -> Any:
    """Return a value that was typed: JSON where it is some, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


_DIGITS = 19
"""Digits from which on no chain has so many entries."""


def read_foil(run_id: str, text: str) -> Foil:
    """Return the foil that was typed as `verify` prints it. Raises BadParameter."""
    count, _, head = text.partition(":")
    if not (count.isascii() and count.isdigit() and len(count) < _DIGITS) or not head:
        raise typer.BadParameter("Write the foil as COUNT:DIGEST, as `verify` prints it.")
    return Foil(run_id=run_id, count=int(count), head=head)


class Input:
    """An argument as a person types it."""

    def __init__(
        self, name: str, field: FieldInfo, help: str, is_positional: bool, *, is_own: bool = False
    ) -> None:
        self.name, self.default, self.parts = name, field.default, _parts(field.annotation)
        self.is_required, self.is_id = field.is_required(), name.endswith(("_id", "_ids"))
        records = (each for each in self.parts if isinstance(each, type))
        self.is_json = any(issubclass(each, BaseModel | Mapping) for each in records)
        kind: Any = _kind(field.annotation)
        self.is_several = get_origin(kind) is list
        type_of_one: Any = get_args(kind)[0] if self.is_several else kind
        self.choices: tuple[Any, ...] = get_args(type_of_one)
        # Where by default not every state is meant, one choice is for all of them.
        may_be_every = self.is_several or NoneType in self.parts
        has_default = bool(self.choices and self.default and not self.is_required)
        self.has_every, self.other_mode = has_default and may_be_every, ""
        if set(self.choices) == set(_MODES):
            [self.other_mode] = {*self.choices} - {self.default}
            type_of_one, self.default, help = bool, False, _MODES[self.other_mode]
        elif self.choices and self.is_several:
            type_of_one = str  # typer takes no list of choices
        elif self.has_every:
            type_of_one = Literal[(*self.choices, _EVERY)]
        self.option = option_of(self.other_mode or name, is_several=self.is_several and not is_own)
        limits = {
            place: getattr(limit, bound)
            for limit in field.metadata
            for bound, place in (("ge", "min"), ("le", "max"))
            if hasattr(limit, bound) and type_of_one in (int, float)
        }
        is_shown = type(self.default) in (bool, int, float, str)
        default = self.default if is_shown and not self.is_required else None
        self.place = 99  # after all arguments
        if is_positional or (self.is_id and self.is_required):
            self.place = -1
            info: Any = typer.Argument(**self._argument(help), **limits)
        else:
            spelled = self._spell(is_switch=type_of_one is bool and default is not False)
            info = typer.Option(*spelled, help=self._option_help(help), **limits)
        kind = list[type_of_one] if self.is_several else type_of_one
        kind = kind if self.is_required or default is not None else kind | None
        empty = inspect.Parameter.empty
        self.parameter = parameter_of(
            name, Annotated[kind, info], empty if self.is_required else default
        )

    def _argument(self, help: str) -> dict[str, Any]:
        word = word_of(self.name)
        if self.is_id:
            ends = "they begin or end" if self.is_several else "it begins or ends"
            help = f"{help.rstrip('.')}, or how {ends}."
        if self.choices:
            help = f"{help} One of {', '.join(self.choices)}."
        several = "…" if self.is_several else ""
        return {"metavar": f"{word if self.is_required else f'[{word}]'}{several}", "help": help}

    def _spell(self, *, is_switch: bool) -> list[str]:
        if is_switch:
            return [f"{self.option}/--no-{self.option[2:]}"]
        return [self.option, *([_LETTERS[self.option]] if self.option in _LETTERS else [])]

    def _option_help(self, help: str) -> str:
        notes = [", as JSON"] if self.is_json else []
        notes += ["; repeatable"] if self.is_several else []
        notes += [f"; `{_EVERY}` for every one"] if self.has_every else []
        return f"{help.rstrip('.')}{''.join(notes)}." if notes else help

    def read(self, typed: Any) -> Any:
        """Return the argument that was typed. Raises InvalidInput."""
        if self.other_mode:
            return self.other_mode
        if self.has_every and _EVERY in (typed if self.is_several else [typed]):
            return self.choices if self.is_several else None
        return tuple(map(self._read, typed)) if self.is_several else self._read(typed)

    def _read(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        if self.is_id or self.name in ("before", "after"):
            return id_of(text)
        if timedelta in self.parts and re.fullmatch("[0-9]+[mhd]", text):
            return int(text[:-1]) * _SECONDS[text[-1]]
        if self.is_json:
            try:
                return json.loads(text)
            except ValueError as error:
                raise InvalidInput(f"`{self.name}` takes JSON: {error}.") from error
        return text


def own_input(parameter: inspect.Parameter, helps: Mapping[str, str]) -> Input:
    """Return an argument of a command's own; an annotation of typer is left as it is."""
    name, annotation, *notes = parameter.name, parameter.annotation
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
    is_required = parameter.default is inspect.Parameter.empty
    field = FieldInfo(annotation=annotation, default=... if is_required else parameter.default)
    help = next((note for note in notes if isinstance(note, str)), helps.get(name, ""))
    own = Input(name, field, help, parameter.kind is POSITIONAL, is_own=True)
    if notes and not isinstance(notes[0], str):
        own.parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    return own


def _kind(annotation: Any) -> Any:
    """Return the type of what a person types: text but for numbers, flags, choices and lists."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (Union, UnionType):
        kinds = [_kind(each) for each in arguments if each is not NoneType]
        return kinds[0] if len(kinds) == 1 else str
    if isinstance(origin, type) and issubclass(origin, Iterable) and origin not in (dict, Mapping):
        return list[_kind(arguments[0])]  # type: ignore[misc]
    return annotation if origin is Literal or annotation in (bool, int, float) else str


def _parts(annotation: Any) -> set[Any]:
    """Return the types within a type."""
    if get_origin(annotation) is Literal:
        return set()
    return {annotation, get_origin(annotation)}.union(*map(_parts, get_args(annotation)))


def parameter_of(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=annotation, default=default)
