"""Frames for adapters: stored texts are framed with a code, and what is ours is told by it."""

from __future__ import annotations

import json
from collections.abc import Callable

from tallystick import Actor, Tally
from tallystick.kit.rendering import codes_of, framed_hits, without_frames
from tallystick.operations import MEMORY_TOOLS
from tallystick.records.framing import frame, frame_body

OpenTally = Callable[..., Tally]
ALICE, BOB = Actor(user="alice"), Actor(user="bob")


def test_an_adapter_frames_hits_and_takes_frames_out_again(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        alice = tally.bind(ALICE)
        alice.remember("The heron nests in March.", speaker="Ann")
        text = framed_hits(alice, alice.recall("heron"))
        body = frame_body(["The stork nests in April."])
        answer = json.dumps(MEMORY_TOOLS["memory_search"].function(alice, "heron"))

        assert "\n- Ann: The heron nests in March.\n" in text
        assert framed_hits(alice, []) == ""
        assert without_frames(alice, f"Well?\n{text}") == "Well?"
        assert without_frames(alice, frame(body, *codes_of(alice, [body]))) == ""
        assert without_frames(alice, answer) == answer
        # Bob may not read what Alice was shown: to him it is a text.
        assert without_frames(tally.bind(BOB), text) == text
