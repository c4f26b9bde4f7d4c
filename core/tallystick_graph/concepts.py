"""Concepts: what a group of entities is about, drawn from the texts that mention them together.

Pure. The summary is made of sentences of the texts, each with the text that it is from: those that
name most of what no sentence before them named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import NamedTuple

from tallystick.ranking import sentence_spans
from tallystick.ranking.words import content_words, surfaces_of
from tallystick_graph.name_forms import normal_name

_READ = 4_000
"""Characters of a text that are read."""
_NAMES = 4
_WORDS = 3
"""Names and words among the key concepts, at most."""
_SENTENCES = 3
_LONGEST = 240
"""Characters of a sentence at most; of a longer one its beginning."""
_SHORTEST = 12
_LETTERS = 4
"""Letters of a word among the key concepts, at least."""


class Text(NamedTuple):
    """A text with the entities of the group that it mentions."""

    doc: int
    content: str
    entities: frozenset[int]


class Concepts(NamedTuple):
    """What a group is about."""

    order: tuple[int, ...]
    """The entities, those that most texts mention first."""
    key_concepts: tuple[str, ...]
    summary: tuple[str, ...]
    """Sentences, in the order of their texts."""
    sources: tuple[int, ...]
    """The text of each sentence."""


class _Sentence(NamedTuple):
    place: int
    """Of its text."""
    text: str
    entities: frozenset[int]


def concepts_of(names: Mapping[int, str], texts: Sequence[Text]) -> Concepts:
    """Return what entities with these names are about, by the texts that mention them, in their
    order. Entities that no text mentions are left out.
    """
    counts = Counter(entity for text in texts for entity in text.entities if entity in names)
    order = sorted(counts, key=lambda entity: (-counts[entity], names[entity], entity))
    chosen = _choose_sentences(list(_sentences(names, texts)), counts)
    return Concepts(
        tuple(order),
        (*(names[entity] for entity in order[:_NAMES]), *_words(names, texts)),
        tuple(sentence.text for sentence in chosen),
        tuple(texts[sentence.place].doc for sentence in chosen),
    )


def _sentences(names: Mapping[int, str], texts: Sequence[Text]) -> Iterator[_Sentence]:
    """Yield the sentences that name an entity, each once."""
    normal = {entity: normal_name(name) for entity, name in names.items()}
    seen: set[str] = set()
    for place, text in enumerate(texts):
        content = text.content[:_READ]
        for start, end in sentence_spans(content):
            sentence = " ".join(content[start:end].split())
            plain = normal_name(sentence)
            if len(sentence) < _SHORTEST or plain in seen:
                continue
            seen.add(plain)
            named = frozenset(entity for entity in text.entities if normal[entity] in plain)
            if named:
                yield _Sentence(place, _shorten(sentence), named)


def _shorten(sentence: str) -> str:
    return sentence if len(sentence) <= _LONGEST else sentence[: _LONGEST - 1].rstrip() + "…"


def _choose_sentences(sentences: Sequence[_Sentence], counts: Mapping[int, int]) -> list[_Sentence]:
    """Return the sentences that together name most, in their order."""
    chosen: list[int] = []
    covered: set[int] = set()
    while len(chosen) < _SENTENCES:
        worth = [
            # Of two that name the same, the shorter one; of two alike, the newer one.
            (
                sum(log(1 + counts[entity]) for entity in sentence.entities - covered),
                -len(sentence.text),
                place,
            )
            for place, sentence in enumerate(sentences)
            if place not in chosen
        ]
        best = max(worth, default=(0.0, 0, 0))
        if best[0] <= 0:
            break
        chosen.append(best[2])
        covered |= sentences[best[2]].entities
    return [sentences[place] for place in sorted(chosen)]


def _words(names: Mapping[int, str], texts: Sequence[Text]) -> list[str]:
    """Return the words that most of the texts share, beside names and words without content."""
    excluded_words = {word for name in names.values() for word in surfaces_of(name)}
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(
            word
            for word in content_words(text.content[:_READ])
            if len(word) >= _LETTERS and word not in excluded_words and word.isalpha()
        )
    shared = [word for word, count in counts.items() if count > 1]
    return sorted(shared, key=lambda word: (-counts[word], word))[:_WORDS]
