"""Shared pieces of the views: short ids, local times, cut texts, tables and panels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import Affected

WHOLE = frozenset({"id", "state", "status", "v", "score", "when", "steps", "took", "#"})
"""Columns that no width of a terminal cuts: what names a row, and what says how it is."""
_LEAST = {"id": 8, "started": 10, "scope": 20}
"""The least width of a column, by its name."""
LINKS = {
    ("SUPERSEDES", "from"): "replaced by",
    ("SUPERSEDES", "to"): "replaces",
    ("DUPLICATE_OF", "to"): "repeats",
    ("DUPLICATE_OF", "from"): "repeated by",
    ("DERIVED_FROM", "to"): "concluded from",
    ("DERIVED_FROM", "from"): "used by",
    ("SHARES", "to"): "shared from",
    ("SHARES", "from"): "shared as",
    ("DEPENDS_ON", "to"): "depends on",
    ("DEPENDS_ON", "from"): "needed by",
    ("REFERENCES", "to"): "points to",
    ("REFERENCES", "from"): "pointed to by",
    ("MENTIONS", "to"): "mentions",
    ("MENTIONS", "from"): "mentioned by",
}
_STATE = {
    "active": "green",
    "superseded": "yellow",
    "duplicate": "yellow",
    "redacted": "magenta",
    "hidden": "dim",
    "deleted": "red",
}


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


def done(text: str, ok: bool = True) -> Text:
    return Text(f"✓ {text}" if ok else f"✗ {text}", style="green" if ok else "red")


def state_text(state: str) -> Text:
    return Text(state, style=_STATE.get(state, ""))


def facts(*rows: tuple[str, Any]) -> Table:
    """Return facts by their names, one a line; those without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value not in (None, ""):
            table.add_row(name, value)
    return table


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[RenderableType]]) -> Table:
    """Return a table without rules, whose cells wrap, but for those of the columns in `WHOLE`."""
    return _filled(Table(box=None, pad_edge=False, header_style="dim"), columns, rows)


def titled_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[RenderableType]]
) -> Table:
    """Same as `plain_table`, with a title and a rule under the names of its columns."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    return _filled(table, columns, rows)


def _filled(
    table: Table, columns: Sequence[str], rows: Iterable[Sequence[RenderableType]]
) -> Table:
    # rich takes from columns that do not wrap only when the others are at their least width, and
    # cuts what is then still too wide at the right: so whole columns come first.
    for name in columns:
        table.add_column(name, no_wrap=name in WHOLE, min_width=_LEAST.get(name), overflow="fold")
    for row in rows:
        table.add_row(*row)
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


def affected_facts(affected: Affected) -> list[tuple[str, Any]]:
    """Return the facts about what hangs on a memory."""
    links = [
        f"{link_name(link.kind, link.direction)} {short(link.memory_id)}" for link in affected.links
    ]
    elsewhere = f"{affected.elsewhere} linked memories that you may not see"
    return [
        ("links", "\n".join(links)),
        ("elsewhere", elsewhere if affected.elsewhere else None),
    ]


def link_name(kind: str, direction: str = "to") -> str:
    return LINKS.get((kind, direction), kind.lower())
