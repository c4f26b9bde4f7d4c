"""Alerts: which of them stand, as the journal has it, and calls of whoever asked for them.

An alert is raised in a transaction that looks at those that stand: of several processes one raises
it, and calls its listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tallystick.jobs import TALLY_ACTOR
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.records import Alert, AlertName
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal

_KNOWN = 500
"""Changes of alerts that are read back."""

Standing = Mapping[AlertName, Alert]
"""The alerts that are raised, by name."""


def standing(connection: Connection) -> dict[AlertName, Alert]:
    """Return the alerts that are raised, by name."""
    newest: dict[AlertName, Alert] = {}
    for entry in journal.of_tally(connection, "alert.raised", "alert.cleared", limit=_KNOWN):
        details: Any = entry.details
        alert = Alert(
            name=details["alert"],
            state="raised" if entry.event == "alert.raised" else "cleared",
            text=details.get("text", ""),
            facts=details.get("facts", {}),
            at=entry.at,
            audit_id=entry.audit_id,
        )
        newest.setdefault(alert.name, alert)
    return {name: alert for name, alert in newest.items() if alert.state == "raised"}


def change_alerts(
    context: MemoryContext, changes: Callable[[Standing], Iterable[Alert]]
) -> list[Alert]:
    """Journal how the alerts that stand change, and call the listeners; return those that stand
    then. Where the database takes no write, nothing changes. Raises StorageError.
    """
    database = context.store.database
    with database.read() as connection:
        raised = standing(connection)
    if database.unwritable is None and any(changes(raised)):
        changed = database.write(
            lambda tx: [_journal_alert(tx, context, each) for each in changes(standing(tx))],
            name="alerts",
            writes=Writes.of(TALLY),
        )
        call_listeners(context, changed)
        raised |= {alert.name: alert for alert in changed}
    return [alert for alert in raised.values() if alert.state == "raised"]


def raise_alert(context: MemoryContext, name: AlertName, text: str, **facts: Any) -> None:
    """Raise an alert that an act calls for, and no reading shows."""
    alert = Alert(name=name, state="raised", text=text, facts=facts, at=context.store.clock.now())
    change_alerts(context, lambda _: [alert])


def clear_alert(tx: Connection, context: MemoryContext, name: AlertName) -> Alert:
    """Clear an alert inside the open transaction; the listeners are called after it."""
    cleared = Alert(name=name, state="cleared", text="", at=context.store.clock.now())
    return _journal_alert(tx, context, cleared)


def _journal_alert(tx: Connection, context: MemoryContext, alert: Alert) -> Alert:
    """Journal a change of an alert at this moment; return it as it stands then."""
    audit_id, facts = context.store.ids.new(), _whole(alert.facts)
    alert = alert.replace(at=context.store.clock.now(), facts=facts, audit_id=audit_id)
    journal.append(
        tx,
        journal.Event(
            stream="tally",
            event=f"alert.{alert.state}",
            actor=TALLY_ACTOR,
            at=alert.at,
            audit_id=audit_id,
            details={"alert": alert.name},
            texts={"text": alert.text, "facts": facts},
        ),
    )
    return alert


def call_listeners(context: MemoryContext, alerts: Iterable[Alert]) -> None:
    """Call whoever asked for alerts; an error of theirs is logged, and stops nothing."""
    for alert in alerts:
        for listener in list(context.alert_listeners):
            try:
                listener(alert)
            except Exception as error:  # noqa: BLE001 - a listener never stops the watch
                get_logger("upkeep").warning("alert.listener", error=type(error).__name__)


def _whole(facts: Any) -> Any:
    """Return facts in the canonical form, which has no floats."""
    if isinstance(facts, float):
        return round(facts)
    if isinstance(facts, dict):
        return {str(name): _whole(each) for name, each in facts.items()}
    return facts
