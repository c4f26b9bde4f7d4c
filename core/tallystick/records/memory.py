"""Memories, their kinds and their links: Memory, Edge, and what remembering and recalling
return.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tallystick.errors import InvalidRecord, explain_validation
from tallystick.records._base import JsonObject, Micros, Persisted, Record, Words
from tallystick.records.identity import Scope
from tallystick.records.source import SourceRef

__all__ = [
    "KINDS",
    "Change",
    "Changed",
    "CorrectionKind",
    "Edge",
    "EdgeKind",
    "ExtractionStatus",
    "ForgetMatch",
    "Forgetting",
    "Forgotten",
    "HistoryEntry",
    "Hit",
    "Memory",
    "MemoryState",
    "NewMemory",
    "Remembered",
    "SourceHash",
    "register_kind",
    "validate_attributes",
]

MemoryState = Literal["active", "hidden", "redacted", "superseded", "duplicate", "deleted"]
ExtractionStatus = Literal["none", "pending", "done", "empty", "failed"]
EdgeKind = Literal[
    "MENTIONS",
    "SUPERSEDES",
    "DEPENDS_ON",
    "DERIVED_FROM",
    "REFERENCES",
    "CONTRADICTS",
    "DUPLICATE_OF",
    "PART_OF",
    "SHARES",
]
CorrectionKind = Literal[
    "mark_wrong",
    "mark_stale",
    "mark_sensitive",
    "mark_duplicate",
    "supersede",
    "hide",
    "redact",
    "restore",
    "delete",
]

KINDS: dict[str, type[BaseModel] | None] = dict.fromkeys(
    (
        "note",
        "turn",
        "fact",
        "preference",
        "constraint",
        "decision",
        "procedure",
        "plan",
        "claim",
        "episode",
        "session_summary",
        "summary",
        "artifact",
        "artifact_index",
        "working",
        "pattern",
        "rule",
        "template",
        "topic",
        "tool",
        "language",
        "config_file",
        "command",
        "project",
        "task",
        "milestone",
        "team",
        "error_pattern",
        "source",
        "document",
        "community",
        "entity",
        "store_item",
    )
)
"""The open registry: kind name to the model that validates its attributes, or None for any JSON
object.
"""


class _Attributes(BaseModel):
    """Base of the shipped attribute models: known fields are checked, unknown ones kept."""

    model_config = ConfigDict(extra="allow", frozen=True)


class _Task(_Attributes):
    status: Literal["todo", "doing", "blocked", "review", "done", "cancelled"] = "todo"
    due_at: int | None = None


class _Constraint(_Attributes):
    hard: bool = False


class _ErrorPattern(_Attributes):
    error: str = ""
    resolution: str = ""


KINDS |= {
    "task": _Task,
    "milestone": _Task,
    "constraint": _Constraint,
    "error_pattern": _ErrorPattern,
}


def register_kind(name: str, attributes: type[BaseModel] | None = None) -> None:
    """Make `name` a known kind whose attributes `attributes` validates.

    Raises InvalidRecord if the kind is known already with another model.
    """
    if name in KINDS and KINDS[name] is not attributes:
        raise InvalidRecord(f"Kind {name!r} is registered already. Choose another name.")
    KINDS[name] = attributes


def validate_attributes(kind: str, attributes: JsonObject) -> None:
    """Check `attributes` against the model of `kind`. Raises InvalidRecord naming the fields."""
    if kind not in KINDS:
        kinds = ", ".join(sorted(KINDS))
        raise InvalidRecord(
            f"Unknown kind {kind!r}. Use one of {kinds}, or register_kind({kind!r})."
        )
    model = KINDS[kind]
    if model is None:
        return
    try:
        model.model_validate(attributes)
    except ValidationError as error:
        raise InvalidRecord(f"attributes of {kind}: {explain_validation(error)}") from error


class SourceHash(Record):
    """One source that a memory was derived from, with the hash it had then."""

    source_id: str
    content_hash: str


class Memory(Persisted):
    """A node derived from one or more sources. One shape for every kind."""

    id: str
    scope: Scope
    kind: str = "note"
    subject: str | None = None
    """The subject of the memory, for facts that can contradict one another."""
    content: str
    who: str | None = None
    """The speaker who said it."""
    category: str | None = None
    sources: tuple[SourceHash, ...] = ()
    source_run_id: str | None = None
    source_step_ids: tuple[str, ...] = ()
    confidence: int = Field(default=100, ge=0, le=100)
    """Percent."""
    importance: int = Field(default=50, ge=0, le=100)
    """Percent; 50 is ordinary."""
    pinned: bool = False
    version: int = 1
    state: MemoryState = "active"
    corrected: CorrectionKind | None = None
    """The correction in effect; `restore` takes it back."""
    redacted: tuple[str, ...] = ()
    """Paths of the fields that were redacted: their values now are the replacement."""
    locked_until: int | None = None
    """Microseconds UTC until which agents may not change it: a person's edit."""
    valid_from: int | None = None
    """Microseconds UTC; None means since ever."""
    valid_until: int | None = None
    """Microseconds UTC, exclusive; None means still."""
    freshness_ts: int | None = None
    """Microseconds UTC of the last time at which it was known to be true."""
    expires_at: int | None = None
    """Microseconds UTC after which it leaves recall."""
    access_count: int = 0
    last_accessed: int | None = None
    update_count: int = 0
    updated_by: str | None = None
    extraction_status: ExtractionStatus = "none"
    transform_version: str | None = None
    tags: tuple[str, ...] = ()
    attributes: JsonObject = {}
    embedding_model: str | None = None
    extraction_model: str | None = None
    prompt_version: str | None = None
    conversation: str | None = None
    position: int | None = None
    """Place in the conversation, counted from 0."""
    occurred_at: int | None = None
    """Microseconds UTC when it was said or happened."""
    created_at: int
    updated_at: int
    created_by: str


class Edge(Persisted):
    """A typed link between two memories."""

    id: str
    scope: Scope
    kind: EdgeKind
    from_id: str
    to_id: str
    confidence: int = Field(default=100, ge=0, le=100)
    """Percent."""
    reason: str | None = None
    evidence: tuple[str, ...] = ()
    """Source ids."""
    valid_from: int | None = None
    valid_until: int | None = None
    created_at: int


class NewMemory(Record):
    """The arguments of `remember` as a value: for `remember_many` and for adapters."""

    content: str
    kind: str = "note"
    subject: str | None = None
    speaker: str | None = None
    category: str | None = None
    occurred_at: Micros | None = None
    """Microseconds UTC."""
    conversation: str | None = None
    position: int | None = Field(default=None, ge=0, le=2**53 - 1)
    source: SourceRef | None = None
    tags: tuple[Words, ...] = ()
    attributes: JsonObject = {}
    importance: int = Field(default=50, ge=0, le=100)
    confidence: int = Field(default=100, ge=0, le=100)
    pinned: bool = False
    valid_from: Micros | None = None
    valid_until: Micros | None = None
    expires_at: Micros | None = None
    derived_from: tuple[str, ...] = ()
    """Memories of readable scopes from which this one was concluded."""
    source_run_id: str | None = None
    source_step_ids: tuple[str, ...] = ()
    idempotency_key: str | None = None


class Remembered(Record):
    """The result of one `remember`."""

    memory_id: str
    """Empty when it was skipped, as is `source_id`."""
    status: Literal["created", "duplicate", "skipped"]
    """`duplicate`: an active memory says the same already; its new occurrence was kept as a source.
    `skipped`: all of it was recalled from here, so that there was nothing to remember."""
    source_id: str
    version: int = 1
    job_id: str | None = None
    """Follow-up work, such as a remote embedding; None when everything is done."""
    warnings: tuple[str, ...] = ()


class Change(Record):
    """The result of one `modify`, `forget`, `recover` or `correct`."""

    memory_id: str
    event: Literal["UPDATE", "FORGET", "RECOVER", "CORRECT"]
    status: Literal["changed", "unchanged"]
    version: int
    state: MemoryState
    audit_id: str | None = None
    """The journal event of this change; None when nothing changed."""


class Forgotten(Change):
    """The result of a `forget`; until `recoverable_until` the memory can be recovered."""

    recoverable_until: int | None = None


class Changed(Record):
    """The result of one item of `modify_many`: a change, or the error that prevented it."""

    memory_id: str
    change: Change | None = None
    error: str | None = None
    """Name of the error, such as `VersionConflict`; the item then changed nothing."""
    message: str | None = None
    expected: int | None = None
    """Both versions of a VersionConflict."""
    actual: int | None = None


class ForgetMatch(Record):
    """One memory that `forget_matching` found, at the version that was previewed."""

    memory_id: str
    version: int
    score: float | None
    """As recall scores it against the query; None without a query."""
    action: Literal["forget", "keep_pinned", "keep_locked"]
    """Pinned ones are kept, and from an agent also those with a pinned copy, or that a person's
    edit locks.
    """


class Forgetting(Record):
    """The preview or the result of `forget_matching`."""

    mode: Literal["preview", "apply"]
    matches: tuple[ForgetMatch, ...]
    """Best first; without a query newest first."""
    complete: bool
    """False when `limit` cut the matches off."""
    confirm_token: str | None = None
    """Permits forgetting exactly these ids at these versions; None if nothing would be
    forgotten.
    """
    expires_at: int | None = None
    """Microseconds UTC from which on the token is refused."""
    results: tuple[Forgotten, ...] = ()


class Hit(Record):
    """One recalled memory, with every reason for its place."""

    memory: Memory
    score: float
    signals: dict[str, float] = {}
    """Each signal that ranked it, by name, before weighting."""
    sources: tuple[SourceRef, ...] = ()
    source_ids: tuple[str, ...] = ()
    visible_to: Scope
    reason: str
    """The reason why this actor may see it: a policy reason code."""
    path: str = "exact"
    """The search for its vector: `exact`, `chroma` or `none`."""
    fresh: bool = True
    """False if the memory is superseded or out of its validity, or ranked below a memory it was
    derived from.
    """
    history: bool = False
    """True for a memory of the past: superseded, or out of its validity at the requested moment."""
    replaced_by: str | None = None
    """The memory that replaces it."""
    duplicates: tuple[str, ...] = ()
    """Memories that say the same and are collapsed into this one."""


class HistoryEntry(Record):
    """One event in the life of a memory, oldest first."""

    sequence: int
    event: Literal[
        "ADD", "SEEN", "UPDATE", "FORGET", "RECOVER", "CORRECT", "PROMOTE", "SHARE", "ERASE"
    ]
    correction: CorrectionKind | None = None
    """The kind of correction, for a CORRECT."""
    at: int
    actor: JsonObject
    surface: str
    reason: str | None = None
    version: int
    old: JsonObject = {}
    """Changed fields as they were, where the text still exists."""
    new: JsonObject = {}
    withheld: tuple[str, ...] = ()
    """Changed fields whose values are not shown: the memory is forgotten, hidden or redacted there.
    """
    erased_at: int | None = None
    """Microseconds UTC when the text of this version was erased."""
    correlation_id: str | None = None
    request_id: str | None = None
    session_id: str | None = None
    audit_id: str
