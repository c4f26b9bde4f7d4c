"""Languages: the function words of each, the language a text is in, and the stems of its words.

Function words come from `stopwordsiso`, stems from Snowball; a language is named by its ISO 639-1
code. Text is indexed without knowing its language: a term is a word without accents, stemmed by its
script, and of Latin letters as English. A question in another language asks for every term that
shares a root with its words in that language; see `Vocabulary.related_terms`.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from Stemmer import Stemmer  # type: ignore[import-not-found,unused-ignore]

ENGLISH = "en"

_SCRIPTS = (
    (0x370, 0x3FF, "el"),
    (0x1F00, 0x1FFF, "el"),
    (0x400, 0x52F, "ru"),
    (0x600, 0x6FF, "ar"),
)
"""Letters of one language only, or of several that its stemmer serves as well as none."""
_FIRST_OF_SCRIPTS = _SCRIPTS[0][0]
_UNSPACED = {"ja": "\u3040-\u30ff", "ko": "\uac00-\ud7a3", "zh": "\u4e00-\u9fff"}
"""Languages whose words are read as pairs of characters, with the letters that show them."""
_LETTERS = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th", "ß": "ss"}
)
"""Latin letters that no decomposition turns into plain ones."""
_SHORT = 2
"""Letters of a listed word up to which it carries no meaning of its own."""
_LEAST = 3
"""Distinctive function words from which on a scope counts as written in a language."""
_SHARED = 2
"""Languages that may share a function word which is still distinctive of them."""

_local = threading.local()


@cache
def function_words(language: str) -> frozenset[str]:
    """Return the listed words of a language that are short enough to carry grammar only."""
    return frozenset(
        word for word in listed_words(language) if len(word) <= _SHORT or not is_latin(word)
    )


@cache
def listed_words(language: str) -> frozenset[str]:
    """Return the stop words of a language as the package lists them, without case, with and without
    accents. Long ones may carry meaning: its English list has "work" and "home".
    """
    from stopwordsiso import stopwords  # type: ignore[import-untyped,unused-ignore]

    # All at once: the first question of a process reads the list of every language.
    text = unicodedata.normalize("NFKC", "\n".join(stopwords(language)).casefold())
    text = re.sub(r"['\u2019](?:s|re|ve|ll|d|m)$|['\u2019]", "", text, flags=re.MULTILINE)
    words = text.split("\n")
    accented = [word for word in words if word and not word.isascii() and script_of(word) is None]
    return frozenset(filter(str.isalpha, [*words, *_fold_accents("\n".join(accented)).split("\n")]))


@cache
def stemmed_languages() -> tuple[str, ...]:
    """Return the languages of which both function words and a stemmer are known."""
    from stopwordsiso import langs

    return tuple(sorted(language for language in langs() if _stemmer(language) is not None))


def languages_of(words: Iterable[str]) -> tuple[str, ...]:
    """Return the languages of which a text contains the most listed words; several if they share
    them, none without any.

    English comes alone, and where it has as many as another it wins: so an English question is
    asked as one.
    """
    distinct, by_word = set(words), _languages_by_word()
    told = {language for word in distinct for language in by_word.get(word, ())}
    hits = {language: len(distinct & listed_words(language)) for language in told}
    most = max(hits.values(), default=0)
    if (english := len(distinct & listed_words(ENGLISH))) >= most:
        return (ENGLISH,) if english else ()
    return tuple(sorted(language for language, count in hits.items() if count == most))


def unspaced_languages_of(text: str) -> tuple[str, ...]:
    """Return the languages without spaces whose letters a text contains."""
    if text.isascii():
        return ()
    return tuple(name for name, letters in _UNSPACED.items() if re.search(f"[{letters}]", text))


def languages_spoken(words: Set[str], holds: Callable[[str], bool]) -> tuple[str, ...]:
    """Return the languages, English aside, of which a scope contains enough distinctive words: at
    least half as many as of any other. `words` are those that it may contain, `holds` says of one
    that it does.
    """
    by_word = _languages_by_word()
    counts = Counter(
        language for word in by_word.keys() & words if holds(word) for language in by_word[word]
    )
    least = max(_LEAST, max(counts.values(), default=0) / 2)
    return tuple(sorted(language for language, count in counts.items() if count >= least))


@cache
def _languages_by_word() -> dict[str, list[str]]:
    """Return the languages of each function word that tells them from most others: of three letters
    at least, and none of English.
    """
    by_word: dict[str, list[str]] = {}
    for language in stemmed_languages():
        for word in listed_words(language):
            by_word.setdefault(word, []).append(language)
    return {
        word: languages
        for word, languages in by_word.items()
        if len(languages) <= _SHARED
        and ENGLISH not in languages
        and (len(word) > 2 or not word.isascii())
    }


@cache
def _unspaced_function_words() -> re.Pattern[str]:
    """Return the pattern of the function words of scripts without spaces, of two characters at
    least, longest first.
    """
    words = {word for language in _UNSPACED for word in listed_words(language) if len(word) > 1}
    return re.compile("|".join(sorted(map(re.escape, words), key=lambda word: (-len(word), word))))


def without_function_words(text: str) -> str:
    """Return a text with the function words of scripts without spaces replaced by spaces, unless
    nothing else is left.
    """
    if text.isascii():
        return text
    rest = _unspaced_function_words().sub(" ", text)
    return rest if any(char.isalnum() for char in rest) else text


def script_of(word: str) -> str | None:
    """Return the language whose stemmer serves the script of a word; None for Latin letters and for
    all others.
    """
    code = ord(word[0])
    if code < _FIRST_OF_SCRIPTS:
        return None
    return next((language for first, last, language in _SCRIPTS if first <= code <= last), None)


def is_latin(word: str) -> bool:
    """Return True if a word is written in Latin letters, which many languages share."""
    return word[0] < "\u0250"


def fold_accents(word: str) -> str:
    """Return a word without the accents of Latin letters, which people often leave out."""
    return word if word.isascii() or script_of(word) is not None else _fold_accents(word)


def _fold_accents(text: str) -> str:
    form = unicodedata.normalize("NFD", text.translate(_LETTERS))
    return unicodedata.normalize(
        "NFC", "".join(char for char in form if unicodedata.category(char) != "Mn")
    )


def stem_word(word: str) -> str:
    """The term of a word, whatever its language: by its script, and of Latin letters as English
    without accents.
    """
    if word.isascii():
        return _stem(word, ENGLISH) if word.isalpha() else word
    language = script_of(word)
    if language is not None:
        return _stem(word.replace("ё", "е"), language) if word.isalpha() else word
    plain = fold_accents(word)
    return _stem(plain, ENGLISH) if plain.isascii() and plain.isalpha() else plain or word


def roots(words: Sequence[str], language: str) -> list[str]:
    """The root of each word in a language, without accents."""
    return [fold_accents(_stem(word, language)) for word in words]


def _stem(word: str, language: str) -> str:
    stemmer = _stemmer(language)
    return word if stemmer is None else cast(str, stemmer.stemWord(word)) or word


def _stemmer(language: str) -> Stemmer | None:
    # A stemmer keeps state while it works, so each thread has its own.
    stemmers: dict[str, Any] | None = getattr(_local, "stemmers", None)
    if stemmers is None:
        stemmers = _local.stemmers = {}
    if language not in stemmers:
        from Stemmer import Stemmer

        try:
            stemmers[language] = Stemmer(language)
        except KeyError:
            # Snowball lacks this language; its words stand as they are.
            stemmers[language] = None
    return stemmers[language]
