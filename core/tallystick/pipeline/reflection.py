"""Reflection: from what a conversation, a run or some sources say to proposals, of which policy
applies what is safe by rule and leaves the rest to a person.

Nothing is lost or widened by it: the texts stay as they are, every proposal names its sources, and
sources of several scopes are refused unless the target is the broadest of them and named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tallystick.access import visible_docs, widens
from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick.memory import MemoryContext, RecallRequest, recall
from tallystick.memory.context import is_local_only
from tallystick.memory.memory_write import MemoryWrite
from tallystick.pipeline.reflection_rules import RULES_VERSION, Reading, is_change, read_text
from tallystick.pipeline.reviews import carry_out
from tallystick.pipeline.telling import is_about_another_speaker, is_earlier, is_program
from tallystick.records import (
    Actor,
    Memory,
    Proposal,
    ProposalContent,
    ProposalReason,
    ReasonCode,
    Reflected,
    Scope,
)
from tallystick.storage import Connection, ScopeRow, memories, proposals, scopes, sources
from tallystick.storage.writes import Writes

Reflection = Literal["off", "review", "policy"]
"""Whether conclusions are proposed: not at all; for a person to decide each; or so that policy
applies what is safe by rule.
"""
_MOST = 500
"""Memories that one reflection reads at most."""
_SURE = 75
"""The confidence from which on a conclusion may be applied without a person, percent."""
_WIDE = ("team", "organization", "shared", "public")
_BY_RULE = ("decision", "procedure", "plan", "task", "artifact")
"""Kinds that policy may apply; claims and relations are for a person."""
_TRUSTED = ("user", "app_state", "memory", "human_approval")


@dataclass(frozen=True)
class Material:
    """What a reflection is about; one of the three."""

    ids: tuple[str, ...] = ()
    """Memories, or sources with the memories drawn from them."""
    conversation: str | None = None
    run: str | None = None


class _Candidate(NamedTuple):
    """A statement of one memory, with the memory of the target scope that it changes, if any."""

    origin: memories.Stored
    reading: Reading
    target: Memory | None = None


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
    candidates: Sequence[_Candidate]
    vectors: Sequence[bytes | None]

    @property
    def scopes(self) -> set[Scope]:
        """The scopes of what was read. They are locked with the target: a memory that is forgotten
        or closed meanwhile takes along what was concluded from it, or is concluded from no more.
        """
        return {each.memory.scope for each in self.origins}

    def store(self, tx: Connection, correlation_id: str | None = None) -> list[Proposal]:
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
        proposer = _Proposer(write, scope, request.mode)
        for candidate, vector in zip(self.candidates, self.vectors, strict=True):
            origin = current.get(candidate.origin.doc)
            if origin is not None and origin.memory.version == candidate.origin.memory.version:
                proposer.propose(candidate, vector)
        made = proposer.proposals
        write.journal_event(
            target,
            "memory.reflected",
            None,
            {
                "read": len(self.origins),
                "proposed": len(made),
                "applied": sum(each.state == "applied" for each in made),
                "waiting": sum(each.is_open for each in made),
            },
        )
        return made


def reflect(
    context: MemoryContext,
    actor: Actor,
    request: ReflectionRequest,
    *,
    correlation_id: str | None = None,
) -> Reflected:
    """Propose what the material says as decisions, procedures, plans, tasks, artifacts, claims and
    relations of the target scope; with the mode `policy` apply what is safe. What was proposed
    before is not proposed again.

    Raises InvalidInput, NotFound, and Denied: `mixed_scopes` for sources of several scopes, unless
    `into` names the broadest of them, and `scope_crossing_requires_promotion` for sources of one
    scope with fewer readers than the target.
    """
    plan = plan_reflection(context, actor, request)
    with context.gate.journaling(actor):
        made = (
            context.store.database.write_mostly(
                lambda tx: plan.store(tx, correlation_id),
                name="reflect",
                writes=Writes.of(request.target, *plan.scopes),
            )
            if plan.candidates
            else []
        )
    return Reflected(
        scope=request.target,
        read=len(plan.origins),
        proposals=tuple(made),
        applied=sum(each.state == "applied" for each in made),
        waiting=sum(each.is_open for each in made),
    )


def plan_reflection(
    context: MemoryContext, actor: Actor, request: ReflectionRequest
) -> ReflectionPlan:
    """Read the material and what it states; nothing is stored. Raises as `reflect`."""
    origins = material_of(context, actor, request)
    candidates = [
        _Candidate(origin, reading, _target(context, actor, request.target, reading, origin.memory))
        for origin in origins
        for reading in read_text(origin.memory.content)
    ]
    vectors = context.vectors_for([each.reading.fact.content for each in candidates])
    return ReflectionPlan(context, actor, request, origins, candidates, vectors.blobs)


def material_of(
    context: MemoryContext, actor: Actor, request: ReflectionRequest
) -> list[memories.Stored]:
    """Return the memories that a request is about, oldest first. Raises as `reflect`."""
    material = request.material
    if request.mode == "off":
        raise InvalidInput(
            "Reflection is off. Open the tally with the setting `reflection`, as `review` or "
            "`policy`."
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
            for origin in _named(connection, context, actor, each):
                stored[origin.doc] = origin
        found = list(stored.values())
    else:
        ids = [row.id for row in scopes.find(connection, [bound])]
        found = memories.latest(
            connection,
            ids,
            states=("active",),
            conversation=material.conversation,
            run_id=material.run,
            limit=_MOST,
        )
    readable = _readable(connection, context, actor, found)
    if material.ids and len(readable) < len(found):
        gone = next(each for each in found if each not in readable)
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


def _named(
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
    connection: Connection, context: MemoryContext, actor: Actor, found: Iterable[memories.Stored]
) -> list[memories.Stored]:
    """Return those whose text the actor may see and conclude from, as they are now."""
    current = memories.get_docs(connection, [each.doc for each in found])
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


def _target(
    context: MemoryContext, actor: Actor, target: Scope, reading: Reading, origin: Memory
) -> Memory | None:
    """Return the memory of the target scope that a statement of `origin` says is otherwise now:
    one that was said before, and not of another speaker.
    """
    if not is_change(reading.fact.content) or reading.relation is not None:
        return None
    request = RecallRequest(limit=3, kinds=(reading.fact.kind,), sources=False, only_confident=True)
    if not context.gate.require_or_none(actor, "read", target):
        return None
    hits = recall(context, actor, [target], reading.fact.content, request, logged=False)
    return next(
        (
            hit.memory
            for hit in hits
            if hit.memory.state == "active"
            and hit.memory.id != origin.id
            and is_earlier(hit.memory, origin)
            and not is_about_another_speaker(reading.fact.content, origin, hit.memory)
        ),
        None,
    )


class _Proposer:
    """Makes the proposals of one reflection, inside the open transaction."""

    def __init__(self, write: MemoryWrite, scope: ScopeRow, mode: Reflection) -> None:
        self._write, self._scope, self._mode = write, scope, mode
        self.proposals: list[Proposal] = []

    def propose(self, candidate: _Candidate, vector: bytes | None) -> None:
        """Propose one statement; apply it where policy may."""
        origin, (fact, relation), target = candidate
        tx, write = self._write.tx, self._write
        if self._is_known(origin, fact.content):
            return
        verdict = self._verdict(candidate)
        words = ProposalContent(
            content=fact.content,
            subject=origin.memory.subject,
            occurred_at=origin.memory.occurred_at,
            relation=relation,
        )
        proposal = Proposal(
            id=write.context.store.ids.new(),
            scope=self._scope.scope,
            origin="reflection",
            action="UPDATE" if target is not None else "RELATE" if relation is not None else "ADD",
            kind=fact.kind,
            reason=verdict,
            content=words,
            confidence=min(fact.confidence, origin.memory.confidence),
            sources=tuple(link.source_id for link in origin.memory.sources),
            derived_from=(origin.memory.id,),
            target=None if target is None else target.id,
            target_version=None if target is None else target.version,
            suggested_scope=self._suggested(),
            provider="rules",
            prompt_version=RULES_VERSION,
            created_at=write.now,
            created_by=write.actor.identity(),
        )
        proposals.add(tx, proposal, scope=self._scope)
        write.journal_event(
            self._scope.scope,
            "proposal.made",
            proposal.id,
            {"verdict": verdict, "kind": fact.kind, "from": origin.memory.id},
        )
        if verdict == "by_policy":
            proposal = carry_out(
                write, proposal, words, vector=vector, state="applied", reason=None
            )
        self.proposals.append(proposal)

    def _is_known(self, origin: memories.Stored, content: str) -> bool:
        """Return True if a statement was proposed from this memory before, whatever came of it."""
        before = proposals.of_memories(self._write.tx, [origin.memory.id])
        return any(
            each.scope.id == self._scope.id
            and origin.memory.id in each.record.derived_from
            and each.record.content is not None
            and each.record.content.content == content
            for each in before
        )

    def _verdict(self, candidate: _Candidate) -> ProposalReason:
        """Return `by_policy`, or the rule for which a person decides."""
        origin, (fact, _), target = candidate
        memory, redactor = origin.memory, self._write.context.redactor
        if is_local_only(memory.attributes) or redactor.redact_text(fact.content)[1]:
            return "sensitive"
        if memory.scope != self._scope.scope or self._scope.scope.kind in _WIDE:
            return "scope_crossing"
        if not self._is_trusted(origin):
            return "foreign_text"
        if target is not None:
            return "contradiction"
        if fact.kind not in _BY_RULE:
            return "ambiguous"
        if min(fact.confidence, memory.confidence) < _SURE:
            return "low_confidence"
        return "by_policy" if self._mode == "policy" else "shadow_mode"

    def _is_trusted(self, origin: memories.Stored) -> bool:
        if is_program(origin.memory.speaker):
            return False
        links = memories.source_refs(self._write.tx, [origin.doc]).get(origin.doc, [])
        return all(link.reference.source_type in _TRUSTED for link in links)

    def _suggested(self) -> str | None:
        """Return the project that a private conclusion would belong to, where there is just one."""
        projects = sorted(self._write.actor.projects)
        if self._scope.scope.kind != "private" or len(projects) != 1:
            return None
        return f"project:{projects[0]}"
