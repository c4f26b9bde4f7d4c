"""What the commands have in common: options, opening the tally as its owner, and printing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType

from tallystick.tally import BoundTally, Tally

__all__ = ["AsJson", "InScope", "Limit", "Where", "opened", "print_json", "printed"]

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


def printed(what: RenderableType) -> None:
    """Show something to a person."""
    Console().print(what)


def print_json(value: Any) -> None:
    """Show something to a program."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
