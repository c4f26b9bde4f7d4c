"""Recovery: runs of a process that died end as interrupted, each open step with a receipt for the
entries it stored. What a process could not write before it closed is named in its runs' chains.

Entries were committed whole, so that nothing acknowledged is missing and no step is half written.
A process that was taken for dead and lives learns it at its next write, and goes on in new steps
(`recorder/chain.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from tallystick.errors import ReadOnlyTally
from tallystick.logs import get_logger
from tallystick.recorder.context import RecorderContext
from tallystick.records import Actor, ReceiptEntry, RunRecord
from tallystick.storage import Connection
from tallystick.storage.engine.liveness import Losses
from tallystick.storage.engine.writes import TALLY, Writes
from tallystick.storage.rows import journal, recordings
from tallystick.storage.rows.journal import run_stream

_REASON = "the process that recorded it ended"
_LOST = "lost at closing"
"""Reason of a gap: the tally was closed while nothing could be written."""


def recover_interrupted_runs(context: RecorderContext) -> list[str]:
    """End the runs whose process has died and return their ids. Runs of living processes stay as
    they are.
    """
    with context.store.database.read() as connection:
        unfinished = recordings.unfinished_runs(connection)
    liveness = context.store.liveness
    try:
        losses = liveness.losses()
        processes = {process for _, process in unfinished}
        gone = {process for process in processes if liveness.is_gone(process)}
        interrupted = [run_id for run_id, process in unfinished if process in gone]
    except ReadOnlyTally as error:
        get_logger("recorder").warning("runs.not_recovered", reason=error.reason)
        return []
    recovered: list[str] = []

    def note(tx: Connection) -> None:
        for token, lost in losses.items():
            _note_losses(tx, context, token, lost)

    def interrupt(run_id: str, tx: Connection) -> None:
        if _interrupt(tx, context, run_id):
            recovered.append(run_id)

    units: list[Callable[[Connection], None]] = []
    if any(lost.by_run for lost in losses.values()):
        units.append(note)
    units += [partial(interrupt, run_id) for run_id in interrupted]
    for unit in units:
        # One transaction a run: it waits for whoever records that one, and holds up no other.
        if not context.store.database.write_if_possible(
            unit, name="runs.settle", writes=Writes.of(TALLY)
        ):
            # A full disk: whoever opens the tally next ends them.
            return recovered
    for token in losses:
        liveness.forget_losses(token)
    if recovered:
        get_logger("recorder").warning("runs.interrupted", count=len(recovered))
    return recovered


def _note_losses(tx: Connection, context: RecorderContext, token: str, lost: Losses) -> None:
    """Add what a process could not write to the chains of its runs, once; of runs that are not
    stored at all, the number of things to the tally's journal.
    """
    unknown = lost.further
    now = context.store.clock.now()
    for run_id, count in lost.by_run.items():
        stored = recordings.find_run(tx, run_id)
        if stored is None:
            unknown += count
            continue
        chain = list(journal.entries(tx, run_stream(run_id)))
        if any(entry.details.get("process") == token for entry in chain):
            continue
        actor = Actor.load(chain[0].actor).on("recovery")
        details: dict[str, Any] = {"missed": {_LOST: count}, "process": token}
        _journal(tx, context, actor, stored.record, "run.gap", now, details, subject=run_id)
        recordings.set_gaps(tx, run_id, run_stream(run_id), _gaps(tx, run_id))
    if unknown:
        journal.append(
            tx,
            journal.Event(
                stream="tally",
                event="recording.lost",
                actor=Actor(user="tallystick", surface="recovery"),
                at=now,
                audit_id=context.store.ids.new(),
                details={"count": unknown},
            ),
        )


def _gaps(tx: Connection, run_id: str) -> int:
    """Return how much of a run is missing, as its chain and its receipts say it."""
    from tallystick.recorder.receipts import receipts_in
    from tallystick.recorder.verify import gaps_in

    chain = list(journal.entries(tx, run_stream(run_id)))
    named = gaps_in(chain, [receipt for _, receipt in receipts_in(chain)])
    return sum(sum(counts.values()) for counts in named.values())


def _interrupt(tx: Connection, context: RecorderContext, run_id: str) -> bool:
    from tallystick.recorder.receipts import NOT_COUNTED, receipt_body, without_texts
    from tallystick.recorder.verify import end_of

    stored = recordings.find_run(tx, run_id)
    chain = list(journal.entries(tx, run_stream(run_id)))
    # Where the chain says that it ended its row was changed: `verify` says so, as long as it is.
    if stored is None or end_of(chain) is not None or not recordings.take_from_dead(tx, run_id):
        return False
    run = stored.record
    actor = (
        Actor.load(chain[0].actor).on("recovery")
        if chain
        else Actor(user="unknown", surface="recovery")
    )
    now = max(context.store.clock.now(), run.started_at)
    steps = recordings.steps_of(tx, run_id)
    for step in steps:
        if step.ended_at is None:
            end = max(now, step.started_at)  # which may be of a clock that is ahead
            ended = step.model_copy(update={"status": "interrupted", "ended_at": end})
            row = recordings.step_row(dict(ended))
            recordings.end_steps(tx, [row])
            stored_entries = recordings.entries_of(tx, step.id)
            entries = [_entry(entry).dump(defaults=False) for entry in stored_entries]
            body = receipt_body(row, run.retention, NOT_COUNTED, entries)
            texts = recordings.step_texts_of(row, [entry.summary for entry in stored_entries])
            _journal(
                tx,
                context,
                actor,
                run,
                "receipt",
                now,
                without_texts(body),
                subject=step.id,
                row_texts=journal.row_text_bytes(texts),
            )
    values = {"status": "interrupted", "ended_at": now, "gaps": _gaps(tx, run_id)}
    recordings.end_run(tx, run.model_copy(update=values))
    _journal(
        tx,
        context,
        actor,
        run,
        "run.end",
        now,
        {"status": "interrupted", "steps": len(steps)},
        subject=run_id,
    )
    return True


def _journal(
    tx: Connection,
    context: RecorderContext,
    actor: Actor,
    run: RunRecord,
    event: str,
    at: int,
    details: dict[str, Any],
    *,
    subject: str,
    row_texts: bytes | None = None,
) -> None:
    journal.append(
        tx,
        journal.Event(
            stream=run_stream(run.id),
            event=event,
            actor=actor,
            at=at,
            audit_id=context.store.ids.new(),
            reason=_REASON,
            subject_id=subject,
            details=details,
            row_texts=row_texts,
        ),
    )


def _entry(row: recordings.EntryRow) -> ReceiptEntry:
    return ReceiptEntry(
        kind=row.kind,
        commitment=row.commitment,
        payload_state="not_kept"
        if row.payload_state == "not_kept"
        else "redacted"
        if json.loads(row.redactions)
        else "kept",
        redactions=json.loads(row.redactions),
        summary=json.loads(row.summary),
    )
