"""The journal as it is read by position in time: counts of events, and what followed an entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from tallystick.errors import CorruptTally
from tallystick.records import JournalEntry
from tallystick.storage.engine import tables
from tallystick.storage.engine.dialects import is_postgres
from tallystick.storage.rows.journal import read_row

_j, _a = tables.journal, tables.access_log


def last_sequence(connection: Connection) -> int:
    """Return the sequence of the newest entry; 0 where there is none."""
    return int(connection.execute(select(func.max(_j.c.sequence))).scalar() or 0)


def sequence_at(connection: Connection, moment: int) -> int:
    """Return the first sequence at a moment (microseconds UTC) or later, or the one after the last.

    No column has the times: the place is found by halving. Streams that are written together stand
    in the order of their commits, so that it is exact to the length of a transaction.
    """
    first = int(connection.execute(select(func.min(_j.c.sequence))).scalar() or 0)
    last = last_sequence(connection) + 1
    while first < last:
        middle = (first + last) // 2
        query = select(_j).where(_j.c.sequence >= middle).order_by(_j.c.sequence).limit(1)
        row = connection.execute(query).first()
        if row is None or row.sequence >= last or read_row(row).at >= moment:
            last = middle
        else:
            first = row.sequence + 1
    return first


def settled_before(connection: Connection, sequence: int, young: int) -> int:
    """Return the sequence from which on a reader that has read up to one has to read again: several
    writers of a server may commit what is younger than a moment in another order than its numbers.
    """
    if not is_postgres(connection):
        return sequence
    return min(sequence, sequence_at(connection, young) - 1)


def after(
    connection: Connection,
    sequence: int,
    *,
    events: Sequence[str] = (),
    limit: int,
    newest: bool = False,
) -> list[JournalEntry]:
    """Return the entries behind a sequence, of these events or of all: the first ones in order, or
    with `newest` the last ones, newest first.
    """
    query = select(_j).where(_j.c.sequence > sequence)
    if events:
        query = query.where(_j.c.event.in_(list(events)))
    order = _j.c.sequence.desc() if newest else _j.c.sequence
    return [read_row(row) for row in connection.execute(query.order_by(order).limit(limit))]


class Glance(NamedTuple):
    """As much of an entry as is counted."""

    sequence: int
    subject_id: str | None
    at: int
    actor: Mapping[str, Any]

    def __hash__(self) -> int:
        return self.sequence


def glances(
    connection: Connection, event: str, *, after: int, until: int, streams: str, limit: int
) -> list[Glance]:
    """Return the entries of an event behind a sequence, up to another one, in the streams whose
    names begin so, newest first.
    """
    columns = select(_j.c.sequence, _j.c.stream, _j.c.position, _j.c.subject_id, _j.c.body)
    query = columns.where(
        _j.c.event == event,
        _j.c.sequence > after,
        _j.c.sequence <= until,
        _j.c.stream.startswith(streams, autoescape=True),
    )
    rows = connection.execute(query.order_by(_j.c.sequence.desc()).limit(limit))
    found = []
    for row in rows:
        try:
            body = json.loads(row.body)
            found.append(Glance(row.sequence, row.subject_id, int(body["at"]), body["actor"]))
        except (ValueError, KeyError, TypeError) as error:
            place = f"{row.stream}#{row.position}"
            raise CorruptTally(f"Journal entry {place} is not readable.") from error
    return found


def count_events(connection: Connection, after: int = 0) -> dict[str, int]:
    """Return the number of entries behind a sequence, by event."""
    query = select(_j.c.event, func.count().label("n")).where(_j.c.sequence > after)
    return {row.event: int(row.n) for row in connection.execute(query.group_by(_j.c.event))}


def read_counts(connection: Connection, now: int, hour: int) -> list[tuple[str, int, int]]:
    """Return how many memories were given in each of the 24 hours before a moment, by the actor as
    the access log has it, and the hour, counted back; an hour in microseconds.
    """
    first, back = _first_read(connection, now - 24 * hour), (now - _a.c.at) // hour
    query = (
        select(_a.c.actor, back.label("back"), func.sum(_a.c.results).label("n"))
        .where(_a.c.id >= first, _a.c.at > now - 24 * hour)
        .group_by(_a.c.actor, back)
    )
    return [(row.actor, max(0, int(row.back)), int(row.n)) for row in connection.execute(query)]


def _first_read(connection: Connection, moment: int) -> int:
    """Return the first row of the access log at a moment or later, found by halving."""
    ends = connection.execute(select(func.min(_a.c.id), func.max(_a.c.id))).one()
    first, last = int(ends[0] or 0), int(ends[1] or 0) + 1
    while first < last:
        middle = (first + last) // 2
        query = select(_a.c.id, _a.c.at).where(_a.c.id >= middle).order_by(_a.c.id).limit(1)
        row = connection.execute(query).first()
        if row is None or row.id >= last or row.at >= moment:
            last = middle
        else:
            first = row.id + 1
    return first
