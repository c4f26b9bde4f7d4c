"""Evidence: what a text says of two names that are one entity's. Pure.

A name inside of a longer one is mostly another thing: a town is not its university. Two names are
one entity's where they differ in marks alone, where a text states one as the acronym of the other,
or where a text calls a person by the full name and then by the given name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Literal, NamedTuple

from tallystick.ranking.sentences import sentence_spans
from tallystick_graph.aliases import same_but_for_marks
from tallystick_graph.name_forms import normal_name
from tallystick_graph.names import Name, is_wide, joins

AliasReason = Literal["same_but_for_marks", "stated_acronym", "given_name_of_person"]
_ACRONYM = range(2, 11)
"""Letters of an acronym."""
_FOREIGN_ACRONYM = 3
"""Letters from which on Latin capitals are the acronym of a name in another script."""
_SHORTEST_WIDE = 2
"""Characters of a given name in a script without spaces."""


class StatedAlias(NamedTuple):
    """A name that stands for another one, and what tells."""

    short: str
    full: str
    reason: AliasReason


def stated_aliases(text: str, names: Sequence[Name]) -> list[StatedAlias]:
    """Return which of the names in a text are other forms of others of them, as the text tells; a
    name that could be two is neither.
    """
    plain = " ".join(unicodedata.normalize("NFKC", text).split())
    found: dict[str, StatedAlias] = {}
    unclear: set[str] = set()
    for short, full in permutations(names, 2):
        reason = reason_for(plain, short, full)
        if reason is None:
            continue
        if short.text in found and found[short.text].full != full.text:
            unclear.add(short.text)
        found[short.text] = StatedAlias(short.text, full.text, reason)
    return [alias for name, alias in found.items() if name not in unclear]


def reason_for(text: str, short: Name, full: Name) -> AliasReason | None:
    """Return what tells that one name is another form of a fuller one; None where nothing does."""
    first, second = _plain(short.text), _plain(full.text)
    if (len(first), first) >= (len(second), second):
        return None
    if same_but_for_marks(normal_name(first), normal_name(second)):
        return "same_but_for_marks"
    if _is_stated_acronym(text, first, second):
        return "stated_acronym"
    if {short.type, full.type} <= {"person", "name"} and "person" in (short.type, full.type):
        return "given_name_of_person" if _is_called_by(text, first, second) else None
    return None


def is_given_name(short: str, full: str) -> bool:
    """Return True if a name could be the given name of a full one: its first words, or its end in a
    script that puts the family first and no spaces.
    """
    if all(map(is_wide, full.replace(" ", ""))):
        together = full.replace(" ", "")
        return len(short) >= _SHORTEST_WIDE and together.endswith(short) and together != short
    words, of_full = short.split(), full.split()
    return len(words) < len(of_full) and of_full[: len(words)] == words


def _is_stated_acronym(text: str, short: str, full: str) -> bool:
    """Return True if a text has an acronym in brackets behind the whole name, or the other way
    round.
    """
    if len(short) not in _ACRONYM or not short.isalpha() or not short.isupper():
        return False
    letters = [char.casefold() for char in full if char.isalpha()]
    if short.isascii() and not any(char.isascii() for char in letters):
        fits = len(short) >= _FOREIGN_ACRONYM
    else:
        ahead = iter(letters)
        fits = letters[:1] == [short[0].casefold()] and all(
            any(char == letter for char in ahead) for letter in short.casefold()
        )
    if not fits:
        return False
    pair = [re.escape(short), re.escape(full)]
    return any(
        re.search(rf"{name} ?\({other}\)", text) is not None for name, other in (pair, pair[::-1])
    )


def _is_called_by(text: str, short: str, full: str) -> bool:
    """Return True if a text calls somebody by the full name, and in a later sentence by the given
    name; not where a sentence has both beside one another, or where the given name is also that of
    somebody else.
    """
    if not is_given_name(short, full):
        return False
    whole = list(_places(text, full))
    alone = [
        place
        for place in _places(text, short)
        if not any(start <= place < start + len(full) for start in whole)
    ]
    if not whole or not alone or any(_goes_on(text, place, short) for place in alone):
        return False
    is_called = False
    for start, end in sentence_spans(text):
        has_whole = any(start <= place < end for place in whole)
        has_alone = any(start <= place < end for place in alone)
        if has_whole and has_alone:
            return False
        is_called |= has_alone and start > whole[0]
    return is_called


def _goes_on(text: str, place: int, name: str) -> bool:
    """Return True if a name at a place is a part of another, longer one."""
    end = place + len(name)
    if is_wide(name[0]):
        return place > 0 and _is_ideograph(text[place - 1])
    after = text[end : end + 2]
    return len(after) == 2 and after[0] in " -" and after[1].isupper()


def _places(text: str, name: str) -> Iterator[int]:
    """Yield where a text has a name as whole words."""
    start = text.find(name)
    while start >= 0:
        end = start + len(name)
        if not (joins(text, start) or joins(text, end)):
            yield start
        start = text.find(name, start + 1)


def _is_ideograph(char: str) -> bool:
    return unicodedata.name(char, "").startswith("CJK UNIFIED")


def _plain(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).split())
