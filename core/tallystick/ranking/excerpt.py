"""The excerpt of a long text that is read: its beginning and its end."""

from __future__ import annotations

_CUT = "\n...\n"
_WORD = 100
"""Characters that a window may be shorter, so that it ends with a whole word."""


def excerpt(text: str, most: int) -> str:
    """Return `text` if it has at most `most` characters, else its first and its last half of them.

    A window ends with a whole word where one ends within its last hundred characters.
    """
    if len(text) <= most:
        return text
    half = most // 2
    head, tail = text[:half], text[-half:]
    for place in range(half, max(0, half - _WORD), -1):
        if text[place].isspace():
            head = text[:place]
            break
    for place in range(len(text) - half, min(len(text), len(text) - half + _WORD)):
        if text[place - 1].isspace():
            tail = text[place:]
            break
    return f"{head}{_CUT}{tail}"
