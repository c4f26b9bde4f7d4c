"""The extension: what stewardship adds to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tallystick.extension import Extension
from tallystick.loading import Late
from tallystick.operations import Operation

if TYPE_CHECKING:
    from tallystick.jobs import Background, Chore
    from tallystick.jobs.derived import Derived
    from tallystick.memory import MemoryContext
    from tallystick.operations.operation import Effect

_STEWARD = Late("tallystick_steward.steward:Steward")


def _operation(
    effect: Effect,
    verb: str,
    description: str,
    errors: tuple[str, ...] = ("denied",),
    *,
    title: str = "",
    needs_preview: bool = False,
) -> Operation:
    title = title or verb.replace("_", " ").capitalize()
    make = partial(Operation, face=_STEWARD, needs_preview=needs_preview)
    return make(verb, title, description, effect, errors, f"steward.{verb}")


def _derived(context: MemoryContext) -> Sequence[Derived]:
    from tallystick_steward.alerts import AlertWatch

    return (AlertWatch(context),)


def _chores(context: MemoryContext, background: Background) -> Sequence[Chore]:
    if context.settings.autonomy == "off":
        return ()
    from tallystick.jobs import Chore, patient
    from tallystick.upkeep.retention import windows_of
    from tallystick_steward import loop

    acting = loop.Loop(context, background, windows_of(context.settings), context.store.ids.new())
    return (Chore(patient("steward", acting.turn), loop.EVERY, first=loop.EVERY),)


_REPAIR = ("denied", "invalid_input", "state_conflict")

EXTENSION: Extension[Operation] = Extension(
    derived=_derived,
    chores=_chores,
    operations=(
        _operation(
            "operate", "metrics", "Measure operations, jobs, calls of models and the database."
        ),
        _operation(
            "operate",
            "health",
            "Score the queue, storage, index, providers and the safety of changes, with the facts.",
        ),
        _operation(
            "operate",
            "diagnose",
            "Show the health of one part, with its facts.",
            ("denied", "invalid_input"),
            title="Diagnose a part",
        ),
        _operation(
            "read",
            "health_scores",
            "Show the scores of the tally's health, without facts.",
            ("denied", "rate_limited"),
        ),
        _operation("operate", "alerts", "Look at every limit, and list the alerts that stand."),
        _operation(
            "read",
            "events",
            "List what happened behind a cursor: changes, reviews and approvals that are needed, "
            "runs that ended.",
            ("invalid_input", "rate_limited"),
        ),
        _operation(
            "operate",
            "repair",
            "Requeue jobs, release leases, embed, mend the index or purge: journaled before and "
            "after, within bounds.",
            (*_REPAIR, "not_found"),
        ),
        _operation(
            "change",
            "rollback",
            "Preview what one act changed, then undo it with the token.",
            _REPAIR,
            title="Roll back an act",
            needs_preview=True,
        ),
        _operation(
            "change",
            "recover_many",
            "Preview what a job, a model or a caller did since a moment, then take it back with "
            "the token.",
            _REPAIR,
            title="Take back many changes",
            needs_preview=True,
        ),
        _operation(
            "change",
            "backfill",
            "Learn from, embed or link a portion of what a scope has from before.",
            ("denied", "invalid_input"),
        ),
        _operation(
            "operate",
            "resume_autonomy",
            "Let the steward go on after repairs that did not help halted it.",
        ),
        _operation(
            "operate",
            "analytics",
            "Count operations, errors, calls of models or changes, by actor, provider and stage.",
            ("denied", "invalid_input"),
        ),
        _operation(
            "read",
            "timeline",
            "List what happened to a memory, or in a request or session, with the decisions.",
            ("not_found", "rate_limited"),
        ),
    ),
)
