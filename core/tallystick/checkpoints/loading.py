"""Reading trees: the parts that roots name, one query per level, each held against its digest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from tallystick.checkpoints.context import ScopeCache
from tallystick.checkpoints.ropes import Part, Segment, read_part
from tallystick.checkpoints.values import Value, read_roots, read_segments, wanted
from tallystick.errors import CorruptTally
from tallystick.storage import trees

__all__ = ["load", "load_values"]

_Place = tuple[int, int]


def load_values(
    connection: Connection, scope_cache: ScopeCache, roots: Iterable[Mapping[str, Any]]
) -> list[dict[str, Value]]:
    """The values of several roots at once. Raises CorruptTally for what is missing or does not
    match.
    """
    shapes = list(roots)
    parts = load(
        connection,
        scope_cache,
        (place for shape in shapes for one in shape.values() for place in wanted(one)),
    )

    def part(level: int, id: int) -> Part:
        return parts[level, id]

    return [
        {name: read_roots(one, part, scope_cache.codec) for name, one in shape.items()}
        for shape in shapes
    ]


def load(
    connection: Connection, scope_cache: ScopeCache, places: Iterable[_Place]
) -> dict[_Place, Part]:
    """The parts at these (level, id), with everything below them."""
    found: dict[_Place, Part] = {}
    read: dict[_Place, tuple[bytes, bytes, Any]] = {}
    ahead = set(places)
    while ahead:
        missing: list[_Place] = []
        for place in ahead:
            kept = scope_cache.parts.get(place)
            if kept is not None:
                found[place] = kept
            else:
                missing.append(place)
        rows = trees.fetch(connection, scope_cache.scope.id, sorted({id for _, id in missing}))
        ahead = set()
        for level, id in missing:
            if id not in rows:
                raise CorruptTally(
                    "A piece of a checkpoint's tree is missing. Run `tally verify` to see where."
                )
            digest, body = rows[id]
            groups = _children(level, body, scope_cache) if level > 1 else None
            read[level, id] = (digest, body, groups)
            if groups is not None:
                ahead.update(place for place in wanted(["s", "", *groups]))
        ahead -= found.keys() | read.keys()
    for place in sorted(read):
        digest, body, groups = read[place]
        found[place] = _built(place, digest, body, groups, found, scope_cache)
    return found


def _built(
    place: _Place,
    digest: bytes,
    body: bytes,
    groups: Any,
    below: Mapping[_Place, Part],
    scope_cache: ScopeCache,
) -> Part:
    children: tuple[Segment, ...] = ()
    if groups is not None:
        children = read_segments(groups, lambda level, id: below[level, id])
    part = read_part(place[0], place[1], digest, body, scope_cache.codec, children)
    scope_cache.parts.put(place, part)
    return part


def _children(level: int, body: bytes, scope_cache: ScopeCache) -> list[Any]:
    """What a node says is below it: whole segments of the level beneath its own and of no other."""
    try:
        groups = json.loads(scope_cache.codec.unpack(body, sealed=False))
        if isinstance(groups, list) and all(group[0] == level - 1 for group in groups):
            return groups
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptTally(
            "A node of a checkpoint's tree is not readable: its bytes are damaged."
        ) from error
    raise CorruptTally("A node of a checkpoint's tree is not of a known shape.")
