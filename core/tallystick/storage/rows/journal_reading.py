"""The journal as it is read by position in time: counts of events, and what followed an entry."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

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


def count_events(connection: Connection, after: int = 0) -> dict[str, int]:
    """Return the number of entries behind a sequence, by event."""
    query = select(_j.c.event, func.count().label("n")).where(_j.c.sequence > after)
    return {row.event: int(row.n) for row in connection.execute(query.group_by(_j.c.event))}


def read_counts(connection: Connection, since: int, until: int) -> dict[str, int]:
    """Return the number of memories that were given since a moment and before another one, by the
    actor as the access log has it.
    """
    first = _first_read(connection, since)
    query = (
        select(_a.c.actor, func.sum(_a.c.results).label("n"))
        .where(_a.c.id >= first, _a.c.at >= since, _a.c.at < until)
        .group_by(_a.c.actor)
    )
    return {row.actor: int(row.n) for row in connection.execute(query)}


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
