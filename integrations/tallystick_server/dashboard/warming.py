"""Warming: the dashboard is made ready for a person while they come in."""

from __future__ import annotations

import threading

from tallystick.errors import TallystickError
from tallystick.kit.background import on_close, warm
from tallystick.logs import get_logger
from tallystick.tally import BoundTally
from tallystick_server.dashboard.rendering import load_templates


def make_ready(bound: BoundTally) -> None:
    """Compile the templates, and read what the first pages of a person need. A failure is logged:
    a page then reads it by itself, and says what is wrong.
    """
    load_templates()
    try:
        warm(bound)
    except TallystickError as error:
        get_logger("dashboard").warning("dashboard.not_ready", error=type(error).__name__)


def make_ready_in_background(bound: BoundTally) -> threading.Thread:
    """Make the dashboard ready on a thread of its own, which the tally waits for when it is closed.
    Return the thread.
    """
    thread = threading.Thread(
        target=make_ready, args=(bound,), name="tallystick-ready", daemon=True
    )
    thread.start()
    on_close(bound.tally, thread.join)
    return thread
