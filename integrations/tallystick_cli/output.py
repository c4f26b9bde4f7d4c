"""Output of commands: views for a person, JSON for a program. A server loads no rich."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import typer

from tallystick.records import Record
from tallystick.records.escaping import UNSEEN, visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

_STYLES = {"✓": "green", "✗": "red", "!": "yellow"}
"""Styles of a line by the sign that it begins with."""


def terminal(*, stderr: bool = False) -> Console:
    """Return the terminal through which everything for a person goes: stored text is no markup and
    no link there, and what would steer the terminal or hide in it is shown by its number.
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

    return Terminal(stderr=stderr, markup=False, emoji=False)


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = terminal(stderr=True)
    columns = (
        TextColumn(label, markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit, markup=False),
    )
    is_hidden = hidden or not console.is_terminal
    with Progress(*columns, console=console, disable=is_hidden) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
