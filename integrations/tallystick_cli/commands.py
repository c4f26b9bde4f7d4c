"""Commands made from the table of operations: options from arguments, help from descriptions.

An argument is typed under its own name: an id and what the command names as positional by its
place, `kinds` as `--kind` once for each, a mode with a preview as `--apply`, a record as JSON. A
command of one operation has its description; all others describe themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import typer
from pydantic.fields import FieldInfo

from tallystick.errors import InvalidInput
from tallystick.operations import OPERATIONS
from tallystick.tally import BoundTally
from tallystick_cli.inputs import POSITIONAL, Input, own_input, parameter_of
from tallystick_cli.output import as_json, print_json, print_view, progress_bar
from tallystick_cli.session import confirm, open_as_owner, require_person, view_in

View = Callable[[Any], Any] | str
"""Makes a view for a person of a result; a text is the view, in which `{0.name}` is a field."""
EMPTY = "There is none."
"""What is printed for an empty list."""


@dataclass(frozen=True)
class Command:
    """A command, built when it is asked for: its file has others, which need not be."""

    build: Callable[[], Callable[..., None]]
    """Makes the function that typer takes: its signature has the options, its docstring is the
    help.
    """


class Answer(NamedTuple):
    """The result of a command."""

    value: Any
    """For a program: printed as JSON."""
    view: Any = None
    """For a person: a view, a text, a list of them, or a function that returns one of these while
    the tally is open; None for the view of the command.
    """
    ok: bool = True
    """False where something does not match: the command exits with `exit_code`."""
    exit_code: int = 1


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
    bar: str = ""
    """Label and unit of the bar that shows the progress of an operation."""
    action: str = ""
    """The action that was named, of a command that has some."""

    def do(self, operation: str = "", /, **changes: Any) -> Any:
        """Call an operation, by default the command's, with what was typed and other values in its
        place. Raises InvalidInput for an option that the operation does not take.
        """
        called = OPERATIONS[operation or self.operations[0]]
        self.take(*called.arguments.model_fields)
        arguments = self.arguments | changes
        if not self.bar:
            return called.call(self.bound, arguments)
        label, _, unit = self.bar.partition(" ")
        with progress_bar(label, unit, hidden=self.as_json) as advance:
            return called.call(self.bound, arguments, progress=advance)

    def take(self, *names: str) -> None:
        """Raise InvalidInput for an option that was typed and is none of these arguments."""
        self.refuse(name for name in self.arguments if name not in names)

    def refuse(self, names: Iterable[str]) -> None:
        """Raise InvalidInput for options that were typed, if there are any."""
        if surplus := [self.options[name] for name in names]:
            raise InvalidInput(f"tally {self.command} takes no {', '.join(surplus)} here.")


def command(
    *operations: str,
    view: View | None = None,
    positional: Sequence[str] = (),
    without: Sequence[str] = (),
    helps: Mapping[str, str] | None = None,
    scope: Literal["home", "all"] | None = None,
    empty: str = EMPTY,
    note: str = "",
    ok: Callable[[Any], bool] | None = None,
    asks: str = "",
    bar: str = "",
    whole_ids: bool = False,
    tally: Literal["open", "create", "place", "none"] = "open",
) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function that takes the Call, arguments and options of its own, and
    returns a result, an Answer, or None where it has printed.

    What the function takes by its place alone is an argument, all else an option; a text in its
    annotation is its help. The command takes every argument of the operations too, but those in
    `without`, with the helps of the table, or of `helps`. `note` follows the description, `empty`
    is printed for an empty list, `whole_ids` are those of which no part is taken. It exits with 1
    for a result that is not `ok`. A person at a terminal confirms --apply of what it `asks`. A
    `bar` of progress has this label and unit. With `place` the function opens the tally itself.
    """

    def build(run: Callable[..., Any]) -> Callable[..., None]:
        own = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
        inputs = {each.name: own_input(each, helps or {}) for each in own}
        placed = [*(each.name for each in own if each.kind is POSITIONAL), *positional]
        for name, field in _fields(operations, without).items():
            if name not in inputs:
                help = (helps or {}).get(name, field.description or "")
                inputs[name] = Input(name, field, help, name in positional)
        options = {name: each.option for name, each in inputs.items()}

        def invoke(context: typer.Context, **typed: Any) -> None:
            typed_names = [name for name in inputs if _is_typed(context, name)]
            values = {name: inputs[name].read(typed[name]) for name in typed_names}
            mine = [(each, values.pop(each.name, each.default)) for each in own]
            by_place = [value for each, value in mine if each.kind is POSITIONAL]
            by_name = {each.name: value for each, value in mine if each.kind is not POSITIONAL}
            is_json, named = typed["as_json"], typed["scope"] if scope is not None else None
            place = "" if tally == "none" else _place(typed["where"], typed["schema"])
            with ExitStack() as stack:
                owner: Any = None
                if tally in ("open", "create"):
                    opening = open_as_owner(place, create=tally == "create")
                    owner = stack.enter_context(opening)
                bound, name = owner and view_in(owner, named), str(context.info_name)
                call = Call(name, operations, place, owner, bound, named, values, is_json, options)
                call.bar = bar
                if asks and values.get("mode") == "apply":
                    require_person(f"tally {name} --apply")
                    confirm(asks, name.partition("-")[0])
                result = run(call, *by_place, **by_name)
                answer = answer_of(result, view, empty)
                if ok is not None:
                    answer = answer._replace(ok=ok(answer.value))
                if result is not None and is_json:
                    print_json(answer.value)
                elif result is not None:
                    _print_views(answer)
                    shown = 0 if whole_ids else -8
                    _print_older(as_json(answer.value), inputs, typed.get("limit"), shown)
            if not answer.ok:
                raise typer.Exit(answer.exit_code)

        common = [
            *([] if tally == "none" else [_WHERE, _SCHEMA]),
            *([_SCOPES[scope]] if scope else []),
        ]
        places = {name: place for place, name in enumerate(placed)}
        order = sorted(inputs.values(), key=lambda each: places.get(each.name, each.place))
        parameters = [*(each.parameter for each in order), *common, _AS_JSON]
        described = run.__doc__ or OPERATIONS[operations[0]].description
        invoke.__doc__ = f"{' '.join(described.split())} {note}".strip()
        invoke.__annotations__ = {}
        vars(invoke)["operations"] = operations
        invoke.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter_of("context", typer.Context, inspect.Parameter.empty), *parameters]
        )
        return invoke

    return lambda run: Command(partial(build, run))


def operation_command(operation: str, view: View, **options: Any) -> Command:
    """Make a command that is one operation and prints its result; options as of `command`."""
    return command(operation, view=view, **options)(lambda call: Answer(call.do()))


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


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and not source.name.startswith("DEFAULT")


def answer_of(result: Any, view: View | None, empty: str) -> Answer:
    """Return a result with a view of it, unless it has one: `empty` for an empty list."""
    answer = result if isinstance(result, Answer) else Answer(result)
    if answer.view is not None:
        return answer
    if view is None or (isinstance(answer.value, list | tuple) and not answer.value):
        return answer._replace(view=empty)
    return answer._replace(
        view=partial(view.format if isinstance(view, str) else view, answer.value)
    )


def _print_views(answer: Answer) -> None:
    shown: Any = answer.view() if callable(answer.view) else answer.view
    print_view(*(shown if isinstance(shown, list) else [shown]))
    if (token := getattr(answer.value, "confirm_token", None)) is not None:
        # In one piece, so that it can be copied.
        typer.echo(f"To do it, give the same command with:\n--apply --token {token}")


def _print_older(value: Any, names: Iterable[str], limit: int | None, shown: int) -> None:
    """Say how to see older lines, where a list is as long as it was asked to be."""
    option = next((name for name in ("before", "after") if name in names), None)
    if option is not None and isinstance(value, list) and value and len(value) == limit:
        last = value[-1]["id"]
        print_view(f"There may be more: --{option} {last[shown:]}, or --limit.", style="dim")


def _place(where: str, schema: str | None) -> str:
    """Return the place of a tally, in a schema of its database if one is named."""
    if schema is None:
        return where
    from tallystick.kit.arguments import in_schema

    return in_schema(where, schema)


def _common(name: str, kind: Any, default: Any, *spelled: str, **options: Any) -> inspect.Parameter:
    return parameter_of(name, Annotated[kind, typer.Option(*spelled, **options)], default)


_PLACE = {"envvar": "TALLYSTICK_TALLY", "help": "Folder of the tally, or postgresql://…"}
_WHERE = _common("where", str, ".tally", "--tally", "-t", **_PLACE)
_SCHEMA = _common("schema", str | None, None, "--schema", help="Schema of a tally in PostgreSQL.")
_AS_JSON = _common("as_json", bool, False, "--json", help="Print JSON instead of tables.")
_SCOPES = {
    place: _common("scope", str | None, None, "--scope", "-s", help=f"Such as project:apollo; {by}")
    for place, by in {
        "home": "by default your private one.",
        "all": "by default all that you may look into.",
    }.items()
}
