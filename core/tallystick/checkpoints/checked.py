"""Stored rows held against their codes and digests before anything in them is believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlalchemy import Connection

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.codes import code_of_state, code_of_write
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.frames import Frame, unframed, values_digest
from tallystick.checkpoints.loading import load_values
from tallystick.checkpoints.stored import PendingWrite, Summary
from tallystick.checkpoints.values import Value
from tallystick.errors import CorruptTally
from tallystick.storage import checkpoints
from tallystick.storage.checkpoints import StateRow, WriteRow

__all__ = [
    "checked_state",
    "checked_writes",
    "hold_against",
    "joined",
    "read_later",
    "summary_of",
    "writes_at",
]


def checked_state(desk: Desk, thread: str, state: StateRow) -> tuple[Summary, Frame]:
    """What a row says, held against its code. Raises CorruptTally."""
    frame = unframed(state.state, desk.codec)
    noted = desk.codec.unpack(state.metadata)
    code = code_of_state(
        desk.codec,
        desk.scope,
        thread,
        state.namespace,
        state.id,
        state.parent_id,
        noted,
        frame.body,
        frame.digest,
    )
    if code != state.code:
        raise CorruptTally(
            f"Checkpoint {state.id} of thread {thread!r} does not match its code: it was "
            f"changed, or put in the "
            "place of another."
        )
    return summary_of(thread, state, frame, noted), frame


def summary_of(thread: str, state: StateRow, frame: Frame, noted: bytes) -> Summary:
    """What is told of a checkpoint without its state. Raises CorruptTally."""
    try:
        metadata = json.loads(noted)
    except (ValueError, RecursionError) as error:
        raise CorruptTally(f"The metadata of checkpoint {state.id} are not readable.") from error
    return Summary(
        thread, state.namespace, state.id, state.parent_id, metadata, frozenset(frame.roots)
    )


def writes_at(
    desk: Desk, connection: Connection, thread: str, state: StateRow
) -> list[tuple[WriteRow, Frame]]:
    """The pending writes at a checkpoint as a step applies them. Raises CorruptTally."""
    rows = checkpoints.writes_of(connection, state.thread_id, state.namespace, state.id)
    return checked_writes(desk, thread, rows)


def checked_writes(
    desk: Desk, thread: str, rows: Iterable[WriteRow]
) -> list[tuple[WriteRow, Frame]]:
    """Pending writes as a step applies them, each held against its code. Raises CorruptTally."""
    found = []
    for row in sorted(rows, key=lambda one: (one.task_path, one.task_id, one.position)):
        frame = unframed(row.value, desk.codec)
        if code_of_write(desk.codec, desk.scope, thread, row, frame.digest) != row.code:
            raise CorruptTally(
                f"A pending write at checkpoint {row.checkpoint_id} of thread {thread!r} does "
                f"not match its code."
            )
        found.append((row, frame))
    return found


def joined(
    waiting: Sequence[tuple[WriteRow, Frame]], values: Sequence[Mapping[str, Value]], codec: Codec
) -> tuple[PendingWrite, ...]:
    """Pending writes with their values, which are held against their digests. Raises
    CorruptTally.
    """
    for (_, frame), value in zip(waiting, values, strict=True):
        hold_against(frame.digest, value, codec)
    return tuple(
        PendingWrite(row.task_id, row.task_path, row.position, row.channel, value[""])
        for (row, _), value in zip(waiting, values, strict=True)
    )


def hold_against(digest: bytes, values: Mapping[str, Value], codec: Codec) -> None:
    """Raises CorruptTally where values are not those of a digest."""
    if values_digest(values, codec) != digest:
        raise CorruptTally(
            "The state of a checkpoint does not match its digest. Run `tally verify` to see where."
        )


def read_later(desk: Desk, frame: Frame) -> Callable[[], Mapping[str, Value]]:
    """Reads the values of a checkpoint when it is called."""

    def read() -> Mapping[str, Value]:
        with desk.store.database.read() as connection:
            [values] = load_values(connection, desk.scope_cache, [frame.roots])
        hold_against(frame.digest, values, desk.codec)
        return values

    return read
