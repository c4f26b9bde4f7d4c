"""Words: the one analysis of texts that are indexed and of queries.

Text is compared in Unicode's compatibility form without case and without the accents of Latin
letters. Words are stemmed as English, or by the language of their script; runs of scripts that
write no spaces (Chinese, Japanese, Korean, Thai, …) become overlapping pairs of characters.
Identifiers and paths are found whole and by part: `core/tally.py` gives `core`, `tally`, `py` and
`core_tally_py`.

Every token contains letters, digits and underscores only, so that tokens can be stored separated by
spaces and read back as single words by SQLite's `unicode61` tokenizer (with `_` as a token
character) and PostgreSQL.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from typing import cast

from tallystick.ranking.analyses import ANALYSES
from tallystick.ranking.languages import (
    ENGLISH,
    function_words,
    languages_of,
    listed_words,
    stem_word,
    without_function_words,
)

_LONGEST = 128
"""Characters of the longest token; of longer ones (keys, encoded data) the beginning stands for the
whole.
"""

_MOST_PARTS = 8

# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, Hangul, kana, Han and their
# extensions.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"
    "\u3041-\u30ff\u3105-\u318e\u31a0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff"
    "\U00016fe0-\U00018d08\U0001aff0-\U0001b2fb\U00020000-\U0003ffff"
)
_LETTER = rf"(?:(?![{_UNSPACED}])[^\W_])"
_CONTRACTION = r"(?:['\u2019](?:s|t|re|ve|ll|d|m)(?!\w))"
_WORD = rf"{_LETTER}+{_CONTRACTION}?"
# What joins the segments of a path, an address, a module or a date; prose dashes and dots do not.
_JOINT = r"(?:(?!\.\.|--)[-_./\\:@#]){1,4}"
_ASCII_ENDING = r"(?:'(?:[sStTdDmM]|[rRvV][eE]|[lL][lL])(?!\w))?"
# Most words end where no apostrophe and no joint follows, and nothing more is tried there. Both
# cases are spelled out: the flag for them would compare each character in two forms.
_ASCII_COMPOUND = re.compile(
    rf"[A-Za-z0-9]++(?:(?=['_./\\:@#-]){_ASCII_ENDING}"
    rf"(?:{_JOINT}[A-Za-z0-9]++{_ASCII_ENDING})*)?",
    re.ASCII,
)
_SEGMENT = re.compile(r"[-./\\:@#]+_*|_+[-./\\:@#]+_*")
_HUMP = re.compile(
    r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"  # a letter beside a digit
    r"|(?<=[a-z\u00df-\u00f6\u00f8-\u00ff])(?=[A-Z\u00c0-\u00d6\u00d8-\u00de])"  # camelCase
    r"|(?<=[A-Z])(?=[A-Z][a-z])"  # HTTPServer
)
_ASCII_PIECE = re.compile(r"[0-9]+|[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
"""Between two boundaries of `_HUMP`, in ASCII."""
_MIXED = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_APOSTROPHE = re.compile(r"['\u2019]")


def analyze(text: str) -> list[str]:
    """The tokens of `text` in order, repeats included; parts come before the whole they belong to.

    Pure: the same text always gives the same tokens. Text without letters or digits gives none.
    """
    return [token for _, token in _analyzed(text)]


def query_terms(text: str) -> list[str]:
    """Return the terms of the `content_words` of a query, without repeats."""
    return list(dict.fromkeys(content_words(text).values()))


def indexed_words(parts: Sequence[str], *, header: str = "") -> str:
    """The words by which a text in `parts` is found: a line for each part, each beginning with
    those of `header`.

    Words stand as they were written, without case and separated by one space; `stems` gives their
    terms.
    """
    first = _indexed(header)
    return "\n".join(" ".join([*first, *_indexed(part)]) for part in parts)


def content_words(text: str) -> dict[str, str]:
    """Return each word of `text` as it stands, without case, with its term; without those that are
    listed as stop words, unless that leaves none.
    """
    pairs = words_of(text)
    listed = frozenset().union(*map(listed_words, languages_of(word for word, _ in pairs)))
    return dict([pair for pair in pairs if pair[0] not in listed] or pairs)


def words_of(text: str) -> list[tuple[str, str]]:
    """The words of a question as they stand, without case, each with its term; without the function
    words of scripts that have no spaces, unless that leaves none.
    """
    return list(_analyzed(without_function_words(text)))


def surfaces_of(text: str) -> list[str]:
    """The words of `text` as they stand, without case."""
    return [surface for surface, _ in _analyzed(text)]


def stems(surfaces: Sequence[str]) -> list[str]:
    """The term of each word of `indexed_words`, in their order."""
    return [stem_word(surface) for surface in surfaces]


def is_function_word(surface: str) -> bool:
    """Return True if a word carries grammar rather than meaning."""
    return surface in function_words(ENGLISH)


def _analyzed(text: str) -> Sequence[tuple[str, str]]:
    return ANALYSES.words("tokens", text, lambda text: list(_tokens(text)))


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of the word as it stood, without case, and its token."""
    if text.isascii():
        for match in _ASCII_COMPOUND.finditer(text):
            yield from _compound(match.group())
        return
    for match in _any_compound().finditer(_plain(text)):
        if match.lastgroup == "unspaced":
            yield from _pairs(match.group())
        else:
            yield from _compound(match.group())


@cache
def _any_compound() -> re.Pattern[str]:
    """Return the form of a compound in any script: text in ASCII alone never needs it."""
    return re.compile(
        rf"{_WORD}(?:{_JOINT}{_WORD})*|(?P<unspaced>(?:(?=[{_UNSPACED}])[^\W_])+)", re.IGNORECASE
    )


def _indexed(text: str) -> list[str]:
    tokens = ANALYSES.known("tokens", text)
    if tokens is not None:
        return [surface for surface, _ in cast("Sequence[tuple[str, str]]", tokens)]
    return ANALYSES.words("surfaces", text, _surfaces)


def _surfaces(text: str) -> list[str]:
    """The words of `text` as they stood, without case; a word that was split is one text with
    spaces.
    """
    if text.isascii():
        compounds = _ASCII_COMPOUND.findall(text)
        is_short = max(map(len, compounds), default=0) <= _LONGEST
        return list(map(_cached_surface if is_short else _surface, compounds))
    return [surface for surface, _ in _tokens(text)]


def _surface(compound: str) -> str:
    names, whole = _names(compound)
    return " ".join(names if whole is None else [*names, whole])


def _pairs(run: str) -> Iterator[tuple[str, str]]:
    for start in range(max(1, len(run) - 1)):
        pair = _spell(run[start : start + 2])
        if pair:
            yield pair, pair


def _compound(compound: str) -> Sequence[tuple[str, str]]:
    return _cached_split(compound) if len(compound) <= _LONGEST else _split(compound)


def _split(compound: str) -> Sequence[tuple[str, str]]:
    """The names of a word, path or identifier, each with its term."""
    names, whole = _names(compound)
    pairs = [(name, stem_word(name)) for name in names]
    return pairs if whole is None else [*pairs, (whole, whole)]


def _names(compound: str) -> tuple[list[str], str | None]:
    """The parts of a word, path or identifier, with each segment of several parts behind its parts,
    and the whole where it has several segments.
    """
    if compound.isascii() and compound.isalnum():
        if compound.isalpha() and (compound.islower() or compound.istitle()):
            return [compound.lower()[:_LONGEST]], None
        humps = [piece.lower()[:_LONGEST] for piece in _pieces(compound)]
        return (humps if len(humps) == 1 else [*humps, "".join(humps)[:_LONGEST]]), None
    names: list[str] = []
    segments = [parts for segment in _SEGMENT.split(compound) if (parts := _parts(segment))]
    for parts in segments:
        names.extend(part for humps in parts for part in humps)
        if len(parts) > 1 or len(parts[0]) > 1:
            names.append(_whole([parts]))
    return names, _whole(segments) if len(segments) > 1 else None


_cached_split = lru_cache(maxsize=16_384)(_split)
_cached_surface = lru_cache(maxsize=16_384)(_surface)


def _parts(segment: str) -> list[list[str]]:
    return [humps for word in segment.split("_") if (humps := _humps(word))]


def _whole(segments: list[list[list[str]]]) -> str:
    return "_".join("".join(humps) for parts in segments for humps in parts)[:_LONGEST].rstrip("_")


def _humps(word: str) -> list[str]:
    """`httpHeader2` as `http`, `header`, `2`, all without case; `don't` as `dont`, `Anna's` as
    `anna`.
    """
    if "'" in word or "\u2019" in word:
        stem, ending = _APOSTROPHE.split(word, maxsplit=1)
        word = stem + ending if ending in "tT" else stem
    return [folded for piece in _pieces(word) if (folded := _fold(piece))]


def _pieces(word: str) -> list[str]:
    if word.isalpha() and word.islower():
        return [word]
    pieces = _ASCII_PIECE.findall(word) if word.isascii() and word.isalnum() else _HUMP.split(word)
    if len(pieces) > _MOST_PARTS or (len(pieces) > 3 and len(_MIXED.findall(word)) > 2):
        return [word]  # a digest or encoded data: its parts mean nothing
    return pieces


def _fold(piece: str) -> str:
    if piece.isascii():
        return piece.lower()[:_LONGEST]
    return _spell(_plain(piece.casefold()))[:_LONGEST]


def _plain(text: str) -> str:
    """Compatibility form, without marks and invisible characters: they stand beside letters, not
    for them.
    """
    form = unicodedata.normalize("NFKC", text)
    return "".join(
        char for char in form if (char < "\u0300" and char != "\u00ad") or not _silent(char)
    )


@lru_cache(maxsize=8192)
def _silent(char: str) -> bool:
    return unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf")


def _spell(piece: str) -> str:
    """`piece` with letters younger than Unicode 3.2 written by number (`u1e900`).

    Every engine's tables know the older ones as letters; about the younger ones they differ.
    """
    if piece.isascii():
        return piece
    return "".join(
        char if _is_old_letter(char) else f"u{ord(char):x}" for char in piece if _is_letter(char)
    )


@lru_cache(maxsize=8192)
def _is_old_letter(char: str) -> bool:
    return unicodedata.ucd_3_2_0.category(char)[0] in "LN"


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LN"
