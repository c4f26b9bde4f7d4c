"""Frames of a bound tally: stored texts as an adapter shows them, and what of a text is ours."""

from __future__ import annotations

from collections.abc import Iterable

from tallystick.memory.passages import Content, content_of, passage_text, says_the_same
from tallystick.records import Hit
from tallystick.records.framing import Quote, frame_code, framed, may_be_recalled
from tallystick.records.framing import without_frames as _without_frames
from tallystick.records.framing import without_recalls as _without_recalls
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of

__all__ = ["code_of", "framed_hits", "without_frames", "without_recalls"]


def framed_hits(bound: BoundTally, hits: Iterable[Hit]) -> str:
    """Return hits as one frame with its code, each with its speaker and its caption, a long one by
    the part that answers, and what says nearly the same once; empty for none.
    """
    quotes: list[Quote] = []
    contents: list[Content] = []
    for hit in hits:
        text, place = passage_text(hit)
        content = content_of(text)
        if not any(says_the_same(content, other) for other in contents):
            contents.append(content)
            quotes.append(
                Quote(text, hit.memory.speaker, f"(part {place}) " if place is not None else "")
            )
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
