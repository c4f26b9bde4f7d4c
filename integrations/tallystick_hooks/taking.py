"""Taking events that hooks left in the spool of a tally, as if they were told now.

Telling needs no answer, so a hook without a server writes its event down and ends (`leave_event`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystick.spool import leave
from tallystick_hooks.events import TELLING, Event, Words

if TYPE_CHECKING:
    from tallystick.tally import Tally


def leave_event(place: str, event: Event, *, boundary: str | None, agent: str | None) -> str | None:
    """Leave an event in the spool of the tally at `place`, and return its id; None where it is one
    to answer, and where there is no spool.
    """
    if event.name not in TELLING or event.candidates:
        # What became of memories that an agent gives is told to it.
        return None
    told = {**vars(event), "words": [vars(each) for each in event.words]}
    return leave(place, "hook", {"event": told, "boundary": boundary, "agent": agent})


def take(tally: Tally, body: dict[str, Any], *, event_id: str, at: int, is_again: bool) -> None:
    """Take one event. Raises what a tally raises where the event is to be taken again, or no gap
    can be recorded for it.
    """
    from tallystick.kit import is_recorded_from_spool
    from tallystick_hooks.handling import answer_event

    told = body["event"]
    words = tuple(Words(**each) for each in told["words"])
    event = Event(**{**told, "words": words, "spooled": event_id, "at": at})
    boundary, agent = body["boundary"], body["agent"]
    if is_again and is_recorded_from_spool(
        tally.bind(None, boundary), event.session, event_id, since=at
    ):
        return
    answer_event(tally, event, boundary=boundary, agent=agent)
