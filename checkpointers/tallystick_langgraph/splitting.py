"""LangGraph's values split into elements that checkpoints share, and joined again.

A list is a ListValue and a dict with text for keys is Fields, or a ListValue of entries when it is
large, in the very bytes that LangGraph's serializer would write. An element is shared with the
checkpoint before if its bytes are equal, compared every time: an edit in place is always noticed.
For plain messages those bytes are made without pydantic, at a fraction of the cost; a test compares
them with LangGraph's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

import ormsgpack
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2, JsonPlusSerializer, _option
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tallystick.checkpoints import Fields, Leaf, ListValue, Value
from tallystick.errors import BlockedType, CorruptTally
from tallystick_langgraph.serde import TallySerializer, message_frame

_FIELDS = 32
"""Entries up to which a dict is Fields, each a value of its own; beyond, it is a ListValue."""

_pack = ormsgpack.packb


class ValueSplitter(Protocol):
    """Conversion of one serializer's values to the values of checkpoints, and back."""

    serde: SerializerProtocol

    def split(self, value: Any, base: Value | None) -> Value:
        """Return the value to store; `base` is the channel's value at the checkpoint before."""
        ...

    def join(self, value: Value, channel: str) -> Any:
        """Return the runtime's value. Raises BlockedType naming `channel`, and CorruptTally."""
        ...


def splitter_for(serde: SerializerProtocol) -> ValueSplitter:
    """Return the splitter of a serializer: into elements where its form is known, which is
    LangGraph's own, else one leaf per value.
    """
    if type(serde) in (JsonPlusSerializer, TallySerializer):
        return ElementSplitter(serde)
    return WholeSplitter(serde)


class WholeSplitter:
    """Values of a serializer of unknown form: stored whole, once for equal bytes."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def split(self, value: Any, base: Value | None) -> Value:
        """Return one leaf."""
        return Leaf(*self.serde.dumps_typed(value))

    def join(self, value: Value, channel: str) -> Any:
        """Return what the serializer reads."""
        if not isinstance(value, Leaf):
            raise CorruptTally(
                f"{channel} was written with LangGraph's own serializer. Read it with that one."
            )
        return _load(lambda: self.serde.loads_typed((value.type, value.body)), channel)


class ElementSplitter:
    """Values in LangGraph's msgpack form, split into elements that checkpoints share."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def split(self, value: Any, base: Value | None) -> Value:
        """Return lists and fields where the value has them, else a leaf."""
        if type(value) is list and value:
            elements = self._list_value("list", value, base)
            if elements is not None:
                return elements
        elif type(value) is _DeltaSnapshot and type(value.value) is list and value.value:
            # The checkpoint before has no snapshot: chunks are shared with an older one by digest.
            elements = self._list_value("snapshot", value.value, base)
            if elements is not None:
                return elements
        elif type(value) is dict and value and all(type(name) is str for name in value):
            if len(value) <= _FIELDS:
                entries = base.entries if isinstance(base, Fields) else {}
                return Fields(
                    {name: self.split(inner, entries.get(name)) for name, inner in value.items()}
                )
            elements = self._list_value("dict", [list(pair) for pair in value.items()], base)
            if elements is not None:
                return elements
        return Leaf(*self.serde.dumps_typed(value))

    def join(self, value: Value, channel: str) -> Any:
        """Return lists and dicts of what the serializer reads; a ListValue is read in one go."""
        if isinstance(value, Leaf):
            return _load(lambda: self.serde.loads_typed((value.type, value.body)), channel)
        if isinstance(value, Fields):
            return {
                name: self.join(inner, f"{channel}.{name}") for name, inner in value.entries.items()
            }
        items = value.items
        body = b"".join((b"\xdd", len(items).to_bytes(4, "big"), *items.contents()))
        elements = _load(lambda: self.serde.loads_typed(("msgpack", body)), channel)
        if not isinstance(elements, list) or len(elements) != len(items):
            raise CorruptTally(f"{channel} does not hold as many elements as it says.")
        if value.kind == "snapshot":
            return _DeltaSnapshot(elements)
        if value.kind != "dict":
            return elements
        try:
            return dict(elements)
        except (TypeError, ValueError) as error:
            raise CorruptTally(f"{channel} does not hold the entries of a dict.") from error

    def _list_value(self, kind: str, values: Sequence[Any], base: Value | None) -> ListValue | None:
        """Return a list with the bytes of each element, or None for what is no msgpack.

        Bytes that are equal to those at the same place of `base` are the very same object. Ranges
        of plain messages are compared at once, which is several times faster than one by one.
        """
        # What makes the range comparison safe: a note is computed from the *stored* bytes of the
        # base, never from message objects, which their owner may edit in place. It travels with
        # the values of the base (`ListValue.memo`), is keyed by the places where its range begins
        # and ends, and is passed on only when the range was found unchanged. If a note described
        # an object, an edit in place would compare equal to itself and be lost.
        old: Sequence[bytes] = ()
        old_notes: dict[tuple[int, int], Any] = {}
        if isinstance(base, ListValue) and base.kind == kind:
            old, old_notes = base.elements, base.memo
        elements: list[bytes] = []
        notes: dict[tuple[int, int], Any] = {}
        both, end = min(len(values), len(old)), 0
        while end < len(values):
            start, end = end, end + (_LONG_RANGE if end + _LONG_RANGE <= both else _SHORT_RANGE)
            messages = values[start:end]
            if end <= both:
                note = old_notes.get((start, end))
                if note is None:
                    note = _note(old[start:end])
                if _is_unchanged(messages, note):
                    elements += old[start:end]
                    notes[start, end] = note
                    continue
            for place, value in enumerate(messages, start=start):
                body = _message_bytes(value)
                if body is None:
                    form, listed = self.serde.dumps_typed([value])
                    if form != "msgpack":
                        return None
                    body = listed[1:]
                elements.append(old[place] if place < both and old[place] == body else body)
        return ListValue.of(kind, elements, notes)


def _message_bytes(message: Any) -> bytes | None:
    """Return the bytes of a plain message, or None for what needs the serializer."""
    form = _forms.get(type(message))
    if form is None or message.__pydantic_extra__:
        return None
    begin, end = form
    try:
        inner = begin + _pack(message.__dict__, None, _option) + end
    except TypeError:
        return None
    size = len(inner)
    if size < 256:
        return b"\xc7" + bytes((size, EXT_PYDANTIC_V2)) + inner
    if size < 65536:
        return b"\xc8" + size.to_bytes(2, "big") + _EXT + inner
    return b"\xc9" + size.to_bytes(4, "big") + _EXT + inner


def _note(bodies: Sequence[bytes]) -> tuple[list[type], bytes] | None:
    """Return the types of the messages of these bytes, and all of their fields as one list would
    be written; None where one of them is no plain message.
    """
    types: list[type] = []
    fields: list[bytes] = []
    for body in bodies:
        at = _HEADS.get(body[:1])
        if at is None or body[at - 1 : at] != _EXT:
            return None
        for message, (begin, end) in _forms.items():
            if body.startswith(begin, at) and body.endswith(end):
                types.append(message)
                fields.append(body[at + len(begin) : len(body) - len(end)])
                break
        else:
            return None
    return types, b"".join((b"\xdc", len(bodies).to_bytes(2, "big"), *fields))


def _is_unchanged(messages: Sequence[Any], note: tuple[list[type], bytes] | None) -> bool:
    """Return True if these messages would be written as they are stored."""
    if note is None or list(map(type, messages)) != note[0] or any(map(_extra, messages)):
        return False
    try:
        return _pack([message.__dict__ for message in messages], None, _option) == note[1]
    except TypeError:
        return False


_extra = attrgetter("__pydantic_extra__")
_LONG_RANGE, _SHORT_RANGE = 64, 16
"""Messages that are compared at once, and near the end: between 16 and 65,535, so that their list
has one form.
"""
_HEADS = {b"\xc7": 3, b"\xc8": 4, b"\xc9": 6}
"""Bytes before the content of a msgpack extension, by its first byte; its type is the last of them.
"""
_EXT = bytes((EXT_PYDANTIC_V2,))


_forms: Mapping[type, tuple[bytes, bytes]] = {
    message: message_frame(message)
    for message in (
        AIMessage,
        AIMessageChunk,
        ChatMessage,
        HumanMessage,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
    )
}


def _load(read: Callable[[], Any], channel: str) -> Any:
    try:
        return read()
    except BlockedType as error:
        raise BlockedType(error.module, error.name, where=channel) from None
    except CorruptTally as error:
        raise CorruptTally(f"{channel}: {error}") from error
