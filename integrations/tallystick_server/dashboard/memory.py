"""Pages of memory: the workspace with its search, one memory, one source, scopes and readers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from starlette.responses import Response

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import (
    Actor,
    Explored,
    ExploredMemory,
    ExploredScope,
    Hit,
    Memory,
    MemoryState,
    Scope,
    SourceInspection,
)
from tallystick_server.dashboard.changes import CHANGES
from tallystick_server.dashboard.runs import scopes_of
from tallystick_server.dashboard.visits import Visit, page

MEMORY_STATES: tuple[str, ...] = get_args(MemoryState)
_PAGE = 40
_HITS = 20
_SIGNALS = 4
_AROUND = 24
"""Memories that the picture of a neighbourhood has room for."""
_LISTED = 200
"""Ids of a preview of access that are listed."""


@dataclass(frozen=True)
class Place:
    """One memory in the picture of a neighbourhood."""

    memory: ExploredMemory
    x: int
    y: int
    side: str
    """The side of the point on which its name stands."""


def _workspace(visit: Visit) -> Response:
    query = visit.text("q")
    state, kind, tag = visit.text("state") or "active", visit.text("kind"), visit.text("tag")
    if state not in MEMORY_STATES:
        raise InvalidInput(f"state: a memory is {', '.join(MEMORY_STATES)}.", argument="state")
    scopes = scopes_of(visit)
    scope = _choose_scope(visit, scopes)
    readable = [str(each.scope) for each in scopes if each.readable] or [str(scope)]
    kinds = [kind] if kind else []
    hits: Any = None
    memories: list[Memory] = []
    if query:
        hits = visit.call(
            "recall",
            query=query,
            limit=_HITS,
            kinds=kinds,
            tags=[tag] if tag else [],
            states=[] if state == "active" else [state],
            scopes=[str(scope)] if visit.text("scope") else readable,
        )
    else:
        memories = visit.call(
            "memories",
            limit=_PAGE,
            states=[state],
            kinds=kinds,
            before=visit.text("before") or None,
            at=scope,
        )
    return visit.page(
        "memory.html",
        query=query,
        state=state,
        kind=kind,
        tag=tag,
        states=MEMORY_STATES,
        scope=scope,
        scopes=scopes,
        hits=hits,
        signals={} if hits is None else {hit.memory.id: _signals(hit) for hit in hits},
        memories=memories,
        older=visit.again(before=memories[-1].id) if len(memories) == _PAGE else None,
        is_first=not visit.text("before"),
    )


def _choose_scope(visit: Visit, scopes: Sequence[ExploredScope]) -> Scope:
    """Return the scope whose memories are listed: the one that is named, else that of the caller,
    or where that is empty, the one that has the most.
    """
    home: Scope = visit.bound.scope
    counts: dict[Scope, int]
    counts = {each.scope: each.states.get("active", 0) for each in scopes if each.readable}
    if visit.text("scope") or counts.get(home) or not counts:
        return home
    return max(counts, key=lambda scope: counts[scope])


def _signals(hit: Hit) -> list[tuple[str, float]]:
    """Return the strongest signals of a hit."""
    signals = [(name, value) for name, value in hit.signals.items() if value]
    return sorted(signals, key=lambda signal: -abs(signal[1]))[:_SIGNALS]


def _memory(visit: Visit) -> Response:
    memory_id = visit.path("memory_id")
    inspection = visit.call("inspect", memory_id=memory_id)
    if isinstance(inspection, SourceInspection):
        return visit.go(f"/sources/{inspection.id}")
    whole = None
    if inspection.shown:
        try:
            whole = visit.call("get", memory_id=inspection.id, at=inspection.scope)
        except NotFound:  # it is hidden, or was forgotten
            whole = None
    allowed = {action.name: action for action in inspection.actions}
    changes = [
        (change, allowed[change.allowed_as])
        for change in CHANGES.values()
        if change.allowed_as in allowed
    ]
    return visit.page(
        "inspected.html",
        found=inspection,
        text=None if whole is None else whole.content,
        changes=[(change, action) for change, action in changes if action.allowed],
        refused=[(change, action) for change, action in changes if not action.allowed],
        neighbours=_neighbourhood(visit, inspection.id),
        history=list(reversed(inspection.history)),
    )


def _neighbourhood(visit: Visit, memory_id: str) -> Any:
    """Return the picture of what a memory is linked to, or None where it is linked to nothing."""
    try:
        explored: Explored = visit.call("explore", around=memory_id, depth=2, limit=_AROUND)
    except NotFound:  # hidden or forgotten
        return None
    if len(explored.memories) < 2:
        return None
    return explored, _place_memories(explored.memories)


def _place_memories(memories: Sequence[ExploredMemory]) -> dict[str, Place]:
    """Return where memories stand in the picture: the first in the middle, the others on rings
    around it.
    """
    places = {memories[0].id: Place(memories[0], 400, 190, "below")}
    for distance, radius in ((1, 105), (2, 165)):
        ring = [each for each in memories[1:] if each.distance == distance]
        for number, each in enumerate(ring):
            angle = 2 * math.pi * (number + 0.5 * (distance - 1)) / len(ring) - math.pi / 2
            x = round(400 + 1.75 * radius * math.cos(angle))
            y = round(190 + radius * math.sin(angle))
            places[each.id] = Place(each, x, y, "right" if x >= 400 else "left")
    return places


def _source(visit: Visit) -> Response:
    return visit.page("source.html", found=visit.call("source", source_id=visit.path("source_id")))


def _spaces(visit: Visit) -> Response:
    """Scopes, spaces and their members, and what somebody could recall."""
    spaces = {str(space.scope): space for space in visit.call("spaces")}
    user, agent = visit.text("user"), visit.text("agent")
    return visit.page(
        "spaces.html",
        scopes=scopes_of(visit),
        spaces=spaces,
        user=user,
        agent=agent,
        projects=visit.text("projects"),
        counts=visit.address(
            "/spaces/access", user=user, agent=agent, projects=visit.text("projects")
        ),
    )


def _access(visit: Visit) -> Response:
    """What somebody could recall, which takes a moment in large scopes."""
    user, agent = visit.text("user"), visit.text("agent")
    if not user:
        raise InvalidInput("user: say who.", argument="user")
    where = [str(each.scope) for each in scopes_of(visit)]
    projects = frozenset(visit.text("projects").replace(",", " ").split())
    reader = Actor(user=user, agent=agent or None, projects=projects)
    preview = visit.call("preview_access", actor=reader.dump(), scopes=where)
    names = {str(each.scope): each.visible[-_LISTED:] for each in preview.scopes}
    return visit.page("access.html", preview=preview, names=names)


def _export(visit: Visit) -> Response:
    """How a scope is exported."""
    scope = visit.bound.scope
    return visit.page(
        "export.html", scope=scope, counts=visit.address("/export/counts", scope=scope)
    )


def _export_counts(visit: Visit) -> Response:
    """What an export of a scope would contain, which takes a moment to count."""
    scope = visit.bound.scope
    transfer = visit.call("export", scopes=[str(scope)], mode="preview")
    return visit.page("export_counts.html", scope=scope, transfer=transfer)


ROUTES = [
    page("/memory", _workspace),
    page("/memories/{memory_id}", _memory),
    page("/sources/{source_id}", _source),
    page("/spaces", _spaces),
    page("/spaces/access", _access),
    page("/export", _export),
    page("/export/counts", _export_counts),
]
