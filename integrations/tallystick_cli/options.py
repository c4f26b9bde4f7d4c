"""What the commands have in common: options, opening the tally as its owner, and printing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tallystick.tally import BoundTally, Tally

__all__ = ["AsJson", "InScope", "Limit", "Terminal", "Where", "opened", "print_json", "printed"]

Where = Annotated[
    str, typer.Option("--tally", "-t", envvar="TALLYSTICK_TALLY", help="Folder of the tally, or postgresql://…")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
InScope = Annotated[
    str | None, typer.Option("--scope", "-s", help="Such as project:apollo; by default all scopes of the owner.")
]


@contextmanager
def opened(where: str, *, create: bool = False) -> Iterator[BoundTally]:
    """The tally as its owner sees it, closed afterwards."""
    with Tally.open(where, create=create, background=False) as tally:
        yield tally.bind(None).on("cli")


class Terminal(Console):
    """A terminal that stored text cannot steer: its escapes and marks of the direction of writing are left out."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Same as rich's, of text that only says something."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(segment.text.translate(_STEERING), segment.style)


_STEERING = dict.fromkeys(
    [*(code for code in range(0x20) if code not in (0x09, 0x0A)), *range(0x7F, 0xA0), *range(0x202A, 0x202F),
     *range(0x2066, 0x206A)]
)  # fmt: skip


def printed(what: RenderableType) -> None:
    """Show something to a person."""
    Terminal().print(what)


def print_json(value: Any) -> None:
    """Show something to a program."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
