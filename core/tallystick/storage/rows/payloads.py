"""Recorded payloads, each stored as its difference from an earlier one: a growing prompt is stored
once.

A payload is the first `head` bytes of its base's, then the bytes of its own part, then the last
`tail` bytes of its base's. Cuts fall between the pieces of the recorder (the elements of a list),
never inside a text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import Connection, column, select, text, update

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import PreparedIn
from tallystick.storage.rows import objects, parts
from tallystick.storage.rows.scopes import ScopeRow

_e, _p = tables.step_entries, tables.parts
_MIN_BYTES = 1_024
"""Size below which a payload is stored whole."""
_RECENT = 4
"""Payloads of one scope and kind with which a new one is compared: agents within one run take
turns.
"""
_MAX_DEPTH = 1_000
"""Most bases below a payload: reading one reads all of them."""
_LOOK_BACK = 4
"""Newest runs of a scope in which a process that has just started looks for bases."""

_EXISTING = PreparedIn(select(_e.c.id).where(_e.c.part_key.is_not(None)), _e.c.id)
_CHAIN = text(
    "WITH RECURSIVE chain (id, base_id, head, tail, scope_id, part_key, depth) AS ("
    "SELECT id, base_id, head, tail, scope_id, part_key, 0 FROM step_entries WHERE id = :id "
    "UNION ALL "
    "SELECT e.id, e.base_id, e.head, e.tail, e.scope_id, e.part_key, c.depth + 1 FROM "
    "step_entries e "
    "JOIN chain c ON e.id = c.base_id AND e.scope_id = c.scope_id WHERE c.depth <= :deepest) "
    "SELECT chain.base_id, chain.head, chain.tail, parts.body FROM chain LEFT JOIN parts "
    "ON parts.scope_id = chain.scope_id AND parts.key = chain.part_key ORDER BY chain.depth"
).columns(
    column("base_id"), column("head"), column("tail"), column("body", tables.parts.c.body.type)
)
_NEWEST = text(
    "SELECT e.id, e.base_id, e.head, e.tail, e.scope_id, e.part_key FROM (SELECT id FROM runs "
    "WHERE scope_id = :scope_id ORDER BY started_at DESC LIMIT :look_back) AS newest "
    "JOIN steps ON steps.run_id = newest.id JOIN step_entries e ON e.step_id = steps.id "
    "WHERE e.kind = :kind AND e.part_key IS NOT NULL ORDER BY e.id DESC LIMIT :most"
)


class Layout(NamedTuple):
    """A payload as it is stored: its own bytes, between two ends that it shares with its base."""

    own: bytes
    base_id: str | None = None
    head: int | None = None
    tail: int | None = None


class _Recent(NamedTuple):
    id: str
    body: bytes
    depth: int


class Bases:
    """Payloads recorded lately, by scope and kind, as bases of new ones. Used on the writer's
    thread alone.
    """

    def __init__(self, *, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max = max_bytes
        self._size = 0
        self._recent: OrderedDict[tuple[int, str], list[_Recent]] = OrderedDict()

    def clear(self) -> None:
        """Drop the cached bases; stored payloads stay as they are."""
        self._recent.clear()
        self._size = 0

    def lay_out(
        self, tx: Connection, scope: ScopeRow, kind: str, entry_id: str, pieces: Sequence[bytes]
    ) -> Layout:
        """Return how to store the payload that consists of `pieces`, for the entry that will have
        `entry_id`.

        The caller checks with `have_payloads` that the base is still stored.
        """
        body = b"".join(pieces)
        if len(body) < _MIN_BYTES:
            return Layout(body)
        cuts = [0, *accumulate(map(len, pieces))]
        best, head, tail = None, 0, 0
        for other in self._of(tx, scope, kind):
            front, back = _shared_ends(other.body, body, cuts)
            if front + back > max(head + tail, _MIN_BYTES // 2) and other.depth < _MAX_DEPTH:
                best, head, tail = other, front, back
        own = body[head : len(body) - tail]
        layout = Layout(own) if best is None else Layout(own, best.id, head, tail)
        self._remember(
            scope.id, kind, _Recent(entry_id, body, 0 if best is None else best.depth + 1), best
        )
        return layout

    def _of(self, tx: Connection, scope: ScopeRow, kind: str) -> list[_Recent]:
        place = (scope.id, kind)
        if place not in self._recent:
            self._recent[place] = []
            values = {"scope_id": scope.id, "kind": kind, "look_back": _LOOK_BACK, "most": _RECENT}
            for row in tx.execute(_NEWEST, values).all():
                chain = tx.execute(_CHAIN, {"id": row.id, "deepest": _MAX_DEPTH}).all()
                # One that was moved is not read here: nothing waits for a network inside a write.
                body = None if any(_is_elsewhere(link) for link in chain) else _splice(tx, chain)
                if body is not None and len(body) >= _MIN_BYTES:
                    self._recent[place].append(_Recent(row.id, body, len(chain) - 1))
                    self._size += len(body)
        self._recent.move_to_end(place)
        return self._recent[place]

    def _remember(self, scope_id: int, kind: str, new: _Recent, replaced: _Recent | None) -> None:
        """Remember a payload in place of its base, which it continues, or of the oldest."""
        stored = self._recent[scope_id, kind]
        if replaced is not None:
            stored.remove(replaced)
            self._size -= len(replaced.body)
        stored.insert(0, new)
        self._size += len(new.body)
        for dropped in stored[_RECENT:]:
            self._size -= len(dropped.body)
        del stored[_RECENT:]
        while self._size > self._max and self._recent:
            _, oldest = self._recent.popitem(last=False)
            self._size -= sum(len(recent.body) for recent in oldest)


class Payloads:
    """Reads payloads; caches those read last, because they are the bases of the next."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cache: OrderedDict[str, bytes] = OrderedDict()

    def of(self, row: Any) -> bytes | None:
        """Return the bytes of an entry's payload, or None where they, or those of a base, are
        missing.
        """
        if row.part_key is None:
            return None
        if row.base_id is None:
            body = parts.get(self._connection, row.scope_id, row.part_key)
        elif row.base_id in self._cache:
            own = parts.get(self._connection, row.scope_id, row.part_key)
            base = self._cache[row.base_id]
            body = (
                None
                if own is None
                else b"".join((base[: row.head], own, base[len(base) - row.tail :]))
            )
        else:
            chain = self._connection.execute(_CHAIN, {"id": row.id, "deepest": _MAX_DEPTH}).all()
            body = _splice(self._connection, chain)
        if body is not None and len(body) >= _MIN_BYTES:
            self._cache[row.id] = body
            while len(self._cache) > 2 * _RECENT:
                self._cache.popitem(last=False)
        return body


def have_payloads(connection: Connection, ids: Collection[str]) -> bool:
    """Return True if all of these entries still have their payloads."""
    return len(_EXISTING(connection, ids)) == len(ids)


def dependents_of(connection: Connection, ids: Iterable[str]) -> list[Any]:
    """Return the rows of the entries whose payloads have one of `ids` as a base, directly or not;
    without those of `ids`.
    """
    dependents: dict[str, Any] = {}
    visited = set(ids)
    ahead = list(visited)
    while ahead:
        rows = connection.execute(select(_e).where(_e.c.base_id.in_(ahead[:500]))).all()
        ahead = ahead[500:] + [row.id for row in rows if row.id not in visited]
        for row in rows:
            if row.id not in visited:
                dependents[row.id] = row
        visited.update(row.id for row in rows)
    return list(dependents.values())


def detach(tx: Connection, scope: ScopeRow, entry_id: str, body: bytes, *, at: int) -> None:
    """Store a payload whole, so that it has no base."""
    here = _e.c.id == entry_id
    piece = tx.execute(select(_e.c.part_key).where(here)).scalar_one()
    key = parts.put(tx, scope, body, at=at)
    tx.execute(update(_e).where(here).values(part_key=key, base_id=None, head=None, tail=None))
    parts.drop(tx, scope.id, piece)


def _shared_ends(old: bytes, new: bytes, cuts: Sequence[int]) -> tuple[int, int]:
    """Return the length of the longest prefix of `new` with which `old` begins, and of the longest
    suffix of the rest with which it ends.

    Both end at one of `cuts`: the ascending places where `new` may be cut, with its beginning and
    its end.
    """
    low, high = 0, bisect_right(cuts, len(old)) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if old.startswith(new[cuts[low] : cuts[middle]], cuts[low]):
            low = middle
        else:
            high = middle - 1
    head, shift = cuts[low], len(old) - len(new)
    low, high = max(low, bisect_left(cuts, head - shift)), len(cuts) - 1
    while low < high:
        middle = (low + high) // 2
        if old.startswith(new[cuts[middle] : cuts[high]], cuts[middle] + shift):
            high = middle
        else:
            low = middle + 1
    return head, len(new) - cuts[high]


def _is_elsewhere(link: Any) -> bool:
    return link.body is not None and objects.is_reference(bytes(link.body))


def _splice(connection: Connection, chain: Sequence[Any]) -> bytes | None:
    """Return the payload at the top of a chain of rows, each the base of the row before it; None
    where one is missing.
    """
    if not chain or chain[-1].base_id is not None or any(row.body is None for row in chain):
        return None
    own = [objects.resolve_body(connection, row.body) for row in chain]
    lengths = [0] * len(chain)
    for level in range(len(chain) - 1, -1, -1):
        row = chain[level]
        lengths[level] = len(own[level]) + (
            (row.head or 0) + (row.tail or 0) if row.base_id is not None else 0
        )
    slices: list[bytes] = []
    ranges = [(0, 0, lengths[0])]
    while ranges:
        level, start, stop = ranges.pop()
        if start >= stop:
            continue
        if level < 0:
            slices.append(own[-1 - level][start:stop])
            continue
        row = chain[level]
        if row.base_id is None:
            slices.append(own[level][start:stop])
            continue
        head, middle = row.head, row.head + len(own[level])
        # Last first, because a stack returns them in reverse.
        if stop > middle:
            shift = lengths[level + 1] - lengths[level]
            ranges.append((level + 1, max(start, middle) + shift, stop + shift))
        if stop > head and start < middle:
            ranges.append((-1 - level, max(start, head) - head, min(stop, middle) - head))
        if start < head:
            ranges.append((level + 1, start, min(stop, head)))
    return b"".join(slices)
