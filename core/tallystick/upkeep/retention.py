"""Retention: removes what is past its window, in an order that leaves no reference to removed rows.

Forgotten memories are removed links first, then text, then rows; a recorded run as a whole:
payloads, steps, then its journal. A journal is cut from its beginning and keeps an anchor, the
count and the head of the removed entries, so that the rest still verifies; its window is a choice
that somebody made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from tallystick.checkpoints.verify import ENDING
from tallystick.errors import Denied, InvalidInput
from tallystick.memory import MemoryContext
from tallystick.memory.change import forget_one, require_mode
from tallystick.memory.memory_write import MemoryWrite
from tallystick.recorder.chain import run_stream
from tallystick.recorder.verify import PURGED, RUN_FACTS
from tallystick.records import AccessDecision, Actor, Purge
from tallystick.storage import (
    Connection,
    approvals,
    erasing,
    integrity,
    journal,
    memories,
    recordings,
    settings_rows,
    working,
)
from tallystick.storage import retention as rows
from tallystick.storage.idempotency import IdempotentCall

__all__ = [
    "JOURNAL_WINDOW",
    "Windows",
    "choose_journal_window",
    "journal_window",
    "purge",
    "require_operator",
]

JOURNAL_WINDOW = "retention.journal_days"
"""Setting: the days after which entries of journals may be removed; `keep` for never. Absent until
somebody chose.
"""
_DAY_US = 24 * 3600 * 1_000_000
_LONGEST = 36_500
"""Days: a hundred years. For longer the journal is kept."""
_PAGE = 500
_RUNS, _THREADS = "run:", "thread:"
_CUT = "journal.purge"


@dataclass(frozen=True)
class Windows:
    """Days after which rows are removed: jobs that are done or dead, and the answers of calls under
    an idempotency key.
    """

    done_jobs: int
    dead_jobs: int
    answers: int

    def done_jobs_before(self, now: int) -> int:
        """Return the moment before which jobs must have been done to go."""
        return now - self.done_jobs * _DAY_US

    def dead_jobs_before(self, now: int) -> int:
        """Return the moment before which jobs must have died to go."""
        return now - self.dead_jobs * _DAY_US

    def answers_before(self, now: int) -> int:
        """Return the moment before which answers must have been given to go."""
        return now - self.answers * _DAY_US


class JournalWindow(NamedTuple):
    """The window after which entries of journals may go."""

    chosen: bool
    days: int | None
    """None keeps the journal."""


def journal_window(connection: Connection) -> JournalWindow:
    """Return the window of the journal that somebody chose, if anybody did."""
    value = settings_rows.get_setting(connection, JOURNAL_WINDOW)
    return JournalWindow(value is not None, None if value in (None, "keep") else int(value))


def choose_journal_window(
    context: MemoryContext, actor: Actor, days: int | None, *, idempotency_key: str | None = None
) -> None:
    """Choose the days after which journal entries may be removed, or None to keep them. Raises
    Denied, InvalidInput.
    """
    require_operator(context, actor)
    if days is not None and (not isinstance(days, int) or not 1 <= days <= _LONGEST):
        raise InvalidInput(
            f"The window of the journal is a number of days from 1 to {_LONGEST:,}; 90 or 180 "
            f"are usual. None keeps it."
        )
    value = "keep" if days is None else str(days)
    call = IdempotentCall(actor.private_scope, "retention.choose", idempotency_key, value)

    def unit(tx: Connection) -> None:
        if call.answered(tx) is not None:
            return
        now = context.store.clock.now()
        settings_rows.set_setting(tx, JOURNAL_WINDOW, value)
        _note(tx, context, actor, "retention.choose", now, {"journal_days": value})
        call.keep(tx, {}, at=now)

    context.store.database.write(unit, name="retention.choose")


def purge(
    context: MemoryContext,
    actor: Actor,
    windows: Windows,
    *,
    mode: Literal["preview", "apply"],
    idempotency_key: str | None = None,
) -> Purge:
    """Count what is past its window, or remove it, page by page. For operators. Raises Denied."""
    require_mode(mode)
    require_operator(context, actor)
    database, now = context.store.database, context.store.clock.now()
    call = IdempotentCall(
        actor.private_scope, "purge", idempotency_key if mode == "apply" else None, asdict(windows)
    )
    with database.read() as connection:
        answered = call.answered(connection)
        if answered is not None:
            return Purge.load(answered)
        chosen, days = journal_window(connection)
        before = None if days is None else now - days * _DAY_US
        streams = [] if before is None else _old_streams(connection, before)
        runs = {} if before is None else _old_runs(connection, before)
        result = Purge(
            mode=mode,
            expired=len(rows.expired_docs(connection, now, limit=None)),
            tombstones=len(rows.tombstones(connection, now - context.forget_window_us, limit=None)),
            journal=sum(count for _, count in streams) + sum(runs.values()),
            streams=tuple(stream for stream, _ in streams),
            runs=tuple(runs),
            reads=0 if before is None else rows.count_reads(connection, before),
            approvals=0 if before is None else approvals.count_old(connection, before),
            jobs=rows.count_jobs(
                connection,
                done_before=windows.done_jobs_before(now),
                dead_before=windows.dead_jobs_before(now),
            ),
            answers=rows.count_answers(connection, windows.answers_before(now)),
            working=working.count_expired(connection, now),
            journal_window_chosen=chosen,
            journal_window_days=days if chosen else None,
        )
    if mode == "preview":
        return result
    database.write(lambda tx: _sweep(tx, now, windows, before), name="purge.sweep")
    while database.write(
        lambda tx: _forget_expired(MemoryWrite(tx, context, actor, now, None)), name="purge.expired"
    ):
        pass
    while database.write(
        lambda tx: _bury(MemoryWrite(tx, context, actor, now, None)), name="purge.tombstones"
    ):
        pass
    if before is not None:
        for run_id in runs:
            bury = partial(
                _bury_run, context=context, actor=actor, run_id=run_id, before=before, now=now
            )
            database.write(bury, name="purge.run")
        for stream, _ in streams:
            cut = partial(_cut, context=context, actor=actor, stream=stream, before=before, now=now)
            database.write(cut, name="purge.journal")
    database.write(lambda tx: _finish(tx, context, actor, call, result, now), name="purge.told")
    return result


def _finish(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    call: IdempotentCall,
    result: Purge,
    now: int,
) -> None:
    """Journal the numbers of removed rows, beside what the journals of scopes, runs and threads say
    of themselves, and keep the answer.
    """
    counts = {
        "expired": result.expired,
        "tombstones": result.tombstones,
        "journal": result.journal,
        "runs": len(result.runs),
        "reads": result.reads,
        "approvals": result.approvals,
        "jobs": result.jobs,
        "answers": result.answers,
        "working": result.working,
    }
    if any(counts.values()):
        _note(tx, context, actor, "tally.purge", now, counts)
    call.keep(tx, result.dump(), at=now)


def _note(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    event: str,
    now: int,
    details: Mapping[str, Any],
) -> None:
    journal.append(
        tx,
        journal.Event(
            stream="tally",
            event=event,
            actor=actor,
            at=now,
            audit_id=context.store.ids.new(),
            details=details,
        ),
    )


def require_operator(context: MemoryContext, actor: Actor) -> None:
    """Raise Denied, journaled, unless an operator of the whole tally acts."""
    # Retention concerns the whole tally, so an operator of one organization in it is not enough.
    if not actor.is_operator or actor.organization is not None:
        decision = AccessDecision(
            allowed=False,
            reason="missing_permission",
            operation="manage",
            scope=actor.private_scope,
            surface=actor.surface,
        )
        raise context.gate.refuse(actor, decision) from Denied(decision)


def _sweep(tx: Connection, now: int, windows: Windows, before: int | None) -> None:
    rows.remove_jobs(
        tx, done_before=windows.done_jobs_before(now), dead_before=windows.dead_jobs_before(now)
    )
    rows.remove_answers(tx, windows.answers_before(now))
    working.remove_expired(tx, now)
    if before is not None:
        rows.remove_reads(tx, before)
        approvals.remove_old(tx, before)


def _forget_expired(writing: MemoryWrite) -> int:
    docs = rows.expired_docs(writing.tx, writing.now, limit=_PAGE)
    for stored in memories.get_docs(writing.tx, docs).values():
        forget_one(writing, stored, "expired")
    return len(docs)


def _bury(writing: MemoryWrite) -> int:
    """Remove a page of forgotten memories whose window has passed and name them in the journal of
    their scope; return their number.
    """
    docs = rows.tombstones(writing.tx, writing.now - writing.context.forget_window_us, limit=_PAGE)
    if not docs:
        return 0
    for stored in memories.get_docs(writing.tx, docs).values():
        writing.journal_event(
            stored.memory.scope,
            "memory.purge",
            stored.memory.id,
            {"version": stored.memory.version},
            reason="its window has passed",
        )
        writing.hide(stored.doc, stored.scope_id)
    erasing.destroy(writing.tx, docs, at=writing.now, keep_rows=False)
    writing.context.corpora.drop()
    return len(docs)


def _old_streams(connection: Connection, before: int) -> list[tuple[str, int]]:
    """Return the journals that begin before a moment, except those of runs, each as (stream, number
    of entries to remove).
    """
    counted = [
        (name, _old_entries(connection, name, before))
        for name in integrity.stream_names(connection)
        if not name.startswith(_RUNS)
    ]
    return [(name, count) for name, count in counted if count]


def _old_entries(connection: Connection, stream: str, before: int) -> int:
    """Return the number of entries at the beginning of a journal that are past the window and that
    nothing needs.
    """
    events = journal.events_before(connection, stream, before)
    if stream.startswith(_THREADS) and events:
        # A living thread is verified against the last entry of its journal.
        every = [entry.event for entry in journal.entries(connection, stream)]
        last = max((place for place, event in enumerate(every) if event != _CUT), default=0)
        if every[last] not in ENDING:
            events = events[:last]
    # Entries that only note earlier removals are not replaced by another that notes theirs.
    return 0 if all(event == _CUT for event in events) else len(events)


def _cut(
    tx: Connection, context: MemoryContext, actor: Actor, stream: str, before: int, now: int
) -> None:
    count = _old_entries(tx, stream, before)
    if count:
        _shorten(tx, context, actor, stream, count, before, now, _CUT, {})


def _shorten(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    stream: str,
    count: int,
    before: int,
    now: int,
    event: str,
    facts: Mapping[str, Any],
) -> None:
    """Cut the first `count` entries of a journal, and note it in the journal."""
    anchor = journal.cut(tx, stream, count, at=now)
    details = {
        **facts,
        "removed": count,
        "count": anchor.count,
        "head": anchor.head,
        "before": before,
    }
    journal.append(
        tx,
        journal.Event(
            stream=stream,
            event=event,
            actor=actor,
            at=now,
            audit_id=context.store.ids.new(),
            reason="older than the window that was chosen",
            details=details,
        ),
    )


def _old_runs(connection: Connection, before: int) -> dict[str, int]:
    """Return the number of entries in the journal of each run that ended before a moment and was
    not mentioned since.
    """
    lengths = {}
    for run_id in rows.ended_runs(connection, before, stream_prefix=_RUNS):
        stream = run_stream(run_id)
        last = journal.last_time(connection, stream)
        if last is not None and last < before:
            lengths[run_id] = journal.end_of(connection, stream).length
    return lengths


def _bury_run(
    tx: Connection, context: MemoryContext, actor: Actor, run_id: str, before: int, now: int
) -> None:
    """Remove a recorded run: payloads, entries, steps, then its journal, of which one entry with
    the facts remains.
    """
    count = _old_runs(tx, before).get(run_id)
    recorded = recordings.find_run(tx, run_id)
    if count is None or recorded is None:
        return
    run = recorded.record
    payloads = recordings.stored_payloads(tx, run_id, None)
    erasing.erase_payloads(tx, payloads, at=now)
    steps = rows.remove_run(tx, run_id)
    fields = run.dump()
    facts = {name: fields[name] for name in RUN_FACTS} | {
        "steps": steps,
        "payloads": len(payloads),
    }
    _shorten(tx, context, actor, run_stream(run_id), count, before, now, PURGED, facts)
