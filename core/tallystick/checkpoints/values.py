"""What a channel holds, as the trees see it: a leaf of bytes, a sequence of elements, or a few
named fields.

An adapter makes these from its runtime's values and back. The roots of a checkpoint are their
written form: JSON with the ids of the parts, small leaves inline.
"""

from __future__ import annotations

import json
from binascii import Error as NotBase64
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.ropes import Part, PersistentList, Segment, part_of
from tallystick.errors import CorruptTally

__all__ = [
    "Fields",
    "Leaf",
    "Run",
    "Value",
    "all_parts",
    "digest_of",
    "new_parts",
    "planted",
    "read_roots",
    "read_segments",
    "segments_written",
    "wanted",
    "written",
]

_INLINE = 96
"""Bytes up to which a leaf stands in the roots instead of being a part."""


@dataclass(frozen=True)
class Leaf:
    """One value that is stored as it is: its type, which the adapter gave, and its bytes."""

    type: str
    body: bytes
    part: Part | None = field(default=None, compare=False, repr=False)
    """The part that holds its bytes, when it is large."""
    inline: bytes = field(default=b"", compare=False, repr=False)
    """The stored form of its bytes, when it is small."""


@dataclass(frozen=True)
class Run:
    """A sequence of elements, of which a later version shares what did not change; `kind` is the
    adapter's.
    """

    kind: str
    rope: PersistentList
    notes: dict[tuple[int, int], Any] = field(default_factory=dict, compare=False, repr=False)
    """What an adapter worked out about its elements, by where they begin and end; lost at any time.
    """

    @classmethod
    def of(
        cls, kind: str, elements: Sequence[bytes], notes: dict[tuple[int, int], Any] | None = None
    ) -> Run:
        """A sequence that is not stored yet."""
        return cls(kind, PersistentList((), elements), notes or {})

    @property
    def elements(self) -> Sequence[bytes]:
        """Its elements."""
        return self.rope.elements

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return self.kind == other.kind and list(self.elements) == list(other.elements)

    def __hash__(self) -> int:
        return hash((self.kind, len(self.elements)))


@dataclass(frozen=True)
class Fields:
    """A few values by name, in order."""

    entries: Mapping[str, Value]


Value = Leaf | Run | Fields


def planted(value: Value, base: Value | None, codec: Codec) -> Value:
    """`value` as it will be stored, sharing with `base`, which is stored already, what is equal."""
    if isinstance(value, Leaf):
        if isinstance(base, Leaf) and (base.type, base.body) == (value.type, value.body):
            return base
        if len(value.body) > _INLINE:
            return Leaf(value.type, value.body, part_of(value.body, codec))
        return Leaf(
            value.type, value.body, inline=codec.pack(value.body) if codec.sealed else value.body
        )
    if isinstance(value, Run):
        same = isinstance(base, Run) and base.kind == value.kind
        rope = base.rope if same and isinstance(base, Run) else PersistentList()
        return Run(value.kind, rope.changed(value.elements, codec), value.notes)
    before = base.entries if isinstance(base, Fields) else {}
    return Fields(
        {name: planted(entry, before.get(name), codec) for name, entry in value.entries.items()}
    )


def digest_of(value: Value, codec: Codec) -> bytes:
    """What stands for a planted value in the code of its checkpoint."""
    if isinstance(value, Leaf):
        return codec.digest(
            b"leaf\x00",
            value.type.encode(),
            b"\x00",
            value.body if value.part is None else value.part.digest,
        )
    if isinstance(value, Run):
        return codec.digest(b"run\x00", value.kind.encode(), b"\x00", value.rope.digest(codec))
    pieces = [
        json.dumps(name).encode() + b"\x00" + digest_of(entry, codec)
        for name, entry in value.entries.items()
    ]
    return codec.digest(b"fields\x00", *pieces)


def new_parts(value: Value) -> Iterator[Part]:
    """The parts of a planted value that have no id yet, those below before those above."""
    if isinstance(value, Leaf):
        if value.part is not None and value.part.id is None:
            yield value.part
    elif isinstance(value, Run):
        for segment in value.rope.segments:
            yield from _unstored(segment.part)
    else:
        for entry in value.entries.values():
            yield from new_parts(entry)


def all_parts(value: Value) -> Iterator[Part]:
    """Every part of a planted value, those below nodes too."""
    if isinstance(value, Leaf):
        if value.part is not None:
            yield value.part
    elif isinstance(value, Run):
        for segment in value.rope.segments:
            yield from _below(segment.part)
    else:
        for entry in value.entries.values():
            yield from all_parts(entry)


def _below(part: Part) -> Iterator[Part]:
    yield part
    for child in part.children:
        yield from _below(child.part)


def _unstored(part: Part) -> Iterator[Part]:
    if part.id is None:
        for child in part.children:
            yield from _unstored(child.part)
        yield part


def written(value: Value, number: Callable[[Part], int]) -> Any:
    """A planted value as JSON; `number` gives the id of a part."""
    if isinstance(value, Leaf):
        if value.part is not None:
            return ["p", value.type, number(value.part)]
        return ["i", value.type, b2a_base64(value.inline, newline=False).decode()]
    if isinstance(value, Run):
        return ["s", value.kind, *segments_written(value.rope.segments, number)]
    return ["f", {name: written(entry, number) for name, entry in value.entries.items()}]


def segments_written(segments: Sequence[Segment], number: Callable[[Part], int]) -> list[list[int]]:
    """Segments as lists that begin with their level and go on with ids, each as its distance from
    the one before.

    A slice is a list of its own: -1, the distance, where it begins and where it ends.
    """
    groups: list[list[int]] = []
    group, last = [-1], 0
    for segment in segments:
        part = segment.part
        id = part.id if part.id is not None else number(part)
        if segment.whole:
            if group[0] != part.level:
                group = [part.level]
                groups.append(group)
            group.append(id - last)
        else:
            group = [-1]
            groups.append([-1, id - last, segment.start, segment.stop])
        last = id
    return groups


def wanted(shape: Any) -> Iterator[tuple[int, int]]:
    """The parts that written roots name, as (level, id). Raises CorruptTally for what no release
    has written.
    """
    try:
        match shape:
            case ["p", str(), int(id)]:
                yield 0, id
            case ["i", str(), str()]:
                return
            case ["s", str(), *groups]:
                yield from _group_ids(groups)
            case ["f", dict(entries)]:
                for entry in entries.values():
                    yield from wanted(entry)
            case _:
                raise CorruptTally("The roots of a checkpoint are not of a known shape.")
    except RecursionError as error:
        raise CorruptTally("The roots of a checkpoint are nested too deeply.") from error


def _group_ids(groups: Sequence[Any]) -> Iterator[tuple[int, int]]:
    for level, id, _, _ in _places(groups):
        yield level, id


def _places(groups: Sequence[Any]) -> Iterator[tuple[int, int, int, int | None]]:
    """What written segments name, as (level, id, start, stop)."""
    last = 0
    for group in groups:
        if not (
            isinstance(group, list) and len(group) > 1 and all(type(one) is int for one in group)
        ):
            raise CorruptTally("The roots of a checkpoint are not of a known shape.")
        level, *distances = group
        if level == -1:
            if len(distances) != 3 or not 0 <= distances[1] < distances[2]:
                raise CorruptTally("The roots of a checkpoint are not of a known shape.")
            last += distances[0]
            yield 1, last, distances[1], distances[2]
            continue
        if not 0 <= level < 16:
            raise CorruptTally("The roots of a checkpoint are not of a known shape.")
        for distance in distances:
            last += distance
            yield level, last, 0, None


def read_segments(groups: Sequence[Any], part: Callable[[int, int], Part]) -> tuple[Segment, ...]:
    """Segments from their written form; `part` gives the part of a level and an id."""
    found = []
    for level, id, start, stop in _places(groups):
        one = part(level, id)
        if stop is not None and stop > one.count:
            raise CorruptTally(
                "The roots of a checkpoint name elements that their pack does not have."
            )
        found.append(Segment(one, start, stop))
    return tuple(found)


def read_roots(shape: Any, part: Callable[[int, int], Part], codec: Codec) -> Value:
    """A value from its written form, which `wanted` has looked through. Raises CorruptTally."""
    match shape:
        case ["p", str(type), int(id)]:
            found = part(0, id)
            return Leaf(type, found.content, found)
        case ["i", str(type), str(body)]:
            try:
                plain = a2b_base64(body, strict_mode=True) if body else b""
            except (NotBase64, ValueError) as error:
                raise CorruptTally("A small value of a checkpoint is damaged.") from error
            return Leaf(type, codec.unpack(plain) if codec.sealed else plain, inline=plain)
        case ["s", str(kind), *groups]:
            return Run(kind, PersistentList(read_segments(groups, part)))
        case ["f", dict(entries)]:
            return Fields({name: read_roots(entry, part, codec) for name, entry in entries.items()})
    raise CorruptTally("The roots of a checkpoint are not of a known shape.")
