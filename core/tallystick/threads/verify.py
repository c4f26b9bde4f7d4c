"""Does what is stored of a thread match what was put? Checks every row, every piece and the journal's anchors."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from tallystick.errors import TallystickError
from tallystick.records import Scope, VerificationProblem
from tallystick.storage import journal
from tallystick.storage.checkpoints import StateRow, ThreadRow

__all__ = ["ENDING", "anchors", "summed"]

_ANCHORING = frozenset({"checkpoint.put", "thread.copy", "thread.prune", "checkpoint.delete", "thread.import"})
ENDING = frozenset({"thread.delete", "thread.expire"})
"""Entries after which a thread is no longer there."""


def anchors(
    connection: Connection, scope: Scope, thread: ThreadRow, states: Sequence[StateRow]
) -> list[VerificationProblem]:
    """What the thread's row and its last anchor in the journal say of its checkpoints, and is not so.

    The sum of the codes shows that none was removed, added or changed since; that the end of a thread was cut off
    together with its journal shows only against a foil kept elsewhere.
    """
    stream = f"thread:{scope}/{thread.name}"
    found = [
        VerificationProblem(where=where, problem=problem)
        for where, problem in journal.verify_stream(connection, stream)
    ]
    where = f"thread {thread.name}"
    if (thread.states, thread.seal or summed([])) != (len(states), summed([state.code for state in states])):
        found.append(VerificationProblem(where=where, problem=(
            f"holds {len(states)} checkpoints that do not add up to the {thread.states} that were put: one was "
            "removed, added or changed"
        )))  # fmt: skip
    try:
        entries = [entry for entry in journal.entries(connection, stream) if entry.event in _ANCHORING | ENDING]
    except TallystickError as error:
        return [*found, VerificationProblem(where=stream, problem=f"an entry is not readable: {error}")]
    anchor = entries[-1] if entries and entries[-1].event in _ANCHORING else None
    if anchor is None:
        if states:
            found.append(VerificationProblem(where=where, problem="has checkpoints of which the journal knows nothing"))
        return found
    puts = anchor.details.get("puts")
    then = [state for state in states if isinstance(puts, int) and state.position < puts]
    if (anchor.details.get("checkpoints"), anchor.details.get("seal")) != (
        len(then), summed([state.code for state in then]),
    ):  # fmt: skip
        found.append(VerificationProblem(
            where=where, problem=f"does not match what the journal says of it at entry {anchor.position}"
        ))  # fmt: skip
    return found


def summed(codes: Sequence[bytes]) -> str:
    """The sum of codes, as the seal of a thread writes it."""
    return f"{sum(int.from_bytes(code, 'big') for code in codes) % (1 << 256):064x}"
