"""Shared pieces of the views: short ids, local times, cut texts, tables and panels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.adapters import words
from tallystick.records import Affected

WHOLE = frozenset({"id", "state", "status", "v", "score", "when", "steps", "took", "#"})
"""Columns that no width of a terminal cuts: what names a row, and what says how it is."""
_LEAST = {"id": 8, "started": 10, "scope": 20}
"""The least width of a column, by its name."""
_STYLES = {
    **dict.fromkeys(("active", "completed", "done"), "green"),
    **dict.fromkeys(
        ("superseded", "duplicate", "cancelled", "interrupted", "retry_scheduled"), "yellow"
    ),
    **dict.fromkeys(("deleted", "failed", "dead"), "red"),
    **dict.fromkeys(("redacted", "blocked"), "magenta"),
    "hidden": "dim",
    "running": "cyan",
}
"""Styles of states, of memories, runs and jobs."""
Cell = str | Callable[[Any], Any]
"""A field of a record, or what is shown of it."""


def short(identity: str) -> str:
    """Return the end of an id: enough to name it, and accepted wherever a command takes an id."""
    return identity[-8:]


def short_list(identities: Iterable[str]) -> str:
    return ", ".join(map(short, identities))


def id_text(identity: str) -> Text:
    return Text(short(identity), style="cyan")


def local_time(micros: int) -> str:
    moment = datetime.fromtimestamp(micros / 1_000_000, tz=UTC)
    return moment.astimezone().strftime("%Y-%m-%d %H:%M")


def cut_text(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(value: Any) -> str:
    return cut_text(" ".join(str(value).split()), 90)


def says(content: str | None) -> Text:
    """Return what a memory says in a line; a mark where it is not shown."""
    return Text(one_line(content)) if content else Text("(not shown)", style="dim")


def counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items())


def state_text(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def done(text: str, ok: bool = True) -> Text:
    return Text(f"✓ {text}" if ok else f"✗ {text}", style="green" if ok else "red")


def view_of(record: Any, cell: Cell) -> Any:
    """Return what a cell shows of a record: by a function, or a field by its name."""
    if callable(cell):
        return cell(record)
    value = getattr(record, cell)
    if value is None or isinstance(value, Text):
        return value
    if cell == "id" or cell.endswith("_id"):
        return id_text(value)
    if cell in ("state", "status"):
        return state_text(value)
    return local_time(value) if cell == "at" or cell.endswith("_at") else value


def facts(record: Any, rows: Mapping[str, Cell]) -> Table:
    """Return facts about a record by their names, one a line, or several of one name; those
    without a value are left out.
    """
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, cell in rows.items():
        value = view_of(record, cell)
        for each in value if isinstance(value, list) else [value]:
            if each not in (None, ""):
                table.add_row(name, each if isinstance(each, Text) else Text(str(each)))
    return table


def table(records: Iterable[Any], columns: Mapping[str, Cell], *, title: str = "") -> Table:
    """Return records, one in a row, whose cells wrap, but for those of the columns in `WHOLE`. A
    title comes with a rule under the names of the columns.
    """
    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD if title else None,
        padding=(0, 1, 0, 0) if title else (0, 1),
        pad_edge=False,
    )
    # rich takes from columns that do not wrap only when the others are at their least width, and
    # cuts what is then still too wide at the right: so whole columns come first.
    for name in columns:
        table.add_column(name, no_wrap=name in WHOLE, min_width=_LEAST.get(name), overflow="fold")
    for record in records:
        cells = (view_of(record, cell) for cell in columns.values())
        table.add_row(*(each if isinstance(each, Text) else str(each or "") for each in cells))
    return table


def panel(title: str, body: RenderableType, *, style: str = "dim", below: str = "") -> Panel:
    return Panel(
        body,
        title=title,
        title_align="left",
        border_style=style,
        subtitle=below or None,
        subtitle_align="left",
    )


def preview_panel(body: RenderableType, *, more: str = "") -> Panel:
    return panel("Preview", body, below=f"Nothing was changed.{more}")


def affected_links(affected: Affected) -> str:
    """Return what hangs on a memory, a link in a line."""
    return "\n".join(
        f"{words.link(link.kind, link.direction)} {short(link.memory_id)}"
        for link in affected.links
    )


def affected_elsewhere(affected: Affected) -> str:
    count = affected.elsewhere
    return f"{count} linked memories that you may not see" if count else ""


def yes(is_so: bool, style: str) -> Text:
    """Return yes in green, or no in another style."""
    return Text("yes", style="green") if is_so else Text("no", style=style)


def who(actor: Mapping[str, Any]) -> str:
    agent = actor.get("agent")
    return f"{actor.get('user')}{f' with agent {agent}' if agent else ''}"
