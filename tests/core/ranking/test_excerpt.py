"""The excerpt of a long text: its two ends, whole words, never more than was asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick.ranking import excerpt


@given(st.text(max_size=300), st.integers(2, 400))
def test_an_excerpt_is_the_text_or_its_two_ends(text: str, most: int) -> None:
    result = excerpt(text, most)

    if len(text) <= most:
        assert result == text
        return
    head, _, tail = result.partition("\n...\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) <= most


def test_a_window_ends_with_a_whole_word() -> None:
    text = " ".join(f"word{number}" for number in range(1_000))

    words = set(excerpt(text, 1_000).split()) - {"..."}

    assert words < set(text.split())
