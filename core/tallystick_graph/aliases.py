"""Aliases: how alike two names are, and which name of a scope another one stands for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

from tallystick.ranking.languages import fold_accents

_SHORT = 4
"""Letters of a name below which a slip of the pen makes another name."""
_PART = 92
"""The likeness of a name and a part of it, such as "Anna" and "Anna Schmidt", percent."""
_ACRONYM = 90


class Alias(NamedTuple):
    """The name that another one stands for."""

    name: str
    likeness: int
    """Percent."""


def likeness(first: str, second: str) -> int:
    """Return how alike two normal names are, percent; 100 where they differ in marks alone."""
    plain, other = _plain(first), _plain(second)
    if plain == other:
        return 100
    words, others = plain.split(), other.split()
    if _digits(plain) != _digits(other):
        return 0
    shorter, longer = sorted((words, others), key=len)
    if len(longer) > len(shorter) and all(
        any(_fits(word, whole) for whole in longer) for word in shorter
    ):
        return _PART if shorter[0] == longer[0] or shorter[-1] == longer[-1] else _PART - 10
    if len(shorter) == 1 and len(longer) > 1 and "".join(word[0] for word in longer) == shorter[0]:
        return _ACRONYM if len(shorter[0]) > 2 else _ACRONYM - 10
    if len(words) == len(others) and all(map(_fits_either, words, others)):
        return _PART
    if min(len(plain), len(other)) < _SHORT + 2:
        return 0
    return int(100 * SequenceMatcher(None, plain, other, autojunk=False).ratio())


def same_but_for_marks(first: str, second: str) -> bool:
    """Return True if two normal names differ in accents, hyphens, points and apostrophes alone."""
    return _plain(first) == _plain(second)


def alias_of(
    name: str, kind: str, candidates: Iterable[tuple[str, str]], *, threshold: int
) -> Alias | None:
    """Return which of the `candidates`, each with its type, a name is another form of; None where
    none is alike enough, or several are: a name that could be two people is neither.
    """
    fitting: list[Alias] = []
    for other, other_kind in candidates:
        if other == name or not _may_be_one(kind, other_kind):
            continue
        value = likeness(name, other)
        if value >= threshold:
            fitting.append(Alias(other, value))
    if not fitting:
        return None
    best = max(fitting, key=lambda alias: (alias.likeness, alias.name))
    rivals = [alias for alias in fitting if alias.likeness == best.likeness]
    return best if len(rivals) == 1 or _are_one(rivals, threshold) else None


def _may_be_one(kind: str, other: str) -> bool:
    if "code" in (kind, other) or "address" in (kind, other):
        return False
    return kind == other or "name" in (kind, other)


def _are_one(rivals: Sequence[Alias], threshold: int) -> bool:
    return all(likeness(first.name, second.name) >= threshold for first, second in pairwise(rivals))


def _plain(name: str) -> str:
    spaced = name.replace("-", " ").replace(".", " ").replace("’", "").replace("'", "")
    # A name of marks alone stays as it is: without them it would be every other such name.
    return " ".join(fold_accents(word) for word in spaced.split()) or name


def _digits(name: str) -> str:
    return "".join(char for char in name if char.isdigit())


def _fits(word: str, whole: str) -> bool:
    """Return True if a word is another one, or its initial."""
    return word == whole or (len(word) == 1 and whole.startswith(word))


def _fits_either(word: str, whole: str) -> bool:
    return _fits(word, whole) or _fits(whole, word)
