"""Hooks for agents that are programs: one call for each event of a session.

`tallystick_hooks.handling.handle` answers an event on a bound tally. This package is light to
import: a hook is a process of its own, and where a server is warm it needs the server's socket
alone (`quick`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_OF_FORMATS = ("BadPayload", "answer_in", "event_from")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "formats" if name in _OF_FORMATS else "events"
    return getattr(import_module(f"tallystick_hooks.{module}"), name)
