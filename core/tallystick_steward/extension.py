"""The extension: what stewardship adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tallystick.extension import Extension
from tallystick.jobs.derived import Derived
from tallystick.memory import MemoryContext
from tallystick.operations import Operation
from tallystick_steward.steward import Steward

if TYPE_CHECKING:
    from tallystick.operations.operation import Effect


def _operation(
    effect: Effect,
    verb: str,
    title: str,
    description: str,
    errors: tuple[str, ...],
    *,
    name: str | None = None,
    needs_preview: bool = False,
) -> Operation:
    make = partial(Operation, face=Steward, needs_preview=needs_preview)
    return make(name or verb, title, description, effect, errors, f"steward.{verb}")


def _derived(context: MemoryContext) -> Sequence[Derived]:
    from tallystick_steward.alerts import AlertWatch

    return (AlertWatch(context),)


EXTENSION: Extension[Operation] = Extension(
    derived=_derived,
    operations=(
        _operation(
            "operate",
            "metrics",
            "Metrics",
            "Measure operations, jobs, calls of models and the database.",
            ("denied",),
        ),
        _operation(
            "operate",
            "health",
            "Health",
            "Score the queue, storage, index, providers and the safety of changes, with the facts.",
            ("denied",),
        ),
        _operation(
            "operate",
            "diagnose",
            "Diagnose a part",
            "Show the health of one part, with its facts.",
            ("denied", "invalid_input"),
        ),
        _operation(
            "read",
            "health_scores",
            "Health scores",
            "Show the scores of the tally's health, without facts.",
            ("denied", "rate_limited"),
        ),
        _operation(
            "operate",
            "alerts",
            "Alerts",
            "Look at every limit, and list the alerts that stand.",
            ("denied",),
        ),
        _operation(
            "read",
            "events",
            "Events",
            "List what happened behind a cursor: changes, reviews and approvals that are needed, "
            "runs that ended.",
            ("invalid_input", "rate_limited"),
        ),
    ),
)
