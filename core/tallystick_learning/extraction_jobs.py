"""Extraction jobs: models draw facts from what was remembered, as proposals.

A job reads one memory, asks the extractor and the decider outside of any transaction, checks every
decision, and stores proposals in the transaction that ends it. Whatever fails, the memory stays as
it was said, and recallable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tallystick.jobs import Background, Ended, Work
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.recorder.outbound import OutboundSubject
from tallystick.records import Actor, Job, JsonObject, NewMemory, Remembered, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import job_list, jobs, memories
from tallystick_learning.decide import check_decisions, decide, find_candidates
from tallystick_learning.extract import FACT_KINDS, extract, fact_of
from tallystick_learning.propose import Conclusions, Proposer
from tallystick_learning.providers import LearnedBy, LearningContext

EXTRACT = "extract"
"""The kind of job that draws facts from a memory and decides what becomes of them."""
_LEASE_SECONDS = 180
_LEARNED_KINDS = frozenset(
    {
        "note",
        "turn",
        "claim",
        "episode",
        "document",
        "fact",
        "preference",
        "constraint",
        "decision",
        "procedure",
        "plan",
    }
)
"""Kinds of memories that facts are drawn from, or that are a fact themselves."""


def learning_job(context: MemoryContext, item: NewMemory) -> str | None:
    """Return the kind of the job that learns from such an item, where a tally does. What is
    concluded from other memories is a conclusion already.
    """
    is_learned = context.settings.learning != "off" and item.kind in _LEARNED_KINDS
    return EXTRACT if is_learned and not item.derived_from else None


class ExtractionHandler:
    """Carries out the jobs of the kind `EXTRACT`."""

    kind = EXTRACT
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
        stores = [
            extension.on_extraction(context.memory, stored, conclusions.extraction)
            for extension in context.memory.extensions
        ]
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
            for store in stores:
                if store is not None:
                    store(write)
            waiting = proposer.waiting
            end: Literal["empty", "done"] = "empty" if conclusions.extraction.is_empty else "done"
            memories.set_extraction_status(tx, current.doc, end)
            by = (conclusions.extracted_by, conclusions.decided_by)
            calls = len({each.step_id for each in by if each.step_id})
            cost = {"calls": calls} if calls else None
            return {job.id: Ended(end, result=_result(conclusions, proposer), cost=cost)}

        work.commit(unit)
        return waiting

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


def learn_now(
    context: MemoryContext, background: Background, results: Sequence[Remembered], timeout_ms: int
) -> list[Remembered]:
    """Carry out the learning of what was just remembered, and return the results with how far it
    came. What is not done within `timeout_ms` goes on in the background.
    """
    if context.settings.learning == "off":
        warning = "nothing was learned: the setting `learning` is off"
        return [_warn(each, warning) if each.status == "created" else each for each in results]
    waiting = [result.job_id for result in results if result.job_id is not None]
    if not waiting:
        return list(results)
    background.run_within(waiting, EXTRACT, timeout_ms)
    with context.store.database.read() as connection:
        ended = {job_id: job_list.find(connection, job_id) for job_id in waiting}
    return [_as_far_as(result, ended.get(result.job_id or "")) for result in results]


def _as_far_as(result: Remembered, job: Job | None) -> Remembered:
    """Return a result with how far its learning came."""
    if job is None:
        return result
    if job.state in ("done", "empty"):
        return result.model_copy(update={"processing": "processed"})
    if job.is_over:
        saved = result.model_copy(update={"processing": "raw_saved"})
        return _warn(saved, f"nothing was learned from it: {job.error_code}")
    return _warn(result, "what is learned from it comes later")


def _warn(result: Remembered, warning: str) -> Remembered:
    return result.model_copy(update={"warnings": (*result.warnings, warning)})
