"""Serializer of the saver: LangGraph's msgpack form, read back strictly.

A stored value names classes to build. This serializer builds those that LangGraph calls safe
(messages, documents, dates, …), those that you allow, and those that this process has itself
written; for anything else it raises BlockedType instead of building it. LangGraph's own default
builds whatever a row names.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.jsonplus import (
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_DELTA_SNAPSHOT,
    EXT_METHOD_SINGLE_ARG,
    EXT_PYDANTIC_V1,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
    _create_msgpack_ext_hook,
)
from langgraph.checkpoint.serde.types import _DeltaSnapshot

from tallystick.errors import BlockedType, CorruptTally, InvalidInput
from tallystick.kit import describe_value
from tallystick_langgraph.allowlist import names_of

_log = logging.getLogger("tallystick.langgraph")
_CONSTRUCTORS = frozenset(
    {
        EXT_CONSTRUCTOR_SINGLE_ARG,
        EXT_CONSTRUCTOR_POS_ARGS,
        EXT_CONSTRUCTOR_KW_ARGS,
        EXT_PYDANTIC_V1,
        EXT_PYDANTIC_V2,
    }
)
_OPTION = ormsgpack.OPT_NON_STR_KEYS
_EXTENSIONS = (b"\xc7", b"\xc8", b"\xc9", b"\xd4", b"\xd5", b"\xd6", b"\xd7", b"\xd8")
"""First bytes of msgpack extensions, as which every class is written; other bytes may look alike.
"""

_own: set[tuple[str, ...]] = set()
"""Types that this process has written: it may read what its own program put into state."""


def _checked_types(allow: Iterable[Any]) -> list[Any]:
    """Return the types to allow. Raises InvalidInput for what names no type, and would allow
    nothing.
    """
    if isinstance(allow, str | type) or not isinstance(allow, Iterable):
        raise InvalidInput(
            f"`allow` is {describe_value(allow)} where a sequence is meant. Write allow=[…]."
        )
    types = list(allow)
    for entry in types:
        is_name = isinstance(entry, tuple) and len(entry) >= 2
        if (isinstance(entry, tuple) and not is_name) or isinstance(entry, str | int | None):
            raise InvalidInput(
                f"`allow` holds {describe_value(entry)}. Give the class itself, or its module and "
                f"name: ('package.module', 'Name')."
            )
    return types


class TallySerializer(JsonPlusSerializer):
    """msgpack as LangGraph writes it, which reads back only what is allowed: types, or (module,
    name).
    """

    def __init__(self, allow: Iterable[Any] = ()) -> None:
        allow = _checked_types(allow)
        super().__init__(allowed_msgpack_modules=None)
        self._allow = frozenset(names_of(allow))
        self._local = threading.local()
        self._unpack_ext_hook = _strict_hook(_AllowList(self._allow, self._local))

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[Any]) -> TallySerializer:
        """Return the same serializer with more types allowed; LangGraph calls this with those of a
        graph's schema.
        """
        more = self._allow | names_of(extra_allowlist)
        return self if more == self._allow else TallySerializer(more)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Same as LangGraph's serializer; remembers the types that it wrote."""
        kind, body = super().dumps_typed(obj)
        if kind == "msgpack" and any(first in body for first in _EXTENSIONS):
            self._remember_types(body)
        return kind, body

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value. Raises BlockedType for what may not be built, CorruptTally for bytes
        that are no value.
        """
        kind, body = data
        if kind in ("null", "bytes", "bytearray"):
            return super().loads_typed(data)
        if kind != "msgpack":
            raise CorruptTally(
                f"A stored value is of the kind {kind[:40]!r}, which this serializer does not read."
            )
        self._local.refused = None
        try:
            value = ormsgpack.unpackb(body, ext_hook=self._unpack_ext_hook, option=_OPTION)
        except (ValueError, RecursionError) as error:
            if self._local.refused is None:
                raise CorruptTally(
                    "A stored value cannot be read: its bytes are damaged."
                ) from error
            value = None
        refused: Any = self._local.refused
        if refused is not None:
            raise BlockedType(*refused)
        return value

    def _remember_types(self, body: bytes) -> None:
        """Remember the types in what this process has just written, and warn of those that the
        next one will refuse.
        """
        types: set[tuple[str, ...]] = set()

        def hook(code: int, data: bytes) -> Any:
            parts = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            if code in _CONSTRUCTORS:
                types.add((parts[0], parts[1]))

        ormsgpack.unpackb(body, ext_hook=hook, option=_OPTION)
        for key in types - _own - SAFE_MSGPACK_TYPES:
            _own.add(key)
            if key not in self._allow:
                _log.warning(
                    "State holds %s.%s. This process reads it back; so that the next one does, "
                    "allow it: "
                    "TallySaver(tally, allow=[%s])",
                    *key,
                    key[1],
                )


class _AllowList(set[tuple[str, ...]]):
    """An allow-list that remembers the last type it refused: LangGraph would go on with the bare
    payload.
    """

    def __init__(self, allow: Iterable[tuple[str, ...]], local: threading.local) -> None:
        super().__init__(allow)
        self.local = local

    def __bool__(self) -> bool:
        return True

    def __contains__(self, key: object) -> bool:
        if super().__contains__(key) or key in _own:
            return True
        self.local.refused = key
        return False


class _MessageBuilder:
    """Builds messages; those that validation left exactly as they were are not validated again.

    The same messages are read at every turn of a conversation, and validating them is most of what
    reading costs. The second time that the same bytes are read, the message is compared with
    its fields; from the third time on it is built from them directly.
    """

    def __init__(self) -> None:
        self._seen_keys: set[tuple[type, int]] = set()
        self.fixed: dict[int, tuple[Any, int, int, frozenset[str]]] = {}
        """By the hash of their bytes, messages that equal their fields: class, where the fields
        begin and end, and their names.
        """

    def __call__(self, message: Any, fields: dict[str, Any], data: bytes) -> Any:
        """Return the message with these fields, whose bytes are `data`."""
        key = (message, hash(data))
        try:
            built = message(**fields)
        except Exception:  # noqa: BLE001 - as LangGraph does: what does not validate is built unvalidated
            return message.model_construct(**fields)
        if key not in self._seen_keys:
            if len(self._seen_keys) >= _MOST_MESSAGES:
                self._seen_keys.clear()
                self.fixed.clear()
            self._seen_keys.add(key)
        elif message in _PLAIN and _is_fixed(built, fields):
            begin, end = _PLAIN[message]
            if data.startswith(begin) and data.endswith(end):
                self.fixed[key[1]] = (message, len(begin), -len(end), frozenset(fields))
        return built


def _is_fixed(message: Any, fields: dict[str, Any]) -> bool:
    """Return True if a message is its fields, types included, and nothing else."""
    if message.__pydantic_extra__ or message.__pydantic_private__ is not None:
        return False
    if message.__pydantic_fields_set__ != fields.keys():
        return False
    try:
        return ormsgpack.packb(message.__dict__, None, _OPTION) == ormsgpack.packb(
            fields, None, _OPTION
        )
    except TypeError:
        return False


def message_frame(message: type) -> tuple[bytes, bytes]:
    """Return the bytes before and after a message's fields in the form that LangGraph writes."""
    name = ormsgpack.packb(message.__module__) + ormsgpack.packb(message.__name__)
    return b"\x94" + name, ormsgpack.packb("model_validate_json")


_set = object.__setattr__
_PLAIN = {
    message: message_frame(message)
    for message in (AIMessage, HumanMessage, SystemMessage, ToolMessage)
}
_MOST_MESSAGES = 200_000
"""Messages that are remembered; then the memory begins anew."""


def _strict_hook(allowed: _AllowList) -> Callable[[int, bytes], Any]:
    """Return LangGraph's own hook under `allowed`, with a short way for the classes that state
    mostly contains.
    """
    general = _create_msgpack_ext_hook(allowed)
    classes: dict[tuple[str, str], Any] = {}
    builder = _MessageBuilder()
    fixed, unpack, new = builder.fixed, ormsgpack.unpackb, object.__new__

    def hook(code: int, data: bytes) -> Any:
        if code == EXT_PYDANTIC_V2:
            cached = fixed.get(hash(data))
            if cached is not None:
                message, begin, end, names = cached
                copy = new(message)
                _set(copy, "__dict__", unpack(data[begin:end], ext_hook=hook, option=_OPTION))
                _set(copy, "__pydantic_fields_set__", set(names))
                _set(copy, "__pydantic_extra__", {})
                _set(copy, "__pydantic_private__", None)
                return copy
            module, name, fields, *_ = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            message = classes.get((module, name))
            if message is None:
                if (module, name) not in SAFE_MSGPACK_TYPES:
                    return general(code, data)
                message = classes[module, name] = getattr(importlib.import_module(module), name)
            return builder(message, fields, data)
        if code == EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION))
        if code == EXT_METHOD_SINGLE_ARG:
            module, name, _, method, *_ = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            if (module, name, method) not in SAFE_MSGPACK_METHODS:
                allowed.local.refused = (module, f"{name}.{method}")
        return general(code, data)

    return hook
