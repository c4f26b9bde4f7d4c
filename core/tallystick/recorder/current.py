"""The run and the step that code is in: verbs ask for them, and few processes record any."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystick.recorder.run import Run, Step

active_run: ContextVar[Run | None] = ContextVar("tallystick_run", default=None)
"""The run whose `with` block this code is in."""
active_step: ContextVar[Step | None] = ContextVar("tallystick_step", default=None)
"""The step whose `with` block this code is in."""


def current_run() -> Run | None:
    """Return the run whose `with` block this code is in, or None."""
    return active_run.get()


def current_step() -> Step | None:
    """Return the step whose `with` block this code is in, or None."""
    return active_step.get()
