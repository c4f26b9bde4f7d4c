"""Commands made from the table of operations: options from arguments, help from descriptions.

An argument is typed under its own name: an id and what the command names as positional by its
place, `kinds` as `--kind` once for each, a mode with a preview as `--apply`, a record as JSON. A
command of one operation has its description; all others describe themselves.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from tallystick.errors import InvalidInput
from tallystick.operations import OPERATIONS
from tallystick.tally import BoundTally
from tallystick_cli.output import as_json, print_json, print_view
from tallystick_cli.session import id_of, open_as_owner, view_in

Command = Callable[..., None]
"""A command as typer takes it: its signature has the options, its docstring is the help."""
View = Callable[[Any], Any]
"""Makes a view for a person of a result."""

_SPELLINGS = {
    "idempotency_key": "--key",
    "confirm_token": "--token",
    "budget_tokens": "--budget",
    "pinned": "--pin",
}
"""Options that a person types under a shorter name than the argument's."""
_LETTERS = {"--reason": "-r", "--limit": "-n", "--scope": "-s", "--out": "-o"}
_MODES = {"preview": "Only preview it.", "apply": "Do it, instead of a preview."}
_EVERY = "all"
"""The choice that stands for every state."""
_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_SECONDS = {"m": 60, "h": 3_600, "d": 86_400}


class Answer(NamedTuple):
    """The result of a command."""

    value: Any
    """For a program: printed as JSON."""
    view: Any = None
    """For a person: a view, a text, a list of them, or a function that returns one of these while
    the tally is open; None for the view of the command.
    """
    ok: bool = True
    """False where something does not match: the command exits with 1."""


@dataclass
class Call:
    """One call of a command."""

    command: str
    operations: tuple[str, ...]
    where: str
    owner: BoundTally
    """The tally as whoever acts sees it; there is none for a command that opens it itself."""
    bound: BoundTally
    """Same as `owner`, in the scope that was named."""
    scope: str | None
    arguments: dict[str, Any]
    """The arguments that were typed."""
    as_json: bool
    options: Mapping[str, str]
    """How each argument is typed."""

    def do(self, operation: str = "", /, **changes: Any) -> Any:
        """Call an operation, by default the command's, with what was typed and other values in its
        place. Raises InvalidInput for an option that the operation does not take.
        """
        called = OPERATIONS[operation or self.operations[0]]
        self.take(*called.arguments.model_fields)
        return called.call(self.bound, self.arguments | changes)

    def take(self, *names: str) -> None:
        """Raise InvalidInput for an option that was typed and is none of these arguments."""
        if surplus := [self.options[name] for name in self.arguments if name not in names]:
            raise InvalidInput(f"tally {self.command} takes no {', '.join(surplus)} here.")


def command(
    *operations: str,
    view: View | None = None,
    positional: Sequence[str] = (),
    without: Sequence[str] = (),
    helps: Mapping[str, str] | None = None,
    scope: Literal["home", "all"] | None = None,
    empty: str = "There is none.",
    note: str = "",
    whole_ids: bool = False,
    tally: Literal["open", "create", "place", "none"] = "open",
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function that takes the Call, arguments and options of its own, and
    returns a result, an Answer, or None where it has printed.

    What the function takes by its place alone is an argument, all else an option; a text in its
    annotation is its help. The command takes every argument of the operations too, but those in
    `without`, with the helps of the table, or of `helps`. `note` follows the description, `empty`
    is printed for an empty list, `whole_ids` are those of which no part is taken. With `place` the
    function opens the tally itself.
    """

    def decorate(run: Callable[..., Any]) -> Command:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        inputs = {each.name: _own_input(each, helps or {}) for each in own}
        placed = [*(each.name for each in own if each.kind is _POSITIONAL), *positional]
        for name, field in _fields(operations, without).items():
            if name not in inputs:
                help = (helps or {}).get(name, field.description or "")
                inputs[name] = _Input(name, field, help, name in positional)

        options = {name: each.option for name, each in inputs.items()}

        def invoke(context: typer.Context, **typed: Any) -> None:
            given = [name for name in inputs if _is_typed(context, name)]
            values = {name: inputs[name].read(typed[name]) for name in given}
            mine = [(each, values.pop(each.name, each.default)) for each in own]
            by_place = [value for each, value in mine if each.kind is _POSITIONAL]
            by_name = {each.name: value for each, value in mine if each.kind is not _POSITIONAL}
            is_json, named = typed["as_json"], typed["scope"] if scope is not None else None
            with ExitStack() as stack:
                owner: Any = None
                if tally in ("open", "create"):
                    opening = open_as_owner(typed["where"], create=tally == "create")
                    owner = stack.enter_context(opening)
                bound, name = owner and view_in(owner, named), str(context.info_name)
                place = typed.get("where", "")
                call = Call(name, operations, place, owner, bound, named, values, is_json, options)
                result = run(call, *by_place, **by_name)
                answer = result if isinstance(result, Answer) else Answer(result)
                if result is not None and is_json:
                    print_json(answer.value)
                elif result is not None:
                    _print_views(answer, view, empty)
                    shown = 0 if whole_ids else -8
                    _print_older(as_json(answer.value), inputs, typed.get("limit"), shown)
            if not answer.ok:
                raise typer.Exit(1)

        common = [*([] if tally == "none" else [_WHERE]), *([_SCOPES[scope]] if scope else [])]
        places = {name: place for place, name in enumerate(placed)}
        order = sorted(inputs.values(), key=lambda each: places.get(each.name, each.place))
        parameters = [*(each.parameter for each in order), *common, _AS_JSON]
        described = run.__doc__ or OPERATIONS[operations[0]].description
        invoke.__doc__ = f"{' '.join(described.split())} {note}".strip()
        invoke.__annotations__ = {}
        vars(invoke)["operations"] = operations
        invoke.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [_parameter("context", typer.Context, inspect.Parameter.empty), *parameters]
        )
        return invoke

    return decorate


def operation_command(operation: str, view: View, **options: Any) -> Command:
    """Make a command that is one operation and prints its result; options as of `command`."""
    return command(operation, view=view, **options)(lambda call: call.do())


def option_of(name: str, *, is_several: bool = False) -> str:
    """Return the option of an argument, such as `--kind` for the several `kinds`."""
    if is_several:
        name = f"{name[:-3]}y" if name.endswith("ies") else name.removesuffix("s")
    return _SPELLINGS.get(name, f"--{name.replace('_', '-')}")


def _fields(operations: Sequence[str], without: Sequence[str]) -> dict[str, FieldInfo]:
    """Return the arguments of operations: optional where one that takes any does without."""
    models = [OPERATIONS[operation].arguments.model_fields for operation in operations]
    models = [model for model in models if not set(model) <= set(without)]
    spread = {OPERATIONS[operation].spread for operation in operations}
    fields: dict[str, FieldInfo] = {}
    for name, field in (item for model in models for item in model.items()):
        if name in fields or name in without:
            continue
        fields[name] = field
        is_of_all = all(name in model and model[name].is_required() for model in models)
        if field.is_required() and (not is_of_all or name in spread):
            fields[name] = copy(field)
            fields[name].default = None
    return fields


class _Input:
    """An argument as a person types it."""

    def __init__(
        self, name: str, field: FieldInfo, help: str, is_positional: bool, *, is_own: bool = False
    ) -> None:
        self.name, self.default, self.parts = name, field.default, _parts(field.annotation)
        self.is_required, self.is_id = field.is_required(), name.endswith(("_id", "_ids"))
        records = (each for each in self.parts if isinstance(each, type))
        self.is_json = any(issubclass(each, BaseModel | dict) for each in records)
        kind: Any = _kind(field.annotation)
        self.is_several = get_origin(kind) is list
        one: Any = get_args(kind)[0] if self.is_several else kind
        self.choices: tuple[Any, ...] = get_args(one)
        # Where by default not every state is meant, one choice is for all of them.
        may_be_every = self.is_several or NoneType in self.parts
        has_default = bool(self.choices and self.default and not self.is_required)
        self.has_every, self.other_mode = has_default and may_be_every, ""
        if set(self.choices) == set(_MODES):
            [self.other_mode] = {*self.choices} - {self.default}
            one, self.default, help = bool, False, _MODES[self.other_mode]
        elif self.choices and self.is_several:
            one = str  # typer takes no list of choices
        elif self.has_every:
            one = Literal[(*self.choices, _EVERY)]
        self.option = option_of(self.other_mode or name, is_several=self.is_several and not is_own)
        limits = {
            place: getattr(limit, bound)
            for limit in field.metadata
            for bound, place in (("ge", "min"), ("le", "max"))
            if hasattr(limit, bound) and one in (int, float)
        }
        is_shown = type(self.default) in (bool, int, float, str)
        default = self.default if is_shown and not self.is_required else None
        self.place = 99  # after all arguments
        if is_positional or (self.is_id and self.is_required):
            self.place = -1
            info: Any = typer.Argument(**self._argument(help), **limits)
        else:
            spelled = self._spell(is_switch=one is bool and default is not False)
            info = typer.Option(*spelled, help=self._option_help(help), **limits)
        kind = list[one] if self.is_several else one
        kind = kind if self.is_required or default is not None else kind | None
        empty = inspect.Parameter.empty
        self.parameter = _parameter(
            name, Annotated[kind, info], empty if self.is_required else default
        )

    def _argument(self, help: str) -> dict[str, Any]:
        word = re.sub("_ids?$", "", self.name).replace("_or_", "|").upper()
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


def _own_input(parameter: inspect.Parameter, helps: Mapping[str, str]) -> _Input:
    """Return an argument of a command's own; an annotation of typer is left as it is."""
    name, annotation, *notes = parameter.name, parameter.annotation
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
    is_required = parameter.default is inspect.Parameter.empty
    field = FieldInfo(annotation=annotation, default=... if is_required else parameter.default)
    help = next((note for note in notes if isinstance(note, str)), helps.get(name, ""))
    made = _Input(name, field, help, parameter.kind is _POSITIONAL, is_own=True)
    if notes and not isinstance(notes[0], str):
        made.parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
    return made


def _kind(annotation: Any) -> Any:
    """Return the type of what a person types: text but for numbers, flags, choices and lists."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin in (Union, UnionType):
        kinds = [_kind(each) for each in arguments if each is not NoneType]
        return kinds[0] if len(kinds) == 1 else str
    if isinstance(origin, type) and issubclass(origin, Sequence | Set):
        return list[_kind(arguments[0])]  # type: ignore[misc]
    return annotation if origin is Literal or annotation in (bool, int, float) else str


def _parts(annotation: Any) -> set[Any]:
    """Return the types within a type."""
    if get_origin(annotation) is Literal:
        return set()
    return {annotation, get_origin(annotation)}.union(*map(_parts, get_args(annotation)))


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and not source.name.startswith("DEFAULT")


def _print_views(answer: Answer, view: View | None, empty: str) -> None:
    shown: Any = answer.view() if callable(answer.view) else answer.view
    if shown is None:
        is_empty = isinstance(answer.value, list | tuple) and not answer.value
        shown = empty if is_empty or view is None else view(answer.value)
    print_view(*(shown if isinstance(shown, list) else [shown]))
    if (token := getattr(answer.value, "confirm_token", None)) is not None:
        # In one piece, so that it can be copied.
        typer.echo(f"To do it, give the same command with:\n--apply --token {token}")


def _print_older(value: Any, names: Iterable[str], limit: int | None, shown: int) -> None:
    """Say how to see older lines, where a list is as long as it was asked to be."""
    option = next((name for name in ("before", "after") if name in names), None)
    if option is not None and isinstance(value, list) and value and len(value) == limit:
        last = value[-1].get("id") or value[-1]["run_id"]
        print_view(f"There may be more: --{option} {last[shown:]}, or --limit.", style="dim")


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, annotation=annotation, default=default)


def _common(name: str, kind: Any, default: Any, *spelled: str, **options: Any) -> inspect.Parameter:
    return _parameter(name, Annotated[kind, typer.Option(*spelled, **options)], default)


_PLACE = {"envvar": "TALLYSTICK_TALLY", "help": "Folder of the tally, or postgresql://…"}
_WHERE = _common("where", str, ".tally", "--tally", "-t", **_PLACE)
_AS_JSON = _common("as_json", bool, False, "--json", help="Print JSON instead of tables.")
_SCOPES = {
    place: _common("scope", str | None, None, "--scope", "-s", help=f"Such as project:apollo; {by}")
    for place, by in {
        "home": "by default your private one.",
        "all": "by default all that you may look into.",
    }.items()
}
