"""Commands about memories of other products: a way in, previewed first, and a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tallystick.errors import InvalidInput
from tallystick.records import MOST_RESULTS, Memory
from tallystick_cli.commands import Answer, Call, command
from tallystick_cli.output import progress_bar, write_private
from tallystick_cli.session import open_as_owner, view_in
from tallystick_cli.views.common import record
from tallystick_imports import (
    ExportFormat,
    ForeignFormat,
    Imported,
    export_lines,
    import_memories,
)

_MOST = 10
"""Owners and reasons that a terminal shows."""


def _owners(imported: Imported) -> list[str]:
    owners = [f"{owner or 'nobody named'}: {count}" for owner, count in imported.owners.items()]
    more = [f"and {len(owners) - _MOST} others"] if len(owners) > _MOST else []
    return [*owners[:_MOST], *more]


def _next(imported: Imported) -> str | None:
    if imported.mode == "apply":
        return None
    several = " The file has several owners: name those that belong here with --only."
    return f"Nothing is written yet; --apply imports.{several if len(imported.owners) > 1 else ''}"


_VIEW = record(
    "Imported",
    "memories=read kinds new=created there_already=present read_back=found skipped=skipped_count",
    owners=_owners,
    reasons=lambda each: [f"{one.place}: {one.reason}" for one in each.skipped[:_MOST]],
    next=_next,
)


@command(
    scope="home",
    tally="place",
    view=_VIEW,
    ok=lambda done: done.mode == "preview" or done.found == done.created + done.present,
)
def import_from(
    call: Call,
    format: Annotated[ForeignFormat, "The product."],
    file: Annotated[
        str, "Its export as it comes: a file of JSON, an archive, a folder of sessions, a database."
    ],
    /,
    only: Annotated[tuple[str, ...], "User, namespace, agent or project to take; * for all."] = (),
    apply: Annotated[bool, "Import; without it nothing is written."] = False,
) -> Imported:
    """Bring the memories of another product in, each with its source; again, it adds nothing."""
    hidden = call.as_json or not apply
    with (
        open_as_owner(call.where, create=apply) as owner,
        progress_bar("Importing", "memories", hidden=hidden) as advance,
    ):
        bound = view_in(owner, call.scope)
        mode: Literal["preview", "apply"] = "apply" if apply else "preview"
        return import_memories(bound, format, Path(file), only=only, mode=mode, progress=advance)


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
