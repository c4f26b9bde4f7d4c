"""Channel values as checkpoints store them: a leaf of bytes, a list of elements, or a few named
fields; what a new version shares with the one before, and the digest of each.

An adapter makes these from its runtime's values, and its runtime's values from these.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.persistent_list import Chunk, PersistentList, element_chunk

__all__ = [
    "Fields",
    "Leaf",
    "ListValue",
    "Value",
    "all_chunks",
    "new_chunks",
    "share_with_base",
    "value_digest",
    "values_digest",
]

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
        return ListValue(value.kind, items.updated(value.elements, codec), value.memo)
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
