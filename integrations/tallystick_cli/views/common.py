"""Shared pieces of the views: short ids, local times, cut texts, tables and panels."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import (
    Affected,
)


def short(identity: str) -> str:
    """Return the end of an id: enough to name it, and accepted wherever a command takes an id."""
    return identity[-8:]


def local_time(micros: int) -> str:
    return (
        datetime.fromtimestamp(micros / 1_000_000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    )


def cut_text(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 90 else text[:89] + "…"


def fact_table() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


WHOLE = frozenset({"id", "state", "status", "v", "score", "when", "steps", "took", "#"})
"""Columns that no width of a terminal cuts: what names a row, and what says how it is."""


def plain_table(*columns: str) -> Table:
    """Return a table without rules, whose cells wrap, but for those of the columns in `WHOLE`."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        _add_column(table, name)
    return table


def titled_table(title: str, *columns: str) -> Table:
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
    for name in columns:
        _add_column(table, name)
    return table


_LEAST = {"id": 8, "started": 10, "scope": 20}
"""The least width of a column, by its name."""


def _add_column(table: Table, name: str) -> None:
    # rich takes from columns that do not wrap only when the others are at their least width, and
    # cuts what is then still too wide at the right: so whole columns come first.
    is_whole = name in WHOLE
    table.add_column(name, no_wrap=is_whole, min_width=_LEAST.get(name), overflow="fold")


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


def state_text(state: str) -> Text:
    return Text(state, style=_STATE.get(state, ""))


def add_affected(facts: Table, affected: Affected) -> None:
    if affected.links:
        facts.add_row(
            "links",
            "\n".join(
                f"{LINKS.get((link.kind, link.direction), link.kind.lower())} "
                f"{short(link.memory_id)}"
                for link in affected.links
            ),
        )
    if affected.elsewhere:
        facts.add_row("elsewhere", f"{affected.elsewhere} linked memories that you may not see")


def preview_panel(body: RenderableType, *, more: str = "") -> RenderableType:
    notice = f"Nothing was changed.{more}"
    return Panel(
        body,
        title="Preview",
        title_align="left",
        border_style="dim",
        subtitle=notice,
        subtitle_align="left",
    )
