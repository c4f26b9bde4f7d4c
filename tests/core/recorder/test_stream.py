"""A recorded answer is cut into the chunks of a stream at the same places each time, and never
within a character.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.recorder import stream_pieces
from tallystick.records import TapeCall

FAMILY, FLAG, ACCENT = "👩\u200d👩\u200d👧", "🇩🇪", "e\u0301"


def _call(chunks: int | None) -> TapeCall:
    return TapeCall(step_id="s1", kind="model_call", request={}, chunks=chunks)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (1, [["It weighs three tons."]]),
        (3, [["It weig", "hs thre", "e tons."]]),
        # Not recorded as a stream: about a piece for each word.
        (None, [["It we", "ighs ", "three", " tons."]]),
    ],
)
def test_an_answer_comes_in_as_many_pieces_as_it_was_recorded_in(
    chunks: int | None, expected: list[list[str]]
) -> None:
    assert stream_pieces(_call(chunks), ["It weighs three tons."]) == expected


def test_the_parts_of_an_answer_share_its_chunks_by_their_length() -> None:
    assert stream_pieces(_call(5), ["thinking it over", "", "Yes."]) == [
        ["thinking", " it over"],
        [""],
        ["Ye", "s."],
    ]
    assert stream_pieces(_call(1), ["one", "two"]) == [["one"], ["two"]]
    assert stream_pieces(_call(9), []) == []


def test_what_a_person_sees_as_one_character_is_never_cut() -> None:
    assert stream_pieces(_call(9), [f"{FAMILY}{FLAG}{ACCENT}\r\n\ud83d\ude00"]) == [
        [FAMILY, FLAG, ACCENT, "\r\n", "\ud83d\ude00"]
    ]


def test_arguments_are_not_cut_within_an_escape() -> None:
    arguments = json.dumps({"a": "😀\n\u00e9"})
    assert stream_pieces(_call(99), [arguments]) == [
        [*'{"a": "', "\\ud83d\\ude00", "\\n", "\\u00e9", '"', "}"]
    ]


@given(
    texts=st.lists(
        st.lists(
            st.characters() | st.sampled_from([FAMILY, FLAG, ACCENT, "\\", "\\u00e9", "\ud83d"])
        ).map("".join)
    ),
    chunks=st.none() | st.integers(1, 60),
)
def test_the_pieces_are_the_texts_again_and_no_more_than_were_recorded(
    texts: list[str], chunks: int | None
) -> None:
    cut = stream_pieces(_call(chunks), texts)
    assert ["".join(pieces) for pieces in cut] == texts
    assert all(len(pieces) == 1 or all(pieces) for pieces in cut)
    if chunks is not None:
        assert sum(map(len, cut)) <= max(chunks, len(texts))
    assert cut == stream_pieces(_call(chunks), texts)
