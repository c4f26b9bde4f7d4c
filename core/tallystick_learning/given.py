"""Changes that the calling agent gives: `remember(replaces=…, span=…)` passes the same guard as
what a model learns, at no extra call.
"""

from __future__ import annotations

from collections.abc import Callable

from tallystick.errors import InvalidInput
from tallystick.memory import MemoryContext
from tallystick.memory.context import Write
from tallystick.memory.memory_write import MemoryWrite
from tallystick.records import (
    Actor,
    ExtractedFact,
    Memory,
    NewMemory,
    Proposal,
    ProposalReason,
    Scope,
)
from tallystick.records.times import as_datetime
from tallystick.storage import Connection
from tallystick.storage.rows import memories, scopes
from tallystick_learning.conclude import Conclusion
from tallystick_learning.guard import Evidence, find_span, reason_to_hold
from tallystick_learning.material import is_best_target
from tallystick_learning.propose import Proposer
from tallystick_learning.providers import LearnedBy

_TURNS = 20
"""The newest turns in which the words of the user are looked for."""


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
        said = _saying(connection, actor, scope, new)
    fact = ExtractedFact(
        content=new.content,
        kind=new.kind,
        confidence=new.confidence,
        about=new.subject,
        span=new.span or "",
        change="replaces",
    )
    mode = context.settings.learning
    hold: ProposalReason | None = "span_missing"
    if said is not None:
        evidence = Evidence(
            said.content,
            (target.memory.content, actor.user),
            as_datetime(context.store.clock.now()).year,
            is_best_target=is_best_target(
                context, actor, scope, said, new.content, target.memory.id
            ),
        )
        hold = reason_to_hold(fact, evidence)

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


def _saying(connection: Connection, actor: Actor, scope: Scope, new: NewMemory) -> Memory | None:
    """Return the newest turn of the user that says the span."""
    ids = [row.id for row in scopes.find(connection, [scope])]
    turns = memories.latest(
        connection,
        ids,
        kinds=("turn",),
        states=("active",),
        conversation=new.conversation,
        limit=_TURNS,
    )
    for turn in turns:
        is_users = turn.memory.speaker in (None, actor.user, actor.acting_for)
        if is_users and new.span and find_span(turn.memory.content, new.span):
            return turn.memory
    return None
