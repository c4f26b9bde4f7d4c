"""Evidence: whether a note has anything to do with a request at all, however it compares with
others.

The best of twenty unrelated notes is still unrelated, so an order says nothing of it. Evidence is
what the best slice of a note has of the words and of the meaning of the request; a long note has
many slices, of which one is like anything, and needs more.

The constants are set by hand. `make eval-floor` measures them over functions, sections of
documentation, scenes of FriendsQA and single lines of these, each beside twenty texts of other
kinds: of what answers 92, 90, 97 and 82 in a hundred are kept, of the others 5, 4, 26 and 19.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from tallystick.ranking.confidence import VECTOR_OF_WORDS
from tallystick.ranking.corpus import Corpus
from tallystick.ranking.languages import ENGLISH, is_latin, languages_of
from tallystick.ranking.order import Ranked
from tallystick.ranking.question import Question
from tallystick.ranking.words import surfaces_of

UNRELATED = 0.25
"""The relevance below which a note answers nothing: the floor of a compile, by default."""
_LEAST, _FEW_WORDS = 0.4, 12
"""The least evidence for a request of so many words; less for longer ones, of which no note has
many.
"""
_TEXT = 2.0
"""The weight of shared words: a word that a slice has once counts about a half of it."""
_SLICE, _OF_SLICES = 700, 0.09
"""Characters of a slice, and what a note needs more for each time that it has e times as many."""
_SAYS_ENOUGH = 2
"""Words of a request, function words aside, from which on it says enough to call a note unrelated:
"go on" does not.
"""
_JOINT = r"[./\\:]+"


def has_evidence(hit: Ranked, question: Question, content: str, *, vectors: bool) -> bool:
    """Return True if a note has enough of a request; `vectors` is False where only words were
    compared.
    """
    rarity = sum(question.weights[term] for term in question.content.values())
    text = hit.signals["text"] / rarity if rarity else 0.0
    vector = hit.signals["vector"] if vectors else VECTOR_OF_WORDS * hit.signals["words"]
    length = math.log(max(1.0, len(content) / _SLICE))
    least = _LEAST * min(1.0, _FEW_WORDS / max(1, len(question.content)))
    return _TEXT * text + vector - _OF_SLICES * length >= least


def names_file(query: str, uri: str | None) -> bool:
    """Return True if a query names a file: by its name with its ending, or with the folder above
    it, in which form ever (`ledger/statement.py`, `ledger.statement`, `ledger::statement`).
    """
    parts = [part for part in re.split(r"[/\\]", uri or "") if part]
    if not parts or "." not in parts[-1].strip("."):
        return False
    stem = parts[-1].partition(".")[0]
    names = [re.escape(parts[-1])]
    if len(parts) > 1 and stem:
        names.append(rf"{re.escape(parts[-2])}{_JOINT}{re.escape(stem)}")
    return re.search(rf"(?<!\w)(?:{'|'.join(names)})(?!\w)", query, re.IGNORECASE) is not None


def names_source(query: str, uri: str | None, title: str | None) -> bool:
    """Return True if a query names a source: by its title, its address, or the file at the end of
    its address.
    """
    names = [title, uri]
    if uri is not None:
        file = uri.rstrip("/").rpartition("/")[2]
        names += [file, file.partition(".")[0]]
    folded = query.casefold()
    return any(_stands_in(name.strip().casefold(), folded) for name in names if name is not None)


def _stands_in(name: str, text: str) -> bool:
    # Two letters stand in every other sentence by chance.
    return len(name) > 2 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def says_enough(question: Question) -> bool:
    """Return True if a request has words enough to call a note unrelated to it."""
    # Scripts without spaces are read as overlapping pairs, of which a short word has one or two.
    words = question.words.keys() - question.listed
    unspaced = sum(len(word) == 2 and not is_latin(word) for word in words)
    return len(words) - unspaced // 2 >= _SAYS_ENOUGH


def is_of_their_language(question: Question, corpora: Sequence[Corpus]) -> bool:
    """Return True if a request is written in a language of the texts."""
    spoken = {language for corpus in corpora for language in corpus.languages or (ENGLISH,)}
    return not spoken.isdisjoint(languages_of(surfaces_of(question.text)))
