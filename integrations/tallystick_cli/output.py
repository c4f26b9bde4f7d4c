"""Output of commands: views for a person, JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from tallystick.records import Record
from tallystick_cli.steering import STEERING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress

# The newlines between the values are not text, and JSON escapes its own control characters.
_ESCAPED = {code: f"\\u{code:04x}" for code in STEERING if code >= 0x7F}


def print_view(what: RenderableType) -> None:
    """Print a view for a person. A line of text is not broken, so that paths and digests in it can
    be copied.
    """
    from rich.text import Text

    from tallystick_cli.terminal import Terminal

    Terminal().print(what, soft_wrap=isinstance(what, Text))


def print_json(value: Any) -> None:
    """Print a value as JSON for a program; what would steer a terminal is escaped in its texts."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2).translate(_ESCAPED))


def print_older(last: str, count: int, limit: int) -> None:
    """Say how to see older lines, where a list of `count` is as long as it was asked to be."""
    from rich.text import Text

    if count == limit:
        print_view(Text(f"There may be more: --before {last}, or --limit.", style="dim"))


def print_preview(view: RenderableType, token: str | None) -> None:
    """Print a preview, and below it the token in one piece, so that it can be copied."""
    print_view(view)
    if token is not None:
        typer.echo(f"To do it, give the same command with:\n--apply --token {token}")


def print_result(
    result: Record | Sequence[Record], view: Callable[[Any], RenderableType], *, as_json: bool
) -> None:
    """Print a result as JSON for a program, or as a view, with the token of a preview below it."""
    if not as_json:
        print_preview(view(result), getattr(result, "confirm_token", None))
    elif isinstance(result, Record):
        print_json(result.dump())
    else:
        print_json([each.dump() for each in result])


def progress_bar(label: str, unit: str = "", *, as_json: bool = False) -> Progress:
    """Return a bar of progress beside the output: on standard error, and only for a person at a
    terminal.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from tallystick_cli.terminal import Terminal

    console = Terminal(stderr=True)
    return Progress(
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        console=console,
        disable=as_json or not console.is_terminal,
    )
