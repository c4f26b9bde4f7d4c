"""Name forms: names as they are compared. Pure."""

from __future__ import annotations

import re
import unicodedata

_WORDS = 64
"""Words of a question that are looked up."""
_LONGEST = 4
"""Words of a name at most, where it is looked up in a question."""
_EDGES = " .,;:!?'’\"“”«»()[]"


def normal_name(text: str) -> str:
    """Return a name for comparison: compatibility form, without case, marks of possession and
    repeated spaces.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().strip()
    plain = re.sub(r"(?<=.)['’]s?$", "", plain)
    return " ".join(plain.split())


def name_spans(question: str) -> set[str]:
    """Return what could be a name in a question: its runs of up to four words, as names are
    compared.
    """
    words = [normal_name(word.strip(_EDGES)) for word in question.split()[:_WORDS]]
    return {
        " ".join(words[start:end]).strip()
        for start in range(len(words))
        for end in range(start + 1, min(start + _LONGEST, len(words)) + 1)
    } - {""}
