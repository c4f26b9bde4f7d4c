"""The parts of some values that may not be stored yet: made ready before the transaction, stored
within it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sqlalchemy import Connection

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.context import ScopeCache
from tallystick.checkpoints.frames import compact
from tallystick.checkpoints.ropes import Part
from tallystick.checkpoints.values import Value, new_parts, segments_written
from tallystick.storage import trees

__all__ = ["Seeds"]


class Seeds:
    """The new parts of planted values."""

    def __init__(self, values: Iterable[Value], codec: Codec) -> None:
        self._codec = codec
        self._parts = {part.digest: part for value in values for part in new_parts(value)}
        self._bodies = {
            part.digest: codec.pack(part.stored())
            for part in self._parts.values()
            if part.level < 2
        }

    def sow(self, tx: Connection, scope_id: int, thread: int) -> dict[bytes, int]:
        """Store what is not there; the id of each by its digest."""
        ids: dict[bytes, int] = {}
        for part in self._parts.values():
            ids[part.digest] = trees.add(tx, scope_id, part.digest, self._body(part, ids))
        trees.hold(tx, thread, list(ids.values()))
        return ids

    def number(self, ids: Mapping[bytes, int]) -> Callable[[Part], int]:
        """The id of any part, new or old."""
        return lambda part: ids[part.digest] if part.id is None else part.id

    def grown(self, ids: Mapping[bytes, int], scope_cache: ScopeCache) -> None:
        """Note the ids, now that they are committed."""
        for digest, part in self._parts.items():
            part.id = ids[digest]
            scope_cache.parts.put((part.level, part.id), part)

    def _body(self, part: Part, ids: Mapping[bytes, int]) -> bytes:
        if part.level < 2:
            return self._bodies[part.digest]
        groups = segments_written(part.children, self.number(ids))
        return self._codec.pack(compact(groups), seal=False)
