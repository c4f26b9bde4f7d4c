"""Rows of measures: operations by minute and kind, with the counts of their durations."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Select, bindparam, delete, select

from tallystick.storage.engine import tables
from tallystick.storage.engine.prepared import Prepared, upsert

K = TypeVar("K")

_t = tables.operation_minutes
_WIDTH = math.log(1.1)
"""Each bucket of durations ends a tenth above the one before."""
_GET = Prepared(
    select(_t.c.count, _t.c.micros, _t.c.buckets).where(
        _t.c.minute == bindparam("minute"), _t.c.kind == bindparam("kind")
    )
)
_COLUMNS = ("count", "micros", "buckets")
_SET = Prepared(
    upsert(_t, ("minute", "kind", *_COLUMNS), key=("minute", "kind"), replacing=_COLUMNS)
)


PARTS = ("operation", "mode", "outcome")
"""What the kind of an operation is made of; mode and outcome are empty where it has none."""


class Minute(NamedTuple):
    """Operations of one kind in one minute since the epoch."""

    minute: int
    kind: str
    calls: int
    micros: int
    buckets: Mapping[int, int]
    """How many fell into each bucket of durations; see `bucket_of`."""

    @property
    def parts(self) -> tuple[str, str, str]:
        """The values of `PARTS`."""
        operation, mode, outcome = (*self.kind.split("."), "", "")[:3]
        return operation, mode, outcome


NONE = Minute(0, "", 0, 0, {})
"""No operation."""


def bucket_of(micros: int) -> int:
    """Return the number of the bucket of a duration."""
    return int(math.log(max(1, micros)) / _WIDTH)


def quantile(buckets: Mapping[int, int], share: float) -> int:
    """Return the microseconds that a share of these took at most, to a tenth; 0 of none."""
    wanted, seen = share * sum(buckets.values()), 0
    for bucket, count in sorted(buckets.items()):
        seen += count
        if seen >= wanted:
            return round(math.exp((bucket + 1) * _WIDTH))
    return 0


def add_up(minutes: Iterable[Minute], by: Callable[[Minute], K]) -> dict[K, Minute]:
    """Return operations added up by what `by` returns for each; minute and kind are those of the
    first.
    """
    sums: dict[K, Minute] = {}
    for each in minutes:
        key = by(each)
        if (before := sums.get(key)) is None:
            sums[key] = each._replace(buckets=Counter(each.buckets))
            continue
        sums[key] = before._replace(
            calls=before.calls + each.calls,
            micros=before.micros + each.micros,
            buckets=Counter(before.buckets) + Counter(each.buckets),
        )
    return sums


def share_with(minutes: Iterable[Minute], outcome: str) -> float:
    """Return the share of operations that had an outcome; 0 of none."""
    counts = Counter[str]()
    for each in minutes:
        counts[each.parts[2]] += each.calls
    return counts[outcome] / counts.total() if counts.total() else 0.0


ALL_TIME = 0
"""The minute under which all operations of a kind are counted, which only grows."""


def add(tx: Connection, minutes: Iterable[Minute]) -> None:
    """Add operations to those of their minutes and of all time, whichever process counted them."""
    counted = list(minutes)
    for each in [*counted, *(one._replace(minute=ALL_TIME) for one in counted)]:
        key = {"minute": each.minute, "kind": each.kind}
        count, micros, buckets = each.calls, each.micros, Counter(each.buckets)
        for row in _GET(tx, key):
            count, micros = count + row[0], micros + row[1]
            buckets.update(_counts(row[2]))
        text = json.dumps(sorted(buckets.items()), separators=(",", ":"))
        _SET(tx, {**key, "count": count, "micros": micros, "buckets": text})


def since(connection: Connection, minute: int) -> list[Minute]:
    """Return what was counted from a minute on, in order."""
    query = select(_t).where(_t.c.minute >= max(minute, ALL_TIME + 1))
    return _minutes(connection, query.order_by(_t.c.minute, _t.c.kind))


def all_time(connection: Connection) -> list[Minute]:
    """Return what was ever counted, by kind."""
    return _minutes(connection, select(_t).where(_t.c.minute == ALL_TIME).order_by(_t.c.kind))


def _minutes(connection: Connection, query: Select[Any]) -> list[Minute]:
    return [
        Minute(row.minute, row.kind, row._mapping["count"], row.micros, _counts(row.buckets))
        for row in connection.execute(query)
    ]


def remove_before(tx: Connection, minute: int) -> None:
    """Remove what was counted before a minute."""
    tx.execute(delete(_t).where(_t.c.minute > ALL_TIME, _t.c.minute < minute))


def _counts(text: str) -> dict[int, int]:
    return {int(bucket): int(count) for bucket, count in json.loads(text)}
