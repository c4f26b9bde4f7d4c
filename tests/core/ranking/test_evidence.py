"""Evidence: the length of a note and of a request decide how much of it is enough."""

from __future__ import annotations

import pytest

from tallystick.ranking.confidence import has_evidence
from tallystick.ranking.order import Ranked
from tallystick.ranking.question import Question


def _question(word_count: int) -> Question:
    words = {f"word{number}": f"word{number}" for number in range(word_count)}
    return Question(" ".join(words), words=words, weights=dict.fromkeys(words, 1.0))


def _hit(vector: float) -> Ranked:
    return Ranked(doc=1, score=vector, signals={"text": 0.0, "vector": vector, "words": 0.0})


@pytest.mark.parametrize(("length", "enough"), [(700, True), (7_000, False), (70, True)])
def test_a_long_note_needs_more_evidence_than_a_short_one(length: int, enough: bool) -> None:
    assert has_evidence(_hit(0.45), _question(4), "x" * length, vectors=True) is enough


@pytest.mark.parametrize(("words", "enough"), [(4, False), (12, False), (24, True), (40, True)])
def test_a_long_request_is_content_with_less_evidence(words: int, enough: bool) -> None:
    assert has_evidence(_hit(0.25), _question(words), "x" * 700, vectors=True) is enough
