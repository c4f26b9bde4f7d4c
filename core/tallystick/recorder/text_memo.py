"""What adapters wrote of texts before, because most of a prompt was in the one before it."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

from tallystick.recorder.payloads import Preserialized

__all__ = ["TextMemo", "clear_text_memos"]


class TextMemo:
    """Values that hold nothing but a text and fixed fields, as they were written. Thread-safe.

    They are found by the identity of the text, which stays the same as long as it is kept here; all
    else that they hold is compared, so that an edit in place is always seen.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._held = 0
        self._guard = threading.Lock()
        self._known: dict[int, tuple[type, dict[str, Any], Preserialized]] = {}
        _all.add(self)

    def find(self, text: Any, kind: type, fields: Mapping[str, Any]) -> Preserialized | None:
        """How a value of this kind with these fields, one of which is `text`, was written; None if
        it was not yet.
        """
        known = self._known.get(id(text))
        if known is None or known[0] is not kind:
            return None
        try:
            # Values of these types are equal only to what is written alike, and those that are the
            # same are not read.
            return known[2] if known[1] == fields else None
        except Exception:  # noqa: BLE001 - what may not be compared stands there now, so that it is another value
            return None

    def keep(
        self, text: Any, kind: type, fields: Mapping[str, Any], written: Preserialized
    ) -> None:
        """Remember how a value was written, unless it holds something that may be edited in
        place.
        """
        if type(text) is not str:
            return
        own: dict[str, Any] = {}
        for name, value in fields.items():
            if value is None or type(value) in _FIXED:
                own[name] = value
            elif type(value) in _FILLED and not value:
                own[name] = type(value)()
            else:
                return
        with self._guard:
            before = self._known.pop(id(text), None)
            self._held += len(written.body) - (0 if before is None else len(before[2].body))
            self._known[id(text)] = (kind, own, written)
            while self._held > self._most:
                oldest = next(iter(self._known))
                self._held -= len(self._known.pop(oldest)[2].body)

    def let_go(self) -> None:
        """Forget all of it."""
        with self._guard:
            self._known, self._held = {}, 0


_all: weakref.WeakSet[TextMemo] = weakref.WeakSet()


def clear_text_memos() -> None:
    """Forget what any adapter in this process wrote of texts."""
    for kept in list(_all):
        kept.let_go()


_FIXED = frozenset({str})
"""Types of what stays as it is. Not numbers: 1 is equal to True, and written otherwise."""
_FILLED = frozenset({dict, list})
"""Types of what may be filled later: an empty one of their own is kept of these."""
