"""A memo of texts that adapters serialised before, because most of a prompt was in the one before.

**What is memoised by identity.** An adapter holds message objects, not bytes. Comparing or hashing
every text of a prompt for each model call would cost as much as serialising it, so that an entry is
looked up by `id(text)`, the identity of the message's text. That is sound for two reasons:

- Only exact `str` objects are keys, and a `str` never changes.
- The entry's own fields reference the text. The object therefore stays alive as long as the entry
  does, and no other object can have its id.

**How an edit in place is seen.** Whoever edits a message assigns another text (another identity:
not found, or an entry of another value) or changes another field. All fields are compared with the
ones that were serialised, by value. That comparison can only be trusted for values that cannot
change after they were memoised and whose equality means equal JSON: texts, None, and empty
containers, of which the memo keeps an empty one of its own. A message with anything else (a filled
list or dict, a number: `1 == True`) is not memoised. An entry that kept a reference to a list of
the message would compare it with itself after an edit, and the record would repeat the message of
before.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

from tallystick.recorder.payloads import Preserialized

_IMMUTABLE = frozenset({str})
"""Types of values that never change. Not numbers: 1 equals True, and has another JSON form."""
_CONTAINERS = frozenset({dict, list})
"""Types of values that may be filled later: of an empty one the memo keeps its own."""


class _Entry(NamedTuple):
    kind: type
    fields: dict[str, Any]
    preserialized: Preserialized


class TextMemo:
    """Serialised values that consist of a text and fixed fields, by the identity of the text.
    Thread-safe.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._size = 0
        self._guard = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        _all.add(self)

    def get(self, text: Any, kind: type, fields: Mapping[str, Any]) -> Preserialized | None:
        """Return a value of this kind with these fields, one of which is `text`, as it was
        serialised; None if it is not in the memo.
        """
        entry = self._entries.get(id(text))
        if entry is None or entry.kind is not kind:
            return None
        try:
            # Equal values of these types have one JSON form, and identical texts are not read.
            return entry.preserialized if entry.fields == fields else None
        except Exception:  # noqa: BLE001 - a field now holds a value that refuses comparison: another value
            return None

    def put(
        self, text: Any, kind: type, fields: Mapping[str, Any], preserialized: Preserialized
    ) -> None:
        """Memoise a serialised value, unless a field holds a value that may be edited in place."""
        if type(text) is not str:
            return
        own: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None or type(value) in _IMMUTABLE:
                own[name] = value
            elif type(value) in _CONTAINERS and not value:
                own[name] = type(value)()
            else:
                return
        with self._guard:
            before = self._entries.pop(id(text), None)
            self._size += len(preserialized.body)
            self._size -= 0 if before is None else len(before.preserialized.body)
            self._entries[id(text)] = _Entry(kind, own, preserialized)
            while self._size > self._max:
                oldest = next(iter(self._entries))
                self._size -= len(self._entries.pop(oldest).preserialized.body)

    def clear(self) -> None:
        """Remove every entry."""
        with self._guard:
            self._entries, self._size = {}, 0


_all: weakref.WeakSet[TextMemo] = weakref.WeakSet()


def clear_text_memos() -> None:
    """Clear the memos of every adapter in this process."""
    for memo in list(_all):
        memo.clear()
