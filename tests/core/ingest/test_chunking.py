"""Chunking: passages are the text, cut at its headings, none too short and none too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystick_ingest.chunking import FEWEST_WORDS, LONGEST, MOST_WORDS, chunk

WORDS = st.integers(1, 9).map(lambda size: "w" * size)
PARAGRAPHS = st.builds(
    lambda words, count, mark: mark.join([*words] * count),
    st.lists(WORDS, min_size=1, max_size=20),
    st.sampled_from([1, 5, 60]),
    st.sampled_from([" ", "\n", "\n\n"]),
)
PIECES = st.one_of(
    st.builds(lambda level: f"{'#' * level} Title {level}\n", st.integers(1, 6)),
    st.just("```\n## no heading\n```\n"),
    PARAGRAPHS.map(lambda text: f"{text}\n\n"),
    st.integers(1, 40_000).map(lambda size: "x" * size),
    st.text(max_size=40),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@given(TEXTS)
def test_passages_one_after_the_other_are_the_text(text: str) -> None:
    chunks = chunk(text)
    assert "".join(text[each.start : each.end] for each in chunks) == (text if text.split() else "")


@given(TEXTS)
def test_each_passage_is_within_its_bounds(text: str) -> None:
    chunks = chunk(text)
    counts = [len(text[each.start : each.end].split()) for each in chunks]
    assert all(each.end - each.start <= LONGEST for each in chunks)
    assert all(count <= MOST_WORDS for count in counts)
    if len(chunks) > 1 and max(map(len, text.split())) < 1_000:
        assert min(counts) >= FEWEST_WORDS


def test_a_passage_stands_under_its_headings() -> None:
    text = (
        f"# Birds\n\n## Herons\n\n{'heron ' * 60}\n\n### Nests\n\n{'nest ' * 60}\n\n"
        f"#### Deeper\n\n{'twig ' * 60}\n\n## Storks\n\n{'stork ' * 60}"
    )
    assert [
        (each.section_path, text[each.start : each.end].split()[-1]) for each in chunk(text)
    ] == [
        (("Birds", "Herons"), "heron"),
        (("Birds", "Herons", "Nests"), "twig"),
        (("Birds", "Storks"), "stork"),
    ]


def test_what_is_written_in_code_is_no_heading() -> None:
    text = f"## Setup\n\n```sh\n## comment\nrun {'x ' * 60}\n```\n"
    assert [each.section_path for each in chunk(text)] == [("Setup",)]


def test_sections_that_are_too_short_are_read_together() -> None:
    text = "".join(f"## Entry {number}\n\nA line about it.\n\n" for number in range(40))
    assert [len(text[each.start : each.end].split()) for each in chunk(text)] == [
        56,
        56,
        56,
        56,
        56,
    ]
