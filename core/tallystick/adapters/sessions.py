"""Sessions that several observers watch: who of them records, by the id that they share.

An adapter in the agent's process records a session as runs of one thread. A hook, which is a
process of its own for each event, would record the same calls and words a second time: it leaves
them to the adapter, and the journal says so.
"""

from __future__ import annotations

from tallystick.adapters.journaling import note
from tallystick.records import RunRecord
from tallystick.storage import recordings
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of

__all__ = ["OBSERVER", "note_seen_again", "recorded_elsewhere"]

OBSERVER = "observer"
"""The key in the metadata of a run that names the observer which recorded it."""
_DAY_US = 24 * 3600 * 1_000_000
_RUNS = 50
"""Runs of a session that are looked at, the newest; and how long it may have paused."""


def recorded_elsewhere(bound: BoundTally, session: str, observer: str) -> RunRecord | None:
    """Return the newest run of this session that another observer records; None if none does.

    A run of another process counts as soon as it is stored. Raises Denied where the actor may not
    record in the scope.
    """
    services = services_of(bound)
    services.gate.require(bound.actor, "record", bound.scope)
    store = services.store
    store.database.flush()
    with store.database.read() as connection:
        runs = recordings.runs_of_thread(
            connection, bound.scope, session, since=store.clock.now() - _DAY_US, limit=_RUNS
        )
    return next((run for run in runs if run.metadata.get(OBSERVER) != observer), None)


def note_seen_again(
    bound: BoundTally, session: str, *, observer: str, what: str, run: RunRecord
) -> None:
    """Journal that an observer saw something of a session that the observer of `run` records.

    The id of the session is a text of others: it stands beside the chain, where it can be erased.
    """
    note(
        bound,
        "session.seen_again",
        {"observer": observer, "seen": what},
        actor=bound.actor.traced(session_id=session),
        subject_id=run.run_id,
    )
