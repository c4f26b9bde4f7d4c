"""Scripts: what recall makes of words that the embedder's table cannot read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tallystick import Actor, Tally
from tallystick.embedding import StaticEmbedder
from tallystick.ranking import RecallWeights
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")


@pytest.mark.parametrize(
    ("words", "readable"),
    [
        (["house", "Häuser", "дом", "σπίτι"], [True, True, True, True]),
        (["北京", "東京", "さく", "서울", "บ้าน", "بيت", "בית", "घर"], [False] * 8),
    ],
)
def test_a_word_that_the_table_cannot_read_is_like_no_other(
    words: list[str], readable: list[bool]
) -> None:
    vectors = StaticEmbedder().embed_words(words)
    assert vectors.any(axis=1).tolist() == readable


def test_pairs_of_characters_are_like_equal_pairs_alone(open_tally: OpenTally) -> None:
    """The table knows 北京 and 上海 as bytes, which are alike as all bytes are."""
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(["我们下周去北京开会。", "他昨天买了新鞋。", "酒店订在市中心。"])
        found = {hit.content: hit.signals["words"] for hit in anna.recall("北京", limit=3)}
        assert found == {"我们下周去北京开会。": 1.0} | dict.fromkeys([*found][1:], 0.0)


@pytest.mark.parametrize(
    ("query", "foreign"),
    [("Where is the office?", False), ("где находится офис", False), ("办公室在哪里", True)],
)
def test_text_weighs_otherwise_where_the_embedder_cannot_read_the_question(
    open_tally: OpenTally, query: str, foreign: bool
) -> None:
    alone = RecallWeights(text=0, vector=0, words=0, foreign_text=1, foreign_vector=0)
    with open_tally() as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(
            ["The office is in Leeds.", "办公室在利兹。", "офис в Лидсе.", "A heron."]
        )
        assert (anna.recall(query, weights=alone)[0].score > 0) == foreign


def test_an_embedder_without_vectors_of_words_weighs_as_it_does_in_english(
    open_tally: OpenTally,
) -> None:
    alone = RecallWeights(text=0, vector=0, words=0, foreign_text=1, foreign_vector=0)
    with open_tally(embedder=HashEmbedder()) as tally:
        anna = tally.bind(ANNA)
        anna.remember_many(["办公室在利兹。", "A heron."])
        assert anna.recall("办公室在哪里", weights=alone)[0].score == 0
