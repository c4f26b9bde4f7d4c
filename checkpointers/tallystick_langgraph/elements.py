"""LangGraph's values as the trees see them, and back.

A list is a run of elements and a dict with text for keys is fields, or a run of entries when it is large, in the
very bytes that LangGraph's serializer would write. Whether an element is what it was at the checkpoint before is
decided by its bytes, every time: an edit in place is always seen. For plain messages those bytes are made without
pydantic, at a fraction of the cost; a test holds them against LangGraph's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

from tallystick.errors import BlockedType, CorruptTally
from tallystick.threads import Fields, Leaf, Run, Value
from tallystick_langgraph.serde import TallySerializer

__all__ = ["Shapes", "Split", "Whole", "shapes_for"]

_FIELDS = 32
"""Entries up to which a dict is fields, each a value of its own; beyond, it is one run of entries."""

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
    """Trees for serializers whose form is known, which is LangGraph's own; one leaf per value for all others."""
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
            raise CorruptTally(f"{where} was written with LangGraph's own serializer. Read it with that one.")
        return _named(lambda: self.serde.loads_typed((value.type, value.body)), where)


class Split:
    """Values in LangGraph's msgpack form, split into elements that checkpoints share."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def planted(self, value: Any, before: Value | None) -> Value:
        """Runs and fields where the value has them, else a leaf."""
        if type(value) is list and value:
            elements = self._elements(value, before.elements if isinstance(before, Run) else ())
            if elements is not None:
                return Run.of("list", elements)
        elif type(value) is dict and value and all(type(name) is str for name in value):
            if len(value) <= _FIELDS:
                entries = before.entries if isinstance(before, Fields) else {}
                return Fields({name: self.planted(inner, entries.get(name)) for name, inner in value.items()})
            pairs = [list(pair) for pair in value.items()]
            elements = self._elements(pairs, before.elements if isinstance(before, Run) else ())
            if elements is not None:
                return Run.of("dict", elements)
        return Leaf(*self.serde.dumps_typed(value))

    def grown(self, value: Value, where: str) -> Any:
        """Lists and dicts of what the serializer reads; a run is read in one go."""
        if isinstance(value, Leaf):
            return _named(lambda: self.serde.loads_typed((value.type, value.body)), where)
        if isinstance(value, Fields):
            return {name: self.grown(inner, f"{where}.{name}") for name, inner in value.entries.items()}
        body = b"".join((b"\xdd", len(value.rope).to_bytes(4, "big"), *value.rope.contents()))
        found = _named(lambda: self.serde.loads_typed(("msgpack", body)), where)
        if not isinstance(found, list) or len(found) != len(value.rope):
            raise CorruptTally(f"{where} does not hold as many elements as it says.")
        if value.kind != "dict":
            return found
        try:
            return dict(found)
        except (TypeError, ValueError) as error:
            raise CorruptTally(f"{where} does not hold the entries of a dict.") from error

    def _elements(self, values: Sequence[Any], before: Sequence[bytes]) -> list[bytes] | None:
        """The bytes of each element; those equal to the one at its place before are the very same object."""
        found: list[bytes] = []
        keep = found.append
        known = _forms.get
        last = len(before)
        for place, value in enumerate(values):
            form = known(type(value))
            body: bytes | None = None
            if form is not None and not value.__pydantic_extra__:
                begin, end = form
                try:
                    inner = begin + _pack(value.__dict__, None, _option) + end
                except TypeError:
                    pass
                else:
                    size = len(inner)
                    if size < 256:
                        body = b"\xc7" + bytes((size, EXT_PYDANTIC_V2)) + inner
                    elif size < 65536:
                        body = b"\xc8" + size.to_bytes(2, "big") + _EXT + inner
            if body is None:
                kind, listed = self.serde.dumps_typed([value])
                if kind != "msgpack":
                    return None
                body = listed[1:]
            if place < last and before[place] == body:
                body = before[place]
            keep(body)
        return found


_EXT = bytes((EXT_PYDANTIC_V2,))


def _form(message: type) -> tuple[bytes, bytes]:
    """What stands before and after a message's fields in the form that LangGraph writes."""
    return b"\x94" + _pack(message.__module__) + _pack(message.__name__), _pack("model_validate_json")


_forms: Mapping[type, tuple[bytes, bytes]] = {
    message: _form(message)
    for message in (
        AIMessage, AIMessageChunk, ChatMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage,
    )
}  # fmt: skip


def _named(read: Callable[[], Any], where: str) -> Any:
    try:
        return read()
    except BlockedType as error:
        raise BlockedType(error.module, error.name, where=where) from None
    except CorruptTally as error:
        raise CorruptTally(f"{where}: {error}") from error
