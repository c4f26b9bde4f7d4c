"""Recorded payloads, which share with one recorded before: a prompt that grew is stored once.

A payload is the first `head` bytes of its base's, then the bytes of its own part, then the last
`tail` bytes of its base's. Cuts fall between the pieces that the recorder names (the elements of a
list), never inside of a text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select, text, update

from tallystick.storage import parts, tables
from tallystick.storage.scopes import ScopeRow

__all__ = ["Bases", "Layout", "Payloads", "detach", "resting_on", "there"]

_e, _p = tables.step_entries, tables.parts
_WORTH = 1_024
"""Bytes below which sharing is not tried."""
_RECENT = 4
"""Payloads of one scope and kind that a new one is held against: agents within one run take turns.
"""
_DEEPEST = 1_000
"""Payloads that may rest on one another: reading one reads all that it rests on."""
_LOOK_BACK = 256
"""Entries among which a process that has just begun looks for payloads to begin with."""

_THERE = select(_e.c.id).where(
    _e.c.id.in_(bindparam("ids", expanding=True)), _e.c.part_key.is_not(None)
)
_CHAIN = text(
    "WITH RECURSIVE chain (id, base_id, head, tail, scope_id, part_key, depth) AS ("
    "SELECT id, base_id, head, tail, scope_id, part_key, 0 FROM step_entries WHERE id = :id "
    "UNION ALL "
    "SELECT e.id, e.base_id, e.head, e.tail, e.scope_id, e.part_key, c.depth + 1 FROM "
    "step_entries e "
    "JOIN chain c ON e.id = c.base_id AND e.scope_id = c.scope_id WHERE c.depth <= :deepest) "
    "SELECT chain.base_id, chain.head, chain.tail, parts.body FROM chain LEFT JOIN parts "
    "ON parts.scope_id = chain.scope_id AND parts.key = chain.part_key ORDER BY chain.depth"
)
_LATE = text(
    "SELECT id, base_id, head, tail, scope_id, part_key FROM ("
    "SELECT * FROM step_entries ORDER BY id DESC LIMIT :look_back) AS late "
    "WHERE scope_id = :scope_id AND kind = :kind AND part_key IS NOT NULL ORDER BY id DESC LIMIT "
    ":most"
)


class Layout(NamedTuple):
    """How a payload is stored: bytes of its own, between two ends that it shares with its base."""

    own: bytes
    base_id: str | None = None
    head: int | None = None
    tail: int | None = None


class _Recent(NamedTuple):
    id: str
    body: bytes
    depth: int


class Bases:
    """Payloads recorded lately, by scope and kind, to rest new ones on. Used on the writer's thread
    alone.
    """

    def __init__(self, *, most_bytes: int = 64 * 1024 * 1024) -> None:
        self._most = most_bytes
        self._held = 0
        self._recent: OrderedDict[tuple[int, str], list[_Recent]] = OrderedDict()

    def clear(self) -> None:
        """Forget them; what is stored is untouched."""
        self._recent.clear()
        self._held = 0

    def lay(
        self, tx: Connection, scope: ScopeRow, kind: str, entry_id: str, pieces: Sequence[bytes]
    ) -> Layout:
        """How the payload that consists of `pieces` is to be stored, for the entry that will have
        `entry_id`.

        Whoever stores it makes sure with `there` that the base still is where it was.
        """
        body = b"".join(pieces)
        if len(body) < _WORTH:
            return Layout(body)
        cuts = [0, *accumulate(map(len, pieces))]
        best, head, tail = None, 0, 0
        for other in self._of(tx, scope, kind):
            front, back = _shared(other.body, body, cuts)
            if front + back > max(head + tail, _WORTH // 2) and other.depth < _DEEPEST:
                best, head, tail = other, front, back
        own = body[head : len(body) - tail]
        layout = Layout(own) if best is None else Layout(own, best.id, head, tail)
        self._keep(
            scope.id, kind, _Recent(entry_id, body, 0 if best is None else best.depth + 1), best
        )
        return layout

    def _of(self, tx: Connection, scope: ScopeRow, kind: str) -> list[_Recent]:
        place = (scope.id, kind)
        if place not in self._recent:
            self._recent[place] = []
            values = {"scope_id": scope.id, "kind": kind, "look_back": _LOOK_BACK, "most": _RECENT}
            for row in tx.execute(_LATE, values).all():
                chain = tx.execute(_CHAIN, {"id": row.id, "deepest": _DEEPEST}).all()
                body = _spliced(chain)
                if body is not None and len(body) >= _WORTH:
                    self._recent[place].append(_Recent(row.id, body, len(chain) - 1))
                    self._held += len(body)
        self._recent.move_to_end(place)
        return self._recent[place]

    def _keep(self, scope_id: int, kind: str, new: _Recent, replaced: _Recent | None) -> None:
        """Remember a payload in the place of the one that it continues, or of the oldest."""
        recent = self._recent[scope_id, kind]
        if replaced is not None:
            recent.remove(replaced)
            self._held -= len(replaced.body)
        recent.insert(0, new)
        self._held += len(new.body)
        for gone in recent[_RECENT:]:
            self._held -= len(gone.body)
        del recent[_RECENT:]
        while self._held > self._most and self._recent:
            _, oldest = self._recent.popitem(last=False)
            self._held -= sum(len(one.body) for one in oldest)


class Payloads:
    """Reads payloads; those read last are at hand, because the next one rests on them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: OrderedDict[str, bytes] = OrderedDict()

    def of(self, row: Any) -> bytes | None:
        """The bytes of an entry's payload, or None where they, or any that they rest on, are not
        there.
        """
        if row.part_key is None:
            return None
        if row.base_id is None:
            body = parts.get(self._connection, row.scope_id, row.part_key)
        elif row.base_id in self._kept:
            own = parts.get(self._connection, row.scope_id, row.part_key)
            base = self._kept[row.base_id]
            body = (
                None
                if own is None
                else b"".join((base[: row.head], own, base[len(base) - row.tail :]))
            )
        else:
            body = _spliced(
                self._connection.execute(_CHAIN, {"id": row.id, "deepest": _DEEPEST}).all()
            )
        if body is not None and len(body) >= _WORTH:
            self._kept[row.id] = body
            while len(self._kept) > 2 * _RECENT:
                self._kept.popitem(last=False)
        return body


def there(connection: Connection, ids: Collection[str]) -> bool:
    """Whether all of these entries still have their payloads."""
    return not ids or len(connection.execute(_THERE, {"ids": list(ids)}).all()) == len(ids)


def resting_on(connection: Connection, ids: Iterable[str]) -> list[Any]:
    """Rows of the entries whose payloads rest on those of `ids`, directly or not; without those of
    `ids`.
    """
    found: dict[str, Any] = {}
    seen = set(ids)
    ahead = list(seen)
    while ahead:
        rows = connection.execute(select(_e).where(_e.c.base_id.in_(ahead[:500]))).all()
        ahead = ahead[500:] + [row.id for row in rows if row.id not in seen]
        for row in rows:
            if row.id not in seen:
                found[row.id] = row
        seen.update(row.id for row in rows)
    return list(found.values())


def detach(tx: Connection, scope: ScopeRow, entry_id: str, body: bytes, *, at: int) -> None:
    """Store a payload whole, so that it rests on no other."""
    key = parts.put(tx, scope, body, at=at)
    tx.execute(
        update(_e)
        .where(_e.c.id == entry_id)
        .values(part_key=key, base_id=None, head=None, tail=None)
    )


def _shared(old: bytes, new: bytes, cuts: Sequence[int]) -> tuple[int, int]:
    """How many bytes of `new` stand at the beginning of `old` and, apart from those, at its end.

    Both end at one of `cuts`, the ascending places of `new` where it may be cut, from its beginning
    to its end.
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


def _spliced(chain: Sequence[Any]) -> bytes | None:
    """The payload at the top of a chain, each row of which rests on the next."""
    if not chain or chain[-1].base_id is not None or any(row.body is None for row in chain):
        return None
    own = [bytes(row.body) for row in chain]
    lengths = [0] * len(chain)
    for level in range(len(chain) - 1, -1, -1):
        row = chain[level]
        lengths[level] = len(own[level]) + (
            (row.head or 0) + (row.tail or 0) if row.base_id is not None else 0
        )
    found: list[bytes] = []
    wanted = [(0, 0, lengths[0])]
    while wanted:
        level, start, stop = wanted.pop()
        if start >= stop:
            continue
        if level < 0:
            found.append(own[-1 - level][start:stop])
            continue
        row = chain[level]
        if row.base_id is None:
            found.append(own[level][start:stop])
            continue
        head, middle = row.head, row.head + len(own[level])
        # Last first: the stack gives back what was put on it last.
        if stop > middle:
            shift = lengths[level + 1] - lengths[level]
            wanted.append((level + 1, max(start, middle) + shift, stop + shift))
        if stop > head and start < middle:
            wanted.append((-1 - level, max(start, head) - head, min(stop, middle) - head))
        if start < head:
            wanted.append((level + 1, start, min(stop, head)))
    return b"".join(found)
