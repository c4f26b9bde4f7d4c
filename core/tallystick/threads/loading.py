"""Reading trees: the parts that roots name, one query per level, each held against its digest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection

from tallystick.errors import CorruptTally
from tallystick.storage import trees
from tallystick.threads.room import Keeper
from tallystick.threads.ropes import Part, Segment, read_part
from tallystick.threads.values import Value, read_roots, read_segments, wanted

__all__ = ["load", "load_values"]

_Place = tuple[int, int]


def load_values(
    connection: Connection, keeper: Keeper, roots: Iterable[Mapping[str, Any]]
) -> list[dict[str, Value]]:
    """The values of several roots at once. Raises CorruptTally for what is missing or does not
    match.
    """
    shapes = list(roots)
    parts = load(
        connection,
        keeper,
        (place for shape in shapes for one in shape.values() for place in wanted(one)),
    )

    def part(level: int, id: int) -> Part:
        return parts[level, id]

    return [
        {name: read_roots(one, part, keeper.codec) for name, one in shape.items()}
        for shape in shapes
    ]


def load(connection: Connection, keeper: Keeper, places: Iterable[_Place]) -> dict[_Place, Part]:
    """The parts at these (level, id), with everything below them."""
    found: dict[_Place, Part] = {}
    read: dict[_Place, tuple[bytes, bytes, Any]] = {}
    ahead = set(places)
    while ahead:
        missing: list[_Place] = []
        for place in ahead:
            kept = keeper.parts.get(place)
            if kept is not None:
                found[place] = kept
            else:
                missing.append(place)
        rows = trees.fetch(connection, keeper.scope.id, sorted({id for _, id in missing}))
        ahead = set()
        for level, id in missing:
            if id not in rows:
                raise CorruptTally(
                    "A piece of a checkpoint's tree is missing. Run `tally verify` to see where."
                )
            digest, body = rows[id]
            groups = _children(level, body, keeper) if level > 1 else None
            read[level, id] = (digest, body, groups)
            if groups is not None:
                ahead.update(place for place in wanted(["s", "", *groups]))
        ahead -= found.keys() | read.keys()
    for place in sorted(read):
        digest, body, groups = read[place]
        found[place] = _built(place, digest, body, groups, found, keeper)
    return found


def _built(
    place: _Place,
    digest: bytes,
    body: bytes,
    groups: Any,
    below: Mapping[_Place, Part],
    keeper: Keeper,
) -> Part:
    children: tuple[Segment, ...] = ()
    if groups is not None:
        children = read_segments(groups, lambda level, id: below[level, id])
    part = read_part(place[0], place[1], digest, body, keeper.codec, children)
    keeper.parts.put(place, part)
    return part


def _children(level: int, body: bytes, keeper: Keeper) -> list[Any]:
    """What a node says is below it: whole segments of the level beneath its own and of no other."""
    try:
        groups = json.loads(keeper.codec.unpack(body, sealed=False))
        if isinstance(groups, list) and all(group[0] == level - 1 for group in groups):
            return groups
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptTally(
            "A node of a checkpoint's tree is not readable: its bytes are damaged."
        ) from error
    raise CorruptTally("A node of a checkpoint's tree is not of a known shape.")
