"""Shared pieces of the views: short ids, local times, cut texts, tables and panels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tallystick.records import Affected
from tallystick.records.escaping import cut
from tallystick.records.times import moment_text
from tallystick_html import words

WHOLE = frozenset({"id", "state", "status", "v", "score", "when", "steps", "took", "#"})
"""Columns that no width of a terminal cuts: what names a row, and what says how it is."""
_LEAST = {"id": 8, "started": 10, "scope": 20}
"""The least width of a column, by its name."""
_STYLES = {
    **dict.fromkeys(("active", "completed", "done", "yes"), "green"),
    **dict.fromkeys(("superseded", "duplicate", "cancelled", "interrupted"), "yellow"),
    **dict.fromkeys(("deleted", "failed", "dead", "no"), "red"),
    **dict.fromkeys(("redacted", "blocked"), "magenta"),
    "retry_scheduled": "yellow",
    "hidden": "dim",
    "running": "cyan",
}
"""Styles of states, of memories, runs and jobs, and of answers."""
_CODES = frozenset({"gap", "verdict", "output_type"})
"""Fields that have a code, which a person reads as words."""
_ID = 36
"""Characters of an id."""
Cell = Callable[[Any], Any]
"""What is shown of a record."""


def short(identity: str) -> str:
    """Return the end of an id: enough to name it, and accepted wherever a command takes an id."""
    return identity[-8:]


def id_text(identity: str) -> Text:
    return Text(short(identity), style="cyan")


def local_time(micros: int) -> str:
    return moment_text(micros, "%Y-%m-%d %H:%M", None)


def cut_text(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(value: Any) -> str:
    return cut(str(value), 90)


def says(content: str | None) -> Text:
    """Return what a memory says in a line; a mark where it is not shown."""
    return Text(one_line(content)) if content else Text("(not shown)", style="dim")


def join_ids(values: Iterable[Any]) -> str:
    """Return values in a line, ids by their ends."""
    texts = map(str, values)
    return ", ".join(short(text) if len(text) == _ID else text for text in texts)


def counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in numbers.items())


def actor_text(actor: Mapping[str, Any]) -> str:
    agent = actor.get("agent")
    return f"{actor.get('user')}{f' with agent {agent}' if agent else ''}"


def report(text: str, ok: bool = True) -> Text:
    return Text(f"✓ {text}" if ok else f"✗ {text}", style="green" if ok else "red")


def note(text: str) -> Text:
    return Text(f"! {text}", style="yellow")


def with_warnings(view: RenderableType, warnings: Iterable[str]) -> RenderableType:
    """Return a view with a line for each warning above it."""
    return Group(*map(note, warnings), view)


def state_text(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, ""))


def _cells(fields: str, more: Mapping[str, Cell]) -> dict[str, Cell]:
    """Return cells by their names: of fields as `name`, or `shown_as=name.of.field`, and others,
    each at the place where `fields` names it or at the end.
    """
    pairs = (field.partition("=")[::2] for field in fields.split())
    plain = {name: _field_cell(name, field or name) for name, field in pairs}
    return {name.replace("_", " "): cell for name, cell in (plain | dict(more)).items()}


def _field_cell(name: str, field: str) -> Cell:
    get, last = attrgetter(field), field.rpartition(".")[2]
    show = says if name == "says" else partial(_shown, last)
    return lambda record: show(get(record))


def _shown(name: str, value: Any) -> Any:
    """Return the value of the field of a name as a person reads it."""
    if value is None or isinstance(value, Text):
        return value
    if isinstance(value, Mapping):
        if set(map(type, value.values())) <= {int}:
            return counts(value)
        pairs = ", ".join(f"{key} {each}" for key, each in value.items())
        return actor_text(value) if "user" in value else one_line(pairs)
    if isinstance(value, tuple | list):
        return join_ids(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "at" or name.endswith("_at"):
        return local_time(value)
    if isinstance(value, int):
        return f"{value:,}"
    if name == "id" or name.endswith("_id"):
        return id_text(value)
    if name in ("state", "status"):
        return state_text(value)
    return value.replace("_", " ") if name in _CODES else str(value)


def facts(record: Any, fields: str, /, **more: Cell) -> Table:
    """Return facts about a record, one or several a name; those without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, cell in _cells(fields, more).items():
        value = cell(record)
        for each in value if isinstance(value, list) else [value]:
            if each not in (None, ""):
                table.add_row(name, Text(str(each)) if isinstance(each, str | int) else each)
    return table


def record(title: str, fields: str, /, **more: Cell) -> Callable[[Any], RenderableType]:
    """Return a view of a record: facts about it under a title, in which `{0.name}` is a field of
    it, or as a preview.
    """

    def view(value: Any) -> RenderableType:
        shown = facts(value, fields, **more)
        if getattr(value, "mode", "apply") == "preview":
            return preview_panel(shown)
        return panel(title.format(value), shown)

    return view


def rows(fields: str, title: str = "", /, **more: Cell) -> Callable[[Iterable[Any]], Table]:
    """Return a view of records, one in a row, as `table` makes it."""
    return lambda records: table(records, fields, title, **more)


def table(records: Iterable[Any], fields: str, title: str = "", /, **more: Cell) -> Table:
    """Return records, one in a row, whose cells wrap, but for those of the columns in `WHOLE`. A
    title comes with a rule under the names of the columns.
    """
    columns = _cells(fields, more)
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
        cells = (cell(record) for cell in columns.values())
        table.add_row(*(each if isinstance(each, Text) else str(each or "") for each in cells))
    return table


def panel(title: str, *parts: RenderableType, style: str = "dim", below: str = "") -> Panel:
    return Panel(
        Group(*parts),
        # As texts: of a string a panel makes markup, whatever the terminal says.
        title=Text(title),
        title_align="left",
        border_style=style,
        subtitle=Text(below) if below else None,
        subtitle_align="left",
    )


def preview_panel(body: RenderableType) -> Panel:
    return panel("Preview", body, below="Nothing was changed.")


def affected_links(affected: Affected) -> list[str]:
    """Return what hangs on a memory, and how many more do that one may not see."""
    links = [
        f"{words.link(each.kind, each.direction)} {short(each.memory_id)}"
        for each in affected.links
    ]
    hidden = f"{affected.elsewhere} linked memories that you may not see"
    return [*links, *([hidden] if affected.elsewhere else [])]
