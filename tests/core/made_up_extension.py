"""A made-up extension: it counts the notes in capitals, by jobs, and recall puts them first."""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.extension import Extension
from tallystick.jobs import Ended, Work
from tallystick.jobs.derived import MEND, Derived
from tallystick.memory.context import SignalRequest, Write
from tallystick.operations import Operation
from tallystick.records import Actor, Finding, Memory
from tallystick.storage import Connection
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import memories, scopes, settings_rows
from tallystick.tally.memory_view import Part

KIND = "count_loud"
KEPT = "loud"
"""The setting that has the number; an extension with text has tables, each with its owner."""


class Loud(Part):
    """Its typed face: `Loud(bound)`."""

    def count_loud(self) -> int:
        """Return the number of notes in capitals, as it was last counted."""
        self._view._admit("read")
        with self._view._services.store.database.read() as connection:
            return int(settings_rows.get_setting(connection, KEPT) or 0)


def leave_job(write: Write, memory: Memory, scope_id: int) -> None:
    if memory.content.isupper():
        write.enqueue(KIND, str(scope_id), scope_id)


def loud_notes(connection: Connection, scope_ids: Any) -> set[int]:
    notes = memories.latest(connection, scope_ids, states=("active",), limit=1_000)
    return {each.doc for each in notes if each.memory.content.isupper()}


def recount(tx: Connection) -> None:
    settings_rows.set_setting(tx, KEPT, str(len(loud_notes(tx, scopes.all_revisions(tx)))))


class LoudHandler:
    kind, batch, lease_seconds = KIND, 1, 60
    is_upkeep, changes_memory, is_autonomous = True, False, True

    def handle(self, work: Work) -> int:
        def unit(tx: Connection, allowed: Any) -> dict[str, Ended]:
            recount(tx)
            return {job.id: Ended("done") for job in work.jobs}

        work.commit(unit)
        return 1


class LoudState(Derived):
    name = "loud notes"

    def check(self) -> Finding:
        with self._database.read() as connection:
            count = len(loud_notes(connection, scopes.all_revisions(connection)))
            if settings_rows.get_setting(connection, KEPT) != str(count):
                return self._says("problem", f"the notes in capitals were counted wrong: {MEND}")
        return self._says("ok", f"{count} notes are in capitals")

    def repair(self, actor: Actor) -> Finding:
        self._database.write(recount, name="doctor.loud", writes=Writes.of(TALLY))
        return self._says("repaired", "the notes in capitals were counted anew")


def signals(connection: Connection, context: Any, request: SignalRequest) -> dict[str, Any]:
    loud = loud_notes(connection, request.scope_ids)
    return {"loud": np.array([float(doc in loud) for doc in request.docs])}


EXTENSION: Extension[Operation] = Extension(
    on_show=leave_job,
    signals=signals,
    handlers=lambda context, outbound: (LoudHandler(),),
    derived=lambda context: (LoudState(context),),
    operations=(
        Operation(KIND, "Count", "Count loud notes.", "read", (), f"loud.{KIND}", face=Loud),
    ),
)
