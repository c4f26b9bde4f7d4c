"""Commands about memories of other products: a way in, previewed first, and a way out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tallystick.adapters.foreign_memories import (
    ForeignFormat,
    Imported,
    export_lines,
    import_memories,
)
from tallystick.errors import InvalidInput
from tallystick_cli.options import AsJson, AtHome, Where
from tallystick_cli.output import print_json, print_view, progress_bar
from tallystick_cli.session import open_as_owner, view_in
from tallystick_cli.views.common import plain_table

_MOST = 10
"""Owners and reasons that a terminal shows."""
_ALL = 1_000_000
"""Memories that an export takes at most."""

Format = Annotated[
    ForeignFormat,
    typer.Argument(metavar="FORMAT", help="mem0, langmem, langgraph-store, llama-index or jsonl."),
]


def import_from(
    format: Format,
    file: Annotated[
        Path, typer.Argument(help="Its export: JSON, JSON lines, or the file of a SqliteStore.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="User, namespace or key to take; repeatable; * for all."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Import; without it nothing is written.")
    ] = False,
    where: Where = ".tally",
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """Bring the memories of another product in, each with its source. Doing it again adds nothing
    twice.
    """
    with open_as_owner(where, create=apply) as owner:
        bound = view_in(owner, scope)
        with progress_bar("Importing", "memories", as_json=as_json or not apply) as bar:
            task = bar.add_task("import", total=None)
            imported = import_memories(
                bound,
                format,
                file,
                only=only or (),
                mode="apply" if apply else "preview",
                progress=lambda count: bar.advance(task, count),
            )
    if as_json:
        print_json(imported.dump())
    else:
        print_view(_view(imported, str(bound.scope)))
    if apply and imported.found != imported.created + imported.present:
        raise typer.Exit(1)


def export_to(
    format: Format,
    file: Annotated[Path, typer.Argument(help="File of JSON lines to write.")],
    where: Where = ".tally",
    scope: AtHome = None,
    as_json: AsJson = False,
) -> None:
    """Write the memories of a scope as lines that another product reads."""
    if file.exists():
        raise InvalidInput(f"{file} is there already: name a file that is not.")
    with open_as_owner(where) as owner:
        bound = view_in(owner, scope)
        memories = bound.memories(limit=_ALL)
        # What was remembered is for whoever runs this, until he gives it to somebody.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as opened:
            for line in export_lines(reversed(memories), format, owner=bound.scope.key or "all"):
                opened.write(line + "\n")
    if as_json:
        print_json({"file": str(file), "memories": len(memories)})
    else:
        print_view(Text(f"✓ {len(memories)} memories in {file}", style="green"))


def _view(imported: Imported, scope: str) -> Group:
    owners, kinds = imported.owners, imported.kinds
    table: Table = plain_table("of", "memories")
    for owner, count in list(owners.items())[:_MOST]:
        table.add_row(owner or "nobody named", str(count))
    if len(owners) > _MOST:
        table.add_row(f"{len(owners) - _MOST} others", "")
    said = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    if imported.mode == "preview":
        head = Text(f"{imported.read} memories ({said}) would come to {scope}.", style="bold")
        next_line = "Nothing is written yet; --apply imports."
        if len(owners) > 1:
            next_line += " The file has several owners: name those that belong here with --only."
    else:
        head = Text(
            f"✓ {imported.created} new, {imported.present} there already, "
            f"{imported.found} read back",
            style="green" if imported.found == imported.created + imported.present else "bold red",
        )
        next_line = f"in {scope}"
    lines: list[Text | Table] = [head, table, Text(next_line, style="dim")]
    lines += [
        Text(f"✗ {each.place}: {each.reason}", style="yellow") for each in imported.skipped[:_MOST]
    ]
    if imported.skipped_count > _MOST:
        lines.append(Text(f"✗ {imported.skipped_count - _MOST} more were skipped", style="yellow"))
    return Group(*lines)


COMMANDS: Mapping[str, Callable[..., None]] = {
    "import-from": import_from,
    "export-to": export_to,
}
