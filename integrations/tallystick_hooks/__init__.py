"""Hooks for agents that are programs: one call for each event of a session.

`tallystick_hooks.handling.handle` answers an event on a bound tally. This package is light to
import: a hook is a process of its own, and where a server is warm it needs the server's socket
alone.
"""

from tallystick_hooks.events import EVENTS, Answer, Event, EventName, HookFormat
from tallystick_hooks.formats import BadPayload, answer_in, event_from

__all__ = [
    "EVENTS",
    "Answer",
    "BadPayload",
    "Event",
    "EventName",
    "HookFormat",
    "answer_in",
    "event_from",
]
