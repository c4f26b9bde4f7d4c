"""Does what is stored of a thread match what was put? Checks every row, every piece and the
journal's anchors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from tallystick.checkpoints.checked import checked_state, hold_against, joined, writes_at
from tallystick.checkpoints.codes import sealed
from tallystick.checkpoints.context import ScopeCache
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.loading import load_values
from tallystick.checkpoints.marks import marks_of
from tallystick.errors import CorruptTally, StorageError, TallystickError
from tallystick.records import Scope, VerificationProblem
from tallystick.storage import checkpoints, journal
from tallystick.storage.checkpoints import StateRow, ThreadRow

__all__ = ["ENDING", "problems"]

_ANCHORING = frozenset(
    {"checkpoint.put", "thread.copy", "thread.prune", "checkpoint.delete", "thread.import"}
)
ENDING = frozenset({"thread.delete", "thread.expire"})
"""Entries after which a thread is no longer there."""


def problems(desk: Desk, thread: str | None) -> list[VerificationProblem]:
    """Everything in a thread, or in all of the scope, that is not as it was put. Nothing kept in
    memory is trusted.
    """
    fresh = replace(desk, scope_cache=ScopeCache(desk.scope_cache.scope, desk.codec))
    found: list[VerificationProblem] = []
    with desk.store.database.read() as connection:
        names = (
            checkpoints.thread_names(connection, desk.scope_cache.scope.id)
            if thread is None
            else [thread]
        )
    for name in names:
        with desk.store.database.read() as connection:
            row = checkpoints.find_thread(connection, desk.scope_cache.scope.id, name)
            if row is None:
                continue
            states = checkpoints.states_of(connection, row.id)
            found += _anchors(connection, desk.scope, row, states)
            for state in states:
                found += _of_state(fresh, connection, name, state)
    return found


def _of_state(
    desk: Desk, connection: Connection, thread: str, state: StateRow
) -> list[VerificationProblem]:
    try:
        summary, frame = checked_state(desk, thread, state)
        if marks_of(summary.metadata, desk.codec) != state.marks:
            raise CorruptTally(
                "Its marks, by which filters find it, are not those of its metadata."
            )
        [values] = load_values(connection, desk.scope_cache, [frame.roots])
        hold_against(frame.digest, values, desk.codec)
        waiting = writes_at(desk, connection, thread, state)
        joined(
            waiting,
            load_values(connection, desk.scope_cache, [one.roots for _, one in waiting]),
            desk.codec,
        )
    except (CorruptTally, StorageError) as error:
        return [
            VerificationProblem(where=f"thread {thread} checkpoint {state.id}", problem=str(error))
        ]
    return []


def _anchors(
    connection: Connection, scope: Scope, thread: ThreadRow, states: Sequence[StateRow]
) -> list[VerificationProblem]:
    """What the thread's row and its last anchor in the journal say of its checkpoints, and is not
    so.

    The sum of the codes shows that none was removed, added or changed since; that the end of a
    thread was cut off together with its journal shows only against a foil kept elsewhere.
    """
    stream = f"thread:{scope}/{thread.name}"
    found = [
        VerificationProblem(where=where, problem=problem)
        for where, problem in journal.verify_stream(connection, stream)
    ]
    where = f"thread {thread.name}"
    if (thread.states, thread.seal or _summed([])) != (len(states), _summed(states)):
        found.append(
            VerificationProblem(
                where=where,
                problem=(
                    f"holds {len(states)} checkpoints that do not add up to the {thread.states} "
                    f"that were put: one was "
                    "removed, added or changed"
                ),
            )
        )
    try:
        entries = [
            entry
            for entry in journal.entries(connection, stream)
            if entry.event in _ANCHORING | ENDING
        ]
    except TallystickError as error:
        return [
            *found,
            VerificationProblem(where=stream, problem=f"an entry is not readable: {error}"),
        ]
    anchor = entries[-1] if entries and entries[-1].event in _ANCHORING else None
    if anchor is None:
        if states:
            found.append(
                VerificationProblem(
                    where=where, problem="has checkpoints of which the journal knows nothing"
                )
            )
        return found
    puts = anchor.details.get("puts")
    then = [state for state in states if isinstance(puts, int) and state.position < puts]
    if (anchor.details.get("checkpoints"), anchor.details.get("seal")) != (
        len(then),
        _summed(then),
    ):
        found.append(
            VerificationProblem(
                where=where,
                problem=f"does not match what the journal says of it at entry {anchor.position}",
            )
        )
    return found


def _summed(states: Sequence[StateRow]) -> str:
    """The seal of a thread that holds these checkpoints and no others."""
    return sealed("", add=[state.code for state in states], take=[])
