"""Listing checkpoints, greatest id first: pages by key, filters compared by fingerprints in SQL and
then exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.context import StoredCheckpoint, Summary, ThreadScope
from tallystick.checkpoints.formats import Frame
from tallystick.checkpoints.reading import (
    check_checkpoint,
    load_values,
    pending_writes,
    values_reader,
    writes_at,
)
from tallystick.storage.rows import checkpoints
from tallystick.storage.rows.checkpoints import Fingerprint, StateRow

_encode = json.JSONEncoder(sort_keys=True).encode


def metadata_fingerprints(metadata: Mapping[str, Any], codec: Codec) -> str:
    """Return the fingerprints of all entries, one after the other."""
    return "".join([_entry(name, value, codec) for name, value in metadata.items()])


def filter_fingerprints(filter: Mapping[str, Any], codec: Codec) -> list[Fingerprint]:
    """Return the fingerprints that SQL compares with stored ones, one per entry of the filter."""
    return [
        Fingerprint(
            _entry(name, value, codec), absent=_name(name, codec) if value is None else None
        )
        for name, value in filter.items()
        # A key with a period may be a path into an entry, of which no fingerprint is stored.
        if "." not in name
    ]


def matches(metadata: Mapping[str, Any], filter: Mapping[str, Any]) -> bool:
    """Return True if every entry of the filter is in the metadata."""
    return all(_equal(value_at(metadata, name), value) for name, value in filter.items())


def value_at(values: Mapping[str, Any], key: str) -> Any:
    """Return the value under a key; `user.level` is the entry of that name, else the path to
    `level` within `user`. None where there is none.
    """
    if key in values or "." not in key:
        return values.get(key)
    value: Any = values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _entry(name: str, value: Any, codec: Codec) -> str:
    form = _encode(_canonical(value)).encode()
    digest = codec.digest(b"mark\x00", name.encode("utf-8", "surrogatepass"), b"\x00", form)
    return _name(name, codec) + digest[:3].hex()


def _name(name: str, codec: Codec) -> str:
    return ";" + codec.digest(b"mark-name\x00", name.encode("utf-8", "surrogatepass"))[:2].hex()


def _canonical(value: Any) -> Any:
    """Return the value with whole floats as integers, so that equal numbers have one form."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _canonical(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(inner) for inner in value]
    return value


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(
            _equal(first[name], second[name]) for name in first
        )
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)


_PAGE = 50
"""Checkpoints that one query reads."""


@dataclass(frozen=True)
class CheckpointQuery:
    """Restrictions on the checkpoints of a listing; None restricts nothing."""

    thread: str | None
    namespace: str | None = None
    id: str | None = None
    before: str | None = None
    limit: int | None = None
    filter: Mapping[str, Any] = field(default_factory=dict)


class _Match(NamedTuple):
    state: StateRow
    summary: Summary
    frame: Frame


def list_checkpoints(scope: ThreadScope, query: CheckpointQuery) -> Iterator[StoredCheckpoint]:
    """Yield checkpoints with their pending writes; their state is read on first access."""
    for state, summary, frame in _matches(scope, query):
        with scope.store.database.read() as connection:
            writes = writes_at(scope, connection, summary.thread, state)
            values = load_values(connection, scope.cache, [write.frame.roots for write in writes])
        yield StoredCheckpoint(
            summary,
            frame.body,
            pending_writes(writes, values, scope.codec),
            values_reader(scope, frame),
        )


def list_summaries(scope: ThreadScope, query: CheckpointQuery) -> Iterator[Summary]:
    """Same as `list_checkpoints`, without state and writes, of which nothing is read."""
    for match in _matches(scope, query):
        yield match.summary


def _matches(scope: ThreadScope, query: CheckpointQuery) -> Iterator[_Match]:
    remaining = query.limit
    if remaining is not None and remaining <= 0:
        return
    fingerprints = filter_fingerprints(query.filter, scope.codec)
    for name in _thread_names(scope, query):
        after: tuple[str, str] | None = None
        while True:
            size = _PAGE if remaining is None else min(_PAGE, remaining)
            with scope.store.database.read() as connection:
                row = scope.find_thread(connection, name)
                page = (
                    []
                    if row is None
                    else checkpoints.page(
                        connection,
                        row.id,
                        namespace=query.namespace,
                        id=query.id,
                        before=query.before,
                        after=after,
                        fingerprints=fingerprints,
                        size=size,
                    )
                )
            for state in page:
                summary, frame = check_checkpoint(scope, name, state)
                if not matches(summary.metadata, query.filter):
                    continue
                yield _Match(state, summary, frame)
                if remaining is not None:
                    remaining -= 1
                    if remaining <= 0:
                        return
            if len(page) < size:
                break
            after = (page[-1].id, page[-1].namespace)


def _thread_names(scope: ThreadScope, query: CheckpointQuery) -> list[str]:
    if query.thread is not None:
        return [query.thread]
    with scope.store.database.read() as connection:
        return checkpoints.thread_names(connection, scope.id)
