"""Removing threads and checkpoints, and with them the pieces that nothing else needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from tallystick.checkpoints.checked import summary_of
from tallystick.checkpoints.codes import sealed
from tallystick.checkpoints.desk import Desk
from tallystick.checkpoints.frames import unframed
from tallystick.checkpoints.loading import load_values
from tallystick.checkpoints.marks import matches, sought
from tallystick.checkpoints.stored import Summary
from tallystick.checkpoints.values import Value, all_parts
from tallystick.errors import Conflict
from tallystick.storage import checkpoints, trees
from tallystick.storage.checkpoints import ThreadRow

__all__ = ["Needs", "delete", "delete_where", "expire", "prune"]

Needs = Callable[[Summary], Collection[str]]
"""The channels of a checkpoint whose value is rebuilt from the writes of those before it."""


def delete(desk: Desk, thread: str) -> None:
    """Remove a thread and what only it needed."""
    desk.store.database.write(
        lambda tx: desk.remove_thread(tx, thread, "thread.delete"), name="thread.delete"
    )


def prune(desk: Desk, thread: str, needs: Needs) -> int:
    """Keep the newest checkpoint of each namespace and what it is rebuilt from; how many others
    were removed.
    """

    def unit(tx: Connection) -> int:
        row = desk.thread(tx, thread)
        if row is None:
            return 0
        newest = checkpoints.last_of_namespaces(tx, row.id)
        return _keep_only(
            desk, tx, row, lambda one: newest[one.namespace] == one.id, needs, "thread.prune"
        )

    return desk.store.database.write(unit, name="thread.prune")


def delete_where(desk: Desk, filter: Mapping[str, Any], needs: Needs) -> int:
    """Remove the checkpoints of the scope whose metadata match, with their writes; how many. Raises
    Conflict.
    """

    def unit(tx: Connection) -> int:
        marks = sought(filter, desk.codec)
        count = 0
        for name in checkpoints.thread_names(tx, desk.scope_cache.scope.id):
            row = checkpoints.find_thread(tx, desk.scope_cache.scope.id, name)
            if row is None or not checkpoints.page(
                tx, row.id, namespace=None, id=None, before=None, after=None, marks=marks, size=1
            ):
                continue
            count += _keep_only(
                desk,
                tx,
                row,
                lambda one: not matches(one.metadata, filter),
                needs,
                "checkpoint.delete",
            )
        return count

    return desk.store.database.write(unit, name="checkpoint.delete")


def expire(desk: Desk, limit: int) -> int:
    """Remove threads whose time is over, at most `limit`; how many."""

    def unit(tx: Connection) -> int:
        names = checkpoints.expired(tx, desk.scope_cache.scope.id, desk.now(), limit)
        for name in names:
            desk.remove_thread(tx, name, "thread.expire")
        return len(names)

    return desk.store.database.write(unit, name="thread.expire")


def _keep_only(
    desk: Desk,
    tx: Connection,
    row: ThreadRow,
    wanted: Callable[[Summary], bool],
    needs: Needs,
    event: str,
) -> int:
    scope_cache, codec = desk.scope_cache, desk.codec
    states = {(state.namespace, state.id): state for state in checkpoints.states_of(tx, row.id)}
    frames = {place: unframed(state.state, codec) for place, state in states.items()}
    summaries = {
        place: summary_of(row.name, state, frames[place], codec.unpack(state.metadata))
        for place, state in states.items()
    }
    keep = {place for place, summary in summaries.items() if wanted(summary)}
    depended = _depended(summaries, keep, needs)
    if event == "checkpoint.delete" and depended - keep:
        raise Conflict(
            f"{len(depended - keep)} checkpoints of this run hold writes from which a later "
            f"checkpoint of thread "
            f"{row.name!r} rebuilds its state. Delete the thread, or prune it once a snapshot "
            f"was written. "
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
    alive = set().union(
        *(
            _ids(value)
            for values in load_values(tx, scope_cache, shapes)
            for value in values.values()
        )
    )
    trees.release(tx, row.id, alive)
    moved = replace(
        row,
        epoch=row.epoch + 1,
        states=row.states - len(gone),
        seal=sealed(row.seal, add=[], take=[states[place].code for place in gone]),
    )
    checkpoints.move(tx, moved)
    desk.anchor(tx, event, moved, desk.now(), removed=len(gone))
    return len(gone)


def _depended(
    summaries: Mapping[tuple[str, str], Summary], keep: Collection[tuple[str, str]], needs: Needs
) -> set[tuple[str, str]]:
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
