"""HTML of records: markup in which every text is escaped, and who renders which kind of record.

What a record looks like in a notebook is a surface's to say: it registers a function for each kind,
by an entry point of the group `tallystick.html`, which is loaded when a notebook asks first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from tallystick.records.escaping import visible

Renderer = Callable[[Any], str]
"""Returns a record as HTML."""
_GROUP = "tallystick.html"
_VOID = {"br", "col", "hr", "meta"}


class Html(str):
    """Markup in which every text is escaped already."""

    __slots__ = ()


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element. Children are escaped unless they are `Html`, None is left out; attributes
    are always escaped, `class_` is `class`, True stands alone, None and False are left out.
    """
    said = "".join(
        f" {key.rstrip('_').replace('_', '-')}"
        + ("" if value is True else f'="{escape(visible(str(value)))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{said}>")
    inner = "".join(_escape_child(child) for child in children if child is not None)
    return Html(f"<{name}{said}>{inner}</{name}>")


def html_table(caption: object, header: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """Return a table. Everything in it is escaped: stored text is text there too."""
    head = tag("tr", *(tag("th", name) for name in header))
    body = Html("".join(tag("tr", *(tag("td", cell) for cell in row)) for row in rows))
    return tag("table", tag("caption", caption), tag("thead", head), tag("tbody", body))


def html_of(record: object) -> str | None:
    """Return a record as HTML for a notebook; None where nobody renders its kind."""
    renderers = _renderers()
    for kind in type(record).__mro__:
        if kind in renderers:
            return renderers[kind](record)
    return None


def cut(text: str, most: int = 80) -> str:
    """Return the beginning of a text on one line, at most `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1] + "…"


@cache
def _renderers() -> Mapping[type, Renderer]:
    from importlib.metadata import entry_points  # slow to load, for notebooks alone

    found: dict[type, Renderer] = {}
    for entry in entry_points(group=_GROUP):
        found.update(entry.load())
    return found


def _escape_child(child: object) -> str:
    return child if isinstance(child, Html) else escape(visible(str(child)))
