"""Removing threads and checkpoints, and with them the chunks that nothing else needs; finding the
threads that an erasure must remove.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tallystick.checkpoints.codec import Codec, thread_checksum
from tallystick.checkpoints.context import Summary, ThreadScope
from tallystick.checkpoints.formats import decode_frame, inline_bytes
from tallystick.checkpoints.listing import filter_fingerprints, matches
from tallystick.checkpoints.reading import load_values, summary_of
from tallystick.checkpoints.values import Value, all_chunks
from tallystick.errors import Conflict, StorageError
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import checkpoints, trees
from tallystick.storage.rows.checkpoints import ThreadRow
from tallystick.storage.text import byte_search
from tallystick.storage.text.byte_search import ThreadName

Needs = Callable[[Summary], Collection[str]]
"""The channels of a checkpoint whose value is rebuilt from the writes of those before it."""

_Place = tuple[str, str]
"""(namespace, id) of a checkpoint in its thread."""

_SWEEP_LIMIT = 20
"""Most threads that one call of `expire` removes."""


def delete(scope: ThreadScope, thread: str) -> None:
    """Remove a thread and what only it needed."""
    scope.store.database.write(
        lambda tx: scope.remove_thread(tx, thread, "thread.delete"),
        name="thread.delete",
        writes=Writes.of(scope.name),
    )


def prune(scope: ThreadScope, thread: str, needs: Needs) -> int:
    """Keep the newest checkpoint of each namespace and those it is rebuilt from; return how many
    others were removed.
    """

    def write(tx: Connection) -> int:
        row = scope.find_thread(tx, thread)
        if row is None:
            return 0
        newest = checkpoints.last_of_namespaces(tx, row.id)
        return _keep_only(
            scope,
            tx,
            row,
            lambda summary: newest[summary.namespace] == summary.id,
            needs,
            "thread.prune",
        )

    return scope.store.database.write(write, name="thread.prune", writes=Writes.of(scope.name))


def delete_where(scope: ThreadScope, filter: Mapping[str, Any], needs: Needs) -> int:
    """Remove the checkpoints of the scope whose metadata match, with their writes; return how many.
    Raises Conflict.
    """

    def write(tx: Connection) -> int:
        fingerprints = filter_fingerprints(filter, scope.codec)
        count = 0
        for name in checkpoints.thread_names(tx, scope.id):
            row = checkpoints.find_thread(tx, scope.id, name)
            if row is None or not checkpoints.page(
                tx,
                row.id,
                namespace=None,
                id=None,
                before=None,
                after=None,
                fingerprints=fingerprints,
                size=1,
            ):
                continue
            count += _keep_only(
                scope,
                tx,
                row,
                lambda summary: not matches(summary.metadata, filter),
                needs,
                "checkpoint.delete",
            )
        return count

    return scope.store.database.write(write, name="checkpoint.delete", writes=Writes.of(scope.name))


def expire(scope: ThreadScope, limit: int = _SWEEP_LIMIT) -> int:
    """Remove threads whose time is over, at most `limit`; return how many."""

    def write(tx: Connection) -> int:
        names = checkpoints.expired_threads(tx, scope.id, scope.now(), limit)
        for name in names:
            scope.remove_thread(tx, name, "thread.expire")
        return len(names)

    return scope.store.database.write(write, name="thread.expire", writes=Writes.of(scope.name))


def _keep_only(
    scope: ThreadScope,
    tx: Connection,
    row: ThreadRow,
    stays: Callable[[Summary], bool],
    needs: Needs,
    event: str,
) -> int:
    codec = scope.codec
    states = {(state.namespace, state.id): state for state in checkpoints.states_of(tx, row.id)}
    frames = {place: decode_frame(state.state, codec) for place, state in states.items()}
    summaries = {
        place: summary_of(row.name, state, frames[place], codec.unpack(state.metadata))
        for place, state in states.items()
    }
    keep = {place for place, summary in summaries.items() if stays(summary)}
    ancestors = _needed_ancestors(summaries, keep, needs)
    if event == "checkpoint.delete" and ancestors - keep:
        raise Conflict(
            f"{len(ancestors - keep)} checkpoints of this run hold writes from which a later "
            f"checkpoint of thread {row.name!r} rebuilds its state. Delete the thread, or prune "
            f"it once a snapshot was written. Nothing was removed."
        )
    keep |= ancestors
    removed = [place for place in states if place not in keep]
    if not removed:
        return 0
    checkpoints.remove_states(tx, row.id, removed)
    checkpoints.remove_writes(tx, row.id, removed)
    roots: list[Mapping[str, Any]] = [frames[place].roots for place in keep]
    roots += [decode_frame(write.value, codec).roots for write in checkpoints.writes_of(tx, row.id)]
    needed_ids = set().union(
        *(
            _chunk_ids(value)
            for values in load_values(tx, scope.cache, roots)
            for value in values.values()
        )
    )
    trees.release(tx, row.id, needed_ids)
    # The thread let go of chunks: with a new epoch, no cached base may be built on (context.py).
    updated = replace(
        row,
        epoch=row.epoch + 1,
        states=row.states - len(removed),
        checksum=thread_checksum(
            row.checksum, add=[], subtract=[states[place].code for place in removed]
        ),
    )
    checkpoints.update_thread(tx, updated)
    scope.write_anchor(tx, event, updated, scope.now(), removed=len(removed))
    return len(removed)


def _needed_ancestors(
    summaries: Mapping[_Place, Summary], keep: Collection[_Place], needs: Needs
) -> set[_Place]:
    """Return the checkpoints from whose writes those that stay rebuild their missing channels."""
    ancestors: set[_Place] = set()
    for place in keep:
        summary = summaries[place]
        missing = set(needs(summary)) - summary.channels
        visited = {place}
        while missing and summary.parent_id is not None:
            parent = (summary.namespace, summary.parent_id)
            if parent in visited or parent not in summaries:
                break
            visited.add(parent)
            ancestors.add(parent)
            summary = summaries[parent]
            missing -= summary.channels
    return ancestors


def _chunk_ids(value: Value) -> set[int]:
    return {chunk.id for chunk in all_chunks(value) if chunk.id is not None}


# Search for a text, for erasures


@dataclass(frozen=True)
class TextSearch:
    """The threads whose state or name contains a text, and how much could not be searched."""

    threads: tuple[ThreadName, ...]
    encrypted: int
    """Pieces that are encrypted, and were not searched."""


def threads_containing(connection: Connection, needles: Sequence[bytes]) -> TextSearch:
    """Return every thread, of any scope, with one of `needles` in its name, a checkpoint, a pending
    write or a chunk that it needs.

    Pieces are compressed; each is decompressed and searched.
    """
    codec, encrypted = Codec(b""), 0

    def contains(stored: bytes, *, is_frame: bool = False) -> bool:
        nonlocal encrypted
        try:
            pieces = [codec.unpack(stored, encrypted=False)]
            if is_frame:
                pieces += inline_bytes(decode_frame(stored, codec).roots, codec)
        except StorageError:
            encrypted += 1
            return False
        return any(needle in piece for piece in pieces for needle in needles)

    thread_ids = byte_search.find_thread_ids(connection, needles)
    for state in byte_search.states(connection):
        if contains(state.metadata) or contains(state.state, is_frame=True):
            thread_ids.add(state.thread_id)
    thread_ids.update(
        thread_id for thread_id, value in byte_search.write_values(connection) if contains(value)
    )
    chunk_ids = [id for id, body in byte_search.chunk_bodies(connection) if contains(body)]
    thread_ids |= byte_search.holders(connection, chunk_ids)
    return TextSearch(tuple(byte_search.names_of(connection, thread_ids)), encrypted)
