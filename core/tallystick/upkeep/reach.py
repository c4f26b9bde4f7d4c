"""Reach: what was drawn from memories goes with them when their text is destroyed.

A conclusion of which one source is destroyed holds text of it, whoever accepted, edited or pinned
it. So do the words of proposals, and what a model was asked and answered. Promoted copies are
memories of their scope: an erasure takes them, retention leaves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from tallystick.memory.context import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor
from tallystick.storage import Connection
from tallystick.storage.rows import (
    edges,
    idempotency,
    jobs,
    journal,
    memories,
    proposals,
    recordings,
)
from tallystick.storage.rows.journal import run_stream
from tallystick.storage.rows.proposals import StoredProposal
from tallystick.storage.text import erasing
from tallystick.storage.text.byte_search import RecordedHit
from tallystick.upkeep.copies import Copies


def destroy_memories(
    write: MemoryWrite, chosen: Sequence[memories.Stored], *, keep_rows: bool
) -> None:
    """Destroy the text of memories with the words of proposals about them, the runs in which models
    read them, and what people wrote beside their entries of journals.
    """
    tx, ids = write.tx, [stored.memory.id for stored in chosen]
    for stored in chosen:
        write.hide(stored.doc, stored.scope_id)
    withdraw_proposals(write, proposals.of_memories(tx, ids))
    erase_from_runs(
        tx,
        write.context,
        write.actor,
        [],
        [RecordedHit(run_id, None, 0) for run_id in recordings.runs_that_read(tx, ids)],
        at=write.now,
        reason="a memory that was read is gone",
        whole=True,
    )
    docs = [stored.doc for stored in chosen]
    erasing.destroy(tx, docs, at=write.now, keep_rows=keep_rows)
    erasing.erase_journal_texts(tx, (), ids, streams=None)


def destroy_copies(
    write: MemoryWrite,
    needles: Sequence[bytes],
    copies: Copies,
    streams: Sequence[str] | None,
    *,
    reason: str,
) -> None:
    """Destroy copies of texts beside memories: in recordings, jobs, reasons of edges, kept answers
    and what people wrote beside entries of these journals, for None of all.
    """
    tx, within = write.tx, copies.within
    erase_from_runs(
        tx,
        write.context,
        write.actor,
        copies.payloads,
        copies.recorded,
        at=write.now,
        reason=reason,
    )
    erasing.erase_journal_texts(tx, needles, (), streams=streams)
    jobs.erase_texts(tx, needles, within=within)
    edges.drop_reasons_with(tx, needles, within=within)
    idempotency.remove_answers_with(tx, needles, within=within)


def withdraw_proposals(write: MemoryWrite, chosen: Iterable[StoredProposal]) -> None:
    """Remove the words of proposals, and withdraw those that wait for a person."""
    about = list(chosen)
    ids = [stored.record.id for stored in about]
    proposals.withdraw(write.tx, ids, at=write.now)
    erasing.erase_journal_texts(write.tx, (), ids, streams=None)
    for stored in about:
        if stored.record.is_open:
            details = {"state": "withdrawn", "verdict": "source_gone"}
            write.journal_event(
                stored.record.scope, "proposal.withdrawn", stored.record.id, details
            )


def erase_from_runs(
    tx: Connection,
    context: MemoryContext,
    actor: Actor,
    payloads: Iterable[recordings.StoredPayload],
    hits: Iterable[RecordedHit],
    *,
    at: int,
    reason: str,
    whole: bool = False,
) -> list[str]:
    """Erase recorded payloads, and the texts of runs and steps, and note it in the chain of each
    run, which would not verify otherwise; return the steps that lose any.

    With `whole` everything goes that was recorded in the runs of `hits`.
    """
    by_run = {run_id: list(of_run) for run_id, of_run in groupby(hits, key=lambda hit: hit.run_id)}
    named = list(payloads)
    if whole and not named:
        for run_id in by_run:
            named += recordings.stored_payloads(tx, run_id, None)
    erased = erasing.erase_payloads(tx, named, at=at)
    texts: dict[str, list[int]] = {}
    steps = {step_id for steps in erased.values() for step_id in steps}
    for run_id, of_run in by_run.items():
        step_ids = [hit.step_id for hit in of_run]
        some = None if whole else [step_id for step_id in step_ids if step_id is not None]
        steps |= set(erasing.has_recorded_texts(tx, run_id, some))
        positions = erasing.erase_recorded_texts(tx, run_id, some, of_run=None in step_ids)
        if whole:
            erasing.erase_texts_beside(tx, run_stream(run_id))
        if positions:
            texts[run_id] = positions
    for run_id in dict.fromkeys([*erased, *texts]):
        details: dict[str, Any] = {"steps": erased.get(run_id, {})}
        if run_id in texts:
            details["texts"] = texts[run_id]
        journal.append(
            tx,
            journal.Event(
                stream=run_stream(run_id),
                event="payload.erase",
                actor=actor,
                at=at,
                audit_id=context.store.ids.new(),
                reason=reason,
                subject_id=run_id,
                details=details,
            ),
        )
    return sorted(steps)
