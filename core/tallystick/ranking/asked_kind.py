"""The kind of thing that a question asks for: a place, or a person."""

from __future__ import annotations

import re

from tallystick.ranking.signals import question_words

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
_WHICH_PLACE = re.compile(
    r"\b(?:what|which)\s+(?:city|town|village|country|state|place)\b", re.IGNORECASE
)


def asked_kind(query: str) -> tuple[str, ...]:
    """Return words for the kind of thing that an English query asks for: places where it asks
    where, people where it asks who, else none.

    The nearer a word of a memory is to one of them, the likelier the memory names such a thing:
    "where does she work" is answered by a bakery. Which instrument, which pets: there the query has
    the word for the kind itself.
    """
    words = question_words(query)
    if "where" in words or _WHICH_PLACE.search(query):
        return _PLACES
    return _PEOPLE if words & {"who", "whom", "whose"} else ()
