"""Output of commands: views for a person, JSON for a program; of a failure a line, or one object. A
server loads no rich.

Exit codes: 0, done; 1, done and something does not match, or a person said no; 2, refused or
failed; 3, a page that does not match the record in it; 130, interrupted. With `--json` standard
output has the one object `{"error": {"code", "message", "facts"}}`, and standard error stays empty.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import typer

from tallystick.errors import TallystickError
from tallystick.operations import error_json
from tallystick.records import Record
from tallystick.records.escaping import UNSEEN, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

_STYLES = {"✓": "green", "✗": "red", "!": "yellow"}
"""Styles of a line by the sign that it begins with."""


def terminal(**options: Any) -> Console:
    """Return the terminal through which everything for a person goes: stored text is no markup and
    no link there, and what would steer the terminal or hide in it is shown by its number. Options
    are as of the Console of rich.
    """
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    class Terminal(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            # Before it is laid out, so that what is shown has the width that is counted.
            if isinstance(renderable, Text):
                renderable = _visible(renderable)
            for segment in super().render(renderable, options):
                text, style, control = segment
                if control is None:
                    encoded = visible(text).encode(self.encoding, "backslashreplace")
                    text = encoded.decode(self.encoding)
                yield Segment(text, style and style.update_link(None), control)

    return Terminal(markup=False, emoji=False, **options)


def _visible(text: Text) -> Text:
    """Return a text of rich as a person is shown it, with its styles where they were."""
    plain = text.plain
    if visible(plain) == plain:
        return text
    edges = sorted({0, len(plain), *(edge for span in text.spans for edge in span[:2])})
    pieces = [visible(plain[start:end]) for start, end in pairwise(edges)]
    places = dict(zip(edges, accumulate(map(len, pieces), initial=0), strict=True))
    shown = text.blank_copy("".join(pieces))
    shown.spans = [
        span._replace(start=places[span.start], end=places[span.end]) for span in text.spans
    ]
    return shown


def print_view(*views: RenderableType, style: str | None = None, stderr: bool = False) -> None:
    """Print views for a person. A line of text is not broken, so that paths and digests in it can
    be copied; its style is that of the sign it begins with.
    """
    from rich.text import Text

    console = terminal(stderr=stderr)
    for view in views:
        if isinstance(view, str):
            view = Text(view, style=_STYLES.get(view[:1], "") if style is None else style)
        console.print(view, soft_wrap=isinstance(view, Text))


def html_of(view: RenderableType) -> str:
    """Return a view as a page that loads nothing."""
    console = terminal(file=StringIO(), record=True, width=160)
    console.print(view)
    return console.export_html(inline_styles=True)


def write_private(file: str, content: bytes, *, is_new: bool = False) -> None:
    """Write what only whoever runs this may read, until he gives it to somebody. Raises OSError,
    also for a file that is there where it has to be new.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if is_new else os.O_TRUNC)
    with os.fdopen(os.open(file, flags, 0o600), "wb") as stream:
        stream.write(content)


def print_json(value: Any) -> None:
    """Print a value as JSON for a program. What would steer a terminal or hide in it is escaped as
    JSON does, so that a program reads each text as it is.
    """
    text = json.dumps(as_json(value), ensure_ascii=False, indent=2)
    typer.echo(UNSEEN.sub(lambda unseen: json.dumps(unseen.group())[1:-1], text))


def as_json(value: Any) -> Any:
    """Return a value with the JSON of each record in it."""
    if isinstance(value, Record):
        return value.dump()
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return value


@contextmanager
def progress_bar(
    label: str, unit: str = "", *, hidden: bool = False
) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar of progress beside the output: on standard error, and only for a person at a
    terminal. Yields the function that takes what is done and the total.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = terminal(stderr=True)
    columns = (
        TextColumn(label, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
        TimeRemainingColumn(compact=True),
    )
    is_hidden = hidden or not console.is_terminal
    with Progress(*columns, console=console, disable=is_hidden) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


_REMEDIES = {
    "unverified_membership": " Here: tally --project NAME and the command.",
    "principal_mismatch": " Here: tally --as USER and the command.",
    "missing_actor": " Here: tally --as USER and the command.",
}
"""What a person at a terminal may do, by the reason of a refusal."""


@dataclass(frozen=True)
class Failure:
    """A failure, as it is printed."""

    code: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)
    usage: str | None = None
    """The line that says how the command is written."""
    exit_code: int = 2


def wants_json(arguments: list[str]) -> bool:
    """Return True if the command that these arguments call is to print JSON."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def failure_of(error: TallystickError | OSError | typer.TyperException | typer.Abort) -> Failure:
    """Return what is printed about an error."""
    if isinstance(error, TallystickError):
        described = error_json(error)
        remedy = _REMEDIES.get(getattr(error, "reason", ""), "")
        return Failure(described["code"], described["message"] + remedy, described["facts"])
    if isinstance(error, OSError):
        reason = error.strerror or str(error) or type(error).__name__
        file = None if error.filename is None else str(error.filename)
        name = None if error.errno is None else errno.errorcode.get(error.errno)
        message = reason if file is None else f"{file}: {reason}"
        return Failure("os_error", f"{message}.", {"errno": name, "file": file})
    if isinstance(error, typer.TyperException):
        return _usage_failure(error)
    return Failure("aborted", "Nothing was done.", exit_code=1)


def print_failure(failure: Failure, *, as_json: bool) -> None:
    """Print a failure: as JSON on standard output, else for a person on standard error."""
    if as_json:
        facts = {"code": failure.code, "message": failure.message, "facts": failure.facts}
        print_json({"error": facts})
        return
    style = "red" if failure.exit_code > 1 else "yellow"
    print_view(f"tally: {failure.message}", style=style, stderr=True)
    if failure.usage is not None:
        print_view(failure.usage, style="dim", stderr=True)


def _usage_failure(error: typer.TyperException) -> Failure:
    """Return the failure of a command that was written wrongly, with how it is written."""
    context: Any = getattr(error, "ctx", None)
    message = " ".join(error.format_message().replace("Value error, ", "").split())
    if not message.endswith((".", "?", "!")):
        message += "."
    if context is None:
        return Failure("usage", message)
    option = getattr(error, "option_name", None)
    group = context.find_root().command
    commands = group.commands.values() if context.parent is None else ()
    if any(option in each.opts for command in commands for each in command.params):
        message += f" {option} comes after the command: tally COMMAND {option}."
    if context.parent is not None and option is not None:
        before = {"--user": "--as", "--user-id": "--as"}.get(option, option)
        if any(before in each.opts for each in group.params):
            message = f"No such option: {option}. Write: tally {before} … {context.info_name} …"
    missing = getattr(error, "param", None)
    if missing is not None and missing.name == "reason":
        message += f" Write: {line_of(context)}"
    path = "" if context.parent is None else context.info_name
    usage = f"{context.get_usage()}\nAll options: tally help {path}".strip()
    return Failure("usage", message, {"command": path or None}, usage)


def line_of(context: Any) -> str:
    """Return how a command is written, with its reason if it needs one."""
    places = re.sub(r"[\[\]{}]", "", context.get_usage().partition("[OPTIONS]")[2]).split()
    is_reasoned = any(each.name == "reason" and each.required for each in context.command.params)
    return " ".join(["tally", context.info_name, *places, *(['--reason "…"'] * is_reasoned)])
