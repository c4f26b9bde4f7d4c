"""Copying a thread: its rows under the codes of their new place, its content shared."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from tallystick.checkpoints.codes import code_of_state, code_of_write, sealed
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.frames import unframed
from tallystick.storage import checkpoints, trees

__all__ = ["copy"]


def copy(desk: Desk, source: str, target: str) -> int:
    """Copy all checkpoints and writes of a thread to another; how many checkpoints."""
    codec, scope = desk.codec, desk.scope

    def unit(tx: Connection) -> int:
        at = desk.now()
        origin = desk.thread(tx, source)
        if origin is None:
            return 0
        row = desk.thread_made(tx, target, at)
        trees.hold_all_of(tx, origin.id, row.id)
        added: list[bytes] = []
        replaced: list[bytes] = []
        states = checkpoints.states_of(tx, origin.id)
        for number, state in enumerate(states, start=row.puts):
            frame = unframed(state.state, codec)
            code = code_of_state(
                codec,
                scope,
                target,
                state.namespace,
                state.id,
                state.parent_id,
                codec.unpack(state.metadata),
                frame.body,
                frame.digest,
            )
            old = checkpoints.add_state(
                tx, replace(state, thread_id=row.id, position=number, code=code)
            )
            added.append(code)
            replaced += [] if old is None else [old]
        waiting = [
            replace(
                one,
                thread_id=row.id,
                code=code_of_write(codec, scope, target, one, unframed(one.value, codec).digest),
            )
            for one in checkpoints.writes_of(tx, origin.id)
        ]
        checkpoints.add_writes(tx, waiting, replace=True)
        moved = replace(
            row,
            puts=row.puts + len(added),
            states=row.states + len(added) - len(replaced),
            seal=sealed(row.seal, add=added, take=replaced),
            writer=desk.writer,
            lifetime=row.lifetime or origin.lifetime,
        )
        moved = replace(moved, expires_at=None if moved.lifetime is None else at + moved.lifetime)
        checkpoints.move(tx, moved)
        desk.anchor(tx, "thread.copy", moved, at)
        return len(added)

    return desk.store.database.write(unit, name="thread.copy")
