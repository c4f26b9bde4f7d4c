"""Gates: which rules may find something in a text, decided by the literal beginnings of what they
find, in one pass of an alternation for all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence, Set
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple

from pydantic import StringConstraints, TypeAdapter

from tallystick.policy.secret_checks import Rule

_GROUP = 6
"""Rules that share a fast check of their words."""
_FREQUENT = frozenset({"key", "token", "secret", "passw", "://", "-pass"})
"""Words that so many texts have that their rules are not worth a check before."""
_BEGINNING = r"(?:^|[^A-Za-z0-9]|\\[bfnrt]|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2})"
"""What may stand before a word that begins a token: no letter or digit of the text itself, which
may be JSON or part of a URL.
"""


class Gate:
    """A fast check that a text contains none of some words: it runs over everything that is
    recorded.

    The words are looked for together by the regular expressions that pydantic brings, which are
    many times as fast as looking for one after the other.
    """

    def __init__(
        self, words: Iterable[str], *patterns: str, beginnings: Iterable[str] = ()
    ) -> None:
        """Look for words anywhere, and for `beginnings` of tokens only where one may begin."""
        either = "|".join([*_alternatives(words), *patterns])
        if tokens := "|".join(_alternatives(beginnings)):
            either = "|".join(filter(None, (either, f"{_BEGINNING}(?:{tokens})")))
        self._pattern = f"(?is)(?:{either})"

    @cached_property
    def _holds(self) -> Callable[[str | bytes], bool]:
        # With the first text that gets here: most texts pass the gate of all rules, and to compile
        # those of their groups takes longer than to look through a page.
        form = TypeAdapter(Annotated[str, StringConstraints(pattern=self._pattern)])
        return form.validator.isinstance_python

    def opens(self, text: str | bytes) -> bool:
        """Return True if a text, or JSON text, contains one of the words, case aside; also if it is
        no UTF-8.
        """
        try:
            text.encode() if isinstance(text, str) else text.decode()
        except UnicodeError:
            return True
        return self._holds(text)


class Gates(NamedTuple):
    """The gates of a set of rules."""

    frequent: list[Rule]
    """Rules that are looked at in every text."""
    rare_gate: Gate
    rare: Sequence[tuple[Gate, Sequence[Rule]]]
    """The other rules, in groups, each with its gate."""
    gate: Gate | None
    """None where a rule runs without keywords."""


@lru_cache(maxsize=32)
def gates_of(rules: tuple[Rule, ...]) -> Gates:
    """Return the gates of rules: made once, because that takes longer than to open a tally."""
    # Most rules have words that hardly any text has: those are looked for all at once, then by
    # group.
    rare = [rule for rule in rules if _is_rare(rule)]
    groups = [rare[at : at + _GROUP] for at in range(0, len(rare), _GROUP)]
    words = _words(rules)
    begins = _words_of(rules, begins=True)
    among = frozenset(words or ())
    beginnings = [word for word in begins if word not in among and not _holds_other(word, among)]
    return Gates(
        frequent=[rule for rule in rules if not _is_rare(rule)],
        rare_gate=_gate_of(rare),
        rare=[(_gate_of(group), group) for group in groups],
        gate=None if words is None else Gate(words, *_WHOLE.values(), beginnings=beginnings),
    )


def _is_rare(rule: Rule) -> bool:
    return bool(rule.keywords) and not _FREQUENT & {*rule.keywords}


def _gate_of(rules: Sequence[Rule]) -> Gate:
    return Gate(_words_of(rules, begins=False), beginnings=_words_of(rules, begins=True))


def _words_of(rules: Iterable[Rule], *, begins: bool) -> set[str]:
    return {word for rule in rules if rule.begins == begins for word in rule.keywords}


def _alternatives(words: Iterable[str]) -> list[str]:
    spelled = {
        form for word in words for form in (word, json.dumps(word, ensure_ascii=False)[1:-1])
    }
    return [_SIGN.sub(_json_escapes, word) for word in sorted(spelled)]


def _json_escapes(sign: re.Match[str]) -> str:
    return f"\\x{{{ord(sign[0]):x}}}"


_SIGN = re.compile(r"[^a-z0-9]")
_WHOLE = {
    "token": "token(?:[^a-z0-9_]|$)",
    "key": "key(?:s?(?:[^a-z0-9_]|$)|[_-]?(?:base|data))",
    "://": r"://[^\s\"'<>]*@",
}
"""Words that name a secret where they end a name: a count of `tokens` and a `keyboard` are none. An
address holds one only where somebody signs in.
"""


def _words(rules: Iterable[Rule]) -> list[str] | None:
    """Words of which a text contains at least one if a rule or the name of a key may match, beside
    the beginnings of tokens and `_WHOLE`.

    None where a rule runs without keywords.
    """
    words = {
        "passw",
        "passphrase",
        "passcode",
        "pwd",
        "psk",
        '_pass"',
        "secret",
        "authorization",
        "cookie",
        "connection",
        "credential",
    }
    for rule in rules:
        if not rule.keywords:
            return None
    words |= _words_of(rules, begins=False) - _WHOLE.keys()
    return [word for word in words if not _holds_other(word, words)]


def _holds_other(word: str, words: Set[str]) -> bool:
    """Return True if a part of a word is one of `words`, which are hundreds and short."""
    size = len(word)
    return any(
        word[start:end] in words
        for start in range(size)
        for end in range(start + 1, size + 1)
        if end - start < size
    )
