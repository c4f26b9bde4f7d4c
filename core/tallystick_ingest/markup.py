"""Markup: headings of Markdown and reStructuredText as lines that begin with `#`."""

from __future__ import annotations

import re
from collections.abc import Iterator

_UNDERLINE = re.compile(r"([=\-`:.'\"~^_*+#<>])\1{2,}\s*$")
_SETEXT = re.compile(r" {0,3}(=+|-+)\s*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*?)(?:[ \t]+#+)?[ \t]*$")
_BLOCK = re.compile(r" {0,3}(?:[-*+>|]|\d+[.)]|#{1,6}(?:\s|$))|\s{4}|\t")


def markdown(text: str) -> str:
    """Return Markdown whose underlined headings begin with `#`; all else stays as it is."""
    lines: list[str] = []
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if fence:
            if match and match[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        elif match:
            fence = match[1]
        elif lines and _SETEXT.match(line) and _is_paragraph(lines[-1]):
            level = 1 if line.lstrip().startswith("=") else 2
            lines[-1] = f"{'#' * level} {lines[-1].strip()}"
            continue
        lines.append(line)
    return "\n".join(lines)


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
    headings = _headings(text)
    level, title = next(headings, (0, ""))
    return title if level == 1 and all(other > 1 for other, _ in headings) else ""


def _headings(text: str) -> Iterator[tuple[int, str]]:
    """Yield the level and text of each heading outside of code."""
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence):
            fence = ""
        elif not fence and (heading := _ATX.match(line)):
            yield len(heading[1]), heading[2]


def _is_paragraph(line: str) -> bool:
    return bool(line.strip()) and not _BLOCK.match(line)


def _is_underlined(line: str, following: str, before: list[str]) -> bool:
    title = line.rstrip()
    return (
        bool(title)
        and not line[0].isspace()
        and _UNDERLINE.match(following) is not None
        and len(following.rstrip()) >= len(title)
        and not any(each.strip() for each in before)
    )
