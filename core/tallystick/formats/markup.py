"""Markup: headings of Markdown and reStructuredText as lines that begin with `#`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tallystick.ranking import code_spans

_UNDERLINE = re.compile(r"([=\-`:.'\"~^_*+#<>])\1{2,}\s*$")
_ATX = re.compile(r"^ {0,3}(#{1,6})[ \t]+(\S.*)$", re.MULTILINE)
_SETEXT = re.compile(
    # No line of a list, a quotation, a table, a heading or of code is a title.
    r"^(?! {0,3}(?:[-*+>|]|\d+[.)]|#{1,6}(?:\s|$))|\s{4}|\t)[ ]*(\S.*)\n {0,3}(=+|-+)[ \t\r]*$",
    re.MULTILINE,
)


def markdown(text: str) -> str:
    """Return Markdown whose underlined headings begin with `#`; all else stays as it is."""
    return "".join(
        piece if is_code else _SETEXT.sub(_marked, piece) for piece, is_code in _pieces(text)
    )


def _marked(heading: re.Match[str]) -> str:
    return f"{'#' if heading[2].startswith('=') else '##'} {heading[1].strip()}"


class Heading(NamedTuple):
    """A heading of Markdown."""

    start: int
    """The character at which its line begins."""
    level: int
    text: str


def headings(text: str) -> Iterator[Heading]:
    """Yield the headings of Markdown outside of code, in their order."""
    place = 0
    for piece, is_code in _pieces(text):
        for match in () if is_code else _ATX.finditer(piece):
            title = match[2].rstrip()
            bare = title.rstrip("#")
            title = bare.rstrip() if bare[-1:].isspace() else title
            yield Heading(place + match.start(), len(match[1]), title)
        place += len(piece)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield a text in pieces, each with whether it is code between fences."""
    start = 0
    for begin, end in code_spans(text):
        yield text[start:begin], False
        yield text[begin:end], True
        start = end
    yield text[start:], False


def restructured(text: str) -> str:
    """Return reStructuredText whose titles begin with `#`, as deep as their underlines are in the
    order in which a text first uses them.
    """
    source = text.splitlines()
    styles: list[str] = []
    lines: list[str] = []
    position = 0
    while position < len(source):
        line = source[position]
        following = source[position + 1] if position + 1 < len(source) else ""
        last = source[position + 2] if position + 2 < len(source) else ""
        over = _UNDERLINE.match(line)
        if over and following.strip() and last.rstrip() == line.rstrip():
            title, style, used = following, line[0] * 2, 3
        elif not over and _is_underlined(line, following, source[position - 1 : position]):
            title, style, used = line, following[0], 2
        else:
            lines.append(line)
            position += 1
            continue
        if style not in styles:
            styles.append(style)
        lines.append(f"{'#' * min(styles.index(style) + 1, 6)} {title.strip()}")
        position += used
    return "\n".join(lines)


def title_of(text: str) -> str:
    """Return the heading of Markdown that stands above all others, or nothing.

    It is the first one, of the first level, and no other is on it: of chapters side by side none is
    the title, nor is a section that has none beside it yet.
    """
    found = headings(text)
    first = next(found, None)
    is_above = first is not None and first.level == 1 and all(each.level > 1 for each in found)
    return first.text if first is not None and is_above else ""


def _is_underlined(line: str, following: str, before: list[str]) -> bool:
    title = line.rstrip()
    return (
        bool(title)
        and not line[0].isspace()
        and _UNDERLINE.match(following) is not None
        and len(following.rstrip()) >= len(title)
        and not any(each.strip() for each in before)
    )
