"""What inspecting a memory tells, and what packs of context hold: Inspection, ContextPack."""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import JsonObject, Record
from tallystick.records.answers import MemoryUse
from tallystick.records.correction import Affected
from tallystick.records.identity import Scope
from tallystick.records.memory import EdgeKind, HistoryEntry, MemoryState
from tallystick.records.policy import AccessDecision, ReasonCode

__all__ = [
    "Action",
    "ContextPack",
    "Explored",
    "ExploredLink",
    "ExploredMemory",
    "ExploredScope",
    "Freshness",
    "Inspection",
    "LinkCount",
    "PackItem",
]


class Action(Record):
    """Something that could be done next."""

    name: str
    allowed: bool
    reason: str
    """Why, or why not: a reason code, or the state that stands against it."""
    previewed: bool
    """Whether it is previewed, and done with the preview's token."""


class Freshness(Record):
    """Whether what it says still holds, as far as the tally knows."""

    current: bool
    valid_from: int | None = None
    """Microseconds UTC, as are the others."""
    valid_until: int | None = None
    known_at: int | None = None
    """The last time it was known to hold."""
    expires_at: int | None = None
    replaced_by: str | None = None
    origins_changed: tuple[str, ...] = ()
    """Memories that it was concluded from and that are no longer active, or were corrected."""


class Inspection(Record):
    """What a memory is, why one can or cannot see it, what hangs on it, and what may be done
    next.
    """

    memory_id: str
    scope: Scope
    kind: str
    state: MemoryState
    version: int
    created_at: int
    """Microseconds UTC."""
    created_by: str
    updated_at: int
    updated_by: str | None = None
    pinned: bool
    importance: int
    confidence: int
    locked_until: int | None = None
    conversation: str | None = None
    position: int | None = None
    subject: str | None = None
    speaker: str | None = None
    tags: tuple[str, ...] = ()
    attributes: JsonObject = {}
    preview: str | None = None
    """How its text begins, secrets replaced; None where nobody, or not this actor, may see it."""
    shown: bool
    """Whether this actor's recall can show its text."""
    why: ReasonCode
    """Why it is shown, or why not."""
    decision: AccessDecision
    """What policy says of this actor's reading there."""
    readers: tuple[str, ...] = ()
    """Who may read it, as `type:id` of principals and members."""
    sources: tuple[str, ...]
    affected: Affected
    history: tuple[HistoryEntry, ...]
    promoted: tuple[str, ...] = ()
    """Copies in other scopes that this actor may see."""
    audit_ids: tuple[str, ...]
    """The journal's entries about it, newest first, ten at most."""
    uses: tuple[MemoryUse, ...] = ()
    """Recorded steps that recalled, saw, left out or wrote it, newest first, ten at most: those the
    actor may see.
    """
    freshness: Freshness
    actions: tuple[Action, ...]


class PackItem(Record):
    """One memory in a pack of context, with everything that speaks for it."""

    memory_id: str
    source_ids: tuple[str, ...]
    visible_to: Scope
    reason: str
    """Why this actor may see it: a policy reason code."""
    why: str
    """Why it is in the pack: `relevance`, `pinned`, `constraint`, …"""
    score: float | None = None
    fresh: Literal["current", "history", "redacted"]
    known_at: int | None = None
    """Microseconds UTC of the last time it was known to hold."""
    kind: str
    text: str
    """As it stands in the pack: secrets replaced, cut where `cut` says so."""
    cut: bool = False


class ContextPack(Record):
    """Text for an agent, framed as data, within a budget, and what it was made of."""

    text: str
    items: tuple[PackItem, ...]
    tokens: int
    budget_tokens: int
    exact: bool
    """Whether tokens were counted or estimated (never too low)."""
    left_out: int
    """How many that would have come next did not fit."""
    redactions: dict[str, int] = {}


class LinkCount(Record):
    """How many links of one kind a memory has, seen from it."""

    kind: EdgeKind
    direction: Literal["to", "from"]
    """`to`: from this memory to others."""
    count: int


class ExploredScope(Record):
    """A scope that an actor may look into, and how much stands there."""

    scope: Scope
    name: str | None = None
    """That of its space, where it has one."""
    readable: bool
    """Whether its memories may be read; else they are counted only."""
    reason: ReasonCode
    """Why, or why not."""
    states: dict[str, int] = {}
    """Memories by state; what is not active only for who may inspect."""
    kinds: dict[str, int] = {}
    """Active memories by kind."""


class ExploredMemory(Record):
    """A memory as one comes across it."""

    memory_id: str
    scope: Scope
    kind: str
    state: MemoryState
    version: int
    pinned: bool
    updated_at: int
    """Microseconds UTC."""
    distance: int = 0
    """Links between it and the memory that was asked about."""
    preview: str | None = None
    """How its text begins, secrets replaced; None where it is not shown."""
    subject: str | None = None
    tags: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    links: tuple[LinkCount, ...] = ()
    """Those whose other end this actor may read."""


class ExploredLink(Record):
    """One link between two memories that are shown."""

    kind: EdgeKind
    from_id: str
    to_id: str


class Explored(Record):
    """What one comes across when one looks around without a query."""

    around: str | None = None
    """The scope or memory that was asked about; None for everything."""
    scopes: tuple[ExploredScope, ...] = ()
    memories: tuple[ExploredMemory, ...] = ()
    """Those of a scope, newest first; around a memory that one first, then by distance."""
    links: tuple[ExploredLink, ...] = ()
    elsewhere: int = 0
    """How many linked memories stand where the actor may not look."""
    more: bool = False
    """Whether `limit` left something out: give the last id of a scope's page as `before` for the
    next one.
    """
