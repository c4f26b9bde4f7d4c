"""Learning jobs: a model reads a conversation once it is over, or a loose memory at once.

A conversation has one job, which each turn of it puts off; the turns that were not read yet are
marked in their rows. So nothing is read twice, and a process that dies has lost nothing: a job asks
the learner outside of any transaction, and stores what comes of it and the marks in one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Literal

from tallystick.errors import ExtractionError
from tallystick.jobs import Background, Ended, Work
from tallystick.memory import MemoryContext
from tallystick.memory.context import FollowUp
from tallystick.memory.memory_write import MemoryWrite, conversation_subject
from tallystick.records import (
    Actor,
    ExtractionStatus,
    Job,
    JsonObject,
    NewMemory,
    Reflected,
    Remembered,
    Scope,
)
from tallystick.storage import Connection, ScopeRow
from tallystick.storage.engine.writes import JOBS, Writes
from tallystick.storage.rows import job_list, jobs, memories, proposals, scopes
from tallystick_learning.conclude import Conclusions, conclude
from tallystick_learning.material import MOST_TURNS, in_calls
from tallystick_learning.propose import TRUSTED_SOURCES, Proposer
from tallystick_learning.providers import LearningContext

LEARN = "learn"
"""The kind of job that draws facts from a conversation, or from a loose memory."""
_LEASE_SECONDS = 180
_PAUSE = 30 * 60 * 1_000_000
"""Microseconds without a turn after which a session is over, where nothing says that it ended."""
_BEFORE = 2
"""Turns that were read before and are shown as context."""
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


def has_learner(context: MemoryContext) -> bool:
    """Return True if a model reads what is remembered; without one `learning` is of the changes
    that agents give.
    """
    return context.settings.learning != "off" and bool(context.models.learners)


def learning_job(context: MemoryContext, actor: Actor, item: NewMemory) -> FollowUp | None:
    """Return the job that learns from such an item, where a tally does. What is concluded from
    other memories is a conclusion already, and what replaces another was decided.
    """
    settings = context.settings
    is_learned = has_learner(context) and item.kind in _LEARNED_KINDS
    if not is_learned or item.derived_from or item.replaces is not None:
        return None
    if item.conversation is None:
        return FollowUp(LEARN)
    is_answer = item.source is not None and item.source.source_type not in TRUSTED_SOURCES
    # An answer is read with what it answers, or with what comes behind it.
    is_due = settings.learn_at == ("exchange" if is_answer else "turn")
    return FollowUp(LEARN, item.conversation, delay=0 if is_due else _PAUSE)


@dataclass
class _Counts:
    """What a job came to, over all of its calls."""

    read: int = 0
    facts: int = 0
    waiting: int = 0
    applied: int = 0
    shadow: int = 0
    discarded: int = 0
    unchanged: int = 0
    proposals: list[str] = field(default_factory=list)
    provider: str | None = None
    warnings: list[str] = field(default_factory=list)
    calls: int = 0
    is_empty: bool = True

    def add(self, conclusions: Conclusions, proposer: Proposer) -> None:
        """Count one call."""
        states = [each.state for each in proposer.proposals]
        self.read += len(conclusions.origins)
        self.facts += len(conclusions.extraction.facts)
        self.waiting += proposer.waiting
        self.applied += states.count("applied")
        self.shadow += states.count("shadow")
        self.discarded += states.count("discarded")
        self.unchanged += proposer.unchanged
        self.proposals += [each.id for each in proposer.proposals]
        self.provider = conclusions.by.provider
        self.warnings += conclusions.extraction.warnings
        self.calls += conclusions.by.step_id is not None
        self.is_empty &= conclusions.extraction.is_empty

    def result(self) -> JsonObject:
        """Return the numbers that are not zero, who learned, and what was left out."""
        names = ("waiting", "applied", "shadow", "discarded", "unchanged")
        counts = {name: getattr(self, name) for name in names}
        result: JsonObject = {name: count for name, count in counts.items() if count}
        return result | {
            "read": self.read,
            "facts": self.facts,
            "provider": self.provider,
            "proposals": list(self.proposals),
            "warnings": list(self.warnings),
        }


class LearningHandler:
    """Carries out the jobs of the kind `LEARN`."""

    kind = LEARN
    batch = 1
    lease_seconds = _LEASE_SECONDS
    is_upkeep = False
    changes_memory = True
    is_autonomous = True

    def __init__(self, context: LearningContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Learn from what a job is about, call by call, each stored by itself; return how many
        proposals wait. Raises ExtractionError, LeaseLost.
        """
        [job] = work.jobs
        assert job.actor is not None
        counts = _Counts()
        with self._context.memory.store.database.read() as connection:
            # What failed is read again where somebody asks for that alone.
            has_new = bool(_unread(connection, job, job.actor, limit=1))
        status: ExtractionStatus = "pending" if has_new else "failed"
        while work.ended == 0 and not work.is_stopping:
            counts = self._learn_once(work, job, job.actor, status, counts)
        return counts.waiting

    def _learn_once(
        self,
        work: Work,
        job: jobs.LeasedJob,
        actor: Actor,
        status: ExtractionStatus,
        counts: _Counts,
    ) -> _Counts:
        """Read what one call takes and store what comes of it; return what the job came to."""
        memory, mode = self._context.memory, self._context.memory.settings.learning
        with memory.store.database.read() as connection:
            unread = _unread(connection, job, actor, status=status)
            before = _before(connection, job, unread)
        call = next(in_calls(unread), []) if unread else []
        conclusions, stores = None, list[object]()
        if call:
            scope = call[0].memory.scope
            conclusions = conclude(
                self._context,
                actor,
                scope,
                call,
                before,
                job_id=job.id,
                applies=mode == "apply",
            )
            stores = [
                store
                for extension in memory.extensions
                for each in call
                if (store := extension.on_extraction(memory, each, conclusions.extraction))
            ]

        done = counts

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            nonlocal done
            if job.id not in {each.id for each in allowed}:
                return {}
            done = deepcopy(counts)  # it may be called again
            if conclusions is not None:
                now = memory.store.clock.now()
                write = MemoryWrite(tx, memory, actor.on("learning"), now, job.id)
                scope = scopes.get_by_id(tx, call[0].scope_id)
                proposer = self._store(write, scope, conclusions, job.id)
                for store in stores:
                    store(write)  # type: ignore[operator]
                done.add(conclusions, proposer)
            if _unread(tx, job, actor, status=status, limit=1):
                return {}
            _leave_none_pending(tx, job)
            end: Literal["empty", "done"] = "empty" if done.is_empty else "done"
            cost = {"calls": done.calls} if done.calls else None
            return {job.id: Ended(end, result=done.result(), cost=cost)}

        work.commit(unit)
        return done

    def _store(
        self, write: MemoryWrite, scope: ScopeRow, conclusions: Conclusions, job_id: str
    ) -> Proposer:
        """Store what came of a call, and mark its texts as read."""
        mode = self._context.memory.settings.learning
        read = {each.doc: each.memory.version for each in conclusions.origins}
        current = {
            doc: stored
            for doc, stored in memories.get_docs(write.tx, read).items()
            if stored.memory.state == "active" and stored.memory.version == read[doc]
        }
        proposer = Proposer(write, scope, origin="extraction", mode=mode, job_id=job_id)
        proposer.propose(conclusions, current)
        speaking = {each.source.doc for each in conclusions.facts}
        names = conclusions.extraction.entities or conclusions.extraction.relations
        for doc in current:
            is_done = doc in speaking or bool(names)
            memories.set_extraction_status(write.tx, doc, "done" if is_done else "empty")
        return proposer

    def give_up(self, tx: Connection, job: jobs.LeasedJob) -> None:
        """Mark the texts: a failed extraction is neither empty nor success."""
        for stored in _unread(tx, job, job.actor):
            memories.set_extraction_status(tx, stored.doc, "failed")


def _unread(
    connection: Connection,
    job: jobs.LeasedJob,
    actor: Actor | None,
    *,
    status: ExtractionStatus = "pending",
    limit: int = MOST_TURNS,
) -> list[memories.Stored]:
    """Return the texts that a job has still to read, in their order."""
    conversation = job.payload.get("conversation")
    if conversation is None:
        stored = memories.get(connection, job.subject_id)
        is_current = (
            stored is not None
            and stored.memory.state == "active"
            and stored.memory.version == job.version
            and stored.memory.extraction_status == status
        )
        return [stored] if stored is not None and is_current else []
    if actor is None or job.scope_id is None:
        return []
    return memories.to_be_learned(
        connection,
        job.scope_id,
        str(conversation),
        actor.user,
        status=status,
        limit=limit,
    )


def _leave_none_pending(tx: Connection, job: jobs.LeasedJob) -> None:
    """Mark a loose memory that changed before it was read: nothing reads it any more."""
    stored = None if job.payload else memories.get(tx, job.subject_id, sources=False)
    if stored is not None and stored.memory.extraction_status == "pending":
        memories.set_extraction_status(tx, stored.doc, "empty")


def _before(
    connection: Connection, job: jobs.LeasedJob, unread: Sequence[memories.Stored]
) -> list[memories.Stored]:
    conversation = job.payload.get("conversation")
    if conversation is None or not unread or job.scope_id is None:
        return []
    earlier = memories.latest(
        connection,
        [job.scope_id],
        states=("active",),
        conversation=str(conversation),
        limit=_BEFORE,
        before_doc=unread[0].doc,
    )
    return earlier[::-1]


def learn_now(
    context: MemoryContext, background: Background, results: Sequence[Remembered], timeout_ms: int
) -> list[Remembered]:
    """Carry out the learning of what was just remembered, and return the results with how far it
    came. What is not done within `timeout_ms` goes on in the background.
    """
    if not has_learner(context):
        is_off = context.settings.learning == "off"
        why = "the setting `learning` is off" if is_off else "there is no `learning_model`"
        warning = f"nothing was learned: {why}"
        return [_warn(each, warning) if each.status == "created" else each for each in results]
    waiting = [result.job_id for result in results if result.job_id is not None]
    if not waiting:
        return list(results)
    _hasten(context, waiting)
    background.run_within(waiting, LEARN, timeout_ms)
    with context.store.database.read() as connection:
        ended = {job_id: job_list.find(connection, job_id) for job_id in waiting}
    return [_as_far_as(result, ended.get(result.job_id or "")) for result in results]


def _hasten(context: MemoryContext, job_ids: Sequence[str]) -> None:
    context.store.database.write(
        lambda tx: jobs.make_due(tx, job_ids), name="learn.now", writes=Writes.of(JOBS)
    )


def hasten_session(
    context: MemoryContext, actor: Actor, scope: Scope, conversation: str
) -> str | None:
    """Let the learning from a conversation begin now, because it ended; return its job, or None
    where nothing of it is to be read.
    """
    with context.store.database.read() as connection:
        rows = scopes.find(connection, [scope])
        subject = conversation_subject(actor, rows[0].id, conversation) if rows else ""
        job_id = job_list.find_open(connection, LEARN, subject) if rows else None
    if job_id is not None:
        _hasten(context, [job_id])
    return job_id


def session_result(context: MemoryContext, scope: Scope, job_id: str) -> Reflected:
    """Return what a job of learning came to. Raises ExtractionError where it failed."""
    with context.store.database.read() as connection:
        job = job_list.find(connection, job_id)
        if job is None or not job.is_over:
            return Reflected(scope=scope, processing="queued", job_id=job_id)
        if job.state not in ("done", "empty"):
            raise ExtractionError(f"Nothing was learned: {job.error_text or job.error_code}.")
        result: dict[str, Any] = {**(job.result or {})}
        made = [proposals.find(connection, each) for each in result.get("proposals", ())]
    return Reflected(
        scope=scope,
        read=result.get("read", 0),
        proposals=tuple(each.record for each in made if each is not None),
        decisions=tuple(each.record.action for each in made if each is not None),
        waiting=sum(each.record.is_open for each in made if each is not None),
        job_id=job_id,
    )


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
