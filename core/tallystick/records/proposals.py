"""Proposals: the facts that an extractor found in a text, the decisions that a decider makes about
them, and the rows in which both wait for a person or are kept as history.

A proposal is the suggestion of a model. Nothing in it is an instruction: a person decides what of
it is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from tallystick.records._base import JsonObject, Persisted, Record, tuple_of
from tallystick.records.identity import Scope
from tallystick.records.memory import DecisionAction
from tallystick.records.times import datetime_of, optional_datetime_of

Learning = Literal["off", "review"]
"""Whether models propose facts from what is remembered: not at all, or for a person to decide."""
ProposalAction = Literal["ADD", "UPDATE", "DELETE", "CONTRADICTS", "NONE", "RELATE", "PROMOTE"]
"""What a proposal would do once it is accepted."""
ProposalOrigin = Literal["extraction", "reflection", "graph"]
"""The part that made a proposal."""
ProposalState = Literal[
    "pending", "accepted", "edited", "deferred", "rejected", "discarded", "withdrawn"
]
"""`pending` and `deferred` wait for a person. `discarded`: it is void, whatever a person says.
`withdrawn`: the text that it was drawn from was destroyed while it waited. The others are what a
person decided.
"""
ProposalStates = Annotated[Sequence[ProposalState], tuple_of(ProposalState)]
"""States of proposals."""
ProposalReason = Literal[
    "review_mode",
    "contradiction",
    "contradiction_in_batch",
    "invalid_target",
    "target_changed",
    "pinned_memory",
    "manual_override",
    "shared_memory",
    "another_author",
    "foreign_text",
    "scope_crossing",
    "sensitive",
    "source_gone",
]
"""What a person should know before deciding a proposal, or why it was discarded or withdrawn."""


class ExtractedFact(Record):
    """One statement that an extractor drew from a text."""

    content: str
    kind: str = "fact"
    """The kind of memory that it would be."""
    confidence: int = Field(default=100, ge=0, le=100)
    """Percent."""
    subject: str | None = None
    occurred_at: int | None = None
    """Microseconds UTC of the day that it is about, where it names one."""
    occurred_time = optional_datetime_of("occurred_at")
    span: tuple[int, int] | None = None
    """The characters of the text that say it, from and up to; None where the words are new."""


ENTITY_TYPES = ("person", "organization", "place", "work", "address", "code", "name")
"""Types of entities; `name` where nothing tells."""


class ExtractedEntity(Record):
    """Somebody or something that a text names."""

    name: str
    kind: str = "name"
    """One of `ENTITY_TYPES`."""
    aliases: tuple[str, ...] = ()
    confidence: int = Field(default=100, ge=0, le=100)
    """Percent."""


class ExtractedRelation(Record):
    """How two entities of a text are related."""

    source: str
    """The name of an entity."""
    relation: str
    target: str
    confidence: int = Field(default=100, ge=0, le=100)
    """Percent."""


class Extraction(Record):
    """What an extractor drew from one text. Empty is an answer; a failure is an error."""

    facts: tuple[ExtractedFact, ...] = ()
    entities: tuple[ExtractedEntity, ...] = ()
    relations: tuple[ExtractedRelation, ...] = ()
    warnings: tuple[str, ...] = ()
    """What was cut, refused or repaired, without words of the text."""

    @property
    def is_empty(self) -> bool:
        """True if nothing was found."""
        return not (self.facts or self.entities or self.relations)


class DecisionCandidate(Record):
    """A memory that a decider may name as the target of a decision."""

    id: str
    version: int
    content: str
    kind: str
    score: float = 0.0
    """As recall scores it against the fact."""
    occurred_at: int | None = None
    """Microseconds UTC of when it was said or happened."""
    occurred_time = optional_datetime_of("occurred_at")


class MemoryDecision(Record):
    """What a decider wants done with one fact."""

    fact: int = Field(ge=0)
    """The place of the fact among those that were asked about, counted from 0."""
    action: DecisionAction
    target: str | None = None
    """The id of a candidate; required for UPDATE, DELETE and CONTRADICTS."""
    confidence: int = Field(default=100, ge=0, le=100)
    """Percent."""
    reason: str = ""
    """Why, in a sentence. It is data: nothing in it is carried out."""


class ProviderDeclaration(Record):
    """What a provider of extraction, decisions or summaries says of itself."""

    name: str
    """The provider, as budgets, rules and the outbound log name it."""
    model: str | None = None
    local: bool = False
    """True if nothing that it is given leaves this machine."""
    prompt_version: str | None = None
    structured_output: bool = True
    """True if it answers with records instead of prose."""
    timeout_ms: int = Field(default=30_000, ge=1)
    """How long one call may take, milliseconds."""
    longest_text: int = Field(default=100_000, ge=1)
    """Characters of one call at most; a longer text is cut, with a warning."""
    longest_answer: int = Field(default=16_000, ge=1)
    """Tokens of one answer at most: what limits of tokens and money count for a call under way."""


class LearningBudget(Record):
    """What calls of models for extraction and decisions may cost; None is no limit.

    The call that reaches a limit is the last one. Amounts of money are millionths of a dollar; a
    model whose price is not known is refused where one is limited. A day is the last 24 hours.
    """

    calls_per_job: int | None = Field(default=None, ge=0)
    tokens_per_job: int | None = Field(default=None, ge=0)
    micros_per_job: int | None = Field(default=None, ge=0)
    calls_per_scope_and_day: int | None = Field(default=None, ge=0)
    tokens_per_scope_and_day: int | None = Field(default=None, ge=0)
    micros_per_scope_and_day: int | None = Field(default=None, ge=0)
    calls_per_day: int | None = Field(default=None, ge=0)
    tokens_per_day: int | None = Field(default=None, ge=0)
    micros_per_day: int | None = Field(default=None, ge=0)


class ProposalContent(Record):
    """The words of a proposal. They are erased with the memories that they were drawn from."""

    content: str
    subject: str | None = None
    attributes: JsonObject = {}
    occurred_at: int | None = None
    """Microseconds UTC of the day that it is about."""
    occurred_time = optional_datetime_of("occurred_at")
    valid_from: int | None = None
    """Microseconds UTC."""
    valid_from_time = optional_datetime_of("valid_from")
    explanation: str = ""
    """The reason that the decider gave. It is data."""
    relation: ExtractedRelation | None = None
    """For the action RELATE."""


ReflectMode = Literal["sync", "async"]
"""Whether a reflection is carried out in its call, or by a job."""
ReviewDecision = Literal["accept", "edit", "defer", "reject"]
"""What a person decides about a proposal; `edit` accepts it in other words."""


class Proposal(Persisted):
    """A suggestion of extraction or reflection, with what became of it."""

    id: str
    scope: Scope
    """The scope in which it would be carried out."""
    origin: ProposalOrigin = "extraction"
    action: ProposalAction
    kind: str
    """The kind of memory that it would make; `relation` for a relation."""
    state: ProposalState = "pending"
    reason: ProposalReason
    content: ProposalContent | None = None
    """Its words; None once they were erased."""
    confidence: int = Field(ge=0, le=100)
    """Percent."""
    sources: tuple[str, ...] = ()
    """Ids of the sources that it was drawn from."""
    derived_from: tuple[str, ...] = ()
    """Ids of the memories that it was drawn from."""
    target: str | None = None
    """The memory that it would replace, withdraw, contradict or repeat."""
    target_version: int | None = None
    """The version of the target that was looked at: another one is another decision."""
    made: str | None = None
    """The memory that came of it."""
    suggested_scope: str | None = None
    """Another scope in which it would belong, as text. It is never taken without a person."""
    provider: str
    model: str | None = None
    prompt_version: str | None = None
    job_id: str | None = None
    run_id: str | None = None
    step_id: str | None = None
    """The recorded call of the model that suggested it."""
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    created_by: JsonObject
    """The identity of the actor under whose authority it was made."""
    decided_at: int | None = None
    decided_time = optional_datetime_of("decided_at")
    decided_by: JsonObject | None = None
    decided_reason: str | None = None
    """Why a person decided so."""

    @property
    def is_open(self) -> bool:
        """True if a person may still decide it."""
        return self.state in ("pending", "deferred")


class ReviewEntry(Record):
    """One event in the life of a proposal."""

    event: str
    """Such as `proposal.made` or `proposal.rejected`."""
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    actor: JsonObject
    surface: str
    reason: str | None = None
    audit_id: str


class Reviewed(Record):
    """A proposal with everything that happened to it, oldest first."""

    proposal: Proposal
    history: tuple[ReviewEntry, ...] = ()


class Reflected(Record):
    """The result of one `reflect`."""

    scope: Scope
    """The scope of the proposals."""
    read: int = 0
    """The number of memories that were reflected on."""
    proposals: tuple[Proposal, ...] = ()
    """Those that are new, in the order of their texts."""
    waiting: int = 0
    """The number of them that wait for a person."""
    processing: Literal["processed", "queued", "off", "suspended"] = "processed"
    """`queued`: the job `job_id` will do it, and its result says what was read and proposed. At the
    end of a session, `off`: the setting `reflection` is off; `suspended`: an operator holds back
    work that nobody asked for. Then nothing was read.
    """
    job_id: str | None = None
