"""Retention: removes what is past its window, in an order that leaves no reference to removed rows.

Forgotten memories are removed links first, then text, then rows; a recorded run as a whole:
payloads, steps, then its journal. A journal is cut from its beginning and keeps an anchor, the
count and the head of the removed entries, so that the rest still verifies; its window is a choice
that somebody made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from tallystick.checkpoints.verify import ENDING
from tallystick.errors import Denied, InvalidInput, LeaseLost
from tallystick.jobs import TALLY_ACTOR, Ended, Work
from tallystick.memory import MemoryContext
from tallystick.memory.change import forget_one, require_reason
from tallystick.memory.memory_write import MemoryWrite
from tallystick.recorder.verify import PURGED, RUN_FACTS
from tallystick.records import AccessDecision, Actor, Purge
from tallystick.settings import Settings
from tallystick.storage import Connection
from tallystick.storage.engine import integrity
from tallystick.storage.engine.writes import JOBS, TALLY, Writes
from tallystick.storage.rows import (
    approvals,
    job_list,
    jobs,
    journal,
    memories,
    proposals,
    recordings,
    settings_rows,
    working,
)
from tallystick.storage.rows.idempotency import IdempotentCall
from tallystick.storage.rows.journal import run_stream
from tallystick.storage.rows.scopes import FROZEN
from tallystick.storage.text import erasing
from tallystick.storage.text import retention as rows
from tallystick.upkeep.reach import destroy_memories

JOURNAL_WINDOW = "retention.journal_days"
"""Setting: the days after which entries of journals may be removed; `keep` for never. Absent until
somebody chose.
"""
RETENTION = "retention"
"""The kind of job that removes what is past its window."""
KEEP: Literal["keep"] = "keep"
"""The window that has no end."""
Window = int | Literal["keep"]
"""A number of days, or to keep it."""
_CHOSEN = ("tombstones", "done_jobs", "dead_jobs")
_TOMBSTONES = "retention.tombstones_days"
WINDOWS = (JOURNAL_WINDOW, *(f"retention.{name}_days" for name in _CHOSEN))
"""Settings that contain the windows which a person chose."""
CHOICES = {**dict.fromkeys(WINDOWS, r"keep|[1-9][0-9]{0,4}"), FROZEN: r"[01]"}
"""Settings that somebody chose, with the form of their values: they are exported, and give way to
those of the importing tally.
"""
_TALLY = "tally"
_DAY_US = 24 * 3600 * 1_000_000
_LONGEST = 36_500
"""Days: a hundred years. For longer the journal is kept."""
_PAGE = 500
_RUNS, _THREADS = "run:", "thread:"
_CUT = "journal.purge"
_PASSED = "its window has passed"
_ORIGIN_PASSED = "the window of a memory that it was drawn from has passed"


@dataclass(frozen=True)
class Windows:
    """Days after which rows are removed; None keeps them."""

    done_jobs: int
    """Jobs that are done, or had nothing to do."""
    dead_jobs: int
    """Jobs that failed or died."""
    answers: int
    """The answers of calls under an idempotency key."""
    tombstones: int | None = None
    """Forgotten memories: their text, links and rows. Only where a person chose it."""


class Plan(NamedTuple):
    """The moments before which things must be over to go, microseconds UTC; None keeps them."""

    now: int
    done_jobs: int
    dead_jobs: int
    answers: int | None
    working: int
    """The end of the values of runs and threads, which no window keeps."""
    tombstones: int | None
    journal: int | None


def windows_of(settings: Settings) -> Windows:
    """Return the windows of the settings, in days."""
    return Windows(
        done_jobs=settings.done_jobs_days,
        dead_jobs=settings.dead_jobs_days,
        answers=settings.idempotency_days,
        tombstones=settings.tombstones_days,
    )


class JournalWindow(NamedTuple):
    """The window after which entries of journals may go."""

    chosen: bool
    days: int | None
    """None keeps the journal."""


def journal_window(connection: Connection) -> JournalWindow:
    """Return the window of the journal that somebody chose, if anybody did."""
    value = settings_rows.get_setting(connection, JOURNAL_WINDOW)
    return JournalWindow(value is not None, _days(value))


def chosen_windows(connection: Connection, windows: Windows) -> Windows:
    """Return the windows that a person chose for this tally, and for the others `windows`."""
    stored_days = {
        name: settings_rows.get_setting(connection, f"retention.{name}_days") for name in _CHOSEN
    }
    chosen = {name: _days(value) for name, value in stored_days.items() if value is not None}
    # To keep jobs for ever is to keep them for longer than anything lasts.
    done_jobs = chosen.get("done_jobs", windows.done_jobs)
    dead_jobs = chosen.get("dead_jobs", windows.dead_jobs)
    return Windows(
        done_jobs=_LONGEST if done_jobs is None else done_jobs,
        dead_jobs=_LONGEST if dead_jobs is None else dead_jobs,
        answers=windows.answers,
        tombstones=chosen.get("tombstones", windows.tombstones),
    )


def choose_windows(
    context: MemoryContext,
    actor: Actor,
    *,
    idempotency_key: str | None = None,
    **days: Window | None,
) -> None:
    """Choose the days after which things go: `journal`, `tombstones`, `done_jobs`, `dead_jobs`.

    Each is a number of days or `"keep"`; what is None stays as it is. Raises Denied, InvalidInput.
    """
    require_operator(context, actor)
    values: dict[str, Window] = {name: value for name, value in days.items() if value is not None}
    if not values:
        raise InvalidInput(
            "Choose at least one window: journal_days, tombstones_days, done_jobs_days or "
            "dead_jobs_days, each a number of days or 'keep'."
        )
    for name, value in values.items():
        _check_window(context, name, value)
    written = {f"{name}_days": str(value) for name, value in sorted(values.items())}
    call = IdempotentCall(actor.private_scope, "retention.choose", idempotency_key, written)

    def unit(tx: Connection) -> None:
        if call.read_answer(tx) is not None:
            return
        now = context.store.clock.now()
        for name, value in written.items():
            settings_rows.set_setting(tx, f"retention.{name}", value)
        _note(tx, context, actor, "retention.choose", now, written)
        call.keep(tx, {}, at=now)

    context.store.database.write(
        unit, name="retention.choose", writes=Writes.of(TALLY, actor.private_scope)
    )


def _check_window(context: MemoryContext, name: str, days: Window) -> None:
    argument = f"{name}_days"
    if days == KEEP:
        return
    if isinstance(days, bool) or not isinstance(days, int) or not 1 <= days <= _LONGEST:
        raise InvalidInput(
            f"`{argument}` is a number of days from 1 to {_LONGEST:,}, or 'keep'; 90 or 180 are "
            f"usual for the journal, 30 for what was forgotten.",
            argument=argument,
        )
    least = -(-context.forget_window_us // _DAY_US)
    if name == "tombstones" and days < least:
        raise InvalidInput(
            f"`{argument}` is at least {least}: so long a forgotten memory can be recovered "
            f"(`forget_window_days`).",
            argument=argument,
        )


def _days(value: str | None) -> int | None:
    return None if value in (None, KEEP) else int(value)


def purge(
    context: MemoryContext,
    actor: Actor,
    windows: Windows,
    *,
    mode: Literal["preview", "apply"],
    reason: str = "",
    idempotency_key: str | None = None,
) -> Purge:
    """Count what is past its window, or remove it, page by page, for a reason that the journal
    keeps. For operators.

    The file of an embedded tally is written anew where text went. Raises Denied, InvalidInput,
    StorageError, BusyTally.
    """
    require_operator(context, actor)
    if mode == "apply":
        require_reason(reason)
        actor = actor.within_act(context.store.ids.new())
    database, now = context.store.database, context.store.clock.now()
    call = IdempotentCall(
        actor.private_scope,
        "purge",
        idempotency_key if mode == "apply" else None,
        {**asdict(windows), "reason": reason},
    )
    with database.read() as connection:
        answered = call.read_answer(connection)
        if answered is not None:
            return Purge.load(answered)
        windows = chosen_windows(connection, windows)
        plan = Plan(
            now=now,
            done_jobs=now - windows.done_jobs * _DAY_US,
            dead_jobs=now - windows.dead_jobs * _DAY_US,
            answers=now - windows.answers * _DAY_US,
            working=now,
            # An operator who asks for it needs no other window than that of recovery.
            tombstones=now - context.forget_window_us,
            journal=_journal_before(connection, now),
        )
        result = _count_purge(connection, plan, mode)
    if mode == "apply":
        carry_out(context, actor, plan)
        if result.tombstones or result.runs or result.working:
            erasing.rewrite_file(database)
        return database.write(
            lambda tx: _finish(tx, context, actor, call, result, reason, now), name="purge.told"
        )
    return result


def _journal_before(connection: Connection, now: int) -> int | None:
    days = journal_window(connection).days
    return None if days is None else now - days * _DAY_US


def _count_purge(connection: Connection, plan: Plan, mode: Literal["preview", "apply"]) -> Purge:
    before = plan.journal
    streams = [] if before is None else _old_streams(connection, before)
    runs = {} if before is None else _old_runs(connection, before)
    docs = (
        [] if plan.tombstones is None else rows.tombstones(connection, plan.tombstones, limit=None)
    )
    derived = erasing.drawn_from(connection, docs, promoted=False)
    ids = memories.ids_of(connection, [*docs, *derived])
    chosen, days = journal_window(connection)
    return Purge(
        mode=mode,
        expired=len(rows.expired_docs(connection, plan.now, limit=None)),
        tombstones=len(docs),
        derived=len(derived),
        proposals=len(proposals.of_memories(connection, ids)),
        journal=sum(count for _, count in streams) + sum(runs.values()),
        streams=tuple(stream for stream, _ in streams),
        runs=tuple(runs),
        reads=0 if before is None else rows.count_reads(connection, before),
        approvals=0 if before is None else approvals.count_old(connection, before),
        jobs=rows.count_jobs(connection, done_before=plan.done_jobs, dead_before=plan.dead_jobs),
        answers=0 if plan.answers is None else rows.count_answers(connection, plan.answers),
        working=working.count_expired(connection, plan.working),
        journal_window_chosen=chosen,
        journal_window_days=days if chosen else None,
        tombstones_window_chosen=settings_rows.get_setting(connection, _TOMBSTONES) is not None,
        tombstones_window_days=_days(settings_rows.get_setting(connection, _TOMBSTONES)),
    )


def carry_out(
    context: MemoryContext, actor: Actor, plan: Plan, check: Callable[[], None] = lambda: None
) -> None:
    """Remove what a plan says, page by page, in an order that leaves no reference to removed rows.

    `check` is called before each page, and ends it by raising. Cut off anywhere, it is done again.
    """
    database, now, before = context.store.database, plan.now, plan.journal
    check()
    database.write(lambda tx: _sweep(tx, plan), name="purge.sweep")
    while database.write(
        lambda tx: _forget_expired(MemoryWrite(tx, context, actor, now, None)), name="purge.expired"
    ):
        check()
    if plan.tombstones is not None:
        limit = plan.tombstones
        while database.write(
            lambda tx: _bury(MemoryWrite(tx, context, actor, now, None), limit),
            name="purge.tombstones",
        ):
            check()
    if before is None:
        return
    with database.read() as connection:
        streams = _old_streams(connection, before)
        runs = _old_runs(connection, before)
    for run_id in runs:
        check()
        bury = partial(
            _bury_run, context=context, actor=actor, run_id=run_id, before=before, now=now
        )
        database.write(bury, name="purge.run")
    for stream, _ in streams:
        check()
        cut = partial(_cut, context=context, actor=actor, stream=stream, before=before, now=now)
        database.write(cut, name="purge.journal")


class RetentionHandler:
    """Carries out the jobs of the kind `RETENTION`: once a day, by the windows that a person chose.

    Where nobody chose any, jobs that are over go, and memories whose time is over are forgotten;
    no text is destroyed.
    """

    kind = RETENTION
    batch = 1
    lease_seconds = 300
    is_upkeep = True
    changes_memory = True
    is_autonomous = False

    def __init__(
        self,
        context: MemoryContext,
        windows: Callable[[], Windows],
        dropped: Callable[[], None],
    ) -> None:
        """Take the windows of the settings, and what to call where recorded runs went."""
        self._context = context
        self._windows = windows
        self._dropped = dropped
        self.until: float | None = None
        """The moment of `time.monotonic` at which it ends between two batches: what is left is for
        the process that takes the job when its lease has run out.
        """

    def handle(self, work: Work) -> int:
        """Remove what is past its window. Raises LeaseLost, StorageError."""
        [job] = work.jobs
        context, now = self._context, self._context.store.clock.now()
        actor = TALLY_ACTOR.within_act(job.id)
        with context.store.database.read() as connection:
            plan = self._plan(connection, now)
            result = _count_purge(connection, plan, "apply")
        counts = _counts(result)
        total = sum(counts.values())
        if total:

            def check() -> None:
                if self.until is not None and time.monotonic() > self.until:
                    raise LeaseLost("The process ends: the next one goes on.")
                work.note_progress(job, 0, total)

            carry_out(context, actor, plan, check)
        ended = Ended("done" if total else "empty", result=dict(counts))

        def unit(tx: Connection, allowed: object) -> dict[str, Ended]:
            _note_purge(tx, context, actor, counts, now)
            return {job.id: ended}

        work.commit(unit)
        if result.runs:
            self._dropped()
        return 0

    def _plan(self, connection: Connection, now: int) -> Plan:
        windows = chosen_windows(connection, self._windows())
        tombstones = (
            None
            if windows.tombstones is None
            else now - max(self._context.forget_window_us, windows.tombstones * _DAY_US)
        )
        return Plan(
            now=now,
            done_jobs=now - windows.done_jobs * _DAY_US,
            dead_jobs=now - windows.dead_jobs * _DAY_US,
            # They contain what somebody said: they go only where a person chose that text goes.
            answers=None if tombstones is None else now - windows.answers * _DAY_US,
            working=now,
            tombstones=tombstones,
            journal=_journal_before(connection, now),
        )


def enqueue_retention(context: MemoryContext) -> str | None:
    """Enqueue the retention of this day, and return its job; None where a process has already."""
    store = context.store
    now = store.clock.now()
    day = now // _DAY_US
    with store.database.read() as connection:
        if job_list.exists_for(connection, RETENTION, _TALLY, day):
            return None

    def unit(tx: Connection) -> str:
        return jobs.enqueue(
            tx,
            kind=RETENTION,
            subject_id=_TALLY,
            version=day,
            scope_id=None,
            actor=TALLY_ACTOR,
            job_id=store.ids.new(),
            at=now,
            restart=(),
        )

    return store.database.write(unit, name="jobs.enqueue", writes=Writes.of(JOBS))


def _finish(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    call: IdempotentCall,
    result: Purge,
    reason: str,
    now: int,
) -> Purge:
    """Journal the numbers of removed rows, beside what the journals of scopes, runs and threads say
    of themselves, and keep the answer; return it, or that of the same call which ended first.
    """
    answered = call.read_answer(tx)
    if answered is not None:
        return Purge.load(answered)
    _note(tx, context, actor, "tally.purge", now, _counts(result), reason=reason)
    call.keep(tx, result.dump(), at=now)
    return result


def _counts(result: Purge) -> dict[str, int]:
    names = ("expired", "tombstones", "derived", "proposals", "journal", "reads", "approvals")
    counts = {name: getattr(result, name) for name in (*names, "jobs", "answers", "working")}
    return {**counts, "runs": len(result.runs)}


def _note_purge(
    tx: Connection, context: MemoryContext, actor: Actor, counts: Mapping[str, int], now: int
) -> None:
    if any(counts.values()):
        _note(tx, context, actor, "tally.purge", now, counts)


def _note(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    event: str,
    now: int,
    details: Mapping[str, Any],
    *,
    reason: str | None = None,
) -> None:
    journal.append(
        tx,
        journal.Event(
            stream="tally",
            event=event,
            actor=actor,
            at=now,
            audit_id=context.store.ids.new(),
            reason=reason,
            details=details,
        ),
    )


def require_operator(context: MemoryContext, actor: Actor) -> None:
    """Raise Denied, journaled, unless an operator of the whole tally acts."""
    # Retention concerns the whole tally, so an operator of one organization in it is not enough.
    if not actor.operates_tally:
        decision = AccessDecision.refusal(actor, "missing_permission", "manage")
        raise context.gate.refuse(actor, decision) from Denied(decision)


def _sweep(tx: Connection, plan: Plan) -> None:
    rows.remove_jobs(tx, done_before=plan.done_jobs, dead_before=plan.dead_jobs)
    if plan.answers is not None:
        rows.remove_answers(tx, plan.answers)
    working.remove_expired(tx, plan.working)
    if plan.journal is not None:
        rows.remove_reads(tx, plan.journal)
        approvals.remove_old(tx, plan.journal)


def _forget_expired(writing: MemoryWrite) -> int:
    docs = rows.expired_docs(writing.tx, writing.now, limit=_PAGE)
    for stored in memories.get_docs(writing.tx, docs).values():
        forget_one(writing, writing.permit_upkeep(stored), "expired")
    return len(docs)


def _bury(writing: MemoryWrite, before: int) -> int:
    """Remove a page of forgotten memories whose window has passed and name them in the journal of
    their scope; return their number.
    """
    docs = rows.tombstones(writing.tx, before, limit=_PAGE)
    if not docs:
        return 0
    tx = writing.tx
    derived = erasing.drawn_from(tx, docs, promoted=False)
    gone = memories.get_docs(tx, [*docs, *derived])
    destroy_memories(writing, list(gone.values()), keep_rows=False)
    for stored in gone.values():
        writing.journal_event(
            stored.memory.scope,
            "memory.purge",
            stored.memory.id,
            {"version": stored.memory.version},
            reason=_PASSED if stored.doc not in derived else _ORIGIN_PASSED,
        )
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
    row_texts: bytes | None = None,
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
            row_texts=row_texts,
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
    texts = journal.row_text_bytes(recordings.run_texts(tx, run_id))
    _shorten(tx, context, actor, run_stream(run_id), count, before, now, PURGED, facts, texts)
