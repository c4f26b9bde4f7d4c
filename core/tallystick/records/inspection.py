"""Views of memories for reading: inspections, packs of context, exploration, and what a correction,
a promotion or sharing changes.
"""

from typing import Literal

from tallystick.records._base import JsonObject, Record
from tallystick.records.identity import Scope
from tallystick.records.learning import AppliedChange, HeldChange
from tallystick.records.memory import (
    Change,
    CorrectionKind,
    EdgeKind,
    HistoryEntry,
    Holds,
    MemoryState,
    SourceState,
    SourceType,
)
from tallystick.records.policy import AccessDecision, ReasonCode
from tallystick.records.recording import MemoryUse
from tallystick.records.times import datetime_of, optional_datetime_of

RecallImpact = Literal[
    "leaves_recall",
    "returns",
    "history",
    "below_replacement",
    "under_canonical",
    "metadata_only",
    "field_redacted",
    "local_only",
    "unchanged",
]


class Link(Record):
    """One edge of a memory, seen from it."""

    kind: str
    direction: Literal["to", "from"]
    """`to`: from this memory to the other one."""
    memory_id: str
    """The memory at the other end."""


class Affected(Record):
    """Other records that a change touches, as far as the actor may see them."""

    sources: tuple[str, ...] = ()
    """Sources that the memory was drawn from; they stay as they are."""
    derived: tuple[str, ...] = ()
    """What was concluded from it: where it leaves recall, what rests on nothing else leaves too,
    unless a person accepted, edited or pinned it.
    """
    shared: tuple[str, ...] = ()
    """Shared copies, which are withdrawn with it."""
    links: tuple[Link, ...] = ()
    elsewhere: int = 0
    """The number of linked memories in scopes that the actor may not read."""


class CitedIn(Record):
    """An artifact that cites a memory, with the sections that do."""

    artifact_id: str
    sections: tuple[str, ...]
    """Their titles."""
    is_stale: bool = False


class Correction(Record):
    """The preview or the result of a correction."""

    mode: Literal["preview", "apply"]
    id: str
    correction: CorrectionKind
    version: int
    """The version that it is about."""
    before: MemoryState
    after: MemoryState
    other_id: str | None = None
    """The replacement of a superseded memory, the canonical one of a duplicate."""
    other_version: int | None = None
    affected: Affected
    synthesis: tuple[CitedIn, ...] = ()
    """Artifacts that cite it: they are stale once it is applied."""
    recall: RecallImpact
    reversible: bool
    reversible_until: int | None = None
    """Microseconds UTC; None where there is no end."""
    reversible_until_time = optional_datetime_of("reversible_until")
    confirm_token: str | None = None
    expires_at: int | None = None
    """Microseconds UTC from which on the token is refused."""
    expires_time = optional_datetime_of("expires_at")
    result: Change | None = None


class CrossingReach(Record):
    """The records around a memory that crosses: the memory, its sources and those linked to it,
    counted by what the readers of the other scope will see.
    """

    visible: int = 0
    """Shown to them: the copy, and linked memories of their own scope."""
    hidden: int = 0
    """Linked memories that are hidden or forgotten, which nobody is shown."""
    denied: int = 0
    """Sources, which stay behind, and linked memories of scopes that are not theirs."""
    redacted: int = 0
    """Shown with a replacement in place of a field."""


class Crossing(Record):
    """The preview or the result of promoting or sharing."""

    mode: Literal["preview", "apply"]
    operation: Literal["promote", "share"]
    id: str
    version: int
    into: Scope
    decisions: tuple[AccessDecision, ...]
    """The decisions that allowed it: leaving the scope, and writing in the other one."""
    readers: tuple[str, ...] = ()
    """Its readers there, as `type:id` of the members of the space, or `project:…`."""
    reach: CrossingReach = CrossingReach()
    """What those readers will see of it and of what it is linked to, in numbers."""
    confirm_token: str | None = None
    expires_at: int | None = None
    """Microseconds UTC from which on the token is refused."""
    expires_time = optional_datetime_of("expires_at")
    copy_id: str | None = None
    """The id of the copy in the other scope."""
    audit_id: str | None = None
    warnings: tuple[str, ...] = ()
    """The secrets that are replaced in the copy."""


class Action(Record):
    """One possible next action."""

    name: str
    allowed: bool
    reason: str
    """A reason code, or the state that forbids it."""
    previewed: bool
    """True if it is previewed, and then applied with the preview's token."""


class Freshness(Record):
    """The validity of a memory now, as far as the tally knows."""

    current: bool
    valid_from: int | None = None
    """Microseconds UTC, as are the others."""
    valid_from_time = optional_datetime_of("valid_from")
    valid_until: int | None = None
    valid_until_time = optional_datetime_of("valid_until")
    known_at: int | None = None
    """The last time at which it was known to be true."""
    known_time = optional_datetime_of("known_at")
    expires_at: int | None = None
    expires_time = optional_datetime_of("expires_at")
    replaced_by: str | None = None
    origins_changed: tuple[str, ...] = ()
    """Memories that it was concluded from and that are no longer active, or were corrected."""


class Inspection(Record):
    """One memory with its visibility, its links and the possible next actions.

    A source is inspected too: see `SourceInspection`.
    """

    id: str
    scope: Scope
    kind: str
    state: MemoryState | SourceState
    version: int = 1
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    created_by: str
    updated_at: int
    updated_time = datetime_of("updated_at")
    updated_by: str | None = None
    pinned: bool = False
    importance: int = 50
    confidence: int = 100
    locked_until: int | None = None
    locked_until_time = optional_datetime_of("locked_until")
    conversation: str | None = None
    position: int | None = None
    subject: str | None = None
    speaker: str | None = None
    tags: tuple[str, ...] = ()
    attributes: JsonObject = {}
    preview: str | None = None
    """The beginning of its text, secrets replaced; None if nobody, or not this actor, may see
    it.
    """
    shown: bool
    """True if this actor's recall can show its text."""
    access_reason: ReasonCode
    """The reason why it is shown, or why not."""
    decision: AccessDecision
    """The decision of policy about this actor's reading there."""
    readers: tuple[str, ...] = ()
    """Its readers, as `type:id` of principals and members."""
    sources: tuple[str, ...] = ()
    affected: Affected
    history: tuple[HistoryEntry, ...] = ()
    promoted: tuple[str, ...] = ()
    """Copies in other scopes that this actor may see."""
    contradicted_by: tuple[str, ...] = ()
    """Memories that contradict it and that this actor may read, the one to believe first."""
    audit_ids: tuple[str, ...] = ()
    """The journal's entries about it, newest first, ten at most."""
    uses: tuple[MemoryUse, ...] = ()
    """Recorded steps that recalled, saw, left out or wrote it, newest first, ten at most: those the
    actor may see.
    """
    freshness: Freshness
    actions: tuple[Action, ...] = ()


class DerivedMemory(Record):
    """One memory that was drawn from a source."""

    id: str
    scope: Scope
    kind: str
    state: MemoryState
    version: int
    updated_at: int
    """Microseconds UTC."""
    updated_time = datetime_of("updated_at")


class SourceInspection(Inspection):
    """One source with its lifecycle and the memories drawn from it.

    `id` is that of the source and `kind` is `source`. Its `state` follows its memories:
    active while one of them is, else redacted, hidden or deleted as they are, erased once its bytes
    are destroyed. `updated_at` is the last change of it or of one of them. It is immutable, so that
    there are no actions: change the memories.
    """

    source_type: SourceType
    uri: str | None = None
    """Its address outside of the tally; None also where it is not shown."""
    title: str | None = None
    source_version: str | None = None
    content_hash: str | None = None
    """Keyed digest of its bytes within the scope."""
    occurred_at: int | None = None
    """Microseconds UTC when it was said or happened."""
    occurred_time = optional_datetime_of("occurred_at")
    text: str | None = None
    """The whole text as it arrived, given by `source` alone, where it is shown."""
    derived: tuple[DerivedMemory, ...] = ()
    """The memories drawn from it in scopes that this actor may inspect, oldest first. What was
    concluded from those stands in `affected`.
    """


class PackItem(Record):
    """One memory in a pack of context, with the reasons for it."""

    id: str
    source_ids: tuple[str, ...]
    visible_to: Scope
    access_reason: str
    """The reason why this actor may see it: a policy reason code."""
    chosen_as: str
    """The part of the pack that it is in: `relevance`, `pinned`, `constraint`, …"""
    score: float | None = None
    fresh: Holds
    known_at: int | None = None
    """Microseconds UTC of the last time at which it was known to be true."""
    known_time = optional_datetime_of("known_at")
    kind: str
    text: str
    """Its text in the pack: secrets replaced, and cut if `cut` is True."""
    cut: bool = False
    handle: str = ""
    """Its number in the text of the pack, by which a model cites it."""
    place: str | None = None
    """Which part of a long memory the text is, such as `3 of 9`; None for the whole, or its
    beginning.
    """
    folded: tuple[str, ...] = ()
    """Memories that say nearly the same, for which this one is shown."""
    contradicted_by: tuple[str, ...] = ()
    """Memories that contradict it, in the pack or not."""
    held: tuple[HeldChange, ...] = ()
    """Changes of it that wait for a person, newest first; the pack shows them beside it."""
    learned: AppliedChange | None = None
    """What learning changed by it since the session before; the pack shows it beside it."""
    attributes: JsonObject = {}
    """Those of its attributes that its kind declares, such as the status of a task; secrets
    replaced. The pack shows them beside it.
    """
    signals: dict[str, float] = {}
    """Each signal that ranked it for a query, by name, before weighting."""


class ContextPack(Record):
    """Text for an agent, framed as data, within a budget, and the memories that it contains."""

    text: str
    items: tuple[PackItem, ...]
    tokens: int
    budget_tokens: int
    exact: bool
    """True if tokens were counted, False if they were estimated (never too low)."""
    left_out: int
    """The number of next candidates that did not fit."""
    redactions: dict[str, int] = {}

    @property
    def legend(self) -> dict[str, PackItem]:
        """What each number in the text stands for: its source, who may see it, and why."""
        return {item.handle: item for item in self.items}


class LinkCount(Record):
    """The number of links of one kind that a memory has, seen from it."""

    kind: EdgeKind
    direction: Literal["to", "from"]
    """`to`: from this memory to others."""
    count: int


ExploreMode = Literal["dependencies", "about", "communities"]
"""Ways of exploring beside the links of a memory and the contents of a scope."""


class ExploredScope(Record):
    """A scope that an actor may look into, and the number of its memories."""

    scope: Scope
    name: str | None = None
    """The name of its space, if it has one."""
    readable: bool
    """True if its memories may be read; otherwise they are only counted."""
    access_reason: ReasonCode
    """The reason, either way."""
    states: dict[str, int] = {}
    """Memories by state; those that are not active only for an actor that may inspect."""
    kinds: dict[str, int] = {}
    """Active memories by kind."""


class ExploredMemory(Record):
    """One memory found by exploring."""

    id: str
    scope: Scope
    kind: str
    state: MemoryState
    version: int
    pinned: bool
    updated_at: int
    """Microseconds UTC."""
    updated_time = datetime_of("updated_at")
    distance: int = 0
    """Links between it and the memory in the middle."""
    preview: str | None = None
    """The beginning of its text, secrets replaced; None if it is not shown."""
    subject: str | None = None
    tags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    links: tuple[LinkCount, ...] = ()
    """Links whose other end this actor may read."""


class ExploredLink(Record):
    """One link between two memories that are shown."""

    kind: EdgeKind
    from_id: str
    to_id: str


class ExploredRelation(Record):
    """What memories that are shown say of two entities that are shown."""

    from_id: str
    relation: str
    """Such as `works_at`."""
    to_id: str
    mentions: tuple[str, ...]
    """The memories that say it, oldest first."""
    confidence: int
    """Of the one that is surest, percent."""


class Activity(Record):
    """One event in a scope: an entry of its journal, as people read it."""

    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    position: int
    """Its place in the journal of the scope."""
    event: str
    """Such as `memory.add` or `proposal.rejected`."""
    user: str
    agent: str | None = None
    surface: str
    reason: str | None = None
    """None also where it is about a memory that the actor may not see."""
    subject_id: str | None = None
    """The record that it is about."""
    is_memory: bool = False
    """True if that is a memory."""
    preview: str | None = None
    """The beginning of its text as it is now, secrets replaced; None if the actor may not see it.
    """
    facts: JsonObject = {}
    """What an import brought and a reflection proposed, in numbers; empty for other events."""
    audit_id: str


class LoggedRead(Record):
    """One allowed read, as the access log has it."""

    number: int | None
    """The number of the line; later ones are larger. None until it is written, with the next batch
    of this process.
    """
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    user: str
    agent: str | None = None
    surface: str
    operation: str
    """Such as `recall` or `get`."""
    scopes: tuple[str, ...]
    results: int
    """The number of records that it returned."""


class ExploredCommunity(Record):
    """Entities that memories mention together, and what these say, as far as it may be read."""

    id: str
    parent: str | None = None
    """The broader community that it is a part of."""
    level: int
    """0 for the broadest ones."""
    scope: Scope
    entities: tuple[str, ...]
    """Their ids, those that most memories mention first."""
    names: tuple[str, ...]
    """Their names, in the same order."""
    key_concepts: tuple[str, ...]
    """The names and words that most of its memories share."""
    summary: str
    summarized_by: str | None = None
    """The model that wrote the summary; None if it is sentences of the memories."""
    sources: tuple[str, ...]
    """The memories that the summary is made from; of sentences, one for each in their order."""
    memory_count: int
    """The memories that mention two of its entities at least, of the newest 200."""


class Explored(Record):
    """The result of exploring without a query."""

    around: str | None = None
    """The scope, memory or entity explored; None for everything."""
    scopes: tuple[ExploredScope, ...] = ()
    memories: tuple[ExploredMemory, ...] = ()
    """The memories of a scope, newest first; around a memory or an entity, that one first, then by
    distance; of dependencies, each after those that it depends on.
    """
    links: tuple[ExploredLink, ...] = ()
    relations: tuple[ExploredRelation, ...] = ()
    """What the memories say of entities, in the mode `about`."""
    cycles: tuple[tuple[str, ...], ...] = ()
    """Ids of memories that depend on one another in a circle, in the mode `dependencies`."""
    unfinished: tuple[str, ...] = ()
    """Ids of the tasks and milestones shown that are neither done nor cancelled, in the same mode.
    """
    communities: tuple[ExploredCommunity, ...] = ()
    """In the mode `communities`: broad ones first, of a level those with most entities first."""
    elsewhere: int = 0
    """The number of linked memories in scopes that the actor may not read."""
    more: bool = False
    """True if `limit` left something out: give the last id of a scope's page as `before` for the
    next page.
    """
