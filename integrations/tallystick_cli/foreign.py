"""Commands about memories of other products: a way in, previewed first, and a way out."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Group
from rich.text import Text

from tallystick.errors import InvalidInput
from tallystick.records import MOST_RESULTS, Memory
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import progress_bar, write_private
from tallystick_cli.session import open_as_owner, view_in
from tallystick_cli.views.common import counts, table
from tallystick_imports import (
    ExportFormat,
    ForeignFormat,
    Imported,
    export_lines,
    import_memories,
)

_MOST = 10
"""Owners and reasons that a terminal shows."""


@command(scope="home", tally="place")
def import_from(
    call: Call,
    format: Annotated[ForeignFormat, "The product."],
    file: Annotated[
        str, "Its export as it comes: a file of JSON, an archive, a folder of sessions, a database."
    ],
    /,
    only: Annotated[tuple[str, ...], "User, namespace, agent or project to take; * for all."] = (),
    apply: Annotated[bool, "Import; without it nothing is written."] = False,
) -> Answer:
    """Bring the memories of another product in, each with its source; again, it adds nothing."""
    hidden = call.as_json or not apply
    with (
        open_as_owner(call.where, create=apply) as owner,
        progress_bar("Importing", "memories", hidden=hidden) as advance,
    ):
        bound = view_in(owner, call.scope)
        mode: Literal["preview", "apply"] = "apply" if apply else "preview"
        imported = import_memories(
            bound, format, Path(file), only=only, mode=mode, progress=advance
        )
    is_whole = not apply or imported.found == imported.created + imported.present
    return Answer(imported, _view(imported, str(bound.scope), is_whole), is_whole)


@command(scope="home")
def export_to(
    call: Call,
    format: Annotated[ExportFormat, "The product."],
    file: Annotated[str, "File of JSON lines to write."],
    /,
) -> Answer:
    """Write the memories of a scope as lines that another product reads."""
    if Path(file).exists():
        raise InvalidInput(f"{file} is there already: name a file that is not.")
    bound = call.bound
    memories: list[Memory] = []
    while page := bound.memories(limit=MOST_RESULTS, before=memories[-1].id if memories else None):
        memories += page
    lines = export_lines(reversed(memories), format, owner=bound.scope.key or "all")
    write_private(file, "".join(f"{line}\n" for line in lines).encode(), is_new=True)
    value = {"file": file, "memories": len(memories)}
    return Answer(value, f"✓ {len(memories)} memories in {file}")


def _view(imported: Imported, scope: str, is_whole: bool) -> Group:
    owners = [(owner or "nobody named", str(count)) for owner, count in imported.owners.items()]
    rows = owners[:_MOST]
    if len(owners) > _MOST:
        rows.append((f"{len(owners) - _MOST} others", ""))
    if imported.mode == "preview":
        what = f"{imported.read} memories ({counts(imported.kinds)})"
        head = Text(f"{what} would come to {scope}.", style="bold")
        below = "Nothing is written yet; --apply imports."
        if len(owners) > 1:
            below += " The file has several owners: name those that belong here with --only."
    else:
        came = f"{imported.created} new, {imported.present} there already"
        line = f"✓ {came}, {imported.found} read back"
        head, below = Text(line, style="green" if is_whole else "bold red"), f"in {scope}"
    skipped = [f"{each.place}: {each.reason}" for each in imported.skipped[:_MOST]]
    if imported.skipped_count > _MOST:
        skipped.append(f"{imported.skipped_count - _MOST} more were skipped")
    return Group(
        head,
        table(rows, "", of=itemgetter(0), memories=itemgetter(1)),
        Text(below, style="dim"),
        *(Text(f"✗ {line}", style="yellow") for line in skipped),
    )
