"""Persistent sequences: a version shares with the version before it every piece that did not
change.

A rope is a row of segments: single elements, packs of FAN elements stored as one piece, and nodes
over FAN segments of one level. Appending adds singles; FAN of them in a row become a pack, FAN
packs a node, and so on, so that a version of n elements has O(FAN log n) segments. Cutting leaves
slices of packs behind and rewrites nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tallystick.checkpoints.codec import Codec
from tallystick.errors import CorruptTally

__all__ = ["FAN", "Part", "PersistentList", "Segment", "part_of", "read_part"]

FAN = 32
"""Elements of a pack, and segments of a node."""

_FRAGMENTS = 8 * FAN
"""Segments beyond which a rope is made anew: many cuts leave many slices."""

ELEMENT, PACK, NODE = b"element\x00", b"pack\x00", b"node\x00"


class Part:
    """A stored piece: its level (0 element, 1 pack, 2 and more nodes), its digest, and its id once
    it has one.
    """

    __slots__ = ("children", "content", "count", "digest", "ends", "id", "level")

    def __init__(
        self,
        level: int,
        digest: bytes,
        *,
        content: bytes = b"",
        ends: Sequence[int] = (),
        children: tuple[Segment, ...] = (),
        id: int | None = None,
    ) -> None:
        self.level = level
        self.digest = digest
        self.content = content
        """The bytes of an element, or those of a pack's elements one after the other."""
        self.ends = ends
        """Where each element of a pack ends in `content`."""
        self.children = children
        self.id = id
        self.count: int = (
            1 if level == 0 else len(ends) if level == 1 else sum(one.count for one in children)
        )

    def stored(self) -> bytes:
        """The bytes of an element or a pack as its digest covers them."""
        return self.content if self.level == 0 else _framed(self.content, self.ends)


class Segment:
    """A part, or the elements `start` to `stop` of a pack."""

    __slots__ = ("part", "start", "stop", "whole")

    def __init__(self, part: Part, start: int = 0, stop: int | None = None) -> None:
        self.part = part
        self.start = start
        self.stop = part.count if stop is None else stop
        self.whole = self.start == 0 and self.stop == part.count
        """Whether it is all of its part."""

    @property
    def count(self) -> int:
        """How many elements it stands for."""
        return self.stop - self.start

    def contents(self) -> Iterator[bytes]:
        """Its bytes in order, in as few pieces as they are stored in."""
        part = self.part
        if part.level > 1:
            for child in part.children:
                yield from child.contents()
        elif self.whole:
            yield part.content
        else:
            yield part.content[_end(part, self.start) : _end(part, self.stop)]

    def elements(self) -> Iterator[bytes]:
        """Its elements one by one."""
        part = self.part
        if part.level == 0:
            yield part.content
        elif part.level == 1:
            content, ends, begin = part.content, part.ends, _end(part, self.start)
            for end in ends[self.start : self.stop]:
                yield content[begin:end]
                begin = end
        else:
            for child in part.children:
                yield from child.elements()


class PersistentList:
    """One version of a sequence of elements, which are bytes."""

    __slots__ = ("_elements", "segments")

    def __init__(
        self, segments: tuple[Segment, ...] = (), elements: Sequence[bytes] | None = None
    ) -> None:
        self.segments = segments
        self._elements = elements

    def __len__(self) -> int:
        return sum(segment.count for segment in self.segments)

    @property
    def elements(self) -> Sequence[bytes]:
        """All elements."""
        if self._elements is None:
            self._elements = [
                element for segment in self.segments for element in segment.elements()
            ]
        return self._elements

    def contents(self) -> list[bytes]:
        """The bytes of all elements in order, in as few pieces as they are stored in."""
        return [piece for segment in self.segments for piece in segment.contents()]

    def digest(self, codec: Codec) -> bytes:
        """What stands for this version in the code of a checkpoint."""
        return codec.digest(b"rope\x00", *(_named(segment) for segment in self.segments))

    def changed(self, elements: Sequence[bytes], codec: Codec) -> PersistentList:
        """The version that holds `elements`, sharing with this one what is equal at its beginning
        and its end.
        """
        old = self.elements
        head = _common(old, elements)
        if head == len(old) == len(elements):
            return self
        if head == len(old):
            return PersistentList(_appended(self.segments, elements[head:], codec), elements)
        tail = _common_end(old, elements, min(len(old), len(elements)) - head)
        segments = [
            *_cut(self.segments, 0, head),
            *(
                Segment(part_of(element, codec))
                for element in elements[head : len(elements) - tail]
            ),
            *_cut(self.segments, len(old) - tail, len(old)),
        ]
        folded = _folded(segments, codec)
        if len(folded) > _FRAGMENTS:
            folded = _folded([Segment(part_of(element, codec)) for element in elements], codec)
        return PersistentList(tuple(folded), elements)


def part_of(element: bytes, codec: Codec) -> Part:
    """The part of a single element."""
    return Part(0, codec.digest(ELEMENT, element), content=element)


def read_part(
    level: int, id: int, digest: bytes, body: bytes, codec: Codec, children: Iterable[Segment] = ()
) -> Part:
    """The part that stands in the database with these columns. Raises CorruptTally where it does
    not match.
    """
    if level == 0:
        return Part(0, digest, content=codec.expand(ELEMENT, digest, body), id=id)
    if level == 1:
        content, ends = _unframed(codec.expand(PACK, digest, body))
        return Part(1, digest, content=content, ends=ends, id=id)
    below = tuple(children)
    if codec.digest(NODE, *(_named(child) for child in below)) != digest:
        raise CorruptTally(
            "A node of a checkpoint's tree does not match its digest. Run `tally verify` to see "
            "where."
        )
    return Part(level, digest, children=below, id=id)


def _named(segment: Segment) -> bytes:
    if segment.whole:
        return segment.part.digest + b"\x00"
    return segment.part.digest + b"%d:%d\x00" % (segment.start, segment.stop)


def _common(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """How many elements are equal at the beginning. Equal bytes are most often the same object:
    that is quick.
    """
    least = min(len(old), len(new))
    if old[:least] == new[:least]:
        return least
    return next(
        place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other
    )


def _common_end(old: Sequence[bytes], new: Sequence[bytes], most: int) -> int:
    count = 0
    while count < most and old[-1 - count] == new[-1 - count]:
        count += 1
    return count


def _cut(segments: Sequence[Segment], begin: int, end: int) -> Iterator[Segment]:
    """The elements `begin` to `end`, as segments."""
    place = 0
    for segment in segments:
        after = place + segment.count
        low, high = max(begin, place), min(end, after)
        if low < high:
            if (low, high) == (place, after):
                yield segment
            elif segment.part.level > 1:
                yield from _cut(segment.part.children, low - place, high - place)
            else:
                first = segment.start + low - place
                yield Segment(segment.part, first, first + high - low)
        place = after


def _appended(
    segments: tuple[Segment, ...], elements: Sequence[bytes], codec: Codec
) -> tuple[Segment, ...]:
    """Segments that were folded already, and elements after them: nothing folds until there are FAN
    single ones.
    """
    more = (*segments, *(Segment(part_of(element, codec)) for element in elements))
    singles = 0
    while singles < len(more) and more[-1 - singles].part.level == 0:
        singles += 1
    return more if singles < FAN else tuple(_folded(list(more), codec))


def _folded(segments: list[Segment], codec: Codec) -> list[Segment]:
    """The same elements with FAN neighbours of one level as one of the next, again and again."""
    level = 0
    while True:
        folded: list[Segment] = []
        run: list[Segment] = []
        more = False
        for segment in segments:
            if segment.part.level == level and segment.whole:
                run.append(segment)
                if len(run) == FAN:
                    folded.append(Segment(_joined(run, level, codec)))
                    run = []
                    more = True
            else:
                folded += run
                run = []
                folded.append(segment)
        folded += run
        segments = folded
        if not more and level > 0:
            return segments
        level += 1


def _joined(run: Sequence[Segment], level: int, codec: Codec) -> Part:
    if level > 0:
        return Part(level + 1, codec.digest(NODE, *map(_named, run)), children=tuple(run))
    ends = array("Q")
    end = 0
    for segment in run:
        end += len(segment.part.content)
        ends.append(end)
    content = b"".join(segment.part.content for segment in run)
    return Part(1, codec.digest(PACK, _framed(content, ends)), content=content, ends=ends)


def _framed(content: bytes, ends: Sequence[int]) -> bytes:
    lengths = [end - begin for begin, end in zip((0, *ends), ends, strict=False)]
    return b"".join(
        (len(ends).to_bytes(4, "big"), *(one.to_bytes(4, "big") for one in lengths), content)
    )


def _unframed(stored: bytes) -> tuple[bytes, Any]:
    count = int.from_bytes(stored[:4], "big")
    begin = 4 + 4 * count
    lengths = array("I", stored[4:begin])
    if lengths.itemsize != 4 or len(lengths) != count:
        raise CorruptTally("A pack of a checkpoint's tree is shorter than it says.")
    lengths.byteswap()
    ends, end = array("Q"), 0
    for length in lengths:
        end += length
        ends.append(end)
    if begin + end != len(stored):
        raise CorruptTally("A pack of a checkpoint's tree does not have the length that it says.")
    return stored[begin:], ends


def _end(part: Part, place: int) -> int:
    return part.ends[place - 1] if place else 0
