"""Changes that the calling agent gives: `remember(replaces=…, span=…)` passes the same guard as
what a model learns, at no extra call.

An adapter stores the user's turn once it was answered, and an agent gives a change while it
answers: where the words are not stored yet, the turn that brings them has the change judged anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tallystick.errors import InvalidInput
from tallystick.jobs import Ended, Work
from tallystick.memory import MemoryContext
from tallystick.memory.context import Write
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import (
    Actor,
    ExtractedFact,
    Json,
    Memory,
    NewMemory,
    Proposal,
    ProposalReason,
    Scope,
)
from tallystick.records.times import as_datetime
from tallystick.storage import Connection
from tallystick.storage.rows import jobs, memories, proposals, scopes
from tallystick_learning.conclude import Conclusion
from tallystick_learning.guard import Evidence, find_span, reason_to_hold
from tallystick_learning.material import is_best_target
from tallystick_learning.propose import Proposer, is_trusted
from tallystick_learning.providers import LearnedBy

JUDGE = "judge"
"""The kind of job that judges a change anew, once the turn is stored that an agent quoted."""
_TURNS = 20
"""The newest turns in which the words of the user are looked for."""
_MOST = 20
"""Changes that wait for their words, of one scope at a time."""


def plan_change(
    context: MemoryContext, actor: Actor, scope: Scope, new: NewMemory
) -> Callable[[Write, memories.Stored], Proposal | None] | None:
    """Return what stores the change that a new memory makes to the one that it replaces: applied
    where it passes the guard and `learning` is `apply`, else held beside it. Raises NotFound, and
    InvalidInput for a memory of another scope.
    """
    if new.replaces is None:
        return None
    with context.store.database.read() as connection:
        target = context.visible(connection, actor, new.replaces, "read", sources=False)
    if target.memory.scope != scope:
        raise InvalidInput(
            "`replaces` names a memory of another scope. Bind that scope, or promote first.",
            argument="replaces",
        )
    fact = ExtractedFact(
        content=new.content,
        kind=new.kind,
        confidence=new.confidence,
        about=new.subject,
        span=new.span or "",
        change="replaces",
        was=target.memory.content,
    )
    hold = _judge(context, actor, scope, fact, target.memory)
    mode = context.settings.learning

    def store(write: Write, stored: memories.Stored) -> Proposal | None:
        assert isinstance(write, MemoryWrite)
        if stored.memory.id == target.memory.id:
            return None
        row = scopes.ensure(write.tx, scope)
        learned = Conclusion(fact, stored, "UPDATE", target.memory, hold)
        proposer = Proposer(write, row, origin="agent", mode="review" if mode == "off" else mode)
        proposer.decide(learned, LearnedBy(actor.agent or actor.user))
        return next(iter(proposer.proposals), None)

    return store


def _judge(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    fact: ExtractedFact,
    target: Memory,
    *,
    own: Sequence[str] = (),
) -> ProposalReason | None:
    """Return what speaks against applying a change that an agent gives, or None; `own` is the
    memory that it stored with it.
    """
    with context.store.database.read() as connection:
        turn = _saying(connection, actor, scope, fact.span)
    if turn is None:
        return "span_missing"
    evidence = Evidence(
        turn.content,
        (target.content, actor.user),
        as_datetime(context.store.clock.now()).year,
        is_best_target=is_best_target(
            context, actor, scope, turn, fact.content, target.id, others=own
        ),
    )
    return reason_to_hold(fact, evidence)


def _saying(connection: Connection, actor: Actor, scope: Scope, span: str) -> Memory | None:
    """Return the newest turn of the user that says the span."""
    ids = [row.id for row in scopes.find(connection, [scope])]
    turns = memories.latest(connection, ids, kinds=("turn",), states=("active",), limit=_TURNS)
    said = [each for each in turns if _says(each.memory, (actor.user, actor.acting_for), span)]
    links = memories.source_refs(connection, [each.doc for each in said])
    return next((each.memory for each in said if is_trusted(links.get(each.doc, ()))), None)


def _says(turn: Memory, users: Iterable[Json], span: str) -> bool:
    """Return True if a turn has the span in words of a user: whoever stores a turn names its
    speaker, so that both are looked at.
    """
    people = [*filter(None, users)]
    is_users = turn.created_by in people and turn.speaker in (None, *people)
    return is_users and bool(span) and find_span(turn.content, span) is not None


def follow_turn(write: Write, turn: Memory, scope_id: int) -> None:
    """Have the changes judged anew whose words a new turn of the user brings."""
    if turn.kind != "turn" or write.context.settings.learning != "apply":
        return
    for stored in proposals.without_words(write.tx, scope_id, limit=_MOST):
        words = stored.record.content
        by = stored.record.created_by
        if words is not None and _says(turn, (by.get("user"), by.get("acting_for")), words.span):
            write.enqueue(JUDGE, stored.record.id, scope_id, actor=write.actor)


class JudgeHandler:
    """Carries out the jobs of the kind `JUDGE`."""

    kind = JUDGE
    batch = 1
    lease_seconds = 60
    is_upkeep = False
    changes_memory = True
    is_autonomous = True

    def __init__(self, context: MemoryContext) -> None:
        self._context = context

    def handle(self, work: Work) -> int:
        """Judge one change that waits, and apply it or keep why it waits on. Raises LeaseLost."""
        [job] = work.jobs
        assert job.actor is not None
        context, actor = self._context, job.actor
        with context.store.database.read() as connection:
            found = proposals.find(connection, job.subject_id)
            target = None
            if found is not None and found.record.target is not None:
                target = memories.get(connection, found.record.target, sources=False)
        words = None if found is None else found.record.content
        if found is None or target is None or words is None or not found.record.is_open:
            work.commit(lambda tx, allowed: {job.id: Ended("empty")})
            return 0
        fact = ExtractedFact(
            content=words.content, confidence=found.record.confidence, span=words.span
        )
        own = found.record.derived_from
        hold = _judge(context, actor, found.record.scope, fact, target.memory, own=own)

        def unit(tx: Connection, allowed: Sequence[jobs.LeasedJob]) -> dict[str, Ended]:
            if job.id not in {each.id for each in allowed}:
                return {}
            current = proposals.find(tx, job.subject_id)
            if current is None or current.record.reason != "span_missing":
                return {job.id: Ended("empty")}
            now = context.store.clock.now()
            write = MemoryWrite(tx, context, actor.on("learning"), now, job.id)
            proposer = Proposer(
                write, current.scope, origin="agent", mode=context.settings.learning
            )
            proposer.judge_anew(current.record, hold)
            return {job.id: Ended()}

        work.commit(unit)
        return 1
