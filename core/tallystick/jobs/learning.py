"""Learning: the jobs that have models draw facts from what was remembered, as proposals.

A job reads one memory, asks the extractor and the decider outside of any transaction, checks every
decision, and stores proposals in the transaction that ends it. Whatever fails, the memory stays as
it was said, and recallable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tallystick.graph import ReadPage, link_page, read_extraction
from tallystick.jobs.decide import check_decisions, decide, find_candidates
from tallystick.jobs.extract import FACT_KINDS, extract, fact_of
from tallystick.jobs.outbound import OutboundSubject
from tallystick.jobs.propose import Conclusions, Proposer
from tallystick.jobs.providers import LearnedBy, LearningContext
from tallystick.jobs.runner import Ended, Work
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import Actor, JsonObject, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import jobs, memories

_LEASE_SECONDS = 180


class LearningHandler:
    """Carries out the jobs of the kind `jobs.EXTRACT`."""

    kind = jobs.EXTRACT
    batch = 1
    lease_seconds = _LEASE_SECONDS
    is_upkeep = False
    changes_memory = True
    is_autonomous = True

    def __init__(self, context: LearningContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Learn from the memory of a job; return how many proposals wait. Raises ExtractionError,
        LeaseLost.
        """
        [job] = work.jobs
        context, actor = self._context, job.actor
        assert actor is not None
        with context.memory.store.database.read() as connection:
            stored = memories.get(connection, job.subject_id)
        if stored is None or not _is_current(job, stored):
            work.commit(lambda tx, allowed: {job.id: Ended("empty")})
            return 0
        conclusions = conclude(
            context, actor, stored, stored.memory.scope, job_id=job.id, reads_facts=False
        )
        names = self._names(stored, conclusions)
        waiting = 0

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal waiting
            if job.id not in {each.id for each in allowed}:
                return {}
            current = memories.get(tx, job.subject_id)
            if current is None or not _is_current(job, current):
                return {job.id: Ended("empty")}
            now = context.memory.store.clock.now()
            write = MemoryWrite(tx, context.memory, actor.on("learning"), now, None)
            proposer = Proposer(write, current.scope, origin="extraction", job_id=job.id)
            proposer.propose(current, conclusions)
            if names is not None:
                link_page(write, names)
            waiting = proposer.waiting
            end: Literal["empty", "done"] = "empty" if conclusions.extraction.is_empty else "done"
            memories.set_extraction_status(tx, current.doc, end)
            by = (conclusions.extracted_by, conclusions.decided_by)
            calls = len({each.step_id for each in by if each.step_id})
            cost = {"calls": calls} if calls else None
            return {job.id: Ended(end, result=_result(conclusions, proposer), cost=cost)}

        work.commit(unit)
        return waiting

    def _names(self, stored: memories.Stored, conclusions: Conclusions) -> ReadPage | None:
        """Return what the graph gets of a text that a model read."""
        context, extraction = self._context.memory, conclusions.extraction
        if not context.graph or not (extraction.entities or extraction.relations):
            return None
        return read_extraction(context, stored, extraction)

    def give_up(self, tx: Connection, job: jobs.LeasedJob) -> None:
        """Mark the memory: a failed extraction is neither empty nor success."""
        stored = memories.get(tx, job.subject_id)
        if stored is not None and _is_current(job, stored):
            memories.set_extraction_status(tx, stored.doc, "failed")


def _is_current(job: jobs.LeasedJob, stored: memories.Stored) -> bool:
    """Return True if a memory is as it was when its job was left."""
    return stored.memory.state == "active" and stored.memory.version == job.version


def conclude(
    context: LearningContext,
    actor: Actor,
    stored: memories.Stored,
    scope: Scope,
    *,
    job_id: str | None = None,
    reads_facts: bool = True,
) -> Conclusions:
    """Return what models draw from one memory and want done with it in a scope: every call of a
    provider is made here. Unless `reads_facts`, a memory that is one fact already is taken as it
    is. Raises ExtractionError.
    """
    memory = stored.memory
    subject = OutboundSubject(actor, memory, stored.scope_id, job_id)
    try:
        if memory.kind in FACT_KINDS and not reads_facts:
            extraction, extracted_by = fact_of(memory), LearnedBy("given")
        else:
            extraction, extracted_by = extract(context, subject)
        candidates = find_candidates(context, actor, scope, memory, extraction.facts)
        decided = decide(context, subject, extraction.facts, candidates, extracted_by=extracted_by)
    finally:
        subject.close()
    warnings = (*extraction.warnings, *decided.warnings)
    return Conclusions(
        extraction.model_copy(update={"warnings": warnings}),
        check_decisions(extraction.facts, candidates, decided.decisions),
        extracted_by,
        decided.by,
    )


def _result(conclusions: Conclusions, proposer: Proposer) -> JsonObject:
    """Return the numbers of a job that are not zero, who extracted, and what was left out."""
    counts = {
        "waiting": proposer.waiting,
        "discarded": len(proposer.proposals) - proposer.waiting,
        "unchanged": proposer.unchanged,
    }
    result: JsonObject = {name: count for name, count in counts.items() if count}
    return result | {
        "facts": len(conclusions.extraction.facts),
        "provider": conclusions.extracted_by.provider,
        "warnings": list(conclusions.extraction.warnings),
    }
