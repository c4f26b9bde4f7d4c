"""The append-only journal: one hash chain per stream, hashed as the bytes that are stored.

The digest of an entry covers its stream, its position, the digest before it and its body. The body
contains ids, counts, digests and reason codes. What people wrote, a reason, the id of a request or
of a thread, stands beside it with a salt; the body commits to it, so that it can be erased and the
chain holds. Names, metadata and summaries of runs and steps are in the rows of these already: the
body commits to the rows (`row_texts`), and they are stored once.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from tallystick.errors import CorruptTally
from tallystick.records import (
    Actor,
    Foil,
    JournalEntry,
    ReasonCode,
    canonical_json,
    commitment,
    text_digest,
)
from tallystick.storage.engine import tables
from tallystick.storage.engine.batches import Read, was_read_ahead
from tallystick.storage.engine.prepared import (
    Prepared,
    PreparedRow,
    PreparedUpdate,
    done_last,
    insert_row,
    upsert,
)
from tallystick.storage.engine.writes import require

_j = tables.journal
_s = tables.streams
_a = tables.anchors
_HEAD = select(_s.c.count.label("entries"), _s.c.head).where(_s.c.name == bindparam("stream"))
_HEAD_OF = Prepared(_HEAD)
_DIGEST_AT = Prepared(
    select(_j.c.digest).where(
        _j.c.stream == bindparam("stream"), _j.c.position == bindparam("position")
    )
)
_NEW_STREAM = Prepared(f"{upsert(_s, ('name', 'count', 'head'), key=('name',))} RETURNING name")
_BEGIN = Prepared(insert_row(_s, "name", "count", "head"))
_MOVE = (
    update(_s)
    .where(
        _s.c.name == bindparam("stream"),
        _s.c["count"] == bindparam("before"),
        _s.c.head == bindparam("previous"),
    )
    .values(count=bindparam("n"), head=bindparam("digest"))
)
_MOVE_HEAD, _MOVE_KNOWN_HEAD = PreparedUpdate(_MOVE), Prepared(_MOVE)
_LAST = Prepared(
    select(_j.c.stream, _j.c.position, _j.c.digest).where(
        _j.c.sequence == select(func.max(_j.c.sequence)).scalar_subquery()
    )
)
_DOMAIN = "journal-texts"
_ROW_DOMAIN = "row-texts"
WITH_ROW_TEXTS = ("run.start", "receipt", "run.purge")
"""Events of a run whose entries commit to texts in rows."""
_SALT_BYTES = 16
_SALT_BATCH_BYTES = 256 * _SALT_BYTES
_CODES = frozenset(get_args(ReasonCode))
"""Reasons that are codes, which nobody wrote."""
_INSERT = PreparedRow(insert_row(_j, *(each.name for each in _j.columns if not each.primary_key)))
_ENTRIES = select(_j).where(_j.c.stream == bindparam("stream")).order_by(_j.c.position)
_SCANNED = 5_000
"""The most entries of a stream that are looked at for some events: there is no index of them."""
_ALL = select(_j).order_by(_j.c.sequence)
# The cached end of a chain. The writer's connection remembers where it left the streams it wrote to
# last, which saves a query for each entry. Another process may have written since, and a rollback
# leaves the memory ahead of the database, so it is a guess and never the truth: the head of a
# stream is moved by `UPDATE … WHERE count = :before AND head = :previous`, and only where that
# changes a row was the guess right. Otherwise the end is read anew and the entry chained again.
# Must hold: no entry is committed unless the head was moved from the end that it names. Else two
# entries would follow the same one, and the stream would fail its verification for ever.
_ENDS = "tallystick.stream_ends"
_MAX_ENDS = 1_000
"""Streams whose ends a connection caches."""
_ABOUT = select(_j).where(_j.c.subject_id == bindparam("subject_id")).order_by(_j.c.sequence)
_ABOUT_IN = _ABOUT.where(_j.c.stream == bindparam("stream"))


class Salts:
    """Random bytes, 16 at a time. Thread-safe.

    They are drawn many at once: the system call releases the interpreter lock, which costs more
    than recording a step.
    """

    def __init__(self) -> None:
        self._ready: deque[bytes] = deque()

    def new(self) -> bytes:
        """Return bytes that no earlier call returned."""
        while True:
            try:
                return self._ready.popleft()
            except IndexError:
                drawn = os.urandom(_SALT_BATCH_BYTES)
                self._ready.extend(
                    drawn[start : start + _SALT_BYTES]
                    for start in range(0, _SALT_BATCH_BYTES, _SALT_BYTES)
                )

    def clear(self) -> None:
        """Forget the bytes that were drawn: a forked child would return those of its parent."""
        self._ready.clear()


_salts = Salts()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_salts.clear)


class Event(NamedTuple):
    """An event to be appended to a stream."""

    stream: str
    event: str
    actor: Actor
    at: int
    audit_id: str
    reason: str | None = None
    correlation_id: str | None = None
    subject_id: str | None = None
    details: Mapping[str, Any] | None = None
    plain: bool = False
    """True if the details need no check that they have a canonical form."""
    texts: Mapping[str, Any] | None = None
    """Further details, which people wrote: they stand beside the body, and can be erased."""
    row_texts: bytes | None = None
    """The texts in rows of a run or step to which the body commits, by `row_text_bytes`."""


@dataclass(frozen=True)
class Anchor:
    """The purged beginning of a stream: number of its entries, and the digest of the last."""

    count: int
    head: str


class Appended(NamedTuple):
    """An entry with its place in the chain."""

    event: Event
    position: int
    previous: str
    text: str
    """The bytes that the digest covers, as text."""
    digest: str
    texts: str | None = None
    """What people wrote, as canonical JSON; the body commits to it."""
    salt: bytes | None = None
    """That of its commitments; None where it has none."""


class End(NamedTuple):
    """The end of a stream: number of its entries, and the digest of the last."""

    length: int
    head: str


class HeadMove(NamedTuple):
    """The move of a stream's head: its end before, and its new last entry."""

    before: End
    last: Appended


class Origin(NamedTuple):
    """The journal entry at which something was derived from the database.

    Numbers do not say that: a database that was put back from a copy gives them to other rows.
    """

    stream: str
    position: int
    digest: str


class ChainProblem(NamedTuple):
    """A place in a chain that does not match, and why."""

    where: str
    problem: str


def anchor_of(connection: Connection, stream: str) -> Anchor:
    """Return the anchor of a stream: where its purged beginning ended, or its genesis."""
    row = connection.execute(select(_a.c["count"], _a.c.head).where(_a.c.stream == stream)).first()
    return Anchor(0, genesis(stream)) if row is None else Anchor(row[0], row[1])


def events_before(connection: Connection, stream: str, moment: int) -> list[str]:
    """Return the events at the beginning of a stream that are older than `moment`, up to the first
    that is not.
    """
    events: list[str] = []
    for row in connection.execute(_ENTRIES, {"stream": stream}):
        entry = _entry(row)
        if entry.at >= moment:
            break
        events.append(entry.event)
    return events


def last_time(connection: Connection, stream: str) -> int | None:
    """Return the time of the last entry of a stream, microseconds UTC; None if no entry is left."""
    query = select(_j).where(_j.c.stream == stream).order_by(_j.c.position.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else _entry(row).at


def cut(tx: Connection, stream: str, count: int, *, at: int) -> Anchor:
    """Remove the first `count` entries left of a stream, and anchor the rest after them."""
    before = anchor_of(tx, stream)
    last = before.count + count - 1
    head = tx.execute(
        select(_j.c.digest).where(_j.c.stream == stream, _j.c.position == last)
    ).scalar_one()
    tx.execute(delete(_j).where(_j.c.stream == stream, _j.c.position <= last))
    tx.execute(delete(_a).where(_a.c.stream == stream))
    tx.execute(insert(_a), {"stream": stream, "count": last + 1, "head": head, "created_at": at})
    return Anchor(last + 1, head)


def genesis(stream: str) -> str:
    """Return the digest that the first entry of a stream names as the one before it."""
    return text_digest("stream", stream)


def run_stream(run_id: str) -> str:
    """Return the name of the stream of a run."""
    return f"run:{run_id}"


def append(tx: Connection, event: Event) -> Appended:
    """Append `event` to its stream, in the same transaction as the change that it records."""
    entry = _append_at_end(tx, event)
    _INSERT(tx, _row(entry))
    return entry


def _append_at_end(tx: Connection, event: Event) -> Appended:
    """Move the head of a stream to `event`, and return it as the stream's last entry."""
    # The connection caches where it left each stream, which saves a query for each append. The
    # cache is only a guess: another process may have appended, or a rolled back savepoint taken the
    # entry back. `move_head` therefore updates the head only where it still equals the cached end,
    # and otherwise the end is read, as often as another process moves it in between. Believed
    # without that, two entries would get one position.
    ends: dict[str, End] = tx.info.setdefault(_ENDS, {})
    if event.stream.startswith("scope:") or event.stream == "tally":
        require(tx, event.stream.removeprefix("scope:"))
    known = was_read_ahead(tx, *end_ahead(event.stream))
    if known and (end := end_of(tx, event.stream)).length:
        # Read with the lock under which the stream is written: it is the truth, and no answer has
        # to be waited for. Two entries of one position would be refused in any case.
        entry = chain_entry(event, end)
        _MOVE_KNOWN_HEAD(tx, _move(event.stream, end, entry))
        ends[event.stream] = End(entry.position + 1, entry.digest)
        return entry
    last = done_last(tx)
    held = None if last is None else last.get(event.stream)
    if isinstance(held, _HeldMove):
        held.last = entry = chain_entry(event, ends[event.stream])
        ends[event.stream] = End(entry.position + 1, entry.digest)
        return entry
    before = ends.get(event.stream) or end_of(tx, event.stream)
    while not move_head(tx, event.stream, before, entry := chain_entry(event, before)):
        guess, before = before, end_of(tx, event.stream)
        if guess == before:
            raise CorruptTally(f"The end of the stream {event.stream} cannot be moved.")
    if len(ends) >= _MAX_ENDS and last is None:
        ends.clear()
    ends[event.stream] = End(entry.position + 1, entry.digest)
    if last is not None:
        last[event.stream] = _HeldMove(ends[event.stream])
    return entry


@dataclass
class _HeldMove:
    """Moves the head of a stream once for the further entries of a transaction that `gathered`
    holds back: the first one has shown where the stream ends, and no other can write to it.
    """

    before: End
    last: Appended | None = None

    def __call__(self, tx: Connection) -> None:
        if self.last is None:
            return
        if not move_head(tx, self.last.event.stream, self.before, self.last):
            raise CorruptTally(f"The end of the stream {self.last.event.stream} cannot be moved.")
        self.before, self.last = End(self.last.position + 1, self.last.digest), None


def end_of(connection: Connection, stream: str) -> End:
    """Return the end of a stream, from the database."""
    rows = _HEAD_OF(connection, {"stream": stream})
    return End(*rows[0]) if rows else End(0, genesis(stream))


def origin_of(connection: Connection, stream: str) -> Origin:
    """Return the origin of what is derived from this snapshot: the last entry of a stream."""
    length, head = end_of(connection, stream)
    return Origin(stream, length - 1, head)


def last_origin(connection: Connection) -> Origin:
    """Return the origin of what is derived from this snapshot: the last entry of any stream."""
    rows = _LAST(connection, {})
    return Origin(*rows[0]) if rows else Origin("tally", -1, genesis("tally"))


def has_origin(connection: Connection, origin: Origin) -> bool:
    """Return True if the journal, or the anchor that a purge left, has the digest of an origin."""
    rows = _DIGEST_AT(connection, {"stream": origin.stream, "position": origin.position})
    if rows:
        return bool(rows[0][0] == origin.digest)
    return anchor_of(connection, origin.stream) == Anchor(origin.position + 1, origin.digest)


def end_ahead(stream: str) -> Read:
    """Return what is read ahead of a unit that appends to a stream, under the lock of which it is
    written.
    """
    return _HEAD_OF, {"stream": stream}


def chain_entry(event: Event, after: End) -> Appended:
    """Return `event` as the entry that follows the end of its stream. Nothing is written.

    The digest of every entry, and so of every receipt, is computed here.
    """
    body: dict[str, Any] = {
        "schema_version": 1,
        "audit_id": event.audit_id,
        "event": event.event,
        "at": event.at,
        "actor": event.actor.identity(),
        "surface": event.actor.surface,
        "reason": event.reason if event.reason in _CODES else None,
        "correlation_id": event.correlation_id or event.actor.correlation_id,
        "subject_id": event.subject_id,
        "details": dict(event.details or {}),
    }
    written: dict[str, Any] = {
        "reason": None if event.reason in _CODES else event.reason,
        "request_id": event.actor.request_id,
        "session_id": event.actor.session_id,
        "details": dict(event.texts) if event.texts else None,
    }
    written = {name: value for name, value in written.items() if value is not None}
    texts, salt = None, None
    if written or event.row_texts is not None:
        salt = _salts.new()
    if written and salt is not None:
        texts = canonical_json(written).decode()
        body["texts"] = commitment(_DOMAIN, salt, texts.encode())
    if event.row_texts is not None and salt is not None:
        body["row_texts"] = row_texts_commitment(row_salt(salt), event.row_texts)
    text = canonical_json(body, trusted=event.plain).decode()
    digest = _digest(event.stream, after.length, after.head, text)
    return Appended(event, after.length, after.head, text, digest, texts, salt)


def row_text_bytes(texts: Mapping[str, Any]) -> bytes:
    """Return the bytes of the texts in rows to which an entry commits: names, and JSON as it is
    stored.
    """
    return canonical_json(texts, trusted=True)


def row_salt(salt: bytes) -> bytes:
    """Return the salt of the commitment to rows. A bundle has it, and it tells nothing of the salt
    that it is made of, under which the reason and the ids of the entry could be guessed.
    """
    return hashlib.sha256(b"tallystick/row-salt/v1\x00" + salt).digest()[:_SALT_BYTES]


def row_texts_commitment(salt: bytes, texts: bytes) -> str:
    """Return the commitment to the texts in rows under a salt of `row_salt`."""
    return commitment(_ROW_DOMAIN, salt, texts)


def add_many(tx: Connection, entries: Sequence[Appended]) -> None:
    """Insert entries made by `chain_entry`; the caller moves the heads of their streams."""
    _INSERT(tx, [_row(entry) for entry in entries])


def move_heads(tx: Connection, moves: Mapping[str, HeadMove]) -> bool:
    """Same as `move_head`, for many streams by name; False if one of them had another end."""
    new_streams = [last for before, last in moves.values() if before.length == 0]
    if new_streams:
        _BEGIN(
            tx,
            [
                {"name": entry.event.stream, "count": entry.position + 1, "head": entry.digest}
                for entry in new_streams
            ],
        )
    return all(
        move_head(tx, stream, before, last)
        for stream, (before, last) in moves.items()
        if before.length
    )


def move_head(tx: Connection, stream: str, before: End, last: Appended) -> bool:
    """Move the head of a stream from `before` to `last`; False if its head is not `before`."""
    if before.length == 0:
        return bool(
            _NEW_STREAM(tx, {"name": stream, "count": last.position + 1, "head": last.digest})
        )
    return bool(_MOVE_HEAD(tx, _move(stream, before, last)))


def _move(stream: str, before: End, last: Appended) -> dict[str, Any]:
    return {
        "stream": stream,
        "before": before.length,
        "previous": before.head,
        "n": last.position + 1,
        "digest": last.digest,
    }


def _row(entry: Appended) -> dict[str, Any]:
    event = entry.event
    return {
        "audit_id": event.audit_id,
        "stream": event.stream,
        "position": entry.position,
        "event": event.event,
        "subject_id": event.subject_id,
        "body": entry.text,
        "previous": entry.previous,
        "digest": entry.digest,
        "texts": entry.texts,
        "salt": entry.salt,
    }


def entries(connection: Connection, stream: str) -> Iterator[JournalEntry]:
    """Yield the entries of one stream in order. Raises CorruptTally if a body is not readable."""
    for row in connection.execute(_ENTRIES, {"stream": stream}):
        yield _entry(row)


def within(
    connection: Connection,
    stream: str,
    *,
    since: int | None = None,
    until: int | None = None,
    after: int | None = None,
    limit: int = 200,
    newest: bool = True,
    events: Sequence[str] = (),
) -> list[JournalEntry]:
    """Return entries of a stream from `since` until before `until`, and behind the position
    `after`: the first ones in order, or with `newest` the last ones, newest first. With `events`
    those alone, of the last 5,000 entries before the end. Raises CorruptTally.

    No column has the times: the ends are found by halving the stream, which is in their order.
    """
    first, last = anchor_of(connection, stream).count, end_of(connection, stream).length
    if until is not None:
        last = _first_since(connection, stream, until, first, last)
    if since is not None:
        first = _first_since(connection, stream, since, first, last)
    if after is not None:
        first = max(first, after + 1)
    if events:
        first = max(first, last - _SCANNED)
    query = select(_j).where(_j.c.stream == stream, _j.c.position >= first, _j.c.position < last)
    if events:
        query = query.where(_j.c.event.in_(events))
    order = _j.c.position.desc() if newest else _j.c.position
    return [_entry(row) for row in connection.execute(query.order_by(order).limit(limit))]


def of_tally(
    connection: Connection, *events: str, since: int | None = None, limit: int = 200
) -> list[JournalEntry]:
    """Return the last entries about the whole tally, of these events or of all, newest first; see
    `within`.
    """
    return within(connection, "tally", since=since, limit=limit, events=events)


def _first_since(connection: Connection, stream: str, moment: int, first: int, last: int) -> int:
    """Return the position of the first entry at `moment` or later, or `last`."""
    while first < last:
        middle = (first + last) // 2
        query = select(_j).where(_j.c.stream == stream, _j.c.position == middle)
        row = connection.execute(query).first()
        if row is not None and _entry(row).at >= moment:
            last = middle
        else:
            first = middle + 1
    return last


def about(
    connection: Connection, subject_id: str, *, stream: str | None = None
) -> list[JournalEntry]:
    """Return every entry about one record, of one stream or of all, oldest first."""
    query = _ABOUT if stream is None else _ABOUT_IN
    values = {"subject_id": subject_id} | ({} if stream is None else {"stream": stream})
    return [_entry(row) for row in connection.execute(query, values)]


def all_entries(connection: Connection) -> list[JournalEntry]:
    """Return the whole journal, in order."""
    return [_entry(row) for row in connection.execute(_ALL)]


def foil(connection: Connection, stream: str, run_id: str) -> Foil:
    """Return count and head of a stream as stored now."""
    end = end_of(connection, stream)
    return Foil(run_id=run_id, count=end.length, head=end.head)


def verify_stream(connection: Connection, stream: str) -> list[ChainProblem]:
    """Return everything in a stream that does not match; empty if the chain is intact."""
    head = connection.execute(_HEAD, {"stream": stream}).first()
    rows = connection.execute(_ENTRIES, {"stream": stream})
    return chain_problems(
        stream, rows, anchor_of(connection, stream), None if head is None else End(*head)
    )


def chain_problems(
    stream: str, rows: Iterable[Any], anchor: Anchor, head: End | None
) -> list[ChainProblem]:
    """Same as `verify_stream`, for given rows, the anchor before them, and the stated end."""
    problems: list[ChainProblem] = []
    expected_previous, count = anchor.head, anchor.count
    for count, row in enumerate(rows, start=anchor.count + 1):
        where = f"{stream}#{row.position}"
        if row.position != count - 1:
            problems.append(
                ChainProblem(
                    where, f"expected position {count - 1}: an entry is missing or was added"
                )
            )
            return problems
        if row.previous != expected_previous:
            problems.append(ChainProblem(where, "does not name the digest of the entry before it"))
        if row.digest != _digest(stream, row.position, row.previous, row.body):
            problems.append(ChainProblem(where, "its bytes do not match its digest"))
        problems += [ChainProblem(where, problem) for problem in _column_problems(row)]
        expected_previous = row.digest
    if head is None:
        if count:
            problems.append(ChainProblem(stream, "has entries but no head"))
    elif head != (count, expected_previous):
        problems.append(
            ChainProblem(
                stream,
                f"its head says {head.length} entries, found {count}: the end was cut or replaced",
            )
        )
    return problems


def rows_of(connection: Connection, stream: str) -> list[Any]:
    """Return the entries of one stream in order, as they are stored."""
    return list(connection.execute(_ENTRIES, {"stream": stream}))


def read_row(row: Any) -> JournalEntry:
    """Return the journal entry in a stored row. Raises CorruptTally if its body is not readable."""
    return _entry(row)


def _column_problems(row: Any) -> list[str]:
    # These columns repeat fields of the body for queries; the chain covers only the body.
    try:
        body = json.loads(row.body)
    except ValueError:
        return ["its body is not JSON"]
    problems = [
        f"column {name} does not match the body"
        for name in ("audit_id", "event", "subject_id")
        if not isinstance(body, dict) or body.get(name) != getattr(row, name)
    ]
    texts = getattr(row, "texts", None)  # a bundle has none
    commits = isinstance(body, dict) and body.get("row_texts") is not None
    if texts is None and not commits and getattr(row, "salt", None) is not None:
        problems.append("it has a salt, and nothing that people wrote beside it")
    if texts is not None and isinstance(body, dict):
        committed = commitment(_DOMAIN, bytes(row.salt or b""), str(texts).encode())
        if body.get("texts") != committed:
            problems.append("what people wrote beside it does not match its commitment")
    return problems


def _digest(stream: str, position: int, previous: str, body: str) -> str:
    return text_digest("journal", canonical_json([stream, position, previous, body], trusted=True))


def _entry(row: Any) -> JournalEntry:
    try:
        body = json.loads(row.body)
    except ValueError as error:
        raise CorruptTally(f"Journal entry {row.stream}#{row.position} is not readable.") from error
    if not isinstance(body, dict):
        raise CorruptTally(f"Journal entry {row.stream}#{row.position} is not an entry.")
    texts = getattr(row, "texts", None)
    try:
        written = {} if texts is None else json.loads(texts)
    except ValueError as error:
        raise CorruptTally(f"Journal entry {row.stream}#{row.position} is not readable.") from error
    details = body.get("details", {})
    if isinstance(details, dict) and isinstance(written.get("details"), dict):
        details = {**details, **written["details"]}
    return JournalEntry.load(
        {
            **body,
            **written,
            "details": details,
            "texts_erased": (body.get("texts") is not None and texts is None)
            or (body.get("row_texts") is not None and getattr(row, "salt", None) is None),
            "sequence": row.sequence,
            "stream": row.stream,
            "position": row.position,
            "previous": row.previous,
            "digest": row.digest,
        }
    )
