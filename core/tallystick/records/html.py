"""Tables for notebooks: what a record shows of itself there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["cut", "html_table"]


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML. Everything in it is escaped: stored text is text there too."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def cut(text: str, most: int = 80) -> str:
    """Return the beginning of a text on one line, at most `most` characters."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1] + "…"
