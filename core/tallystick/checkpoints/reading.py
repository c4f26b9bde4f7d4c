"""Reading one checkpoint: with its state, as the base of the next, or as the trail of writes that
led to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import Connection

from tallystick.checkpoints.checked import (
    checked_state,
    checked_writes,
    hold_against,
    joined,
    writes_at,
)
from tallystick.checkpoints.context import Base
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.loading import load_values
from tallystick.checkpoints.stored import PendingWrite, StoredCheckpoint
from tallystick.checkpoints.values import Value
from tallystick.errors import CorruptTally
from tallystick.storage import checkpoints
from tallystick.storage.checkpoints import StateRow, WriteRow

__all__ = ["base_of", "get", "trails"]

_PAGE = 50


def base_of(desk: Desk, thread: str, *, namespace: str, checkpoint_id: str) -> Base | None:
    """The stored values of a checkpoint, to compare new ones with and to build them on."""
    bases = desk.scope_cache.bases
    kept = bases.get((thread, namespace))
    if kept is not None and kept.id == checkpoint_id:
        return kept
    try:
        get(desk, thread, namespace=namespace, checkpoint_id=checkpoint_id)
    except CorruptTally:
        # A damaged parent is no reason to refuse its child, which is stored whole.
        return None
    found = bases.get((thread, namespace))
    return found if found is not None and found.id == checkpoint_id else None


def get(
    desk: Desk, thread: str, *, namespace: str, checkpoint_id: str | None
) -> StoredCheckpoint | None:
    """One checkpoint, or that with the greatest id; None when there is none. Raises
    CorruptTally.
    """
    scope_cache = desk.scope_cache
    with desk.store.database.read() as connection:
        there = checkpoints.find(connection, scope_cache.scope.id, thread, namespace, checkpoint_id)
        if there is None or desk.over(there[0]):
            return None
        row, state = there
        summary, frame = checked_state(desk, thread, state)
        waiting = writes_at(desk, connection, thread, state)
        # Values with this digest may be at hand: they are what was put last, or read last.
        kept = scope_cache.bases.get((thread, namespace))
        values: Mapping[str, Value] | None = None
        if kept is not None and (kept.thread, kept.epoch, kept.digest) == (
            row.id,
            row.epoch,
            frame.digest,
        ):
            values = kept.values
        shapes = [one.roots for _, one in waiting]
        if values is None:
            values, *more = load_values(connection, scope_cache, [frame.roots, *shapes])
            hold_against(frame.digest, values, scope_cache.codec)
        else:
            more = load_values(connection, scope_cache, shapes)
    found = values
    if kept is None or kept.values is not found or kept.id != state.id:
        scope_cache.bases.put(
            (thread, namespace), Base(state.id, row.id, row.epoch, frame.digest, found)
        )
    return StoredCheckpoint(
        summary, frame.body, joined(waiting, more, scope_cache.codec), lambda: found
    )


def trails(
    desk: Desk, thread: str, *, namespace: str, checkpoint_id: str | None, channels: Sequence[str]
) -> dict[str, tuple[list[PendingWrite], Value | None]]:
    """For each channel the writes of a checkpoint's ancestors, oldest first, and the value they
    start from.
    """
    scope_cache = desk.scope_cache
    found: dict[str, tuple[list[PendingWrite], Value | None]] = {
        channel: ([], None) for channel in channels
    }
    left = set(channels)
    with desk.store.database.read() as connection:
        row = desk.thread(connection, thread)
        state = (
            None if row is None else checkpoints.get(connection, row.id, namespace, checkpoint_id)
        )
        if row is None or state is None:
            return found
        ahead: dict[str, tuple[StateRow, list[WriteRow]]] = {}
        seen: set[str] = set()
        while left and state.parent_id is not None and state.parent_id not in seen:
            seen.add(state.parent_id)
            if state.parent_id not in ahead:
                ahead = _ahead(connection, row.id, namespace, state.parent_id, left)
            if state.parent_id not in ahead:
                break
            state, rows = ahead[state.parent_id]
            _, frame = checked_state(desk, thread, state)
            waiting = checked_writes(desk, thread, [one for one in rows if one.channel in left])
            here = sorted(left & frame.roots.keys())
            seeds, *values = load_values(
                connection,
                scope_cache,
                [
                    {channel: frame.roots[channel] for channel in here},
                    *(one.roots for _, one in waiting),
                ],
            )
            for write in reversed(joined(waiting, values, scope_cache.codec)):
                found[write.channel][0].append(write)
            for channel in here:
                found[channel] = (found[channel][0], seeds[channel])
                left.discard(channel)
    return {channel: (writes[::-1], seed) for channel, (writes, seed) in found.items()}


def _ahead(
    connection: Connection, thread_id: int, namespace: str, id: str, channels: Collection[str]
) -> dict[str, tuple[StateRow, list[WriteRow]]]:
    """A checkpoint and those before it by id, a page of them, with their writes of these
    channels.
    """
    states = checkpoints.up_to(connection, thread_id, namespace, id, _PAGE)
    found: dict[str, tuple[StateRow, list[WriteRow]]] = {state.id: (state, []) for state in states}
    if states:
        for write in checkpoints.writes_between(
            connection, thread_id, namespace, states[-1].id, id
        ):
            if write.channel in channels and write.checkpoint_id in found:
                found[write.checkpoint_id][1].append(write)
    return found
