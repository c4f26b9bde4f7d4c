"""Output of commands: views for a person, JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.segment import Segment
from rich.text import Text

__all__ = ["Terminal", "print_json", "print_preview", "print_view", "progress_bar"]


class Terminal(Console):
    """A terminal that stored text cannot steer: escapes and marks of writing direction are left
    out.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, without control characters."""
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control
                else Segment(segment.text.translate(_STEERING), segment.style)
            )


_STEERING = dict.fromkeys(
    [
        *(code for code in range(0x20) if code not in (0x09, 0x0A)),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ]
)
# The newlines between the values are not text, and JSON escapes its own control characters.
_ESCAPED = {code: f"\\u{code:04x}" for code in _STEERING if code >= 0x7F}


def print_view(what: RenderableType) -> None:
    """Print a view for a person. A line of text is not broken, so that paths and digests in it can
    be copied.
    """
    Terminal().print(what, soft_wrap=isinstance(what, Text))


def print_json(value: Any) -> None:
    """Print a value as JSON for a program; what would steer a terminal is escaped in its texts."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2).translate(_ESCAPED))


def print_preview(view: RenderableType, token: str | None) -> None:
    """Print a preview, and below it the token in one piece, so that it can be copied."""
    print_view(view)
    if token is not None:
        typer.echo(f"To do it, give the same command with:\n--apply --token {token}")


def progress_bar(label: str, unit: str = "", *, as_json: bool = False) -> Progress:
    """Return a bar of progress beside the output: on standard error, and only for a person at a
    terminal.
    """
    console = Terminal(stderr=True)
    return Progress(
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        console=console,
        disable=as_json or not console.is_terminal,
    )
