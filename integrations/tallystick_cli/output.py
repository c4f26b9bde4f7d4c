"""Output of commands: views for a person, JSON for a program. A server loads no rich."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from tallystick.records import Record

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

STEERING = dict.fromkeys(
    [
        *(code for code in range(0x20) if code not in (0x09, 0x0A)),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),
        *range(0x2066, 0x206A),
    ]
)
"""Control characters and marks of writing direction, which no text may print."""
# The newlines between the values are not text, and JSON escapes its own control characters.
_ESCAPED = {code: f"\\u{code:04x}" for code in STEERING if code >= 0x7F}
_STYLES = {"✓": "green", "✗": "red", "!": "yellow"}
"""Styles of a line by the sign that it begins with."""


def terminal(*, stderr: bool = False) -> Console:
    """Return a terminal that stored text cannot steer: steering characters are left out."""
    from rich.console import Console
    from rich.segment import Segment

    class Terminal(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else segment.text.translate(STEERING)
                yield Segment(text, segment.style, segment.control)

    return Terminal(stderr=stderr)


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


def print_json(value: Any) -> None:
    """Print a value as JSON for a program; what would steer a terminal is escaped in its texts."""
    typer.echo(json.dumps(as_json(value), ensure_ascii=False, indent=2).translate(_ESCAPED))


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = terminal(stderr=True)
    columns = TextColumn(label), BarColumn(), MofNCompleteColumn(), TextColumn(unit)
    is_hidden = hidden or not console.is_terminal
    with Progress(*columns, console=console, disable=is_hidden) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
