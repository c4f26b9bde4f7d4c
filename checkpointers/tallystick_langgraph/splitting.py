"""LangGraph's values as the trees see them, and back.

A list is a run of elements and a dict with text for keys is fields, or a run of entries when it is
large, in the very bytes that LangGraph's serializer would write. Whether an element is what it was
at the checkpoint before is decided by its bytes, every time: an edit in place is always seen. For
plain messages those bytes are made without pydantic, at a fraction of the cost; a test holds them
against LangGraph's own.
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

from tallystick.checkpoints import Fields, Leaf, Run, Value
from tallystick.errors import BlockedType, CorruptTally
from tallystick_langgraph.serde import TallySerializer, form_of

__all__ = ["Shapes", "Split", "Whole", "shapes_for"]

_FIELDS = 32
"""Entries up to which a dict is fields, each a value of its own; beyond, it is one run of entries.
"""

_pack = ormsgpack.packb


class Shapes(Protocol):
    """How one serializer's values become trees."""

    serde: SerializerProtocol

    def planted(self, value: Any, before: Value | None) -> Value:
        """The value as a tree; `before` is what its channel held at the checkpoint before."""
        ...

    def grown(self, value: Value, where: str) -> Any:
        """The value of a tree. Raises BlockedType naming `where`, and CorruptTally."""
        ...


def shapes_for(serde: SerializerProtocol) -> Shapes:
    """Trees for serializers whose form is known, which is LangGraph's own; one leaf per value for
    all others.
    """
    return Split(serde) if type(serde) in (JsonPlusSerializer, TallySerializer) else Whole(serde)


class Whole:
    """Values as a serializer of unknown form gives them: stored whole, once for equal bytes."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def planted(self, value: Any, before: Value | None) -> Value:
        """One leaf."""
        return Leaf(*self.serde.dumps_typed(value))

    def grown(self, value: Value, where: str) -> Any:
        """What the serializer reads."""
        if not isinstance(value, Leaf):
            raise CorruptTally(
                f"{where} was written with LangGraph's own serializer. Read it with that one."
            )
        return _named(lambda: self.serde.loads_typed((value.type, value.body)), where)


class Split:
    """Values in LangGraph's msgpack form, split into elements that checkpoints share."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def planted(self, value: Any, before: Value | None) -> Value:
        """Runs and fields where the value has them, else a leaf."""
        if type(value) is list and value:
            run = self._run("list", value, before)
            if run is not None:
                return run
        elif type(value) is _DeltaSnapshot and type(value.value) is list and value.value:
            # What it shares with the snapshot before is found by content: the checkpoint before
            # holds none.
            run = self._run("snapshot", value.value, before)
            if run is not None:
                return run
        elif type(value) is dict and value and all(type(name) is str for name in value):
            if len(value) <= _FIELDS:
                entries = before.entries if isinstance(before, Fields) else {}
                return Fields(
                    {name: self.planted(inner, entries.get(name)) for name, inner in value.items()}
                )
            run = self._run("dict", [list(pair) for pair in value.items()], before)
            if run is not None:
                return run
        return Leaf(*self.serde.dumps_typed(value))

    def grown(self, value: Value, where: str) -> Any:
        """Lists and dicts of what the serializer reads; a run is read in one go."""
        if isinstance(value, Leaf):
            return _named(lambda: self.serde.loads_typed((value.type, value.body)), where)
        if isinstance(value, Fields):
            return {
                name: self.grown(inner, f"{where}.{name}") for name, inner in value.entries.items()
            }
        body = b"".join((b"\xdd", len(value.rope).to_bytes(4, "big"), *value.rope.contents()))
        found = _named(lambda: self.serde.loads_typed(("msgpack", body)), where)
        if not isinstance(found, list) or len(found) != len(value.rope):
            raise CorruptTally(f"{where} does not hold as many elements as it says.")
        if value.kind == "snapshot":
            return _DeltaSnapshot(found)
        if value.kind != "dict":
            return found
        try:
            return dict(found)
        except (TypeError, ValueError) as error:
            raise CorruptTally(f"{where} does not hold the entries of a dict.") from error

    def _run(self, kind: str, values: Sequence[Any], before: Value | None) -> Run | None:
        """The bytes of each element; those equal to the one at its place before are the very same
        object.

        Stretches of plain messages are compared at once, which is several times faster than one by
        one.
        """
        old: Sequence[bytes] = ()
        noted: dict[tuple[int, int], Any] = {}
        if isinstance(before, Run) and before.kind == kind:
            old, noted = before.elements, before.notes
        found: list[bytes] = []
        notes: dict[tuple[int, int], Any] = {}
        both, end = min(len(values), len(old)), 0
        while end < len(values):
            start, end = end, end + (_STRETCH if end + _STRETCH <= both else _SHORT)
            stretch = values[start:end]
            if end <= both:
                note = noted.get((start, end))
                if note is None:
                    note = _note(old[start:end])
                if _unchanged(stretch, note):
                    found += old[start:end]
                    notes[start, end] = note
                    continue
            for place, value in enumerate(stretch, start=start):
                body = _quick(value)
                if body is None:
                    form, listed = self.serde.dumps_typed([value])
                    if form != "msgpack":
                        return None
                    body = listed[1:]
                found.append(old[place] if place < both and old[place] == body else body)
        return Run.of(kind, found, notes)


def _quick(message: Any) -> bytes | None:
    """The bytes of a plain message, or None for what needs the serializer."""
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


def _note(stretch: Sequence[bytes]) -> tuple[list[type], bytes] | None:
    """What the messages of these bytes are: their types, and all of their fields as one list would
    be written.

    None where one is no plain message. It is drawn from what is stored, never from an object that
    somebody holds.
    """
    types: list[type] = []
    fields: list[bytes] = []
    for body in stretch:
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
    return types, b"".join((b"\xdc", len(stretch).to_bytes(2, "big"), *fields))


def _unchanged(stretch: Sequence[Any], note: tuple[list[type], bytes] | None) -> bool:
    """Whether these messages would be written as they are stored."""
    if note is None or list(map(type, stretch)) != note[0] or any(map(_extra, stretch)):
        return False
    try:
        return _pack([one.__dict__ for one in stretch], None, _option) == note[1]
    except TypeError:
        return False


_extra = attrgetter("__pydantic_extra__")
_STRETCH, _SHORT = 64, 16
"""Messages that are compared at once, and near the end: between 16 and 65,535, so that their list
has one form.
"""
_HEADS = {b"\xc7": 3, b"\xc8": 4, b"\xc9": 6}
"""Bytes before the content of a msgpack extension, by its first byte; its type is the last of them.
"""
_EXT = bytes((EXT_PYDANTIC_V2,))


_forms: Mapping[type, tuple[bytes, bytes]] = {
    message: form_of(message)
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


def _named(read: Callable[[], Any], where: str) -> Any:
    try:
        return read()
    except BlockedType as error:
        raise BlockedType(error.module, error.name, where=where) from None
    except CorruptTally as error:
        raise CorruptTally(f"{where}: {error}") from error
