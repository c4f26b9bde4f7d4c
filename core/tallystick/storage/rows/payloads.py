"""Recorded payloads, each stored as its difference from an earlier one: a growing prompt is stored
once.

A payload with a base is its own bytes with ranges of the base's between them, which `copied` lists:
of each the number of own bytes before it, its start in the base and its length, all in one row of
integers between commas. Cuts fall between the pieces of the recorder (the elements of a list),
never inside a text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
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
_SHORTEST = 48
"""Bytes of a range that is worth copying: to name it takes a dozen."""
_ENOUGH = 0.8
"""The share of a payload beyond which no other base is looked for."""
_LOOK_BACK = 4
"""Newest runs of a scope in which a process that has just started looks for bases."""

_EXISTING = PreparedIn(select(_e.c.id).where(_e.c.part_key.is_not(None)), _e.c.id)
_CHAIN = text(
    "WITH RECURSIVE chain (id, base_id, copied, scope_id, part_key, depth) AS ("
    "SELECT id, base_id, copied, scope_id, part_key, 0 FROM step_entries WHERE id = :id "
    "UNION ALL "
    "SELECT e.id, e.base_id, e.copied, e.scope_id, e.part_key, c.depth + 1 FROM step_entries e "
    "JOIN chain c ON e.id = c.base_id AND e.scope_id = c.scope_id WHERE c.depth <= :deepest) "
    "SELECT chain.base_id, chain.copied, parts.body FROM chain LEFT JOIN parts "
    "ON parts.scope_id = chain.scope_id AND parts.key = chain.part_key ORDER BY chain.depth"
).columns(column("base_id"), column("copied"), column("body", tables.parts.c.body.type))
_NEWEST = text(
    "SELECT e.id, e.base_id, e.copied, e.scope_id, e.part_key FROM (SELECT id FROM runs "
    "WHERE scope_id = :scope_id ORDER BY started_at DESC LIMIT :look_back) AS newest "
    "JOIN steps ON steps.run_id = newest.id JOIN step_entries e ON e.step_id = steps.id "
    "WHERE e.kind = :kind AND e.part_key IS NOT NULL ORDER BY e.id DESC LIMIT :most"
)


class Layout(NamedTuple):
    """A payload as it is stored: its own bytes, and what stands between them of its base."""

    own: bytes
    base_id: str | None = None
    copied: str | None = None


class _Range(NamedTuple):
    """A range of a base within a payload."""

    after: int
    """The own bytes between the range before and this one."""
    start: int
    length: int


@dataclass(frozen=True, eq=False)
class _Recent:
    id: str
    body: bytes
    cuts: Sequence[int]
    """Where its pieces begin, and where the last one ends; of a stored one only the bytes are
    known.
    """
    depth: int

    @cached_property
    def places(self) -> Mapping[int, int]:
        """Where its pieces begin, by their hashes."""
        return {
            hash(self.body[start:end]): start
            for start, end in pairwise(self.cuts)
            if end - start >= _SHORTEST
        }


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
        best, ranges, most = None, list[_Range](), _MIN_BYTES // 2
        for other in self._of(tx, scope, kind):
            if other.depth >= _MAX_DEPTH:
                continue
            shared = _shared(other, body, pieces, cuts)
            if (length := sum(each.length for each in shared)) > most:
                best, ranges, most = other, shared, length
            if most > _ENOUGH * len(body):
                break
        depth = 0 if best is None else best.depth + 1
        self._remember(scope.id, kind, _Recent(entry_id, body, cuts, depth), best)
        if best is None:
            return Layout(body)
        own, at = [], 0
        for each in ranges:
            own.append(body[at : at + each.after])
            at += each.after + each.length
        own.append(body[at:])
        return Layout(b"".join(own), best.id, ",".join(str(n) for each in ranges for n in each))

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
                    self._recent[place].append(_Recent(row.id, body, (), len(chain) - 1))
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
            ranges = _ranges(row.copied)
            body = (
                None
                if own is None or ranges is None
                else _put_together(own, self._cache[row.base_id], ranges)
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
    tx.execute(update(_e).where(here).values(part_key=key, base_id=None, copied=None))
    parts.drop(tx, scope.id, piece)


def _shared(
    base: _Recent, body: bytes, pieces: Sequence[bytes], cuts: Sequence[int]
) -> list[_Range]:
    """Return the ranges of a base that stand in a new payload, in its order: whole pieces, which
    begin and end at `cuts`.
    """
    first, last = _shared_ends(base.body, body, cuts)
    shift = len(base.body) - len(body)
    found = [(0, 0, cuts[first])]
    start = length = 0
    # What the ends leave over is looked for piece by piece, unless it is little; behind what is new
    # the base mostly goes on where it was left.
    middle = slice(first, last if cuts[last] - cuts[first] > (1 - _ENOUGH) * len(body) else first)
    for piece, at in zip(pieces[middle], cuts[middle], strict=True):
        place = start + length if length else cuts[first]
        if not base.body.startswith(piece, place):
            place = base.places.get(hash(piece), -1)
            if place < 0 or not base.body.startswith(piece, place):
                continue
        if length and place == start + length and at == found[-1][0] + found[-1][2]:
            found[-1] = (found[-1][0], start, length + len(piece))
        else:
            found.append((at, place, len(piece)))
        _, start, length = found[-1]
    found.append((cuts[last], cuts[last] + shift, len(body) - cuts[last]))
    ranges, end = list[_Range](), 0
    for at, place, size in found:
        if size >= _SHORTEST:
            ranges.append(_Range(at - end, place, size))
            end = at + size
    return ranges


def _shared_ends(old: bytes, new: bytes, cuts: Sequence[int]) -> tuple[int, int]:
    """Return the number of the cut up to which `old` begins as `new` does, and of the one from
    which on it ends as the rest of `new` does.
    """
    low, high = 0, bisect_right(cuts, len(old)) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if old.startswith(new[cuts[low] : cuts[middle]], cuts[low]):
            low = middle
        else:
            high = middle - 1
    first, shift = low, len(old) - len(new)
    low, high = max(low, bisect_left(cuts, cuts[first] - shift)), len(cuts) - 1
    while low < high:
        middle = (low + high) // 2
        if old.startswith(new[cuts[middle] : cuts[high]], cuts[middle] + shift):
            high = middle
        else:
            low = middle + 1
    return first, high


def _ranges(copied: Any) -> list[_Range] | None:
    """Return the ranges that a row lists; None for what no release has written."""
    try:
        numbers = [int(number) for number in str(copied).split(",")]
    except ValueError:
        return None
    if len(numbers) % 3 or min(numbers) < 0:
        return None
    return [_Range(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]


def _put_together(own: bytes, base: bytes, ranges: Sequence[_Range]) -> bytes:
    slices, at = [], 0
    for after, start, length in ranges:
        slices += [own[at : at + after], base[start : start + length]]
        at += after
    return b"".join([*slices, own[at:]])


def _is_elsewhere(link: Any) -> bool:
    return link.body is not None and objects.is_reference(bytes(link.body))


class _Level(NamedTuple):
    """A payload of a chain as the pieces that it consists of, none of them read yet."""

    own: bytes
    begins: Sequence[int]
    """Where each piece begins in the payload, and where the last one ends."""
    sources: Sequence[tuple[bool, int]]
    """Of each piece whether it is of the base, and where it begins there or in `own`."""

    @classmethod
    def of(cls, own: bytes, ranges: Sequence[_Range]) -> _Level:
        begins, sources, used, at = list[int](), list[tuple[bool, int]](), 0, 0
        rest = len(own) - sum(each.after for each in ranges)
        for after, start, length in [*ranges, _Range(rest, 0, 0)]:
            for is_copied, source, size in ((False, used, after), (True, start, length)):
                if size > 0:
                    begins.append(at)
                    sources.append((is_copied, source))
                    at += size
            used += after
        return cls(own, [*begins, at], sources)


def _splice(connection: Connection, chain: Sequence[Any]) -> bytes | None:
    """Return the payload at the top of a chain of rows, each the base of the row before it; None
    where one is missing, or does not say how it is put together.

    Only what is in the payload is copied, once: chains are long.
    """
    if not chain or chain[-1].base_id is not None or any(row.body is None for row in chain):
        return None
    levels: list[_Level] = []
    for row in chain:
        ranges = [] if row.base_id is None else _ranges(row.copied)
        if ranges is None:
            return None
        levels.append(_Level.of(objects.resolve_body(connection, row.body), ranges))
    slices: list[bytes] = []
    asked = [(0, 0, levels[0].begins[-1])]
    while asked:
        number, start, stop = asked.pop()
        if number < 0:
            slices.append(levels[-1 - number].own[start:stop])
            continue
        own, begins, sources = levels[number]
        ahead: list[tuple[int, int, int]] = []
        place = max(0, bisect_right(begins, start) - 1)
        while start < stop and place < len(sources):
            end = min(stop, begins[place + 1])
            is_copied, source = sources[place]
            first, last = source + start - begins[place], source + end - begins[place]
            if is_copied:
                ahead.append((number + 1, first, last))
            elif ahead:
                ahead.append((-1 - number, first, last))
            else:
                slices.append(own[first:last])
            start, place = end, place + 1
        asked += reversed(ahead)
    return b"".join(slices)
