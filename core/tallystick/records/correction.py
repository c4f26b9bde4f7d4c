"""Previews and results of correcting, promoting and sharing a memory: Correction, Crossing."""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import Record
from tallystick.records.identity import Scope
from tallystick.records.memory import Change, CorrectionKind, MemoryState
from tallystick.records.policy import AccessDecision
from tallystick.records.times import optional_datetime_of

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
