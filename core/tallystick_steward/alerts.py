"""Alerts: limits that are exceeded, as findings of the doctor, as events of the journal and in a
call of whoever asked for it.

Which alerts stand is in the journal, written in the transaction that looks at it: of several
processes one raises an alert.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

from tallystick.errors import ClosedTally, ForkedTally, StorageError
from tallystick.jobs import TALLY_ACTOR
from tallystick.jobs.derived import Derived
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.records import Actor, Alert, AlertLimits, AlertName, Finding, JsonObject
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal
from tallystick_steward.health import is_backup_old
from tallystick_steward.readings import Readings, lately, read

RAISED, CLEARED = "alert.raised", "alert.cleared"
_LEAST_DEAD = 3
"""Jobs that died at least: one text alone is its own error."""
_PIECE, _PIECES, _LEAST_PIECES = 5, 6, 3
"""Minutes of which a slow remember is judged, their number, and how many of them need calls."""
_QUARTER, _DAY = 15, 24 * 60
_OWN_ACT: frozenset[AlertName] = frozenset({"steward_halted", "candidate_reverted"})
"""Alerts that are raised and cleared by an act, and not by readings."""
_KNOWN = 500
"""Changes of alerts that are read back."""


class Exceeded(NamedTuple):
    """A limit that is exceeded at this moment."""

    text: str
    facts: JsonObject


def find_exceeded(readings: Readings, limits: AlertLimits) -> dict[AlertName, Exceeded]:
    """Return what exceeds its limit now, by the name of its alert."""
    exceeded: dict[AlertName, Exceeded] = {}

    def note(name: AlertName, text: str, **facts: Any) -> None:
        exceeded[name] = Exceeded(text, facts)

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


def standing(connection: Connection) -> dict[str, Alert]:
    """Return the newest state of every alert that the journal knows, by name."""
    newest: dict[str, Alert] = {}
    for entry in lately(connection, RAISED, CLEARED, limit=_KNOWN):
        name = str(entry.details.get("alert"))
        if name not in newest:
            newest[name] = alert_of(entry.event, entry.details, entry.at, entry.audit_id)
    return newest


def alert_of(event: str, details: Mapping[str, Any], at: int, audit_id: str) -> Alert:
    """Return the alert of an entry of the journal."""
    return Alert(
        name=details["alert"],
        state="raised" if event == RAISED else "cleared",
        text=str(details.get("text", "")),
        facts=dict(details.get("facts", {})),
        at=at,
        audit_id=audit_id,
    )


def update(context: MemoryContext, readings: Readings) -> list[Alert]:
    """Raise the alerts whose limit is exceeded, clear those whose is no longer; return those that
    stand. Listeners are told of what this process changed. Raises StorageError.
    """
    exceeded = find_exceeded(readings, context.settings.alerts)
    with context.store.database.read() as connection:
        alerts = standing(connection)
    if context.store.database.unwritable is None and _differences(alerts, exceeded):
        for alert in _write(
            context,
            lambda tx: [
                _append(tx, context, event, name, exceeded.get(name))
                for event, name in _differences(standing(tx), exceeded)
            ],
        ):
            alerts[alert.name] = alert
    return [alert for alert in alerts.values() if alert.state == "raised"]


def raise_alert(context: MemoryContext, name: AlertName, text: str, **facts: Any) -> None:
    """Raise an alert that no reading shows, such as a loop that was halted."""
    exceeded = Exceeded(text, facts)
    _write(context, lambda tx: [_append(tx, context, RAISED, name, exceeded)])


def clear_alert(tx: Connection, context: MemoryContext, name: AlertName) -> None:
    """Clear an alert that was raised by an act."""
    _append(tx, context, CLEARED, name, None)


def _write(context: MemoryContext, unit: Callable[[Connection], list[Alert]]) -> list[Alert]:
    """Store changes of alerts, and call whoever asked for them; an error of theirs is logged and
    stops nothing.
    """
    changed = context.store.database.write(unit, name="alerts", writes=Writes.of(TALLY))
    for alert in changed:
        for listener in list(context.alert_listeners):
            try:
                listener(alert)
            except Exception as error:  # noqa: BLE001 - a listener never stops the watch
                get_logger("steward").warning("alert.listener", error=type(error).__name__)
    return changed


def _differences(
    alerts: Mapping[str, Alert], exceeded: Mapping[AlertName, Exceeded]
) -> list[tuple[str, AlertName]]:
    raised: set[AlertName] = {each.name for each in alerts.values() if each.state == "raised"}
    over: list[AlertName] = sorted(raised - exceeded.keys() - _OWN_ACT)
    new: list[AlertName] = [name for name in exceeded if name not in raised]
    return [*((RAISED, name) for name in new), *((CLEARED, name) for name in over)]


def _append(
    tx: Connection, context: MemoryContext, event: str, name: AlertName, exceeded: Exceeded | None
) -> Alert:
    text, facts = exceeded or Exceeded("", {})
    now, audit_id = context.store.clock.now(), context.store.ids.new()
    texts = {"text": text, "facts": _whole(facts)}
    journal.append(
        tx,
        journal.Event(
            stream="tally",
            event=event,
            actor=TALLY_ACTOR,
            at=now,
            audit_id=audit_id,
            details={"alert": name},
            texts=texts,
        ),
    )
    return alert_of(event, {"alert": name, **texts}, now, audit_id)


def _whole(value: Any) -> Any:
    """Return a value of the canonical form, which has no floats."""
    if isinstance(value, float):
        return round(value)
    if isinstance(value, dict):
        return {str(key): _whole(each) for key, each in value.items()}
    return value


class AlertWatch(Derived):
    """The alerts of a tally: looked after with what is derived, once a minute."""

    name = "alerts"

    def follow(self) -> int:
        """Raise and clear alerts; return the number of those that stand."""
        try:
            return len(update(self._context, read(self._context)))
        except (ClosedTally, ForkedTally):
            raise
        except StorageError as error:
            get_logger("steward").warning("alerts.waiting", error=type(error).__name__)
            return 0

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
