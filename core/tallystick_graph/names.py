"""Names: those that a memory was given, and known ones that a text writes exactly. Pure."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from tallystick.records import Memory


class Name(NamedTuple):
    """A name as it is written, with the type of what bears it."""

    text: str
    type: str = "name"
    """One of `ENTITY_TYPES`."""


class Said(NamedTuple):
    """A relation between two names of a text."""

    source: str
    relation: str
    target: str
    confidence: int
    """Percent."""


class Names(NamedTuple):
    """The names of one text, in order, and what it says of two of them."""

    names: tuple[Name, ...]
    relations: tuple[Said, ...] = ()


class KnownNames:
    """Names that are looked for in texts, as they are written: by case, and as whole words."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = defaultdict(list)
        self._known: set[str] = set()
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Look for one more name."""
        plain = _plain(name)
        if plain and plain not in self._known:
            self._known.add(plain)
            starting = self._by_start[plain[0]]
            starting.append(plain)
            starting.sort(key=len, reverse=True)

    def find_in(self, text: str) -> list[str]:
        """Return the names in a text, each once, in order; of two that overlap the longer one that
        begins first.
        """
        plain = _plain(text)
        names: dict[str, None] = {}
        place = 0
        while place < len(plain):
            name = self._name_at(plain, place)
            if name is not None:
                names.setdefault(name)
            place += 1 if name is None else len(name)
        return list(names)

    def _name_at(self, text: str, place: int) -> str | None:
        starting = self._by_start.get(text[place])
        if starting is None or joins(text, place):
            return None
        return next(
            (
                name
                for name in starting
                if text.startswith(name, place) and not joins(text, place + len(name))
            ),
            None,
        )


def given_names(memory: Memory) -> list[str]:
    """Return the names that a memory was remembered with."""
    names = memory.attributes.get("entities")
    if not isinstance(names, list):
        return []
    return [name for name in names if isinstance(name, str) and name.strip()]


def joins(text: str, place: int) -> bool:
    """Return True if a word goes on from the character before a place to the one at it. Wide
    characters, of scripts that put no spaces between words, join nothing.
    """
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    return before.isalnum() and after.isalnum() and not (is_wide(before) or is_wide(after))


def is_wide(char: str) -> bool:
    """Return True for a character of a script that puts no spaces between words."""
    return unicodedata.east_asian_width(char) in "WF"


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).split())
