"""Learning: what a model is asked about a conversation, and the facts that it answers with.

Nothing in an answer is an instruction: checks and people decide what of it is carried out.
"""

from typing import Literal

from pydantic import Field

from tallystick.records._base import Record
from tallystick.records.times import datetime_of, optional_datetime_of

Learning = Literal["off", "shadow", "review", "apply"]
"""What becomes of the facts that a model draws: nothing is drawn; it is shown what would be done;
each waits for a person; or what passes the checks is applied and the rest waits.
"""
LearnAt = Literal["session", "exchange", "turn"]
"""When a conversation is read: once when it ended, after each answer, or after each turn."""
FactMode = Literal["stated", "supposed", "asked", "joked", "reported"]
"""How a fact was said, as the model sees it. Anything but `stated` is held for a person."""
FactChange = Literal["replaces", "ends", "corrects", "exception", "same_as", "contradicts"]
"""What a fact does to one that is known: it holds from now on in its place; that one holds no
longer; that one was never true; it holds beside it, in one case; it is that one; or both cannot be
true and nothing tells which is.
"""
DecisionAction = Literal["ADD", "UPDATE", "END", "CONTRADICTS", "NONE"]
"""What becomes of a fact: it is added, it replaces a memory, it ends one, it is added beside a
memory that it contradicts, or nothing, because a memory says it already.
"""


class SaidTurn(Record):
    """One text that a model reads: a turn of a conversation, or a loose memory."""

    id: str
    """The handle by which an answer names it, such as `t1`."""
    speaker: str
    text: str
    at: int
    """Microseconds UTC of when it was said."""
    time = datetime_of("at")
    is_new: bool = True
    """False for one that was read before, and is context alone."""


class KnownFact(Record):
    """A memory that an answer may name as the target of a change."""

    id: str
    """The handle by which an answer names it, such as `k1`; never the id of the memory."""
    text: str
    kind: str
    at: int
    """Microseconds UTC of when it was said."""
    time = datetime_of("at")


class LearningRequest(Record):
    """What a learner reads in one call."""

    author: str
    """The user whose memory it is."""
    said_at: int
    """Microseconds UTC of the last turn."""
    said_time = datetime_of("said_at")
    turns: tuple[SaidTurn, ...]
    """In their order."""
    known: tuple[KnownFact, ...] = ()
    """The nearest known facts, best first."""

    @property
    def new_turns(self) -> tuple[SaidTurn, ...]:
        """The turns that facts are drawn from."""
        return tuple(each for each in self.turns if each.is_new)


class ExtractedFact(Record):
    """One statement that a learner drew from a turn."""

    content: str
    kind: str = "fact"
    """The kind of memory that it would be."""
    confidence: int = Field(default=100, ge=0, le=100)
    """How sure the learner is, percent."""
    about: str | None = None
    """The person or thing that it is about."""
    said_by: str | None = None
    """Who said it, where that is not the speaker of the turn."""
    mode: FactMode = "stated"
    turn: str | None = None
    """The handle of its turn; None where the span tells."""
    span: str = ""
    """The words of the turn that say it, letter by letter."""
    valid_from: int | None = None
    """Microseconds UTC."""
    valid_from_time = optional_datetime_of("valid_from")
    valid_until: int | None = None
    """Microseconds UTC, exclusive."""
    valid_until_time = optional_datetime_of("valid_until")
    change: FactChange | None = None
    target: str | None = None
    """The handle of the known fact that it changes."""
    was: str | None = None
    """What held before, in the words of the learner."""


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
    """What a learner drew from its turns. Empty is an answer; a failure is an error."""

    facts: tuple[ExtractedFact, ...] = ()
    entities: tuple[ExtractedEntity, ...] = ()
    relations: tuple[ExtractedRelation, ...] = ()
    warnings: tuple[str, ...] = ()
    """What was cut, refused or repaired, without words of the text."""

    @property
    def is_empty(self) -> bool:
        """True if nothing was found."""
        return not (self.facts or self.entities or self.relations)


class ProviderDeclaration(Record):
    """What a provider of learning or summaries says of itself."""

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


class CallBudget(Record):
    """What calls of models may cost; None is no limit.

    Amounts of money are millionths of a dollar; a model whose price is not known is refused where
    one is limited. A day is the last 24 hours.
    """

    calls_per_scope_and_day: int | None = Field(default=None, ge=0)
    tokens_per_scope_and_day: int | None = Field(default=None, ge=0)
    micros_per_scope_and_day: int | None = Field(default=None, ge=0)
    calls_per_day: int | None = Field(default=None, ge=0)
    tokens_per_day: int | None = Field(default=None, ge=0)
    micros_per_day: int | None = Field(default=None, ge=0)


class LearningBudget(CallBudget):
    """What calls of models for learning may cost. The call that reaches a limit is the last one."""

    calls_per_job: int | None = Field(default=None, ge=0)
    tokens_per_job: int | None = Field(default=None, ge=0)
    micros_per_job: int | None = Field(default=None, ge=0)


class HeldChange(Record):
    """A change that waits for a person, as a reader of its target is shown it."""

    proposal_id: str
    action: DecisionAction
    text: str
    """The new sentence where its span is the user's own; else the words that were quoted."""
    is_own: bool
    """True if the user said it; False if it was quoted, pasted, fetched or supposed."""
    said_at: int
    """Microseconds UTC."""
    said_time = datetime_of("said_at")
    reason: str
    """The reason for which it waits."""


class AppliedChange(Record):
    """A change that learning applied, with what held before; `reviews.decide(id, "undo")` takes it
    back.
    """

    proposal_id: str
    action: DecisionAction
    text: str
    """The words that were said, without secrets; where there are none, what was learned."""
    made: str | None
    """The memory that came of it."""
    target: str
    """The memory that it replaced or ended."""
    was: str
    """What that one says, without secrets."""
    applied_at: int
    """Microseconds UTC."""
    applied_time = datetime_of("applied_at")
