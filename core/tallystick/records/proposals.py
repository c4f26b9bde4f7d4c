"""Proposals: what a learner would do with a fact, and the rows in which that waits for a person or
is kept as history.

A proposal is the suggestion of a model. Nothing in it is an instruction: checks and people decide
what of it is carried out.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from tallystick.records._base import JsonObject, Persisted, Record, tuple_of
from tallystick.records.identity import Scope
from tallystick.records.learning import ExtractedRelation, FactChange, FactMode
from tallystick.records.times import datetime_of, optional_datetime_of

ProposalAction = Literal["ADD", "UPDATE", "END", "CONTRADICTS", "NONE", "RELATE", "PROMOTE"]
"""What a proposal would do once it is accepted."""
ProposalOrigin = Literal["extraction", "reflection", "agent", "graph"]
"""The part that made a proposal."""
ProposalState = Literal[
    "pending",
    "accepted",
    "edited",
    "deferred",
    "rejected",
    "applied",
    "undone",
    "shadow",
    "discarded",
    "withdrawn",
]
"""`pending` and `deferred` wait for a person. `applied`: it passed the checks, where `learning` is
`apply`. `undone`: a person took it back. `shadow`: nothing is done, where `learning` is `shadow`.
`discarded`: it is void, whatever a person says. `withdrawn`: the text that it was drawn from was
destroyed while it waited. The others are what a person decided.
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
    "quoted",
    "question",
    "not_stated",
    "span_missing",
    "unfounded",
    "other_target",
    "too_many",
    "not_sure",
    "scope_crossing",
    "sensitive",
    "source_gone",
]
"""What a person should know before deciding a proposal, or why it was discarded or withdrawn."""
PASSED: frozenset[ProposalReason] = frozenset({"review_mode", "contradiction"})
"""Reasons of a proposal that nothing speaks against: where `learning` is `apply` it is applied."""


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
    valid_until: int | None = None
    """Microseconds UTC, exclusive."""
    valid_until_time = optional_datetime_of("valid_until")
    explanation: str = ""
    """What held before, in the words of the learner. It is data."""
    change: FactChange | None = None
    """What it does to its target."""
    mode: FactMode = "stated"
    said_by: str | None = None
    """Who said it, where that is not the speaker of the text."""
    span: str = ""
    """The words that say it, as the text has them."""
    relation: ExtractedRelation | None = None
    """For the action RELATE."""


ReflectMode = Literal["sync", "async"]
"""Whether a reflection is carried out in its call, or by a job."""
ReviewDecision = Literal["accept", "edit", "defer", "reject", "undo"]
"""What a person decides about a proposal; `edit` accepts it in other words, `undo` takes back what
came of it.
"""


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

    @property
    def passed(self) -> bool:
        """True if nothing speaks against it: where `learning` is `apply` it is applied."""
        return self.reason in PASSED


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
    decisions: tuple[ProposalAction, ...] = ()
    """What each of them would do, or has done, in their order: such as ADD or UPDATE."""
    waiting: int = 0
    """The number of them that wait for a person."""
    processing: Literal["processed", "queued", "off", "suspended"] = "processed"
    """`queued`: the job `job_id` will do it, and its result says what was read and proposed. At the
    end of a session, `off`: the setting `reflection` is off; `suspended`: an operator holds back
    work that nobody asked for. Then nothing was read.
    """
    job_id: str | None = None
