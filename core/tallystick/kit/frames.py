"""Frames of a bound tally: stored texts as an adapter shows them, and what of a text is ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from tallystick.errors import InvalidInput
from tallystick.kit.elsewhere import TallyElsewhere
from tallystick.memory import read
from tallystick.memory.contradictions import disagreements_of
from tallystick.memory.passages import hit_for_model, passage_text, unfold
from tallystick.policy.redaction import Redactor
from tallystick.records import Hit
from tallystick.records.framing import CLOSE, OPEN, Quote, frame_code, frame_quotes, may_be_recalled
from tallystick.records.framing import without_frames as _without_frames
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of


def framed_hits(bound: BoundTally, hits: Iterable[Hit]) -> str:
    """Return hits as one frame with its code, each with its speaker and its caption, a long one by
    the part that answers, and what says nearly the same once; empty for none. Where some contradict
    one another, all have numbers, by which a line below says so.
    """
    shown = [hit for hit, _ in unfold(hits_for_model(bound, hits))]
    lines = disagreements_of(shown)
    quotes: list[Quote] = []
    for number, hit in enumerate(shown, start=1):
        text, place = passage_text(hit)
        part = f"(part {place}) " if place is not None else ""
        mark = f"- {number}" if lines else "-"
        quotes.append(Quote(text, hit.memory.speaker, part, mark=mark))
    if not quotes:
        return ""
    key = services_of(bound).memory.frame_keys.signing(bound.scope)
    return frame_quotes(quotes, key, legend=lines)


def hits_for_model(bound: BoundTally | TallyElsewhere, hits: Iterable[Hit]) -> list[Hit]:
    """Return hits without secrets, by the rules of the tally; of one elsewhere by those without
    settings.
    """
    redactor = (
        services_of(bound).memory.redactor if isinstance(bound, BoundTally) else _plain_redactor()
    )
    return [hit_for_model(redactor, hit) for hit in hits]


_plain_redactor = cache(Redactor)


def text_for_model(bound: BoundTally, memory_id: str, version: int) -> str | None:
    """Return the text of a memory without secrets, while it is at this version and may be read."""
    return read.text_for_model(services_of(bound).memory, bound.actor, memory_id, version)


def codes_of(bound: BoundTally | TallyElsewhere, bodies: Sequence[str]) -> list[str]:
    """Return the code of a frame with each of these texts between its marks, made where the tally
    is.
    """
    if not isinstance(bound, BoundTally):
        return bound.frame_codes(bodies) if bodies else []
    key = services_of(bound).memory.frame_keys.signing(bound.scope)
    return [frame_code(key, body) for body in bodies]


def codes_for_caller(bound: BoundTally, bodies: Sequence[str]) -> list[str]:
    """Same as `codes_of`, for a caller behind a server: only for who may read the scope, whose
    frames these are. Raises Denied, and InvalidInput for a text that ends its frame itself.
    """
    gate = services_of(bound).gate
    gate.admit(bound.actor, "read", bound.scope)
    gate.require(bound.actor, "read", bound.scope)
    if any(OPEN in body or CLOSE in body for body in bodies):
        raise InvalidInput("A text in a frame has no mark of a frame. Escape it first.")
    return codes_of(bound, bodies)


def without_frames(bound: BoundTally, text: str) -> str:
    """Return a text without the frames that this tally made for this actor; any other text, and a
    frame that was altered or cut, stays as it is.
    """
    return _without_frames(text, _keys(bound)) if may_be_recalled(text) else text


def _keys(bound: BoundTally) -> tuple[bytes, ...]:
    return services_of(bound).memory.frame_keys.checking(bound.actor, bound.scope)
