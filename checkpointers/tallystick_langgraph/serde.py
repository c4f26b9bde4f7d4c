"""The saver's own serializer: LangGraph's msgpack form, read back strictly.

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

from tallystick.errors import BlockedType, CorruptTally
from tallystick_langgraph.allowlist import names_of

__all__ = ["TallySerializer", "form_of"]

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
_MARKS = (b"\xc7", b"\xc8", b"\xc9", b"\xd4", b"\xd5", b"\xd6", b"\xd7", b"\xd8")
"""How a msgpack extension begins, which is what every class is written as; other bytes may look
alike.
"""

_own: set[tuple[str, ...]] = set()
"""Types that this process has written: what its own program put into state, it may read."""


class TallySerializer(JsonPlusSerializer):
    """msgpack as LangGraph writes it, which reads back only what is allowed: types, or (module,
    name).
    """

    def __init__(self, allow: Iterable[Any] = ()) -> None:
        super().__init__(allowed_msgpack_modules=None)
        self._allow = frozenset(names_of(allow))
        self._local = threading.local()
        self._unpack_ext_hook = _strict_hook(_Allowed(self._allow, self._local))

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[Any]) -> TallySerializer:
        """The same serializer with more types allowed; LangGraph calls this with those of a graph's
        schema.
        """
        more = self._allow | names_of(extra_allowlist)
        return self if more == self._allow else TallySerializer(more)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Same as LangGraph's serializer; notes which types it wrote."""
        kind, body = super().dumps_typed(obj)
        if kind == "msgpack" and any(mark in body for mark in _MARKS):
            self._note(body)
        return kind, body

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The value. Raises BlockedType for what may not be built, CorruptTally for bytes that are
        no value.
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

    def _note(self, body: bytes) -> None:
        """Remember the types in what this process has just written, and say which the next one will
        refuse.
        """
        written: set[tuple[str, ...]] = set()

        def hook(code: int, data: bytes) -> Any:
            named = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            if code in _CONSTRUCTORS:
                written.add((named[0], named[1]))

        ormsgpack.unpackb(body, ext_hook=hook, option=_OPTION)
        for key in written - _own - SAFE_MSGPACK_TYPES:
            _own.add(key)
            if key not in self._allow:
                _log.warning(
                    "State holds %s.%s. This process reads it back; so that the next one does, "
                    "allow it: "
                    "TallySaver(tally, allow=[%s])",
                    *key,
                    key[1],
                )


class _Allowed(set[tuple[str, ...]]):
    """An allow-list that remembers what it was asked for in vain: LangGraph would go on with the
    bare payload.
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


class _Remembered:
    """Builds messages; what validation was seen to leave exactly as it is, is not validated again.

    The same messages are read at every turn of a conversation, and validating them is most of what
    reading costs. The second time that the same bytes are read, the message is held against its
    fields; from the third time on it is made from them directly.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[type, int], bool] = {}
        self.fixed: dict[int, tuple[Any, int, int, frozenset[str]]] = {}
        """By the hash of their bytes, messages that are their fields: class, where those stand, and
        their names.
        """

    def __call__(self, message: Any, fields: dict[str, Any], data: bytes) -> Any:
        """The message with these fields, which stand in `data`."""
        key = (message, hash(data))
        known = self._times.get(key)
        try:
            made = message(**fields)
        except Exception:  # noqa: BLE001 - as LangGraph does: what does not validate is built as it stands
            return message.model_construct(**fields)
        if known is None:
            if len(self._times) >= _REMEMBERED:
                self._times.clear()
                self.fixed.clear()
            self._times[key] = False
        elif message in _PLAIN and _is_fixed(made, fields):
            begin, end = _PLAIN[message]
            if data.startswith(begin) and data.endswith(end):
                self.fixed[key[1]] = (message, len(begin), -len(end), frozenset(fields))
        return made


def _is_fixed(message: Any, fields: dict[str, Any]) -> bool:
    """Whether a message is its fields, types and all, and nothing else."""
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


def form_of(message: type) -> tuple[bytes, bytes]:
    """What stands before and after a message's fields in the form that LangGraph writes."""
    named = ormsgpack.packb(message.__module__) + ormsgpack.packb(message.__name__)
    return b"\x94" + named, ormsgpack.packb("model_validate_json")


_set = object.__setattr__
_PLAIN = {
    message: form_of(message) for message in (AIMessage, HumanMessage, SystemMessage, ToolMessage)
}
_REMEMBERED = 200_000
"""Messages that are remembered; then it begins anew."""


def _strict_hook(allowed: _Allowed) -> Callable[[int, bytes], Any]:
    """LangGraph's own hook under `allowed`, with a short way for what state is mostly made of."""
    general = _create_msgpack_ext_hook(allowed)
    classes: dict[tuple[str, str], Any] = {}
    remembered = _Remembered()
    fixed, unpack, new = remembered.fixed, ormsgpack.unpackb, object.__new__

    def hook(code: int, data: bytes) -> Any:
        if code == EXT_PYDANTIC_V2:
            known = fixed.get(hash(data))
            if known is not None:
                message, begin, end, names = known
                made = new(message)
                _set(made, "__dict__", unpack(data[begin:end], ext_hook=hook, option=_OPTION))
                _set(made, "__pydantic_fields_set__", set(names))
                _set(made, "__pydantic_extra__", {})
                _set(made, "__pydantic_private__", None)
                return made
            module, name, fields, *_ = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            built = classes.get((module, name))
            if built is None:
                if (module, name) not in SAFE_MSGPACK_TYPES:
                    return general(code, data)
                built = classes[module, name] = getattr(importlib.import_module(module), name)
            return remembered(built, fields, data)
        if code == EXT_DELTA_SNAPSHOT:
            return _DeltaSnapshot(ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION))
        if code == EXT_METHOD_SINGLE_ARG:
            module, name, _, method, *_ = ormsgpack.unpackb(data, ext_hook=hook, option=_OPTION)
            if (module, name, method) not in SAFE_MSGPACK_METHODS:
                allowed.local.refused = (module, f"{name}.{method}")
        return general(code, data)

    return hook
