"""Channel values as checkpoints store them: a leaf of bytes, a persistent list, or named fields;
what a new version shares with the one before, and the digest of each.

An adapter makes these from its runtime's values, and its runtime's values from these. Of a list a
version shares with the version before it every chunk that did not change: it is a row of spans,
single elements, packs of FAN elements stored as one chunk, and nodes over FAN spans of one level.
Appending adds single elements; FAN of them in a row become a pack, FAN packs a node, and so on, so
that a version of n elements has O(FAN log n) spans. Removing leaves slices of packs behind and
rewrites nothing.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.checkpoints.codec import Codec
from tallystick.errors import CorruptTally

# What is shared, and when chunks are folded
#
# Chunks are immutable, but for `id`, which is set once, after the commit that stored them. Versions
# share chunk objects in memory and chunk ids on disk: a version that edited a chunk would change
# every version before it.
#
# `update` shares the longest common beginning and the longest common end with the version before;
# what lies between becomes single elements. Elements are compared by their bytes: compared by
# identity, an element that was edited in place would be stored as it was before.
#
# FAN neighbours fold into one chunk of the next level only when all of them are whole spans of the
# same level, from the left, level by level. Folding is a function of the row of spans alone, so
# that two processes which append the same elements make the same chunks, and store them once.
# `_append` skips it while fewer than FAN single elements are at the end: everything before them was
# folded already, and nothing else can have changed.
#
# A slice of a pack never folds, and a cut through a node opens it into its children. Many cuts
# therefore leave many spans, each of which is listed in the roots of every later checkpoint; beyond
# _FRAGMENTS spans the list is built anew from single elements.
#
# FAN and the order of folding decide digests, and with them what is stored once: after a change of
# either, old versions are still read, but new ones share less with them.

FAN = 32
"""Elements of a pack, and spans of a node."""

_FRAGMENTS = 8 * FAN
"""Spans beyond which a list is built anew: many cuts leave many slices."""

ELEMENT, PACK, NODE = b"element\x00", b"pack\x00", b"node\x00"
"""Domains of the digests of chunks."""


class Chunk:
    """A stored piece: its level (0 element, 1 pack, 2 and more nodes), its digest, and its id once
    it is stored.
    """

    __slots__ = ("children", "content", "count", "digest", "ends", "id", "level")

    def __init__(
        self,
        level: int,
        digest: bytes,
        *,
        content: bytes = b"",
        ends: Sequence[int] = (),
        children: tuple[Span, ...] = (),
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
            1 if level == 0 else len(ends) if level == 1 else sum(child.count for child in children)
        )

    def stored_bytes(self) -> bytes:
        """Return the bytes of an element or a pack as its digest covers them."""
        return self.content if self.level == 0 else _encode_pack(self.content, self.ends)


class Span:
    """A whole chunk, or the elements `start` to `stop` of a pack."""

    __slots__ = ("chunk", "start", "stop", "whole")

    def __init__(self, chunk: Chunk, start: int = 0, stop: int | None = None) -> None:
        self.chunk = chunk
        self.start = start
        self.stop = chunk.count if stop is None else stop
        self.whole = self.start == 0 and self.stop == chunk.count
        """True if it is all of its chunk."""

    @property
    def count(self) -> int:
        """Number of elements, those of children included."""
        return self.stop - self.start

    def contents(self) -> Iterator[bytes]:
        """Yield its bytes in order, in as few pieces as they are stored in."""
        chunk = self.chunk
        if chunk.level > 1:
            for child in chunk.children:
                yield from child.contents()
        elif self.whole:
            yield chunk.content
        else:
            yield chunk.content[_offset(chunk, self.start) : _offset(chunk, self.stop)]

    def elements(self) -> Iterator[bytes]:
        """Yield its elements in order."""
        chunk = self.chunk
        if chunk.level == 0:
            yield chunk.content
        elif chunk.level == 1:
            content, ends, begin = chunk.content, chunk.ends, _offset(chunk, self.start)
            for end in ends[self.start : self.stop]:
                yield content[begin:end]
                begin = end
        else:
            for child in chunk.children:
                yield from child.elements()


class PersistentList:
    """One version of a list of elements, which are bytes."""

    __slots__ = ("_elements", "spans")

    def __init__(
        self, spans: tuple[Span, ...] = (), elements: Sequence[bytes] | None = None
    ) -> None:
        self.spans = spans
        self._elements = elements

    def __len__(self) -> int:
        return sum(span.count for span in self.spans)

    @property
    def elements(self) -> Sequence[bytes]:
        """All elements."""
        if self._elements is None:
            self._elements = [element for span in self.spans for element in span.elements()]
        return self._elements

    def contents(self) -> list[bytes]:
        """Return the bytes of all elements in order, in as few pieces as they are stored in."""
        return [piece for span in self.spans for piece in span.contents()]

    def digest(self, codec: Codec) -> bytes:
        """Return the digest of this version, which the MAC of a checkpoint covers."""
        return codec.digest(b"rope\x00", *[_span_name(span) for span in self.spans])

    def update(self, elements: Sequence[bytes], codec: Codec) -> PersistentList:
        """Return the version that has `elements`, sharing with this one the equal beginning and
        end.
        """
        old = self.elements
        head = _common_prefix(old, elements)
        if head == len(old) == len(elements):
            return self
        if head == len(old):
            return PersistentList(_append(self.spans, elements[head:], codec), elements)
        tail = _common_suffix(old, elements, min(len(old), len(elements)) - head)
        spans = [
            *_slice(self.spans, 0, head),
            *_singles(elements[head : len(elements) - tail], codec),
            *_slice(self.spans, len(old) - tail, len(old)),
        ]
        folded = _fold(spans, codec)
        if len(folded) > _FRAGMENTS:
            folded = _fold(_singles(elements, codec), codec)
        return PersistentList(tuple(folded), elements)


def element_chunk(element: bytes, codec: Codec) -> Chunk:
    """Return the chunk of a single element."""
    return Chunk(0, codec.digest(ELEMENT, element), content=element)


def decode_chunk(
    level: int, id: int, digest: bytes, body: bytes, codec: Codec, children: Iterable[Span] = ()
) -> Chunk:
    """Return the chunk that is stored with these columns. Raises CorruptTally where its content
    does not match its digest.
    """
    if level == 0:
        return Chunk(0, digest, content=codec.unpack_checked(ELEMENT, digest, body), id=id)
    if level == 1:
        content, ends = _decode_pack(codec.unpack_checked(PACK, digest, body))
        return Chunk(1, digest, content=content, ends=ends, id=id)
    below = tuple(children)
    if codec.digest(NODE, *[_span_name(child) for child in below]) != digest:
        raise CorruptTally(
            "A node of a checkpoint's tree does not match its digest. Run `tally verify` to see "
            "where."
        )
    return Chunk(level, digest, children=below, id=id)


def _span_name(span: Span) -> bytes:
    if span.whole:
        return span.chunk.digest + b"\x00"
    return span.chunk.digest + b"%d:%d\x00" % (span.start, span.stop)


def _common_prefix(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """Return the number of elements that are equal at the beginning.

    Equal bytes are most often the same object, which the comparison of lists sees at once.
    """
    shorter = min(len(old), len(new))
    if old[:shorter] == new[:shorter]:
        return shorter
    return next(
        place
        for place, (before, after) in enumerate(zip(old, new, strict=False))
        if before != after
    )


def _common_suffix(old: Sequence[bytes], new: Sequence[bytes], most: int) -> int:
    count = 0
    while count < most and old[-1 - count] == new[-1 - count]:
        count += 1
    return count


def _singles(elements: Sequence[bytes], codec: Codec) -> list[Span]:
    return [Span(element_chunk(element, codec)) for element in elements]


def _slice(spans: Sequence[Span], begin: int, end: int) -> Iterator[Span]:
    """Yield the elements `begin` to `end`, as spans."""
    place = 0
    for span in spans:
        after = place + span.count
        low, high = max(begin, place), min(end, after)
        if low < high:
            if (low, high) == (place, after):
                yield span
            elif span.chunk.level > 1:
                yield from _slice(span.chunk.children, low - place, high - place)
            else:
                first = span.start + low - place
                yield Span(span.chunk, first, first + high - low)
        place = after


def _append(spans: tuple[Span, ...], elements: Sequence[bytes], codec: Codec) -> tuple[Span, ...]:
    """Return spans that were folded already with elements after them.

    Nothing folds until there are FAN single ones at the end.
    """
    more = (*spans, *_singles(elements, codec))
    singles = 0
    while singles < len(more) and more[-1 - singles].chunk.level == 0:
        singles += 1
    return more if singles < FAN else tuple(_fold(list(more), codec))


def _fold(spans: list[Span], codec: Codec) -> list[Span]:
    """Return the same elements with FAN neighbours of one level as one span of the next, again and
    again.
    """
    level = 0
    while True:
        folded: list[Span] = []
        neighbours: list[Span] = []
        progress = False
        for span in spans:
            if span.chunk.level == level and span.whole:
                neighbours.append(span)
                if len(neighbours) == FAN:
                    folded.append(Span(_parent_chunk(neighbours, level, codec)))
                    neighbours = []
                    progress = True
            else:
                folded += neighbours
                neighbours = []
                folded.append(span)
        folded += neighbours
        spans = folded
        if not progress and level > 0:
            return spans
        level += 1


def _parent_chunk(spans: Sequence[Span], level: int, codec: Codec) -> Chunk:
    if level > 0:
        return Chunk(level + 1, codec.digest(NODE, *map(_span_name, spans)), children=tuple(spans))
    ends = array("Q")
    end = 0
    for span in spans:
        end += len(span.chunk.content)
        ends.append(end)
    content = b"".join(span.chunk.content for span in spans)
    return Chunk(1, codec.digest(PACK, _encode_pack(content, ends)), content=content, ends=ends)


def _encode_pack(content: bytes, ends: Sequence[int]) -> bytes:
    lengths = [end - begin for begin, end in zip((0, *ends), ends, strict=False)]
    return b"".join(
        (len(ends).to_bytes(4, "big"), *(length.to_bytes(4, "big") for length in lengths), content)
    )


def _decode_pack(stored: bytes) -> tuple[bytes, Any]:
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


def _offset(chunk: Chunk, place: int) -> int:
    return chunk.ends[place - 1] if place else 0


_INLINE = 96
"""Bytes up to which a leaf is stored in the roots instead of as a chunk."""


@dataclass(frozen=True)
class Leaf:
    """One value that is stored as it is: its type, which the adapter gave, and its bytes."""

    type: str
    body: bytes
    chunk: Chunk | None = field(default=None, compare=False, repr=False)
    """The chunk that has its bytes, when it is large."""
    inline: bytes = field(default=b"", compare=False, repr=False)
    """The stored form of its bytes, when it is small."""


@dataclass(frozen=True)
class ListValue:
    """A list of elements, of which a later version shares what did not change; `kind` is the
    adapter's.
    """

    kind: str
    items: PersistentList
    memo: dict[tuple[int, int], Any] = field(default_factory=dict, compare=False, repr=False)
    """What an adapter computed about its elements, by where they begin and end; may be lost at any
    time.
    """

    @classmethod
    def of(
        cls, kind: str, elements: Sequence[bytes], memo: dict[tuple[int, int], Any] | None = None
    ) -> ListValue:
        """Return a list that is not stored yet."""
        return cls(kind, PersistentList((), elements), memo or {})

    @property
    def elements(self) -> Sequence[bytes]:
        """Its elements."""
        return self.items.elements

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ListValue):
            return NotImplemented
        return self.kind == other.kind and list(self.elements) == list(other.elements)

    def __hash__(self) -> int:
        return hash((self.kind, len(self.elements)))


@dataclass(frozen=True)
class Fields:
    """A few values by name, in order."""

    entries: Mapping[str, Value]


Value = Leaf | ListValue | Fields


def share_with_base(value: Value, base: Value | None, codec: Codec) -> Value:
    """Return `value` as it will be stored, sharing what is equal with `base`, which is stored
    already.
    """
    if isinstance(value, Leaf):
        if isinstance(base, Leaf) and (base.type, base.body) == (value.type, value.body):
            return base
        if len(value.body) > _INLINE:
            return Leaf(value.type, value.body, element_chunk(value.body, codec))
        return Leaf(
            value.type, value.body, inline=codec.pack(value.body) if codec.encrypts else value.body
        )
    if isinstance(value, ListValue):
        same_kind = isinstance(base, ListValue) and base.kind == value.kind
        items = base.items if same_kind and isinstance(base, ListValue) else PersistentList()
        return ListValue(value.kind, items.update(value.elements, codec), value.memo)
    entries = base.entries if isinstance(base, Fields) else {}
    return Fields(
        {
            name: share_with_base(entry, entries.get(name), codec)
            for name, entry in value.entries.items()
        }
    )


def value_digest(value: Value, codec: Codec) -> bytes:
    """Return the digest of a value that went through `share_with_base`."""
    if isinstance(value, Leaf):
        return codec.digest(
            b"leaf\x00",
            value.type.encode(),
            b"\x00",
            value.body if value.chunk is None else value.chunk.digest,
        )
    if isinstance(value, ListValue):
        return codec.digest(b"run\x00", value.kind.encode(), b"\x00", value.items.digest(codec))
    return codec.digest(b"fields\x00", *_named_digests(value.entries, codec))


def values_digest(values: Mapping[str, Value], codec: Codec) -> bytes:
    """Return the digest of all values of a checkpoint together."""
    return codec.digest(b"values\x00", *_named_digests(values, codec))


def _named_digests(values: Mapping[str, Value], codec: Codec) -> list[bytes]:
    return [
        json.dumps(name).encode() + b"\x00" + value_digest(value, codec)
        for name, value in values.items()
    ]


def new_chunks(value: Value) -> Iterator[Chunk]:
    """Yield the chunks of a value that have no id yet, children before their parents."""
    if isinstance(value, Leaf):
        if value.chunk is not None and value.chunk.id is None:
            yield value.chunk
    elif isinstance(value, ListValue):
        for span in value.items.spans:
            if span.chunk.id is None:
                yield from _new_below(span.chunk)
    else:
        for entry in value.entries.values():
            yield from new_chunks(entry)


def all_chunks(value: Value) -> Iterator[Chunk]:
    """Yield every chunk of a value, those below nodes too."""
    if isinstance(value, Leaf):
        if value.chunk is not None:
            yield value.chunk
    elif isinstance(value, ListValue):
        for span in value.items.spans:
            yield from _all_below(span.chunk)
    else:
        for entry in value.entries.values():
            yield from all_chunks(entry)


def _all_below(chunk: Chunk) -> Iterator[Chunk]:
    yield chunk
    for child in chunk.children:
        yield from _all_below(child.chunk)


def _new_below(chunk: Chunk) -> Iterator[Chunk]:
    # A chunk with an id is stored, and with it everything below: its children were stored first.
    for child in chunk.children:
        if child.chunk.id is None:
            yield from _new_below(child.chunk)
    yield chunk
