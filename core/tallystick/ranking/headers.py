"""Headers: the speaker and time of a line of a transcript, if the text itself begins with them.

`Anna: Hello`, `[8 May 2023, 13:56] Anna: Hello` and `Anna [13:56]: Hello` are read; anything else
has no header.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tallystick.ranking.dates import moment

_HEADER = re.compile(
    r"\s*(?:\[(?P<before>[^\]\n]{3,60})\]\s*)?"
    r"(?P<name>[^\W\d_][\w.'’-]*(?: [\w.'’-]+){0,3})"
    r"\s*(?:[\[(](?P<after>[^\])\n]{3,60})[\])])?\s*[:：]\s"
)
_MOST_SPEAKERS = 30
_SHARE = 0.6


class Header(NamedTuple):
    """The speaker with which a line begins."""

    name: str
    when: int | None
    """Microseconds UTC, where it is a date."""


@lru_cache(maxsize=65_536)
def read_header(text: str) -> Header | None:
    """The header of a line, or None. A word and a colon look like one: ask `speakers_of` whether
    they are.
    """
    match = _HEADER.match(text[:200])
    if match is None:
        return None
    when = match["before"] or match["after"]
    return Header(match["name"], None if when is None else moment(when))


def speakers_of(texts: Sequence[str]) -> frozenset[str]:
    """Return the speakers of a transcript: the names before most of its lines, few and each more
    than once; empty for other texts.
    """
    names = [header.name for text in texts if (header := read_header(text)) is not None]
    several = (
        {name for name in set(names) if names.count(name) > 1}
        if len(set(names)) <= _MOST_SPEAKERS
        else set()
    )
    spoken_lines = sum(name in several for name in names)
    return (
        frozenset(several)
        if len(several) > 1 and spoken_lines >= _SHARE * len(texts)
        else frozenset()
    )
