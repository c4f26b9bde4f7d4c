"""The checkpoints of one actor's scope: put, get, list, copy, prune, delete; each call answers after its commit.

A thread belongs to its scope: the same name in another scope is another thread. A checkpoint is a row with a body,
metadata and the roots of its values; the values are trees that share with the checkpoint before whatever did not
change. Every row carries a code over its place and its content, and the thread the sum of those codes.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Connection

from tallystick.errors import Conflict, CorruptTally, StorageError
from tallystick.records import Actor, Operation, Scope, VerificationProblem, canonical_json
from tallystick.storage import checkpoints, journal, trees
from tallystick.storage.checkpoints import StateRow, ThreadRow, WriteRow
from tallystick.threads.codec import Codec, Sealer
from tallystick.threads.frames import Frame, framed, unframed, values_digest
from tallystick.threads.loading import load_values
from tallystick.threads.marks import marks_of, matches, sought
from tallystick.threads.room import Base, Keeper, ThreadsRoom
from tallystick.threads.ropes import Part
from tallystick.threads.values import Leaf, Value, all_parts, new_parts, planted, segments_written, written
from tallystick.threads.verify import anchors

__all__ = ["PendingWrite", "StoredCheckpoint", "Summary", "Threads"]

T = TypeVar("T")

_PAGE = 50
_ANCHOR = 64
"""Puts after which the journal notes where a thread stands, if its writer has not changed before."""
_SWEEP_US = 60 * 1_000_000
"""Time between two looks for threads whose time is over, microseconds."""
_SWEPT = 20
"""Most threads that one look removes."""


@dataclass(frozen=True)
class PendingWrite:
    """One write of a task at a checkpoint. Special writes have a negative position."""

    task_id: str
    task_path: str
    position: int
    channel: str
    value: Value


@dataclass(frozen=True)
class Summary:
    """A checkpoint without its state."""

    thread: str
    namespace: str
    id: str
    parent_id: str | None
    metadata: Mapping[str, Any]
    channels: frozenset[str]
    """The channels that hold a value."""


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint with its body and pending writes; `values` are read when they are first asked for."""

    summary: Summary
    body: Leaf
    writes: tuple[PendingWrite, ...]
    _read: Callable[[], Mapping[str, Value]]

    @property
    def values(self) -> Mapping[str, Value]:
        """Channel to value. Raises CorruptTally, also when the checkpoint was removed since it was listed."""
        return self._read()


class _Stale(Exception):
    """What was remembered of a thread is not what stands there any more."""


class Threads:
    """The threads of one scope, as one actor. Thread-safe."""

    def __init__(
        self, room: ThreadsRoom, actor: Actor, scope: Scope, *, sealer: Sealer | None = None, trusted: bool = False
    ) -> None:
        """`trusted` is for what the tally does by itself, in whatever scope."""
        self._room = room
        self._trusted = trusted
        self._store = room.store
        self._actor = actor
        self._scope = scope
        self._sealer = sealer

    def sealed(self, sealer: Sealer | None) -> Threads:
        """The same threads for state that is encrypted."""
        return Threads(self._room, self._actor, self._scope, sealer=sealer, trusted=self._trusted)

    # Writing

    def base(self, thread: str, *, namespace: str, checkpoint_id: str | None) -> Base | None:
        """The stored values of a checkpoint, to compare new ones with and to build them on. Raises Denied."""
        if checkpoint_id is None:
            return None
        self._require("read")
        keeper = self._keeper()
        if keeper is None:
            return None
        kept = keeper.bases.get((thread, namespace))
        if kept is not None and kept.id == checkpoint_id:
            return kept
        try:
            self.get(thread, namespace=namespace, checkpoint_id=checkpoint_id)
        except CorruptTally:
            # A damaged parent is no reason to refuse its child, which is stored whole.
            return None
        found = keeper.bases.get((thread, namespace))
        return found if found is not None and found.id == checkpoint_id else None

    def put(
        self, thread: str, *, namespace: str, checkpoint_id: str, parent_id: str | None,
        metadata: Mapping[str, Any], body: Leaf, values: Mapping[str, Value], base: Base | None = None,
        lifetime: int | None = None,
    ) -> None:  # fmt: skip
        """Store a checkpoint; returns after the commit. One of the same id is replaced. Raises Denied.

        Content that `base` holds is shared with it. With `lifetime`, microseconds, the thread ends that long after
        its last put.
        """
        self._require("write")
        keeper = self._keeper_made()
        noted = json.dumps(metadata, ensure_ascii=True, separators=(",", ":")).encode()
        draft = _Draft(
            namespace, checkpoint_id, parent_id, marks_of(metadata, keeper.codec), noted, keeper.codec.pack(noted),
            body, keeper.codec.pack(body.body) if keeper.codec.sealed else body.body, lifetime,
        )  # fmt: skip
        try:
            self._put(keeper, thread, draft, values, base)
        except _Stale:
            self._put(keeper, thread, draft, values, None)
        self._sweep(keeper)

    def _put(self, keeper: Keeper, thread: str, draft: _Draft, values: Mapping[str, Value], base: Base | None) -> None:
        codec = keeper.codec
        before = base.values if base is not None else {}
        plant = {channel: planted(value, before.get(channel), codec) for channel, value in values.items()}
        seeds = _Seeds(plant.values(), codec)
        digest = values_digest(plant, codec)
        code = codec.code(
            *_place(self._scope, thread, draft.namespace, draft.id, draft.parent_id), draft.noted,
            draft.body.type.encode(), draft.body.body, digest,
        )  # fmt: skip

        def unit(tx: Connection) -> tuple[ThreadRow, dict[bytes, int]]:
            at = self._store.clock.now()
            row = self._thread_made(tx, keeper, thread, at)
            if base is not None and (base.thread, base.epoch) != (row.id, row.epoch):
                raise _Stale
            ids = seeds.sow(tx, keeper.scope.id, row.id)
            roots = {channel: written(value, seeds.number(ids)) for channel, value in plant.items()}
            replaced = checkpoints.add_state(
                tx,
                StateRow(
                    row.id, draft.id, draft.namespace, draft.parent_id, row.puts, draft.marks, draft.metadata,
                    framed(digest, roots, draft.body.type, draft.stored_body, codec), code,
                ),
            )  # fmt: skip
            moved = replace(
                row,
                puts=row.puts + 1,
                states=row.states + (replaced is None),
                seal=_sealed(row.seal, add=[code], take=[] if replaced is None else [replaced]),
                writer=self._writer(),
                lifetime=draft.lifetime if draft.lifetime is not None else row.lifetime,
            )
            moved = replace(moved, expires_at=None if moved.lifetime is None else at + moved.lifetime)
            checkpoints.move(tx, moved)
            if replaced is not None or moved.writer != row.writer or moved.puts % _ANCHOR == 0:
                self._anchor(tx, "checkpoint.put", moved, at)
            return moved, ids

        row, ids = self._store.database.write(unit, name="checkpoint.put")
        seeds.grown(ids, keeper)
        keeper.bases.put((thread, draft.namespace), Base(draft.id, row.id, row.epoch, digest, plant))

    def put_writes(
        self,
        thread: str,
        *,
        namespace: str,
        checkpoint_id: str,
        writes: Sequence[PendingWrite],
    ) -> None:
        """Store pending writes, also before their checkpoint; returns after the commit. Raises Denied.

        Of several at one place the last special one counts, and the first ordinary one.
        """
        self._require("write")
        if not writes:
            return
        keeper = self._keeper_made()
        codec = keeper.codec
        plants = [planted(write.value, None, codec) for write in writes]
        seeds = _Seeds(plants, codec)
        bare = [
            WriteRow(0, checkpoint_id, namespace, one.task_id, one.position, one.task_path, one.channel, b"", b"")
            for one in writes
        ]
        digests = [values_digest({"": plant}, codec) for plant in plants]
        coded = [_coded(one, self._scope, thread, digest, codec) for one, digest in zip(bare, digests, strict=True)]

        def unit(tx: Connection) -> dict[bytes, int]:
            row = self._thread_made(tx, keeper, thread, self._store.clock.now())
            ids = seeds.sow(tx, keeper.scope.id, row.id)
            rows = [
                dataclasses.replace(
                    one, thread_id=row.id,
                    value=framed(digest, {"": written(plant, seeds.number(ids))}, "", b"", codec),
                )
                for one, plant, digest in zip(coded, plants, digests, strict=True)
            ]  # fmt: skip
            checkpoints.add_writes(tx, [row for row in rows if row.position < 0], replace=True)
            checkpoints.add_writes(tx, [row for row in rows if row.position >= 0], replace=False)
            return ids

        seeds.grown(self._store.database.write(unit, name="checkpoint.writes"), keeper)

    # Reading

    def get(self, thread: str, *, namespace: str, checkpoint_id: str | None = None) -> StoredCheckpoint | None:
        """One checkpoint, or that with the greatest id; None when there is none. Raises Denied, CorruptTally."""
        self._require("read")
        keeper = self._keeper()
        if keeper is None:
            return None
        with self._store.database.read() as connection:
            there = checkpoints.find(connection, keeper.scope.id, thread, namespace, checkpoint_id)
            if there is None or self._over(there[0]):
                return None
            row, state = there
            summary, frame = self._checked(thread, state, keeper.codec)
            waiting = self._writes(connection, row.id, thread, state, keeper.codec)
            # Values with this digest may be at hand: they are what was put last, or read last.
            kept = keeper.bases.get((thread, namespace))
            values: Mapping[str, Value] | None = None
            if kept is not None and (kept.thread, kept.epoch, kept.digest) == (row.id, row.epoch, frame.digest):
                values = kept.values
            shapes = [one.roots for _, one in waiting]
            if values is None:
                values, *more = load_values(connection, keeper, [frame.roots, *shapes])
                _hold_against(frame.digest, values, keeper.codec)
            else:
                more = load_values(connection, keeper, shapes)
        found = values
        if kept is None or kept.values is not found or kept.id != state.id:
            keeper.bases.put((thread, namespace), Base(state.id, row.id, row.epoch, frame.digest, found))
        return StoredCheckpoint(summary, frame.body, _joined(waiting, more, keeper.codec), lambda: found)

    def checkpoints(
        self, thread: str | None, *, namespace: str | None = None, checkpoint_id: str | None = None,
        before: str | None = None, limit: int | None = None, filter: Mapping[str, Any] | None = None,
    ) -> Iterator[StoredCheckpoint]:  # fmt: skip
        """Checkpoints, greatest id first, of one thread or of all of the scope; state is read when asked for.

        `filter` compares metadata as JSON. Pages are read as they are needed. Raises Denied.
        """
        for keeper, state, summary, frame in self._listed(
            thread, namespace, checkpoint_id, before, limit, filter or {}
        ):
            with self._store.database.read() as connection:
                waiting = self._writes(connection, state.thread_id, summary.thread, state, keeper.codec)
                more = load_values(connection, keeper, [one.roots for _, one in waiting])
            yield StoredCheckpoint(
                summary, frame.body, _joined(waiting, more, keeper.codec), self._later(keeper, frame)
            )

    def history(
        self, thread: str | None, *, namespace: str | None = None, before: str | None = None,
        limit: int | None = None, filter: Mapping[str, Any] | None = None,
    ) -> Iterator[Summary]:  # fmt: skip
        """Same as `checkpoints`, without state and writes, of which nothing is read."""
        for _, _, summary, _ in self._listed(thread, namespace, None, before, limit, filter or {}):
            yield summary

    def trails(
        self, thread: str, *, namespace: str, checkpoint_id: str | None, channels: Sequence[str]
    ) -> dict[str, tuple[list[PendingWrite], Value | None]]:
        """For each channel the writes of a checkpoint's ancestors, oldest first, and the value they start from.

        The walk ends per channel at the nearest ancestor that holds a value of it. Raises Denied, CorruptTally.
        """
        self._require("read")
        found: dict[str, tuple[list[PendingWrite], Value | None]] = {channel: ([], None) for channel in channels}
        keeper = self._keeper()
        if keeper is None:
            return found
        left = set(channels)
        with self._store.database.read() as connection:
            row = self._thread(connection, keeper, thread)
            state = None if row is None else checkpoints.get(connection, row.id, namespace, checkpoint_id)
            if row is None or state is None:
                return found
            ahead: dict[str, tuple[StateRow, list[WriteRow]]] = {}
            seen: set[str] = set()
            while left and state.parent_id is not None and state.parent_id not in seen:
                seen.add(state.parent_id)
                if state.parent_id not in ahead:
                    ahead = self._ahead(connection, row.id, namespace, state.parent_id, left)
                if state.parent_id not in ahead:
                    break
                state, rows = ahead[state.parent_id]
                _, frame = self._checked(thread, state, keeper.codec)
                waiting = self._in_order([one for one in rows if one.channel in left], thread, keeper.codec)
                here = sorted(left & frame.roots.keys())
                seeds, *values = load_values(
                    connection, keeper,
                    [{channel: frame.roots[channel] for channel in here}, *(one.roots for _, one in waiting)],
                )  # fmt: skip
                for write in reversed(_joined(waiting, values, keeper.codec)):
                    found[write.channel][0].append(write)
                for channel in here:
                    found[channel] = (found[channel][0], seeds[channel])
                    left.discard(channel)
        return {channel: (writes[::-1], seed) for channel, (writes, seed) in found.items()}

    # Removing, copying

    def delete(self, thread: str) -> None:
        """Remove a thread and what only it needed. An unknown one is no error. Raises Denied."""
        self._require("delete")
        keeper = self._keeper()
        if keeper is not None:
            self._store.database.write(lambda tx: self._delete(tx, keeper, thread), name="thread.delete")

    def copy(self, source: str, target: str) -> int:
        """Copy all checkpoints and writes of a thread to another, sharing their content; how many checkpoints.

        Those of the same id in the target are replaced; an unknown source copies nothing. Raises Denied.
        """
        self._require("write")
        keeper = self._keeper()
        if keeper is None or source == target:
            return 0
        codec = keeper.codec

        def unit(tx: Connection) -> int:
            at = self._store.clock.now()
            origin = self._thread(tx, keeper, source)
            if origin is None:
                return 0
            row = self._thread_made(tx, keeper, target, at)
            trees.hold_all_of(tx, origin.id, row.id)
            added: list[bytes] = []
            replaced: list[bytes] = []
            states = checkpoints.states_of(tx, origin.id)
            for number, state in enumerate(states, start=row.puts):
                frame = unframed(state.state, codec)
                code = codec.code(
                    *_place(self._scope, target, state.namespace, state.id, state.parent_id),
                    codec.unpack(state.metadata), frame.body.type.encode(), frame.body.body, frame.digest,
                )  # fmt: skip
                old = checkpoints.add_state(tx, replace(state, thread_id=row.id, position=number, code=code))
                added.append(code)
                replaced += [] if old is None else [old]
            waiting = [
                _coded(replace(one, thread_id=row.id), self._scope, target, unframed(one.value, codec).digest, codec)
                for one in checkpoints.writes_of(tx, origin.id)
            ]
            checkpoints.add_writes(tx, waiting, replace=True)
            moved = replace(
                row, puts=row.puts + len(added), states=row.states + len(added) - len(replaced),
                seal=_sealed(row.seal, add=added, take=replaced), writer=self._writer(),
                lifetime=row.lifetime or origin.lifetime,
            )  # fmt: skip
            moved = replace(moved, expires_at=None if moved.lifetime is None else at + moved.lifetime)
            checkpoints.move(tx, moved)
            self._anchor(tx, "thread.copy", moved, at)
            return len(added)

        return self._store.database.write(unit, name="thread.copy")

    def prune(self, thread: str, *, needs: Callable[[Summary], Collection[str]] = lambda _: ()) -> int:
        """Keep the newest checkpoint of each namespace; how many others were removed. Raises Denied.

        `needs` names the channels of a checkpoint whose value is rebuilt from the writes of those before it: of
        these as many stay as that takes, back to one that holds a value.
        """
        self._require("delete")
        keeper = self._keeper()
        if keeper is None:
            return 0

        def unit(tx: Connection) -> int:
            row = self._thread(tx, keeper, thread)
            if row is None:
                return 0
            keep = {(namespace, id) for namespace, id in checkpoints.last_of_namespaces(tx, row.id).items()}
            return self._keep_only(tx, keeper, row, lambda summary: (summary.namespace, summary.id) in keep, needs,
                                   "thread.prune")  # fmt: skip

        return self._store.database.write(unit, name="thread.prune")

    def delete_where(
        self, filter: Mapping[str, Any], *, needs: Callable[[Summary], Collection[str]] = lambda _: ()
    ) -> int:
        """Remove the checkpoints of the scope whose metadata match, with their writes; how many.

        Raises Denied, and Conflict when a checkpoint that stays needs the writes of one that would go; then
        nothing was removed.
        """
        self._require("delete")
        keeper = self._keeper()
        if keeper is None:
            return 0

        def unit(tx: Connection) -> int:
            count = 0
            for name in checkpoints.thread_names(tx, keeper.scope.id):
                row = checkpoints.find_thread(tx, keeper.scope.id, name)
                if row is None or not self._page(tx, keeper, row, None, None, None, None, filter, 1):
                    continue
                count += self._keep_only(tx, keeper, row, lambda one: not matches(one.metadata, filter), needs,
                                         "checkpoint.delete")  # fmt: skip
            return count

        return self._store.database.write(unit, name="checkpoint.delete")

    def expire(self, *, limit: int = _SWEPT) -> int:
        """Remove threads whose time is over, at most `limit`; how many."""
        self._require("write")
        keeper = self._keeper()
        if keeper is None:
            return 0

        def unit(tx: Connection) -> int:
            names = checkpoints.expired(tx, keeper.scope.id, self._store.clock.now(), limit)
            for name in names:
                self._delete(tx, keeper, name, "thread.expire")
            return len(names)

        return self._store.database.write(unit, name="thread.expire")

    def places_of_task(self, thread: str, task_id: str) -> list[tuple[str, str]]:
        """At which checkpoints a task of a graph wrote, as (namespace, id). Raises Denied."""
        self._require("read")
        keeper = self._keeper()
        if keeper is None:
            return []
        with self._store.database.read() as connection:
            row = self._thread(connection, keeper, thread)
            return [] if row is None else checkpoints.places_of_task(connection, row.id, task_id)

    def tasks_at(self, thread: str, *, namespace: str, checkpoint_id: str) -> list[tuple[str, str]]:
        """What was written at a checkpoint, as (task id, channel), in order; values are not read. Raises Denied."""
        self._require("read")
        keeper = self._keeper()
        if keeper is None:
            return []
        with self._store.database.read() as connection:
            row = self._thread(connection, keeper, thread)
            rows = [] if row is None else checkpoints.writes_of(connection, row.id, namespace, checkpoint_id)
        rows.sort(key=lambda one: (one.task_path, one.task_id, one.position))
        return [(one.task_id, one.channel) for one in rows]

    def names(self) -> list[str]:
        """The threads of the scope, oldest first. Raises Denied."""
        self._require("read")
        keeper = self._keeper()
        if keeper is None:
            return []
        with self._store.database.read() as connection:
            return checkpoints.thread_names(connection, keeper.scope.id)

    def verify(self, thread: str | None = None) -> list[VerificationProblem]:
        """Everything in a thread, or in all of the scope, that is not as it was put; empty when all is. Raises Denied.

        Every row is held against its code, every piece of state against its digest, and each thread against what the
        journal says of it. Nothing that is kept in memory is trusted.
        """
        self._require("read")
        keeper = self._keeper()
        if keeper is None:
            return []
        fresh = Keeper(keeper.scope, keeper.codec)
        found: list[VerificationProblem] = []
        for name in self.names() if thread is None else [thread]:
            with self._store.database.read() as connection:
                row = checkpoints.find_thread(connection, keeper.scope.id, name)
                if row is None:
                    continue
                states = checkpoints.states_of(connection, row.id)
                found += anchors(connection, self._scope, row, states)
                for state in states:
                    found += self._problems(connection, fresh, row, state)
        return found

    # What the above are made of

    def _problems(
        self, connection: Connection, keeper: Keeper, row: ThreadRow, state: StateRow
    ) -> list[VerificationProblem]:
        try:
            summary, frame = self._checked(row.name, state, keeper.codec)
            if marks_of(summary.metadata, keeper.codec) != state.marks:
                raise CorruptTally("Its marks, by which filters find it, are not those of its metadata.")
            [values] = load_values(connection, keeper, [frame.roots])
            _hold_against(frame.digest, values, keeper.codec)
            waiting = self._writes(connection, row.id, row.name, state, keeper.codec)
            _joined(waiting, load_values(connection, keeper, [one.roots for _, one in waiting]), keeper.codec)
        except (CorruptTally, StorageError) as error:
            return [VerificationProblem(where=f"thread {row.name} checkpoint {state.id}", problem=str(error))]
        return []

    def _keep_only(
        self, tx: Connection, keeper: Keeper, row: ThreadRow, wanted: Callable[[Summary], bool],
        needs: Callable[[Summary], Collection[str]], event: str,
    ) -> int:  # fmt: skip
        codec = keeper.codec
        states = {(state.namespace, state.id): state for state in checkpoints.states_of(tx, row.id)}
        frames = {place: unframed(state.state, codec) for place, state in states.items()}
        summaries = {
            place: _summary(row.name, state, frames[place], codec.unpack(state.metadata))
            for place, state in states.items()
        }
        keep = {place for place, summary in summaries.items() if wanted(summary)}
        depended = _depended(summaries, keep, needs)
        if event == "checkpoint.delete" and depended - keep:
            raise Conflict(
                f"{len(depended - keep)} checkpoints of this run hold writes from which a later checkpoint of thread "
                f"{row.name!r} rebuilds its state. Delete the thread, or prune it once a snapshot was written. "
                "Nothing was removed."
            )
        keep |= depended
        gone = [place for place in states if place not in keep]
        if not gone:
            return 0
        checkpoints.remove_states(tx, row.id, gone)
        checkpoints.remove_writes(tx, row.id, gone)
        shapes: list[Mapping[str, Any]] = [frames[place].roots for place in keep]
        shapes += [unframed(one.value, codec).roots for one in checkpoints.writes_of(tx, row.id)]
        alive = set().union(*(_ids(value) for values in load_values(tx, keeper, shapes) for value in values.values()))
        trees.release(tx, row.id, alive)
        moved = replace(
            row, epoch=row.epoch + 1, states=row.states - len(gone),
            seal=_sealed(row.seal, add=[], take=[states[place].code for place in gone]),
        )  # fmt: skip
        checkpoints.move(tx, moved)
        self._anchor(tx, event, moved, self._store.clock.now(), removed=len(gone))
        return len(gone)

    def _delete(self, tx: Connection, keeper: Keeper, thread: str, event: str = "thread.delete") -> None:
        row = checkpoints.find_thread(tx, keeper.scope.id, thread)
        if row is None:
            return
        count = checkpoints.delete_thread(tx, row.id)
        self._journal(tx, thread, event, self._store.clock.now(), {"checkpoints": count})

    def _listed(
        self, thread: str | None, namespace: str | None, checkpoint_id: str | None, before: str | None,
        limit: int | None, filter: Mapping[str, Any],
    ) -> Iterator[tuple[Keeper, StateRow, Summary, Frame]]:  # fmt: skip
        self._require("read")
        keeper = self._keeper()
        if keeper is None or (limit is not None and limit <= 0):
            return
        left = limit
        if thread is not None:
            names = [thread]
        else:
            with self._store.database.read() as connection:
                names = checkpoints.thread_names(connection, keeper.scope.id)
        for name in names:
            after: tuple[str, str] | None = None
            while True:
                size = _PAGE if left is None else min(_PAGE, left)
                with self._store.database.read() as connection:
                    row = self._thread(connection, keeper, name)
                    page = [] if row is None else self._page(
                        connection, keeper, row, namespace, checkpoint_id, before, after, filter, size
                    )  # fmt: skip
                for state in page:
                    summary, frame = self._checked(name, state, keeper.codec)
                    if not matches(summary.metadata, filter):
                        continue
                    yield keeper, state, summary, frame
                    if left is not None:
                        left -= 1
                        if left <= 0:
                            return
                if len(page) < size:
                    break
                after = (page[-1].id, page[-1].namespace)

    def _page(
        self, connection: Connection, keeper: Keeper, row: ThreadRow, namespace: str | None, id: str | None,
        before: str | None, after: tuple[str, str] | None, filter: Mapping[str, Any], size: int,
    ) -> list[StateRow]:  # fmt: skip
        return checkpoints.page(
            connection, row.id, namespace=namespace, id=id, before=before, after=after,
            marks=sought(filter, keeper.codec), size=size,
        )  # fmt: skip

    def _later(self, keeper: Keeper, frame: Frame) -> Callable[[], Mapping[str, Value]]:
        def read() -> Mapping[str, Value]:
            with self._store.database.read() as connection:
                [values] = load_values(connection, keeper, [frame.roots])
            _hold_against(frame.digest, values, keeper.codec)
            return values

        return read

    def _checked(self, thread: str, state: StateRow, codec: Codec) -> tuple[Summary, Frame]:
        """What a row says, held against its code. Raises CorruptTally."""
        frame = unframed(state.state, codec)
        noted = codec.unpack(state.metadata)
        code = codec.code(
            *_place(self._scope, thread, state.namespace, state.id, state.parent_id), noted,
            frame.body.type.encode(), frame.body.body, frame.digest,
        )  # fmt: skip
        if code != state.code:
            raise CorruptTally(
                f"Checkpoint {state.id} of thread {thread!r} does not match its code: it was changed, or put in the "
                "place of another."
            )
        return _summary(thread, state, frame, noted), frame

    def _ahead(
        self, connection: Connection, thread_id: int, namespace: str, id: str, channels: Collection[str]
    ) -> dict[str, tuple[StateRow, list[WriteRow]]]:
        """A checkpoint and those before it by id, a page of them, with their writes of these channels."""
        states = checkpoints.up_to(connection, thread_id, namespace, id, _PAGE)
        found: dict[str, tuple[StateRow, list[WriteRow]]] = {state.id: (state, []) for state in states}
        if states:
            for write in checkpoints.writes_between(connection, thread_id, namespace, states[-1].id, id):
                if write.channel in channels and write.checkpoint_id in found:
                    found[write.checkpoint_id][1].append(write)
        return found

    def _writes(
        self, connection: Connection, thread_id: int, thread: str, state: StateRow, codec: Codec
    ) -> list[tuple[WriteRow, Frame]]:
        return self._in_order(checkpoints.writes_of(connection, thread_id, state.namespace, state.id), thread, codec)

    def _in_order(self, rows: list[WriteRow], thread: str, codec: Codec) -> list[tuple[WriteRow, Frame]]:
        """Pending writes as a step applies them, each held against its code. Raises CorruptTally."""
        found = []
        for row in sorted(rows, key=lambda one: (one.task_path, one.task_id, one.position)):
            frame = unframed(row.value, codec)
            if _code_of(row, self._scope, thread, frame.digest, codec) != row.code:
                raise CorruptTally(
                    f"A pending write at checkpoint {row.checkpoint_id} of thread {thread!r} does not match its code."
                )
            found.append((row, frame))
        return found

    def _thread(self, connection: Connection, keeper: Keeper, thread: str) -> ThreadRow | None:
        row = checkpoints.find_thread(connection, keeper.scope.id, thread)
        return None if row is None or self._over(row) else row

    def _over(self, row: ThreadRow) -> bool:
        return row.expires_at is not None and row.expires_at <= self._store.clock.now()

    def _thread_made(self, tx: Connection, keeper: Keeper, thread: str, at: int) -> ThreadRow:
        row = self._thread(tx, keeper, thread)
        if row is not None:
            return row
        self._delete(tx, keeper, thread, "thread.expire")
        return checkpoints.add_thread(tx, keeper.scope.id, thread, at=at)

    def _keeper(self) -> Keeper | None:
        return self._room.keeper(self._scope, self._sealer, create=False)

    def _keeper_made(self) -> Keeper:
        keeper = self._room.keeper(self._scope, self._sealer, create=True)
        assert keeper is not None
        return keeper

    def _sweep(self, keeper: Keeper) -> None:
        if keeper.due(self._store.clock.now(), _SWEEP_US):
            self.expire()

    def _require(self, operation: Operation) -> None:
        if not self._trusted:
            self._room.gate.require(self._actor, operation, self._scope)

    def _writer(self) -> str:
        return canonical_json({"actor": self._actor.identity(), "surface": self._actor.surface}).decode()

    def _anchor(self, tx: Connection, event: str, row: ThreadRow, at: int, *, removed: int = 0) -> None:
        """Note in the journal where a thread stands: what `verify` holds its rows against."""
        details = {"puts": row.puts, "checkpoints": row.states, "seal": row.seal}
        self._journal(tx, row.name, event, at, {**details, **({"removed": removed} if removed else {})})

    def _journal(self, tx: Connection, thread: str, event: str, at: int, details: Mapping[str, Any]) -> None:
        journal.append(
            tx,
            journal.Event(
                stream=f"thread:{self._scope}/{thread}", event=event, actor=self._actor, at=at,
                audit_id=self._store.ids.new(), subject_id=thread, details=details,
            ),
        )  # fmt: skip


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


class _Seeds:
    """The parts of some values that may not be stored yet: made ready before the transaction, stored within it."""

    def __init__(self, values: Iterable[Value], codec: Codec) -> None:
        self._codec = codec
        self._parts = {part.digest: part for value in values for part in new_parts(value)}
        self._bodies = {part.digest: codec.pack(part.stored()) for part in self._parts.values() if part.level < 2}

    def sow(self, tx: Connection, scope_id: int, thread: int) -> dict[bytes, int]:
        """Store what is not there; the id of each by its digest."""
        ids: dict[bytes, int] = {}
        for part in self._parts.values():
            ids[part.digest] = trees.add(tx, scope_id, part.digest, self._body(part, ids))
        trees.hold(tx, thread, list(ids.values()))
        return ids

    def number(self, ids: Mapping[bytes, int]) -> Callable[[Part], int]:
        """The id of any part, new or old."""
        return lambda part: ids[part.digest] if part.id is None else part.id

    def grown(self, ids: Mapping[bytes, int], keeper: Keeper) -> None:
        """Note the ids, now that they are committed."""
        for digest, part in self._parts.items():
            part.id = ids[digest]
            keeper.parts.put((part.level, part.id), part)

    def _body(self, part: Part, ids: Mapping[bytes, int]) -> bytes:
        if part.level < 2:
            return self._bodies[part.digest]
        groups = segments_written(part.children, self.number(ids))
        return self._codec.pack(json.dumps(groups, separators=(",", ":")).encode(), seal=False)


def _place(scope: Scope, thread: str, namespace: str, id: str, parent_id: str | None) -> tuple[bytes, ...]:
    names = (str(scope), thread, namespace, id, "" if parent_id is None else f"={parent_id}")
    return tuple(name.encode("utf-8", "surrogatepass") for name in names)


def _coded(row: WriteRow, scope: Scope, thread: str, digest: bytes, codec: Codec) -> WriteRow:
    return replace(row, code=_code_of(row, scope, thread, digest, codec))


def _code_of(row: WriteRow, scope: Scope, thread: str, digest: bytes, codec: Codec) -> bytes:
    names = (str(scope), thread, row.namespace, row.checkpoint_id, row.task_id, str(row.position), row.task_path,
             row.channel)  # fmt: skip
    return codec.code(b"write", *(name.encode("utf-8", "surrogatepass") for name in names), digest)[:16]


def _summary(thread: str, state: StateRow, frame: Frame, noted: bytes) -> Summary:
    try:
        metadata = json.loads(noted)
    except (ValueError, RecursionError) as error:
        raise CorruptTally(f"The metadata of checkpoint {state.id} are not readable.") from error
    return Summary(thread, state.namespace, state.id, state.parent_id, metadata, frozenset(frame.roots))


def _joined(
    waiting: Sequence[tuple[WriteRow, Frame]], values: Sequence[Mapping[str, Value]], codec: Codec
) -> tuple[PendingWrite, ...]:
    for (_, frame), value in zip(waiting, values, strict=True):
        _hold_against(frame.digest, value, codec)
    return tuple(
        PendingWrite(row.task_id, row.task_path, row.position, row.channel, value[""])
        for (row, _), value in zip(waiting, values, strict=True)
    )


def _hold_against(digest: bytes, values: Mapping[str, Value], codec: Codec) -> None:
    if values_digest(values, codec) != digest:
        raise CorruptTally("The state of a checkpoint does not match its digest. Run `tally verify` to see where.")


def _depended(
    summaries: Mapping[tuple[str, str], Summary], keep: Collection[tuple[str, str]],
    needs: Callable[[Summary], Collection[str]],
) -> set[tuple[str, str]]:  # fmt: skip
    """The checkpoints from whose writes those that stay rebuild what they do not hold."""
    found: set[tuple[str, str]] = set()
    for place in keep:
        summary = summaries[place]
        missing = set(needs(summary)) - summary.channels
        seen = {place}
        while missing and summary.parent_id is not None:
            above = (summary.namespace, summary.parent_id)
            if above in seen or above not in summaries:
                break
            seen.add(above)
            found.add(above)
            summary = summaries[above]
            missing -= summary.channels
    return found


def _ids(value: Value) -> set[int]:
    """The ids of all parts of a stored value, those below nodes too."""
    return {part.id for part in all_parts(value) if part.id is not None}


def _sealed(seal: str, *, add: Iterable[bytes], take: Iterable[bytes]) -> str:
    total = int(seal or "0", 16) + sum(int.from_bytes(code, "big") for code in add)
    return f"{(total - sum(int.from_bytes(code, 'big') for code in take)) % (1 << 256):064x}"
