"""Fences: a message that shows code is known by what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick import Actor, Tally
from tallystick.ranking import (
    code_percent,
    code_spans,
    prose_parts,
    slices,
    slices_to_embed,
)
from tallystick.testing import HashEmbedder

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")

_TEXTS = st.lists(
    st.sampled_from(
        ["```", "```py\n", "~~~", "````", "\n", "x = 1", "Why?", " ", "`a`", "é", "It fails. " * 40]
    )
).map("".join)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Look:\n```py\nx = 1\n```\nIt fails.", ["```py\nx = 1\n```"]),
        ("~~~\nx = 1\n~~~", ["~~~\nx = 1\n~~~"]),
        ("````md\n```py\nx\n```\n````\nEnd.", ["````md\n```py\nx\n```\n````"]),
        ("1. Run\n   ```sh\n   ls\n   ```\n2. Look", ["   ```sh\n   ls\n   ```"]),
        ("Cut off:\n```\nx = 1", ["```\nx = 1"]),
        ("```ls``` lists files.\nAnd more.", []),
        ("A fence is written ``` so.", []),
    ],
)
def test_code_is_what_stands_between_fences_that_begin_a_line(text: str, code: list[str]) -> None:
    assert [text[start:end] for start, end in code_spans(text)] == code


def test_a_text_that_is_nothing_but_code_is_what_it_says() -> None:
    assert prose_parts("```\nx = 1\n```") == ["```\nx = 1\n```"]
    assert code_percent("```\nx = 1\n```") == 0


@given(_TEXTS)
def test_every_slice_has_something_to_be_known_by(text: str) -> None:
    pieces, meant = slices(text), slices_to_embed(text)
    assert len(pieces) == len(meant)
    for piece, said in zip(pieces, meant, strict=True):
        assert any(map(str.isalnum, said)) == any(map(str.isalnum, piece))


@given(_TEXTS)
def test_the_words_of_all_slices_together_are_those_outside_of_code(text: str) -> None:
    parts = prose_parts(text)
    if len(parts) > 1 and len(text) <= 700:
        assert "\n".join(slices_to_embed(text)).split() == "\n".join(parts).split()


def test_the_share_of_code_is_counted_in_percent() -> None:
    text = "Why does this fail?\n```py\nat = '10:30'\n" + "x = 1\n" * 20 + "```"
    assert code_percent(text) == round(
        100 * (len(text) - len("Why does this fail?\n\n")) / len(text)
    )


def test_a_message_with_code_has_the_vector_of_what_it_says(open_tally: OpenTally) -> None:
    said = "The heron nests in March."
    with open_tally(embedder=HashEmbedder()) as tally:
        anna = tally.bind(ANNA)
        anna.remember(said)
        anna.remember(f"{said}\n```py\nfor bird in birds: print(bird.nest)\n```")
        alone, with_code = anna.recall("heron nests March")
        assert alone.signals["vector"] == pytest.approx(with_code.signals["vector"], abs=1e-3)
        assert anna.recall("birds print")[0].content.endswith("```")
