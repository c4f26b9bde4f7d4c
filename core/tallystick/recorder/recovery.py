"""Recovery: runs of a process that died end as interrupted, each open step with a receipt for the
entries it stored.

Entries were committed whole, so that nothing acknowledged is missing and no step is half written.
"""

from __future__ import annotations

import json
from typing import Any

from tallystick.logs import get_logger
from tallystick.recorder.context import RecorderContext
from tallystick.recorder.receipts import NOT_COUNTED, receipt_body, receipts_in, without_texts
from tallystick.recorder.verify import gaps_in
from tallystick.records import Actor, ReceiptEntry, RunRecord
from tallystick.storage import Connection, journal, recordings
from tallystick.storage.journal import run_stream

__all__ = ["recover_interrupted_runs"]

_REASON = "the process that recorded it ended"


def recover_interrupted_runs(context: RecorderContext) -> list[str]:
    """End the runs whose process has died and return their ids. Runs of living processes stay as
    they are.
    """
    with context.store.database.read() as connection:
        unfinished = recordings.unfinished_runs(connection)
    interrupted = [
        run_id for run_id, process in unfinished if context.store.liveness.is_gone(process)
    ]
    if not interrupted:
        return []

    def unit(tx: Connection) -> list[str]:
        return [run_id for run_id in interrupted if _interrupt(tx, context, run_id)]

    recovered = context.store.database.write(unit, name="runs.settle")
    if recovered:
        get_logger("recorder").warning("runs.interrupted", count=len(recovered))
    return recovered


def _interrupt(tx: Connection, context: RecorderContext, run_id: str) -> bool:
    stored = recordings.find_run(tx, run_id)
    if stored is None or stored.record.ended_at is not None:
        return False
    run = stored.record
    start = next(iter(journal.entries(tx, run_stream(run_id))), None)
    actor = (
        Actor.load(start.actor).on("recovery")
        if start is not None
        else Actor(user="unknown", surface="recovery")
    )
    now = context.store.clock.now()
    steps = recordings.steps_of(tx, run_id)
    for step in steps:
        if step.ended_at is None:
            ended = step.model_copy(update={"status": "interrupted", "ended_at": now})
            row = recordings.step_row(**dict(ended))
            recordings.end_steps(tx, [row])
            stored_entries = recordings.entries_of(tx, step.step_id)
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
                subject=step.step_id,
                row_texts=journal.row_text_bytes(texts),
            )
    chain = list(journal.entries(tx, run_stream(run_id)))
    missing = gaps_in(chain, [receipt for _, receipt in receipts_in(chain)])
    gaps = sum(sum(counts.values()) for counts in missing.values())
    recordings.end_run(
        tx, run.model_copy(update={"status": "interrupted", "ended_at": now, "gaps": gaps})
    )
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
            stream=run_stream(run.run_id),
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
