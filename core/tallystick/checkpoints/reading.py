"""Reading checkpoints: rows are compared with their MACs and values with their digests before
anything in them is believed.

Chunks are loaded with one query per level of the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tallystick.checkpoints.codec import Codec, checkpoint_mac, write_mac
from tallystick.checkpoints.context import (
    Base,
    PendingWrite,
    ScopeCache,
    StoredCheckpoint,
    Summary,
    ThreadScope,
)
from tallystick.checkpoints.formats import (
    ChunkKey,
    Frame,
    child_keys,
    chunk_keys,
    decode_frame,
    decode_spans,
    decode_value,
)
from tallystick.checkpoints.values import Chunk, Span, Value, decode_chunk, values_digest
from tallystick.errors import CorruptTally
from tallystick.storage import Connection
from tallystick.storage.rows import checkpoints, trees
from tallystick.storage.rows.checkpoints import StateRow, WriteRow

_PAGE = 50
"""Checkpoints of a trail that one query reads."""


class CheckedWrite(NamedTuple):
    """A pending write whose row matches its MAC; its value is not loaded yet."""

    row: WriteRow
    frame: Frame


class Trail(NamedTuple):
    """The writes of a channel at the ancestors of a checkpoint, oldest first, and the value that
    they start from.
    """

    writes: list[PendingWrite]
    seed: Value | None


# One checkpoint


def get(
    scope: ThreadScope, thread: str, *, namespace: str, checkpoint_id: str | None
) -> StoredCheckpoint | None:
    """Return one checkpoint, or that with the greatest id; None when there is none. Raises
    CorruptTally.
    """
    cache = scope.cache
    with scope.store.database.read() as connection:
        stored = checkpoints.find_checkpoint(connection, scope.id, thread, namespace, checkpoint_id)
        if stored is None or scope.has_ended(stored.thread):
            return None
        row, state = stored
        summary, frame = check_checkpoint(scope, thread, state)
        writes = writes_at(scope, connection, thread, state)
        # The cached values of the thread are these ones if thread, epoch and digest are equal: the
        # digest covers all values, and row and state come from this one snapshot. The epoch is
        # compared because they become the base of the next put, which may use the ids of their
        # chunks (context.py). Two snapshots, one for the row and one for the state, would let a
        # removal between them pass off its epoch as that of the values.
        base = cache.bases.get((thread, namespace))
        values: Mapping[str, Value] | None = None
        if base is not None and (base.thread, base.epoch, base.digest) == (
            row.id,
            row.epoch,
            frame.digest,
        ):
            values = base.values
        roots = [write.frame.roots for write in writes]
        if values is None:
            values, *of_writes = load_values(connection, cache, [frame.roots, *roots])
            check_digest(frame.digest, values, cache.codec)
        else:
            of_writes = load_values(connection, cache, roots)
    loaded = values
    if base is None or base.values is not loaded or base.id != state.id:
        cache.bases.put(
            (thread, namespace), Base(state.id, row.id, row.epoch, frame.digest, loaded)
        )
    return StoredCheckpoint(
        summary, frame.body, pending_writes(writes, of_writes, cache.codec), lambda: loaded
    )


def read_base(scope: ThreadScope, thread: str, *, namespace: str, id: str) -> Base | None:
    """Read the values of a checkpoint, to compare new ones with and to build them on."""
    try:
        get(scope, thread, namespace=namespace, checkpoint_id=id)
    except CorruptTally:
        # A damaged parent is no reason to refuse its child, which is stored whole.
        return None
    return scope.cache.base(thread, namespace, id)


def values_reader(scope: ThreadScope, frame: Frame) -> Callable[[], Mapping[str, Value]]:
    """Return a function that reads the values of a checkpoint."""

    def read() -> Mapping[str, Value]:
        with scope.store.database.read() as connection:
            [values] = load_values(connection, scope.cache, [frame.roots])
        check_digest(frame.digest, values, scope.codec)
        return values

    return read


# Trails


def trails(
    scope: ThreadScope,
    thread: str,
    *,
    namespace: str,
    checkpoint_id: str | None,
    channels: Sequence[str],
) -> dict[str, Trail]:
    """Return for each channel the writes of a checkpoint's ancestors and the value they start from.

    The walk ends per channel at the nearest ancestor that has a value of it.
    """
    backwards: dict[str, list[PendingWrite]] = {channel: [] for channel in channels}
    seeds: dict[str, Value] = {}
    missing = set(channels)
    with scope.store.database.read() as connection:
        row = scope.find_thread(connection, thread)
        state = (
            None if row is None else checkpoints.get(connection, row.id, namespace, checkpoint_id)
        )
        page: dict[str, tuple[StateRow, list[WriteRow]]] = {}
        visited: set[str] = set()
        while (
            row is not None
            and state is not None
            and missing
            and state.parent_id is not None
            and state.parent_id not in visited
        ):
            parent_id = state.parent_id
            visited.add(parent_id)
            if parent_id not in page:
                page = _page_up_to(connection, row.id, namespace, parent_id, missing)
            if parent_id not in page:
                break
            state, rows = page[parent_id]
            _, frame = check_checkpoint(scope, thread, state)
            writes = check_writes(
                scope, thread, [write for write in rows if write.channel in missing]
            )
            here = sorted(missing & frame.roots.keys())
            seeds_here, *of_writes = load_values(
                connection,
                scope.cache,
                [
                    {channel: frame.roots[channel] for channel in here},
                    *(write.frame.roots for write in writes),
                ],
            )
            for write in reversed(pending_writes(writes, of_writes, scope.codec)):
                backwards[write.channel].append(write)
            seeds.update(seeds_here)
            missing -= seeds_here.keys()
    return {
        channel: Trail(writes[::-1], seeds.get(channel)) for channel, writes in backwards.items()
    }


def _page_up_to(
    connection: Connection, thread_id: int, namespace: str, id: str, channels: Collection[str]
) -> dict[str, tuple[StateRow, list[WriteRow]]]:
    """Return a checkpoint and those before it by id, a page of them, with their writes of these
    channels.
    """
    states = checkpoints.states_up_to(connection, thread_id, namespace, id, _PAGE)
    page: dict[str, tuple[StateRow, list[WriteRow]]] = {state.id: (state, []) for state in states}
    if states:
        for write in checkpoints.writes_between(
            connection, thread_id, namespace, states[-1].id, id
        ):
            if write.channel in channels and write.checkpoint_id in page:
                page[write.checkpoint_id][1].append(write)
    return page


# Rows, compared with their MACs


def check_checkpoint(scope: ThreadScope, thread: str, state: StateRow) -> tuple[Summary, Frame]:
    """Return the content of a checkpoint's row, compared with its MAC. Raises CorruptTally."""
    frame = decode_frame(state.state, scope.codec)
    metadata = scope.codec.unpack(state.metadata)
    mac = checkpoint_mac(
        scope.codec,
        scope.name,
        thread,
        state.namespace,
        state.id,
        state.parent_id,
        metadata,
        frame.body.type,
        frame.body.body,
        frame.digest,
    )
    if mac != state.code:
        raise CorruptTally(
            f"Checkpoint {state.id} of thread {thread!r} does not match its code: it was "
            f"changed, or put in the place of another."
        )
    return summary_of(thread, state, frame, metadata), frame


def summary_of(thread: str, state: StateRow, frame: Frame, metadata: bytes) -> Summary:
    """Return a checkpoint without its state. Raises CorruptTally."""
    try:
        entries = json.loads(metadata)
    except (ValueError, RecursionError) as error:
        raise CorruptTally(f"The metadata of checkpoint {state.id} are not readable.") from error
    return Summary(
        thread, state.namespace, state.id, state.parent_id, entries, frozenset(frame.roots)
    )


def writes_at(
    scope: ThreadScope, connection: Connection, thread: str, state: StateRow
) -> list[CheckedWrite]:
    """Return the pending writes at a checkpoint in the order in which a step applies them. Raises
    CorruptTally.
    """
    rows = checkpoints.writes_of(connection, state.thread_id, state.namespace, state.id)
    return check_writes(scope, thread, rows)


def check_writes(scope: ThreadScope, thread: str, rows: Iterable[WriteRow]) -> list[CheckedWrite]:
    """Return pending writes in the order in which a step applies them. Raises CorruptTally for one
    that was changed, or put in the place of another.
    """
    writes = []
    for row in sorted(rows, key=lambda row: (row.task_path, row.task_id, row.position)):
        frame = decode_frame(row.value, scope.codec)
        if write_mac(scope.codec, scope.name, thread, row, frame.digest) != row.code:
            raise CorruptTally(
                f"A pending write at checkpoint {row.checkpoint_id} of thread {thread!r} does "
                f"not match its code."
            )
        writes.append(CheckedWrite(row, frame))
    return writes


def pending_writes(
    writes: Sequence[CheckedWrite], values: Sequence[Mapping[str, Value]], codec: Codec
) -> tuple[PendingWrite, ...]:
    """Return pending writes with their values, which are compared with their digests. Raises
    CorruptTally.
    """
    for write, value in zip(writes, values, strict=True):
        check_digest(write.frame.digest, value, codec)
    return tuple(
        PendingWrite(row.task_id, row.task_path, row.position, row.channel, value[""])
        for (row, _), value in zip(writes, values, strict=True)
    )


def check_digest(digest: bytes, values: Mapping[str, Value], codec: Codec) -> None:
    """Raise CorruptTally where values do not match a digest."""
    if values_digest(values, codec) != digest:
        raise CorruptTally(
            "The state of a checkpoint does not match its digest. Run `tally verify` to see where."
        )


# Values and their chunks


def load_values(
    connection: Connection, cache: ScopeCache, roots: Iterable[Mapping[str, Any]]
) -> list[dict[str, Value]]:
    """Return the values of several roots at once. Raises CorruptTally for what is missing or does
    not match its digest.
    """
    all_roots = list(roots)
    chunks = _load_chunks(
        connection,
        cache,
        {key for entries in all_roots for root in entries.values() for key in chunk_keys(root)},
    )

    def chunk(level: int, id: int) -> Chunk:
        return chunks[level, id]

    return [
        {name: decode_value(root, chunk, cache.codec) for name, root in entries.items()}
        for entries in all_roots
    ]


def _load_chunks(
    connection: Connection, cache: ScopeCache, keys: set[ChunkKey]
) -> dict[ChunkKey, Chunk]:
    """Return the chunks of these keys, with everything below them."""
    chunks: dict[ChunkKey, Chunk] = {}
    read: dict[ChunkKey, tuple[bytes, bytes, Any]] = {}
    pending = keys
    while pending:
        missing: list[ChunkKey] = []
        for key in pending:
            cached = cache.chunks.get(key)
            if cached is not None:
                chunks[key] = cached
            else:
                missing.append(key)
        rows = trees.fetch(connection, cache.scope.id, sorted({id for _, id in missing}))
        pending = set()
        for level, id in missing:
            if id not in rows:
                raise CorruptTally(
                    "A piece of a checkpoint's tree is missing. Run `tally verify` to see where."
                )
            digest, body = rows[id]
            groups = _node_groups(level, body, cache.codec) if level > 1 else None
            read[level, id] = (digest, body, groups)
            if groups is not None:
                pending.update(child_keys(groups))
        pending -= chunks.keys() | read.keys()
    # Ascending levels: the children of a node are there before the node.
    for level, id in sorted(read):
        digest, body, groups = read[level, id]
        children: tuple[Span, ...] = ()
        if groups is not None:
            children = decode_spans(groups, lambda level, id: chunks[level, id])
        loaded = decode_chunk(level, id, digest, body, cache.codec, children)
        cache.chunks.put((level, id), loaded)
        chunks[level, id] = loaded
    return chunks


def _node_groups(level: int, body: bytes, codec: Codec) -> list[Any]:
    """Return the spans below a node as JSON: whole ones of the level beneath its own, no others."""
    try:
        groups = json.loads(codec.unpack(body, encrypted=False))
        if isinstance(groups, list) and all(group[0] == level - 1 for group in groups):
            return groups
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptTally(
            "A node of a checkpoint's tree is not readable: its bytes are damaged."
        ) from error
    raise CorruptTally("A node of a checkpoint's tree is not of a known shape.")
