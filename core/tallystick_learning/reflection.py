"""Reflection: a model draws conclusions from a conversation, a run or some sources, as proposals
that wait for a person.

Nothing is lost or widened by it: the texts stay as they are, every proposal names its sources, and
sources of several scopes are refused unless the target is the broadest of them and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tallystick.access import visible_docs, widens
from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.memory import MemoryContext
from tallystick.memory.memory_write import MemoryWrite
from tallystick.policy.permissions import is_local_only
from tallystick.records import Actor, Proposal, ReasonCode, Reflected, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import memories, scopes, sources
from tallystick_learning.conclude import Conclusions, conclude
from tallystick_learning.material import in_calls
from tallystick_learning.propose import Proposer
from tallystick_learning.providers import LearningContext

Reflection = Literal["off", "review"]
"""Whether conclusions are proposed: not at all, or for a person to decide each."""
_MOST = 500
"""Memories that one reflection reads at most."""


@dataclass(frozen=True)
class Material:
    """What a reflection is about; one of the three."""

    ids: tuple[str, ...] = ()
    """Memories, or sources with the memories drawn from them."""
    conversation: str | None = None
    run: str | None = None


@dataclass(frozen=True)
class ReflectionRequest:
    """What to reflect on, and where its conclusions go."""

    bound: Scope
    """The scope in which a conversation or a run is looked up."""
    material: Material
    into: Scope | None
    """The scope of the conclusions, if it was named; else it is the bound one."""
    mode: Reflection

    @property
    def target(self) -> Scope:
        """The scope of the conclusions."""
        return self.bound if self.into is None else self.into


@dataclass(frozen=True)
class ReflectionPlan:
    """What a reflection read, before anything of it is stored."""

    context: MemoryContext
    actor: Actor
    request: ReflectionRequest
    origins: Sequence[memories.Stored]
    """What was read, oldest first."""
    conclusions: Sequence[Conclusions]
    """What models concluded, call by call."""

    @property
    def scopes(self) -> set[Scope]:
        """The scopes of what was read. They are locked with the target: a memory that is forgotten
        or closed meanwhile takes along what was concluded from it, or is concluded from no more.
        """
        return {each.memory.scope for each in self.origins}

    def store(
        self, tx: Connection, *, job_id: str | None = None, correlation_id: str | None = None
    ) -> list[Proposal]:
        """Store the proposals of what is still as it was read, in the open transaction. Raises
        Denied.
        """
        context, actor, request = self.context, self.actor, self.request
        target = request.target
        context.gate.confirm(tx, actor, "reflect", target)
        scope = scopes.ensure(tx, target)
        write = MemoryWrite(tx, context, actor, context.store.clock.now(), correlation_id)
        current = {each.doc: each for each in _readable(tx, context, actor, self.origins)}
        _require_one_reach(tx, context, actor, [*current.values()], request)
        proposer = Proposer(write, scope, origin="reflection", job_id=job_id)
        for conclusions in self.conclusions:
            as_read = {
                each.doc: current[each.doc]
                for each in conclusions.origins
                if each.doc in current and current[each.doc].memory.version == each.memory.version
            }
            proposer.propose(conclusions, as_read)
            proposer.propose_relations(conclusions, as_read)
        proposals = proposer.proposals
        write.journal_event(
            target,
            "memory.reflected",
            None,
            {"read": len(self.origins), "proposed": len(proposals), "waiting": proposer.waiting},
        )
        return proposals


def reflect(
    context: LearningContext,
    actor: Actor,
    request: ReflectionRequest,
    *,
    correlation_id: str | None = None,
) -> Reflected:
    """Propose what models draw from the material: decisions, procedures, plans, tasks, artifacts,
    claims and relations of the target scope, each for a person. What was proposed before is not
    proposed again.

    Raises InvalidInput, NotFound, ExtractionError where no model answers, and Denied:
    `mixed_scopes` for sources of several scopes, unless `into` names the broadest of them, and
    `scope_crossing_requires_promotion` for sources of one scope with fewer readers than the target.
    """
    plan = plan_reflection(context, actor, request)
    memory = context.memory
    with memory.gate.journaling(actor):
        proposals = (
            memory.store.database.write_mostly(
                lambda tx: plan.store(tx, correlation_id=correlation_id),
                name="reflect",
                writes=Writes.of(request.target, *plan.scopes),
            )
            if plan.conclusions
            else []
        )
    return Reflected(
        scope=request.target,
        read=len(plan.origins),
        proposals=tuple(proposals),
        decisions=tuple(each.action for each in proposals),
        waiting=sum(each.is_open for each in proposals),
    )


def plan_reflection(
    context: LearningContext,
    actor: Actor,
    request: ReflectionRequest,
    *,
    job_id: str | None = None,
) -> ReflectionPlan:
    """Have a model read the material, what belongs together in one call; nothing is stored. What
    must stay on this machine is left out where every model is elsewhere. Raises as `reflect`.
    """
    origins = material_of(context.memory, actor, request)
    # Where all must stay here, the first call is refused.
    origins = [
        each for each in origins if context.is_near or not is_local_only(each.memory.attributes)
    ] or origins
    concluded = [
        conclude(context, actor, request.target, call, job_id=job_id) for call in in_calls(origins)
    ]
    conclusions = [each for each in concluded if not each.extraction.is_empty]
    return ReflectionPlan(context.memory, actor, request, origins, conclusions)


def material_of(
    context: MemoryContext, actor: Actor, request: ReflectionRequest
) -> list[memories.Stored]:
    """Return the memories that a request is about, oldest first. Raises as `reflect`."""
    material = request.material
    if request.mode == "off":
        raise InvalidInput(
            "Reflection is off. Open the tally with the setting `reflection` as `review`, and with "
            "a model as `learning_model`."
        )
    if sum((bool(material.ids), material.conversation is not None, material.run is not None)) != 1:
        raise InvalidInput("Name what to reflect on: `sources`, a `conversation` or a `run`.")
    context.gate.require(actor, "reflect", request.target)
    with context.store.database.read() as connection:
        origins = _origins(connection, context, actor, request.bound, material)
        _require_one_reach(connection, context, actor, origins, request)
    return origins


def _origins(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    bound: Scope,
    material: Material,
) -> list[memories.Stored]:
    """Return the memories to reflect on, oldest first. Raises NotFound, Denied."""
    if material.ids:
        stored: dict[int, memories.Stored] = {}
        for each in dict.fromkeys(material.ids):
            for origin in _find_memories(connection, context, actor, each):
                stored[origin.doc] = origin
        candidates = list(stored.values())
    else:
        ids = [row.id for row in scopes.find(connection, [bound])]
        candidates = memories.latest(
            connection,
            ids,
            states=("active",),
            conversation=material.conversation,
            run_id=material.run,
            limit=_MOST,
        )
    readable = _readable(connection, context, actor, candidates)
    if material.ids and len(readable) < len(candidates):
        gone = next(each for each in candidates if each not in readable)
        decision = context.gate.decide(connection, actor, "reflect", gone.memory.scope)
        reason: ReasonCode = _UNFIT.get(gone.memory.state, "hidden_source")
        if decision.allowed:
            decision = decision.model_copy(update={"allowed": False, "reason": reason})
        raise Denied(decision)
    return sorted(readable, key=lambda each: each.doc)


_UNFIT: dict[str, ReasonCode] = {
    "hidden": "hidden_source",
    "redacted": "redacted_source",
    "deleted": "source_deleted",
}


def _find_memories(
    connection: Connection, context: MemoryContext, actor: Actor, record_id: str
) -> list[memories.Stored]:
    """Return a memory, or the memories drawn from a source."""
    try:
        return [context.visible(connection, actor, record_id, "read")]
    except NotFound:
        context.visible_source(connection, actor, record_id, "read")
    return [
        stored
        for stored in sources.memories_of(connection, record_id)
        if context.gate.decide(connection, actor, "read", stored.memory.scope).allowed
    ]


def _readable(
    connection: Connection, context: MemoryContext, actor: Actor, stored: Iterable[memories.Stored]
) -> list[memories.Stored]:
    """Return those whose text the actor may see and conclude from, as they are now."""
    current = memories.get_docs(connection, [each.doc for each in stored])
    allowed = [
        each
        for each in current.values()
        if each.memory.state == "active"
        and context.gate.decide(connection, actor, "read", each.memory.scope).allowed
        and context.gate.decide(connection, actor, "reflect", each.memory.scope).allowed
    ]
    shown = visible_docs(connection, context.gate, actor, allowed, context.store.clock.now())
    return [each for each in allowed if each.doc in shown]


def _require_one_reach(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    origins: Sequence[memories.Stored],
    request: ReflectionRequest,
) -> None:
    """Raise Denied where conclusions would get readers that a source has not, but for a target that
    is named, the broadest of the sources, and open to promotion from each of the others.
    """
    gate, target = context.gate, request.target
    mixed = sorted({each.memory.scope for each in origins}, key=str)
    wider = [each for each in mixed if widens(connection, gate, actor, each, target)]
    if len(mixed) > 1:
        is_broadest = target in mixed and not any(
            widens(connection, gate, actor, target, each) for each in mixed if each != target
        )
        if request.into is None or not is_broadest:
            raise _refusal(context, actor, target, "mixed_scopes")
        for each in wider:
            decision = gate.decide(connection, actor, "promote", each)
            if not decision.allowed:
                raise Denied(decision)
    elif wider:
        raise _refusal(context, actor, target, "scope_crossing_requires_promotion")


def _refusal(context: MemoryContext, actor: Actor, target: Scope, reason: ReasonCode) -> Denied:
    with context.store.database.read() as connection:
        decision = context.gate.decide(connection, actor, "reflect", target)
    return Denied(decision.model_copy(update={"allowed": False, "reason": reason}))
