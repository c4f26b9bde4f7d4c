"""Frames of a bound tally: stored texts as an adapter shows them, and what of a text is ours."""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.records import Hit
from tallystick.records.framing import Quote, frame_code, framed, may_be_recalled
from tallystick.records.framing import without_frames as _without_frames
from tallystick.records.framing import without_recalls as _without_recalls
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of

__all__ = ["code_of", "framed_hits", "without_frames", "without_recalls"]


def framed_hits(bound: BoundTally, hits: Iterable[Hit]) -> str:
    """Return hits as one frame with its code, each with its speaker; empty for none."""
    quotes = [Quote(hit.memory.content, hit.memory.speaker) for hit in hits]
    if not quotes:
        return ""
    return framed(quotes, services_of(bound).memory.frame_keys.signing(bound.scope))


def code_of(bound: BoundTally, body: str) -> str:
    """Return the code of a frame with this text between its marks."""
    return frame_code(services_of(bound).memory.frame_keys.signing(bound.scope), body)


def without_frames(bound: BoundTally, text: str) -> str:
    """Return a text without the frames that this tally made for this actor; any other text, and a
    frame that was altered or cut, stays as it is.
    """
    return _without_frames(text, _keys(bound)) if may_be_recalled(text) else text


def without_recalls(bound: BoundTally, text: str) -> str:
    """Same as `without_frames`; of an answer of this tally's memory tools nothing is left."""
    return _without_recalls(text, _keys(bound)) if may_be_recalled(text) else text


def _keys(bound: BoundTally) -> tuple[bytes, ...]:
    return services_of(bound).memory.frame_keys.checking(bound.actor, bound.scope)
