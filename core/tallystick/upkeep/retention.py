"""Retention: what may go once its window has passed, in an order that leaves nothing pointing at what went.

Forgotten memories go links first, then text, then rows. A journal is cut from its beginning and keeps an anchor,
the count and the head of what went, so that what is left still verifies; its window is a choice that somebody made.
"""

from __future__ import annotations

from typing import Literal

from sqlalchemy import Connection, and_, delete, func, or_, select

from tallystick.errors import Denied, InvalidInput
from tallystick.memory import MemoryRoom
from tallystick.memory.change import forget_one
from tallystick.memory.writing import Writing
from tallystick.records import AccessDecision, Actor, Purge
from tallystick.storage import erasing, journal, keyed, memories, scopes, tables

__all__ = ["JOURNAL_WINDOW", "choose_journal_window", "journal_window", "purge", "require_operator"]

JOURNAL_WINDOW = "retention.journal_days"
"""Setting: after how many days entries of journals may go; `keep` for never. Absent until somebody chose."""
_DAY_US = 24 * 3600 * 1_000_000
_PAGE = 500
_SCOPES = "scope:"
"""Journals of scopes are cut; those of runs and threads are kept as long as what they answer for."""

_m, _j = tables.memories, tables.jobs


def journal_window(connection: Connection) -> tuple[bool, int | None]:
    """Whether a window was chosen, and its days; None keeps the journal."""
    kept = keyed.get_setting(connection, JOURNAL_WINDOW)
    return kept is not None, None if kept in (None, "keep") else int(kept)


def choose_journal_window(room: MemoryRoom, actor: Actor, days: int | None) -> None:
    """Choose after how many days journal entries may go, or None to keep them. Raises Denied, InvalidInput."""
    require_operator(room, actor)
    if days is not None and days < 1:
        raise InvalidInput("The window of the journal is 1 day or more; 90 or 180 are usual. None keeps it.")
    value = "keep" if days is None else str(days)
    room.store.database.write(lambda tx: keyed.set_setting(tx, JOURNAL_WINDOW, value), name="retention.choose")


def purge(
    room: MemoryRoom, actor: Actor, *, mode: Literal["preview", "apply"], done_jobs_days: int, dead_jobs_days: int
) -> Purge:  # fmt: skip
    """Count what is past its window, or remove it, page by page. An operator's work. Raises Denied."""
    require_operator(room, actor)
    database, now = room.store.database, room.store.clock.now()
    with database.read() as connection:
        chosen, days = journal_window(connection)
        before = None if days is None else now - days * _DAY_US
        streams = [] if before is None else _old_streams(connection, before)
        shown = Purge(
            mode=mode,
            expired=len(_expired(connection, now, most=None)),
            tombstones=len(_tombstones(connection, now - room.forget_window_us, most=None)),
            journal=sum(count for _, count in streams),
            streams=tuple(stream for stream, _ in streams),
            jobs=int(connection.execute(
                select(func.count()).select_from(_j).where(_old_jobs(now, done_jobs_days, dead_jobs_days))
            ).scalar_one()),
            working=erasing.working_with(connection, tables.working.c.expires_at <= now, remove=False),
            journal_window_days=days if chosen else None,
        )  # fmt: skip
    if mode == "preview":
        return shown
    database.write(lambda tx: _sweep(tx, now, done_jobs_days, dead_jobs_days), name="purge.sweep")
    while database.write(lambda tx: _forget_expired(Writing(tx, room, actor, now, None)), name="purge.expired"):
        pass
    while database.write(lambda tx: _bury(Writing(tx, room, actor, now, None)), name="purge.tombstones"):
        pass
    if before is not None:
        for stream, _ in streams:
            database.write(lambda tx, s=stream: _cut(tx, room, actor, s, before, now), name="purge.journal")  # type: ignore[misc]
    return shown


def require_operator(room: MemoryRoom, actor: Actor) -> None:
    """Raise Denied, journaled, unless an operator of the whole tally acts."""
    # Retention concerns the whole tally, so an operator of one organization in it is not enough.
    if not actor.is_operator or actor.organization is not None:
        decision = AccessDecision(
            allowed=False, reason="missing_permission", operation="manage", scope=actor.private_scope,
            surface=actor.surface,
        )  # fmt: skip
        raise room.gate.refuse(actor, decision) from Denied(decision)


def _sweep(tx: Connection, now: int, done_jobs_days: int, dead_jobs_days: int) -> None:
    tx.execute(delete(_j).where(_old_jobs(now, done_jobs_days, dead_jobs_days)))
    erasing.working_with(tx, tables.working.c.expires_at <= now, remove=True)


def _old_jobs(now: int, done: int, dead: int):  # type: ignore[no-untyped-def]
    return or_(
        and_(_j.c.status == "done", _j.c.updated_at < now - done * _DAY_US),
        and_(_j.c.status == "dead", _j.c.updated_at < now - dead * _DAY_US),
    )


def _expired(connection: Connection, now: int, *, most: int | None) -> list[int]:
    query = select(_m.c.doc).where(_m.c.state.in_(memories.FINDABLE), _m.c.expires_at <= now).order_by(_m.c.doc)
    return list(connection.execute(query.limit(most)).scalars())


def _forget_expired(writing: Writing) -> int:
    docs = _expired(writing.tx, writing.now, most=_PAGE)
    for stored in memories.get_docs(writing.tx, docs).values():
        forget_one(writing, stored, "expired")
    return len(docs)


def _tombstones(connection: Connection, before: int, *, most: int | None) -> list[int]:
    query = select(_m.c.doc).where(_m.c.state == "deleted", _m.c.forgotten_at < before).order_by(_m.c.doc)
    return list(connection.execute(query.limit(most)).scalars())


def _bury(writing: Writing) -> int:
    """Remove a page of forgotten memories whose window has passed; the journal of each scope names them."""
    docs = _tombstones(writing.tx, writing.now - writing.room.forget_window_us, most=_PAGE)
    if not docs:
        return 0
    for stored in memories.get_docs(writing.tx, docs).values():
        writing.write_down(
            stored.memory.scope, "memory.purge", stored.memory.id, {"version": stored.memory.version},
            reason="its window has passed",
        )  # fmt: skip
        writing.hide(stored.doc, stored.scope_id)
    erasing.destroy(writing.tx, docs, at=writing.now, keep_rows=False)
    writing.room.shelves.drop()
    return len(docs)


def _old_streams(connection: Connection, before: int) -> list[tuple[str, int]]:
    """(stream, entries that would go) of the journals of scopes that begin before a moment."""
    found = []
    for scope in scopes.all_scopes(connection):
        stream = f"{_SCOPES}{scope}"
        count = journal.count_before(connection, stream, before)
        if count:
            found.append((stream, count))
    return found


def _cut(tx: Connection, room: MemoryRoom, actor: Actor, stream: str, before: int, now: int) -> None:
    count = journal.count_before(tx, stream, before)
    if not count:
        return
    anchor = journal.cut(tx, stream, count, at=now)
    journal.append(
        tx,
        journal.Event(
            stream=stream, event="journal.purge", actor=actor, at=now, audit_id=room.store.ids.new(),
            reason="older than the window that was chosen",
            details={"removed": count, "count": anchor.count, "head": anchor.head, "before": before},
        ),
    )  # fmt: skip
