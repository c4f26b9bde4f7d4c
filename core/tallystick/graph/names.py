"""Names: the entities that a text names and what it says of two of them, read without a model.

Pure: the same text gives the same names. Whatever a script does not mark as a name is not found.
"""

from __future__ import annotations

from typing import NamedTuple

from tallystick.ranking.languages import ENGLISH, languages_of, stop_words
from tallystick.ranking.words import surfaces_of

GERMAN = "german"
_LEAST_GERMAN = 2


class Name(NamedTuple):
    """A name as it is written, with the type of what bears it."""

    text: str
    type: str
    """One of person, organization, place, work, address, code, name; `name` where nothing tells."""
    start: int
    end: int
    is_sure: bool = True
    """False for a word that may be none, such as one that begins a sentence: it is a name where the
    scope knows it as one.
    """


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


def names_of(text: str) -> Names:
    """Return the names in a text and what it says of two of them."""
    from tallystick.graph.name_reading import read_names

    return read_names(text)


def grammar_of(text: str) -> tuple[frozenset[str], bool]:
    """Return the words of grammar of the languages of a text, and whether one is German."""
    words = surfaces_of(text[:2_000])
    languages = languages_of(words) or (ENGLISH,)
    if languages == (ENGLISH,) and _is_short_german(frozenset(words)):
        languages = (GERMAN,)
    grammar: frozenset[str] = frozenset().union(*map(stop_words, languages))
    return grammar, GERMAN in languages


def _is_short_german(words: frozenset[str]) -> bool:
    """Return True for a sentence whose few words of grammar are German ones for the most part,
    though none of them is German alone: "Der Hund hat den Schuh".
    """
    german = len(words & stop_words(GERMAN))
    return german >= _LEAST_GERMAN and german > len(words & stop_words(ENGLISH))
