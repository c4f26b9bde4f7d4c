"""Journaling: what an observer or an import tells of itself, as an entry of the bound scope."""

from __future__ import annotations

from tallystick.records import Actor
from tallystick.records._base import JsonObject
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of


def note(
    bound: BoundTally,
    event: str,
    details: JsonObject,
    *,
    actor: Actor | None = None,
    subject_id: str | None = None,
) -> None:
    """Journal an event in the bound scope, by the actor of the view or another. Raises
    StorageError.
    """
    store = services_of(bound).store
    entry = journal.Event(
        stream=f"scope:{bound.scope}",
        event=event,
        actor=actor or bound.actor,
        at=store.clock.now(),
        audit_id=store.ids.new(),
        subject_id=subject_id,
        details=details,
    )
    store.database.write(
        lambda tx: journal.append(tx, entry), name=event, writes=Writes.of(bound.scope)
    )
