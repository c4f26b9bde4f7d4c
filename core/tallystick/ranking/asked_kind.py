"""The kind of thing that a question asks for: a place, or a person."""

from __future__ import annotations

import re

__all__ = ["asked_kind"]

_OF_PLACES = """
city town village country state island river lake sea coast beach mountain valley forest park garden
farm street road bridge square house home apartment room kitchen bedroom bathroom basement garage
office school university classroom library museum theater cinema church hospital hotel restaurant
cafe bar store shop market mall gym studio station airport harbor stadium factory
"""
_OF_PEOPLE = """
friend brother sister mother father wife husband son daughter parents cousin uncle aunt grandmother
grandfather boss colleague neighbor girlfriend boyfriend teacher coach doctor student mom dad
roommate
"""
_PLACES, _PEOPLE = tuple(_OF_PLACES.split()), tuple(_OF_PEOPLE.split())
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
_WHERE = re.compile(
    r"\bwhere\b|\b(?:what|which)\s+(?:city|town|village|country|state|place)\b", re.IGNORECASE
)
_WHO = re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)
_EARLY = 60
"""Characters of a sentence in which a question word asks; later it is mostly a relative one."""


def asked_kind(query: str) -> tuple[str, ...]:
    """Return words for the kind of thing that an English query asks for: places where it asks
    where, people where it asks who, else none.

    The nearer a word of a memory is to one of them, the likelier the memory names such a thing:
    "where does she work" is answered by a bakery. Which instrument, which pets: there the query has
    the word for the kind itself.
    """
    for match in _SENTENCE.finditer(query):
        sentence = match[0].strip()
        start = sentence[:_EARLY]
        for asks, words in ((_WHERE, _PLACES), (_WHO, _PEOPLE)):
            word = asks.search(start)
            if word is not None and (sentence.endswith("?") or word.start() == 0):
                return words
    return ()
