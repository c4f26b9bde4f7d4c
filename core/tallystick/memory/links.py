"""Links that a memory has by its arguments: those that it is remembered with, and those that a
change adds and removes. What depends on something never depends on itself, through however many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tallystick.access import visible_docs
from tallystick.errors import InvalidInput, StateConflict
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import EdgeKind, NewMemory
from tallystick.storage import ScopeRow
from tallystick.storage.engine.writes import require
from tallystick.storage.rows import edges, memories

LINKS: Mapping[str, EdgeKind] = {
    "related_to": "REFERENCES",
    "depends_on": "DEPENDS_ON",
    "contradicts": "CONTRADICTS",
}
"""Arguments that link a memory with others, and the kinds of their edges."""
CHANGEABLE_LINKS = ("related_to", "depends_on")
"""Those of them that `modify` changes."""
_WAYS = ("add", "remove")


class LinkChange(NamedTuple):
    """The links of one argument that a change adds and removes, by the ids of the other ends."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def read_link_changes(changes: Mapping[str, Any]) -> dict[str, LinkChange]:
    """Return the links that the arguments of `modify` add and remove, by argument. Raises
    InvalidInput.
    """
    read: dict[str, LinkChange] = {}
    for name in CHANGEABLE_LINKS:
        if name not in changes:
            continue
        value = changes[name]
        if not isinstance(value, Mapping) or not value or set(value) - set(_WAYS):
            raise InvalidInput(
                f'`{name}` takes {{"add": […], "remove": […]}} with ids of memories.', argument=name
            )
        ways = [_ids(name, value.get(way, ())) for way in _WAYS]
        if both := sorted(set(ways[0]) & set(ways[1])):
            raise InvalidInput(f"`{name}` adds and removes {', '.join(both)}.", argument=name)
        read[name] = LinkChange(*ways)
    return read


def _ids(name: str, ids: Any) -> tuple[str, ...]:
    is_list = isinstance(ids, Sequence) and not isinstance(ids, str | bytes)
    if not is_list or not all(isinstance(each, str) for each in ids):
        raise InvalidInput(f"`{name}` takes lists of ids.", argument=name)
    return tuple(dict.fromkeys(ids))


@dataclass(frozen=True)
class PlannedLinks:
    """What a change does to the links of one argument: checked, and without what is so already."""

    name: str
    added: tuple[memories.Stored, ...]
    removed: tuple[edges.EdgeRow, ...]


def plan_links(
    write: MemoryWrite, current: memories.Stored, changes: Mapping[str, LinkChange]
) -> list[PlannedLinks]:
    """Return what `changes` do to the links of a stored memory.

    Raises NotFound for an end that the actor may not see, InvalidInput for a link that is not
    there, and StateConflict with the path where something would depend on itself.
    """
    linked = [edge for edge in edges.of(write.tx, current.doc) if edge.from_doc == current.doc]
    planned: list[PlannedLinks] = []
    for name, change in changes.items():
        by_id = {edge.to_id: edge for edge in linked if edge.kind == LINKS[name]}
        if unlinked := [each for each in change.remove if each not in by_id]:
            raise InvalidInput(
                f"{current.memory.id} has no link `{name}` to {', '.join(unlinked)}.",
                argument=name,
            )
        added = [_linkable(write, each) for each in change.add if each not in by_id]
        ahead = _require_links(write, current.doc, name, added)
        if memories.scope_ids_of(write.tx, ahead) - {current.scope_id}:
            # A circle through another scope could be closed there at the same moment: alone.
            require(write.tx, "dependencies of several scopes")
        removed = tuple(by_id[each] for each in change.remove)
        if added or removed:
            planned.append(PlannedLinks(name, tuple(added), removed))
    return planned


def change_links(
    write: MemoryWrite,
    current: memories.Stored,
    planned: Iterable[PlannedLinks],
    *,
    version: int,
    reason: str,
) -> None:
    """Add and remove links as planned, each journaled as one of its kind. `version` is that of the
    memory with them.
    """
    scope = current.scope
    for each in planned:
        kind = LINKS[each.name]
        for other in each.added:
            _add(write, scope, kind, current.doc, other.doc, reason=reason)
        edges.close(write.tx, [edge.id for edge in each.removed], at=write.now)
        for event, ids in (
            ("memory.link", [other.memory.id for other in each.added]),
            ("memory.unlink", [edge.to_id for edge in each.removed]),
        ):
            if ids:
                details = {"version": version, "kind": kind, each.name: ids}
                write.journal_event(scope.scope, event, current.memory.id, details, reason=reason)


def link_new(
    write: MemoryWrite, scope: ScopeRow, doc: int, new: NewMemory, *, is_known: bool
) -> dict[str, list[str]]:
    """Link a memory with those that it is remembered with; return them by argument. Only on one
    that `is_known` may others depend.

    Raises NotFound alike for absent ones and for those that the actor may not see, InvalidInput for
    the memory itself, StateConflict where it would depend on itself.
    """
    linked: dict[str, list[str]] = {}
    for name, kind in LINKS.items():
        ids = tuple(dict.fromkeys(getattr(new, name)))
        if not ids:
            continue
        others = [_linkable(write, memory_id) for memory_id in ids]
        if is_known:
            _require_links(write, doc, name, others)
        for other in others:
            _add(write, scope, kind, doc, other.doc)
        linked[name] = list(ids)
    return linked


def _add(
    write: MemoryWrite,
    scope: ScopeRow,
    kind: EdgeKind,
    from_doc: int,
    to_doc: int,
    *,
    reason: str | None = None,
) -> None:
    edges.add(
        write.tx,
        edge_id=write.context.store.ids.new(),
        kind=kind,
        scope_id=scope.id,
        from_doc=from_doc,
        to_doc=to_doc,
        at=write.now,
        reason=reason,
    )


def _linkable(write: MemoryWrite, memory_id: str) -> memories.Stored:
    """Return a memory whose text the actor may see."""
    context, actor = write.context, write.actor
    other = context.visible(write.tx, actor, memory_id, "read")
    if other.doc not in visible_docs(write.tx, context.gate, actor, [other], write.now):
        raise context.absent(actor, memory_id)
    return other


def _require_links(
    write: MemoryWrite, doc: int, name: str, others: Sequence[memories.Stored]
) -> set[int]:
    """Return the memories on which one would depend, directly and through others."""
    if any(other.doc == doc for other in others):
        raise InvalidInput(f"`{name}` names the memory itself.", argument=name)
    if LINKS[name] != "DEPENDS_ON":
        return set()
    came_from = {other.doc: other.doc for other in others}
    ahead = list(came_from)
    while ahead and doc not in came_from:
        following: list[int] = []
        for edge in edges.leaving(write.tx, "DEPENDS_ON", ahead, most=None):
            if edge.to_doc not in came_from:
                came_from[edge.to_doc] = edge.from_doc
                following.append(edge.to_doc)
        ahead = following
    if doc in came_from:
        path = [doc]
        while came_from[path[-1]] != path[-1]:
            path.append(came_from[path[-1]])
        raise _circle(write, [doc, *path[::-1]])
    return set(came_from)


def _circle(write: MemoryWrite, path: Sequence[int]) -> StateConflict:
    """Return the error for a circle, which names what the actor may read of it."""
    stored = memories.get_docs(write.tx, set(path))
    gate = write.context.gate
    names = [
        stored[doc].memory.id
        if gate.decide(write.tx, write.actor, "read", stored[doc].memory.scope).allowed
        else "…"
        for doc in path
    ]
    return StateConflict(
        stored[path[0]].memory.id,
        state=stored[path[0]].memory.state,
        reason=f"it would depend on itself: {' → '.join(names)}",
        hint="Remove one of these links first.",
    )
