"""Verification of threads: every row against its MAC, every chunk against its digest, and each
thread against the journal's anchors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tallystick.checkpoints.codec import thread_checksum
from tallystick.checkpoints.context import ScopeCache, ThreadScope
from tallystick.checkpoints.listing import metadata_fingerprints
from tallystick.checkpoints.reading import (
    check_checkpoint,
    check_digest,
    check_writes,
    load_values,
    pending_writes,
    writes_at,
)
from tallystick.errors import CorruptTally, StorageError, TallystickError
from tallystick.records import VerificationProblem
from tallystick.storage import Connection
from tallystick.storage.rows import checkpoints, journal
from tallystick.storage.rows.checkpoints import StateRow, ThreadRow

_ANCHORING = frozenset(
    {"checkpoint.put", "thread.copy", "thread.prune", "checkpoint.delete", "thread.import"}
)
"""Events whose entries contain the count and the checksum of a thread."""
ENDING = frozenset({"thread.delete", "thread.expire"})
"""Events after which a thread is no longer there."""


def find_problems(scope: ThreadScope, thread: str | None) -> list[VerificationProblem]:
    """Return everything in a thread, or in all of the scope, that is not as it was put. Nothing
    cached in memory is trusted.
    """
    uncached = replace(scope, cache=ScopeCache(scope.cache.scope, scope.codec))
    problems: list[VerificationProblem] = []
    with scope.store.database.read() as connection:
        names = checkpoints.thread_names(connection, scope.id) if thread is None else [thread]
    for name in names:
        with scope.store.database.read() as connection:
            row = checkpoints.find_thread(connection, scope.id, name)
            if row is None:
                continue
            states = checkpoints.states_of(connection, row.id)
            problems += _thread_problems(connection, scope, row, states)
            for state in states:
                problems += _checkpoint_problems(uncached, connection, name, state)
            problems += _early_write_problems(uncached, connection, row, states)
    return problems


def _early_write_problems(
    scope: ThreadScope, connection: Connection, thread: ThreadRow, states: Sequence[StateRow]
) -> list[VerificationProblem]:
    """Return the problems of pending writes whose checkpoint is not there yet."""
    present = {(state.namespace, state.id) for state in states}
    problems = []
    for row in checkpoints.writes_of(connection, thread.id):
        if (row.namespace, row.checkpoint_id) in present:
            continue
        try:
            [write] = check_writes(scope, thread.name, [row])
            values = load_values(connection, scope.cache, [write.frame.roots])
            pending_writes([write], values, scope.codec)
        except (CorruptTally, StorageError) as error:
            where = f"thread {thread.name} checkpoint {row.checkpoint_id}"
            problems.append(VerificationProblem(where=where, problem=str(error)))
    return problems


def _checkpoint_problems(
    scope: ThreadScope, connection: Connection, thread: str, state: StateRow
) -> list[VerificationProblem]:
    try:
        summary, frame = check_checkpoint(scope, thread, state)
        if metadata_fingerprints(summary.metadata, scope.codec) != state.marks:
            raise CorruptTally(
                "Its marks, by which filters find it, are not those of its metadata."
            )
        [values] = load_values(connection, scope.cache, [frame.roots])
        check_digest(frame.digest, values, scope.codec)
        writes = writes_at(scope, connection, thread, state)
        of_writes = load_values(connection, scope.cache, [write.frame.roots for write in writes])
        pending_writes(writes, of_writes, scope.codec)
    except (CorruptTally, StorageError) as error:
        return [
            VerificationProblem(where=f"thread {thread} checkpoint {state.id}", problem=str(error))
        ]
    return []


def _thread_problems(
    connection: Connection, scope: ThreadScope, thread: ThreadRow, states: Sequence[StateRow]
) -> list[VerificationProblem]:
    """Return where the thread's row or its last anchor in the journal differs from its checkpoints.

    The checksum shows that none was removed, added or changed since; that the end of a thread was
    cut off together with its journal shows only against a foil kept elsewhere.
    """
    stream = thread.stream
    problems = [
        VerificationProblem(where=where, problem=problem)
        for where, problem in journal.verify_stream(connection, stream)
    ]
    where = f"thread {thread.name}"
    if (thread.states, thread.checksum or _checksum_of([])) != (len(states), _checksum_of(states)):
        problems.append(
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
            *problems,
            VerificationProblem(where=stream, problem=f"an entry is not readable: {error}"),
        ]
    anchor = entries[-1] if entries and entries[-1].event in _ANCHORING else None
    if anchor is None:
        if states:
            problems.append(
                VerificationProblem(
                    where=where, problem="has checkpoints of which the journal knows nothing"
                )
            )
        return problems
    puts = anchor.details.get("puts")
    at_anchor = [state for state in states if isinstance(puts, int) and state.position < puts]
    if (anchor.details.get("checkpoints"), anchor.details.get("seal")) != (
        len(at_anchor),
        _checksum_of(at_anchor),
    ):
        problems.append(
            VerificationProblem(
                where=where,
                problem=f"does not match what the journal says of it at entry {anchor.position}",
            )
        )
    return problems


def _checksum_of(states: Sequence[StateRow]) -> str:
    """Return the checksum of a thread that has these checkpoints and no others."""
    return thread_checksum("", add=[state.code for state in states], subtract=[])
