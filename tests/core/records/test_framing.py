"""Framing: a frame is recognised by its code, in any text around it, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.compiler import FRAMED
from tallystick.policy.redaction import Redactor
from tallystick.records.framing import (
    CLOSE,
    OPEN,
    Quote,
    frame_key,
    frame_quotes,
    signed_answer,
    without_codes,
    without_frames,
    without_recalls,
)
from tallystick.tokens import counter_for

KEY, OTHER = frame_key(b"one scope"), frame_key(b"another scope")
stored = st.text() | st.text("<>/-[( \n:tallystick-context") | st.sampled_from([OPEN, CLOSE])


@given(texts=st.lists(stored, min_size=1, max_size=4), around=st.tuples(stored, stored))
def test_a_frame_with_a_code_leaves_what_is_around_it(
    texts: list[str], around: tuple[str, str]
) -> None:
    frame = frame_quotes(texts, KEY)
    before, after = around
    text = f"{before}\n{frame}\n{after}"
    own = "\n".join(part for part in (before.strip(), after.strip()) if part)
    assert without_frames(text, [OTHER, KEY]) == own
    assert without_frames(text, [OTHER]) == text
    assert without_frames(text, []) == text


@given(texts=st.lists(stored, min_size=1, max_size=3), place=st.integers(0, 10_000))
def test_a_frame_that_lost_a_character_is_a_text_like_any_other(
    texts: list[str], place: int
) -> None:
    frame = frame_quotes(texts, KEY)
    place %= len(frame)
    cut = frame[:place] + frame[place + 1 :]
    if cut != frame:
        assert without_recalls(cut, [KEY]) == cut


def test_many_marks_hide_no_frame_and_cost_little() -> None:
    frame = frame_quotes(["The heron nests in March."], KEY)
    opening = frame[: frame.index(">") + 1]
    assert without_frames(opening * 20_000 + frame, [KEY]) == opening * 20_000
    assert without_frames(frame * 2, [KEY]) == ""


def test_equal_frames_have_equal_codes_and_the_comparison_needs_none() -> None:
    frames = {frame_quotes(["The heron nests."], key) for key in (KEY, KEY, OTHER)}
    assert len(frames) == 2
    assert len({without_codes(frame) for frame in frames}) == 1
    answers = {
        str(signed_answer({"notice": "x", "memories": []}, key)) for key in (KEY, KEY, OTHER)
    }
    assert len(answers) == 2


def test_the_room_for_frames_in_a_request_is_enough() -> None:
    counter = counter_for(None, cache_dir=Path())
    own = counter.count(frame_quotes(["x"], KEY)) - counter.count("- x\n")
    assert 2 * own <= FRAMED.per_request
    assert len({counter.count(frame_quotes(["x"], bytes([n]))) for n in range(200)}) == 1


@pytest.mark.soak
def test_a_recording_keeps_the_code_of_a_frame() -> None:
    """No rule of redaction takes a code for a secret."""
    for number in range(200):
        frame = frame_quotes([f"The heron {number} nests in March."], KEY)
        for redactor in (Redactor(), Redactor(pii=True)):
            assert redactor.redact_text(frame) == (frame, {})


@given(items=st.lists(st.tuples(stored, stored | st.none()), min_size=1, max_size=5))
def test_a_frame_has_as_many_items_as_were_put_in(items: list[tuple[str, str | None]]) -> None:
    frame = frame_quotes(
        [Quote(text, speaker, "[note] ", " (ours)") for text, speaker in items], KEY
    )
    lines = frame.splitlines()
    assert len([line for line in lines if line.startswith("- ")]) == len(items)
    assert all(line.startswith(("- ", "    ")) or not line for line in lines[2:-1])
    assert frame.count(OPEN) == frame.count(CLOSE) == 1
