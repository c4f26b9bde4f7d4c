"""Putting checkpoints and pending writes: everything is made ready first, then written in one
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection

from tallystick.checkpoints.codes import code_of_state, code_of_write, sealed
from tallystick.checkpoints.context import Base
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.frames import compact, framed, values_digest
from tallystick.checkpoints.marks import marks_of
from tallystick.checkpoints.reading import base_of
from tallystick.checkpoints.seeds import Seeds
from tallystick.checkpoints.stored import PendingWrite
from tallystick.checkpoints.values import Leaf, Value, planted, written
from tallystick.storage import checkpoints
from tallystick.storage.checkpoints import StateRow, ThreadRow, WriteRow

__all__ = ["Grown", "Waited", "begin_put", "begin_put_writes"]

Grown = Callable[[Mapping[str, Value]], Mapping[str, Value]]
"""The values of a checkpoint, made from those of its parent."""

Waited = Callable[[], None]
"""What was begun: call it once to wait for the commit. Others that were begun meanwhile share it.
"""

_ANCHOR = 64
"""Puts after which the journal notes where a thread stands, if its writer has not changed before.
"""


class _Stale(Exception):
    """What was remembered of a thread is not what stands there any more."""


@dataclass(frozen=True)
class _Draft:
    """What a checkpoint is before its place in the thread is known."""

    namespace: str
    id: str
    parent_id: str | None
    marks: str
    noted: bytes
    metadata: bytes
    body: Leaf
    stored_body: bytes
    lifetime: int | None
    run: str | None
    """The run that puts, where its metadata name it."""


def begin_put(
    desk: Desk,
    thread: str,
    *,
    namespace: str,
    checkpoint_id: str,
    parent_id: str | None,
    metadata: Mapping[str, Any],
    body: Leaf,
    values: Mapping[str, Value] | Grown,
    lifetime: int | None,
    soon: bool,
) -> Waited:
    """Make a checkpoint ready and hand it to the writer, which with `soon` waits a little for
    more.
    """
    codec = desk.codec
    base = (
        None
        if parent_id is None
        else base_of(desk, thread, namespace=namespace, checkpoint_id=parent_id)
    )
    if not isinstance(values, Mapping):
        values = values({} if base is None else base.values)
    noted = compact(metadata)
    draft = _Draft(
        namespace,
        checkpoint_id,
        parent_id,
        marks_of(metadata, codec),
        noted,
        codec.pack(noted),
        body,
        codec.pack(body.body) if codec.sealed else body.body,
        lifetime,
        run if isinstance(run := metadata.get("run_id"), str) else None,
    )
    begun = _put(desk, thread, draft, values, base, soon)

    def waited() -> None:
        try:
            begun()
        except _Stale:
            _put(desk, thread, draft, values, None, False)()

    return waited


def _put(
    desk: Desk,
    thread: str,
    draft: _Draft,
    values: Mapping[str, Value],
    base: Base | None,
    soon: bool,
) -> Waited:
    scope_cache, codec = desk.scope_cache, desk.codec
    before = base.values if base is not None else {}
    plant = {
        channel: planted(value, before.get(channel), codec) for channel, value in values.items()
    }
    seeds = Seeds(plant.values(), codec)
    digest = values_digest(plant, codec)
    code = code_of_state(
        codec,
        desk.scope,
        thread,
        draft.namespace,
        draft.id,
        draft.parent_id,
        draft.noted,
        draft.body,
        digest,
    )

    def unit(tx: Connection) -> tuple[ThreadRow, dict[bytes, int]]:
        at = desk.now()
        row = desk.thread_made(tx, thread, at)
        if base is not None and (base.thread, base.epoch) != (row.id, row.epoch):
            raise _Stale
        ids = seeds.sow(tx, scope_cache.scope.id, row.id)
        roots = {channel: written(value, seeds.number(ids)) for channel, value in plant.items()}
        replaced = checkpoints.add_state(
            tx,
            StateRow(
                row.id,
                draft.id,
                draft.namespace,
                draft.parent_id,
                row.puts,
                draft.marks,
                draft.metadata,
                framed(digest, roots, draft.body.type, draft.stored_body, codec),
                code,
            ),
        )
        lifetime = draft.lifetime if draft.lifetime is not None else row.lifetime
        moved = ThreadRow(
            row.id,
            row.name,
            row.epoch,
            row.puts + 1,
            row.states + (replaced is None),
            sealed(row.seal, add=[code], take=[] if replaced is None else [replaced]),
            desk.writer,
            lifetime,
            None if lifetime is None else at + lifetime,
        )
        checkpoints.move(tx, moved)
        if replaced is not None or moved.writer != row.writer or moved.puts % _ANCHOR == 0:
            desk.anchor(tx, "checkpoint.put", moved, at, run=draft.run)
        return moved, ids

    written_down = desk.store.database.submit(unit, name="checkpoint.put", deferred=soon)

    def waited() -> None:
        row, ids = written_down.result()
        seeds.grown(ids, scope_cache)
        scope_cache.bases.put(
            (thread, draft.namespace), Base(draft.id, row.id, row.epoch, digest, plant)
        )

    return waited


def begin_put_writes(
    desk: Desk,
    thread: str,
    *,
    namespace: str,
    checkpoint_id: str,
    writes: Sequence[PendingWrite],
    soon: bool,
) -> Waited:
    """Same as `begin_put`, for pending writes."""
    codec = desk.codec
    plants = [planted(write.value, None, codec) for write in writes]
    seeds = Seeds(plants, codec)
    digests = [values_digest({"": plant}, codec) for plant in plants]
    bare = [
        WriteRow(
            0,
            checkpoint_id,
            namespace,
            one.task_id,
            one.position,
            one.task_path,
            one.channel,
            b"",
            b"",
        )
        for one in writes
    ]
    coded = [
        replace(one, code=code_of_write(codec, desk.scope, thread, one, digest))
        for one, digest in zip(bare, digests, strict=True)
    ]

    def unit(tx: Connection) -> dict[bytes, int]:
        row = desk.thread_made(tx, thread, desk.now())
        ids = seeds.sow(tx, desk.scope_cache.scope.id, row.id)
        rows = [
            replace(
                one,
                thread_id=row.id,
                value=framed(digest, {"": written(plant, seeds.number(ids))}, "", b"", codec),
            )
            for one, plant, digest in zip(coded, plants, digests, strict=True)
        ]
        checkpoints.add_writes(tx, [row for row in rows if row.position < 0], replace=True)
        checkpoints.add_writes(tx, [row for row in rows if row.position >= 0], replace=False)
        return ids

    written_down = desk.store.database.submit(unit, name="checkpoint.writes", deferred=soon)
    return lambda: seeds.grown(written_down.result(), desk.scope_cache)
