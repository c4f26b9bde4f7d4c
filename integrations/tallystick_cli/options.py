"""What the commands have in common: options, opening the tally as its owner, and printing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from tallystick.errors import InvalidInput
from tallystick.records import Actor
from tallystick.tally import BoundTally, Tally

__all__ = [
    "AsJson",
    "InScope",
    "Limit",
    "Terminal",
    "Where",
    "acting",
    "opened",
    "print_json",
    "printed",
]

Where = Annotated[
    str,
    typer.Option(
        "--tally", "-t", envvar="TALLYSTICK_TALLY", help="Folder of the tally, or postgresql://…"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")]
InScope = Annotated[
    str | None,
    typer.Option(
        "--scope", "-s", help="Such as project:apollo; by default all scopes of the owner."
    ),
]


_ACTING: ContextVar[Actor | None] = ContextVar("tallystick_cli_acting", default=None)


def acting(user: str | None, projects: Iterable[str]) -> None:
    """Who acts from here on, on a tally that has no owner: whoever may write to its database may
    operate it.

    Raises InvalidRecord.
    """
    named = {"user": user, "projects": frozenset(projects), "role": "operator"}
    _ACTING.set(None if user is None else Actor.load(named))


@contextmanager
def opened(where: str, *, create: bool = False) -> Iterator[BoundTally]:
    """The tally as its owner sees it, or without one who was named with `--as`; closed
    afterwards.
    """
    with Tally.open(where, create=create, background=False) as tally:
        if tally.owner is None and _ACTING.get() is None:
            raise InvalidInput(
                "This tally has no owner. Name who acts, before the command: tally --as ada "
                "--project apollo memories …"
            )
        yield tally.bind(_ACTING.get() if tally.owner is None else None).on("cli")


class Terminal(Console):
    """A terminal that stored text cannot steer: its escapes and marks of the direction of writing
    are left out.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Same as rich's, of text that only says something."""
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


def printed(what: RenderableType) -> None:
    """Show something to a person."""
    Terminal().print(what)


def print_json(value: Any) -> None:
    """Show something to a program."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
