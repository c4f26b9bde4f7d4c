"""Code by its outline and diffs by their changes: what stays when there is no room for the rest.

An outline keeps the lines that import, define and decorate, and of the bodies those that share most
words with the request. A diff loses its context lines, then the middle of its longest hunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from tallystick.ranking import analyze

_DEFINES = re.compile(
    r"\s*(?:@\w|#\[|(?:from\s+\S+\s+)?import\s|#include\b|package\s+\w|use\s+[\w:]+"
    r"|(?:(?:export|public|private|protected|internal|static|final|abstract|async|default|pub(?:\(\w+\))?|override"
    r"|inline|virtual|unsafe|extern|declare)\s+)*"
    r"(?:def|class|function|func|fn|interface|struct|enum|trait|impl|type|module|namespace|record|protocol|object)\s+\w)"
)
"""A line that says what there is: an import, a decorator or a definition, in the languages that
most write.
"""
_HUNK = re.compile(r"^@@ .* @@", re.MULTILINE)
_HEADER = ("diff --git", "--- ", "+++ ", "@@ ", "index ", "rename ", "new file", "deleted file")
_LEAST_DEFINITIONS = 3


def is_code(lines: Sequence[str]) -> bool:
    """Return True if lines are code: several define something, and not every tenth line is prose
    without any sign of code.
    """
    defining = sum(_DEFINES.match(line) is not None for line in lines)
    signs = sum(
        line.rstrip().endswith((":", "{", "}", ";", ")", ",", "(", "]"))
        for line in lines
        if line.strip()
    )
    written = sum(bool(line.strip()) for line in lines)
    return defining >= _LEAST_DEFINITIONS and signs * 3 >= written


def outlines(lines: Sequence[str], query: frozenset[str]) -> Callable[[int], str]:
    """Return a function of a number of lines: the lines that define something, and of the others
    that many which share most words with the query.

    What is left out leaves a mark with the number of its lines.
    """
    outline = {place for place, line in enumerate(lines) if _DEFINES.match(line)}
    others = [place for place, line in enumerate(lines) if place not in outline and line.strip()]

    @cache
    def rank_bodies() -> list[int]:
        return sorted(others, key=lambda place: -len(query.intersection(analyze(lines[place]))))

    def outline_with(bodies: int) -> str:
        return _with_gaps(lines, outline.union(rank_bodies()[:bodies]) if bodies else outline)

    return outline_with


def is_diff(content: str) -> bool:
    """Return True if a text is a unified diff: it has a hunk, and most of its lines are of one."""
    if _HUNK.search(content) is None:
        return False
    lines = [line for line in content.splitlines() if line.strip()]
    changed = sum(line.startswith(("+", "-")) for line in lines)
    return changed > 0 and 2 * sum(line.startswith((*_HEADER, *"+- ")) for line in lines) > len(
        lines
    )


def diff_forms(lines: Sequence[str]) -> Iterable[str]:
    """Yield the diff without its context lines, then with ever fewer changed lines of each hunk."""
    changed = [place for place, line in enumerate(lines) if line.startswith((*_HEADER, "+", "-"))]
    yield _with_gaps(lines, set(changed))
    for most in (20, 8, 3, 0):
        lines_in, in_hunk = set(), 0
        for place in changed:
            if lines[place].startswith(_HEADER):
                lines_in.add(place)
                in_hunk = 0
            elif in_hunk < most:
                lines_in.add(place)
                in_hunk += 1
        yield _with_gaps(lines, lines_in)


def _with_gaps(lines: Sequence[str], places: set[int]) -> str:
    parts: list[str] = []
    missing = 0
    for place, line in enumerate(lines):
        if place in places:
            if missing:
                parts.append(f"[…{missing} lines]")
            missing = 0
            parts.append(line)
        elif line.strip():
            missing += 1
    if missing:
        parts.append(f"[…{missing} lines]")
    return "\n".join(parts)
