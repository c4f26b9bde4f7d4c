"""Alerts: the limits that a tally exceeds at a moment, raised and cleared by what is read of it."""

from __future__ import annotations

from typing import Any, cast

from tallystick.jobs.derived import Derived
from tallystick.memory import MemoryContext
from tallystick.records import Actor, Alert, AlertLimits, AlertName, Finding
from tallystick.upkeep.alerts import Standing, change_alerts
from tallystick_steward.health import is_backup_old
from tallystick_steward.readings import Readings, read

_LEAST_DEAD = 3
"""Jobs that died at least: one text alone is its own error."""
_PIECE, _PIECES, _LEAST_PIECES = 5, 6, 3
"""Minutes of which a slow remember is judged, their number, and how many of them need calls."""
_QUARTER, _DAY = 15, 24 * 60
_OWN_ACT: frozenset[AlertName] = frozenset({"steward_halted", "candidate_reverted"})
"""Alerts that are raised and cleared by an act, and not by readings."""


def find_exceeded(readings: Readings, limits: AlertLimits) -> dict[AlertName, Alert]:
    """Return what exceeds its limit now, by the name of its alert."""
    exceeded: dict[AlertName, Alert] = {}

    def note(name: AlertName, text: str, **facts: Any) -> None:
        exceeded[name] = Alert(name=name, state="raised", text=text, facts=facts, at=readings.now)

    percent = readings.dead_percent
    if readings.dead >= _LEAST_DEAD and percent > limits.jobs_dead_percent:
        note(
            "jobs_dead",
            f"{readings.dead} jobs died within 15 minutes, {percent:.1f} % of those that ended",
            dead=readings.dead,
            percent=round(percent, 2),
        )
    if readings.age_p95 > limits.queue_age_seconds:
        note(
            "queue_age",
            f"jobs that are due wait for {readings.age_p95:.0f} s (p95)",
            seconds=round(readings.age_p95),
            due=len(readings.ages),
        )
    pieces = [
        readings.p95_ms("remember.", _PIECE, before=_PIECE * piece) for piece in range(_PIECES)
    ]
    slow = [each for each in pieces if each is not None]
    if len(slow) >= _LEAST_PIECES and min(slow) > limits.remember_p95_ms:
        note(
            "remember_slow", f"remember takes {max(slow):.0f} ms (p95) for 30 minutes", ms=max(slow)
        )
    busy, usual = readings.busy_percent(_QUARTER), readings.busy_percent(_DAY, before=_QUARTER)
    if busy > max(limits.busy_percent, 3 * usual):
        note("busy", f"{busy:.1f} % of the operations found the database busy", percent=busy)
    for name, spikes, verb in (
        ("delete_spike", readings.deletes, "forgot"),
        ("read_spike", readings.reads, "was given"),
    ):
        if spikes:
            first = max(spikes, key=lambda each: each.count)
            note(
                cast(AlertName, name),
                f"{first.caller} {verb} {first.count} memories within an hour, and "
                f"{first.median:g} in the median hour before",
                callers={each.caller: each.count for each in spikes},
            )
    if readings.undone >= limits.undone:
        note(
            "undone_changes",
            f"{readings.undone} changes of a model were undone within a day: wrong targets",
            undone=readings.undone,
        )
    if readings.forged:
        caller, count = max(readings.forged.items(), key=lambda each: each[1])
        note(
            "forged_speakers",
            f"{caller} wrote {count} memories within 15 minutes as said by other users",
            callers=dict(readings.forged),
        )
    if is_backup_old(readings, limits):
        last = readings.last_backup
        text = "there is no backup" if last is None else "the newest backup is too old"
        note("backup_old", f"{text}: one is asked for every {limits.backup_days} days")
    return exceeded


def update(context: MemoryContext, readings: Readings) -> list[Alert]:
    """Raise the alerts whose limit is exceeded, clear those whose is no longer; return those that
    stand. Listeners are told of what this process changed. Raises StorageError.
    """
    exceeded = find_exceeded(readings, context.settings.alerts)

    def changes(raised: Standing) -> list[Alert]:
        over = sorted(raised.keys() - exceeded.keys() - _OWN_ACT)
        return [
            *(alert for name, alert in exceeded.items() if name not in raised),
            *(Alert(name=name, state="cleared", text="", at=readings.now) for name in over),
        ]

    return change_alerts(context, changes)


class AlertWatch(Derived):
    """The alerts of a tally: looked after with what is derived, once a minute."""

    name = "alerts"

    def follow(self) -> int:
        """Raise and clear alerts; return the number of those that stand."""
        return len(update(self._context, read(self._context)))

    def check(self) -> list[Finding]:
        """Name every limit that is exceeded."""
        exceeded = find_exceeded(read(self._context), self._context.settings.alerts)
        return [
            Finding(check=f"{self.name}: {name}", status="notice", text=each.text)
            for name, each in exceeded.items()
        ]

    def repair(self, actor: Actor) -> Finding:
        """Nothing is mended here: `tally repair` is for that."""
        return self._says("ok", "an alert ends with its cause")
