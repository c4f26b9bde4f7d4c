"""Memories, their kinds and their sources: Memory, Source, and what remembering and recalling
return.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import tzinfo
from typing import Annotated, Literal, Self, get_args

from pydantic import (
    AliasChoices,
    Field,
    WithJsonSchema,
)

from tallystick.records._base import Json, JsonObject, Labels, Persisted, Record, Texts, tuple_of
from tallystick.records.escaping import cut
from tallystick.records.identity import Scope, ScopeKind
from tallystick.records.kinds import Attributes, attributes_with_moments
from tallystick.records.learning import AppliedChange, DecisionAction, HeldChange
from tallystick.records.times import (
    MomentField,
    OccasionField,
    datetime_of,
    microseconds,
    optional_datetime_of,
)
from tallystick.records.wire import Wire

SourceType = Literal[
    "user",
    "app_state",
    "memory",
    "retrieval",
    "tool",
    "file",
    "mcp_resource",
    "policy",
    "human_approval",
    "external_api",
    "other",
]
PrivacyClass = Literal["public", "internal", "restricted", "secret"]
SourceState = Literal["active", "hidden", "redacted", "deleted", "erased"]


class SourceRef(Record):
    """The origin of something, as the caller states it."""

    source_type: SourceType = "other"
    uri: str | None = None
    title: str | None = None
    version: str | None = None
    checksum: str | None = None
    retrieval_query: str | None = None
    positions: tuple[tuple[int, int], ...] = ()
    """Character ranges [start, end) inside the source."""
    author: str | None = None
    metadata: JsonObject = {}


class Source(Persisted):
    """Raw material exactly as it arrived; immutable, the root of trust."""

    id: str
    organization: str | None = None
    scope: Scope
    source_type: SourceType = "user"
    uri: str | None = None
    """Its address outside of the tally, or None if `id` is its only identity."""
    title: str | None = None
    source_version: str | None = None
    content_hash: str
    """Keyed digest of the bytes within the scope; equal bytes of one scope are stored once."""
    metadata: JsonObject = {}
    privacy_class: PrivacyClass = "internal"
    created_by: str
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    occurred_at: int | None = None
    """The time at which it was said or happened, microseconds UTC, if known."""
    occurred_time = optional_datetime_of("occurred_at")
    lifecycle_state: SourceState = "active"


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
Holds = Literal["current", "history", "redacted", "origin_gone", "stale"]
"""Whether a memory holds: now; only once; without its text; of a conclusion that a person
accepted, while all that it was concluded from is gone; or, of an artifact, while what it cites has
changed since.
"""
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

States = Annotated[Sequence[MemoryState], tuple_of(MemoryState)]
"""States of memories."""
_WITH_KEY = "|".join(kind for kind in get_args(ScopeKind) if kind != "public")
_SCOPE_TEXT = rf"^([^:]*/)?(public|({_WITH_KEY}):[\s\S]+)$"
ScopeText = Annotated[str, WithJsonSchema({"type": "string", "pattern": _SCOPE_TEXT})]
"""The text of a scope, as a schema describes it."""
ScopeName = Annotated[str | Scope, Wire(ScopeText)]
"""A scope, or its text."""
Scopes = Annotated[Sequence[str | Scope], tuple_of(ScopeName)]
"""Scopes, or their texts."""


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
    speaker: str | None = Field(default=None, validation_alias=AliasChoices("speaker", "who"))
    """Who said it. Stored as `who`."""
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
    corrected: CorrectionKind | Literal["origin_gone"] | None = None
    """The correction in effect; `restore` takes it back. `origin_gone` is that of a conclusion of
    which every origin left recall, until one is back.
    """
    redacted: tuple[str, ...] = ()
    """Paths of the fields that were redacted: their values now are the replacement."""
    locked_until: int | None = None
    """Microseconds UTC until which agents may not change it: a person's edit."""
    locked_until_time = optional_datetime_of("locked_until")
    valid_from: int | None = None
    """Microseconds UTC; None means since ever."""
    valid_from_time = optional_datetime_of("valid_from")
    valid_until: int | None = None
    """Microseconds UTC, exclusive; None means still."""
    valid_until_time = optional_datetime_of("valid_until")
    freshness_ts: int | None = None
    """Microseconds UTC of the last time at which it was known to be true."""
    freshness_time = optional_datetime_of("freshness_ts")
    expires_at: int | None = None
    """Microseconds UTC after which it leaves recall."""
    expires_time = optional_datetime_of("expires_at")
    access_count: int = 0
    last_accessed: int | None = None
    last_accessed_time = optional_datetime_of("last_accessed")
    update_count: int = 0
    updated_by: str | None = None
    extraction_status: ExtractionStatus = "none"
    transform_version: str | None = None
    """The version of the extension that made it, where one did."""
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
    occurred_time = optional_datetime_of("occurred_at")
    created_at: int
    created_time = datetime_of("created_at")
    updated_at: int
    updated_time = datetime_of("updated_at")
    created_by: str

    def __repr__(self) -> str:
        state = "" if self.state == "active" else f", state={self.state!r}"
        return f"Memory({cut(self.content)!r}, kind={self.kind!r}{state}, id={self.id!r})"


class NewMemory(Record):
    """The arguments of `remember` as a value: for `remember_many` and for adapters."""

    content: str
    kind: str = "note"
    subject: str | None = None
    speaker: str | None = None
    category: str | None = None
    occurred_at: MomentField | None = None
    """When it was said or happened. A moment without an offset is one of the tally's time zone."""
    conversation: str | None = None
    position: int | None = Field(default=None, ge=0, le=2**53 - 1)
    source: SourceRef | None = None
    tags: Labels = ()
    attributes: Attributes = {}
    importance: int = Field(default=50, ge=0, le=100)
    confidence: int = Field(default=100, ge=0, le=100)
    pinned: bool = False
    valid_from: MomentField | None = None
    valid_until: OccasionField | None = None
    expires_at: OccasionField | None = None
    """A moment, or a timedelta from when it is remembered; so is `valid_until`."""
    derived_from: Texts = ()
    """Memories of readable scopes from which this one was concluded."""
    related_to: Texts = ()
    """Memories of readable scopes that this one points to."""
    depends_on: Texts = ()
    """Memories of readable scopes that must be done, or hold, before this one."""
    contradicts: Texts = ()
    """Memories of readable scopes that this one contradicts; both stay as they are."""
    replaces: str | None = None
    """A memory of the scope that this one replaces: that is checked as what a model learns is, and
    applied or held as the setting `learning` says.
    """
    span: str | None = None
    """The user's words of the conversation that say so, letter by letter; with `replaces`."""
    entities: Texts = ()
    """Names of people, places and things in it, for the graph; kept as an attribute."""
    source_run_id: str | None = None
    source_step_ids: Texts = ()
    idempotency_key: str | None = None

    def at(self, now: int, zone: tzinfo) -> Self:
        """Return it with every moment in microseconds UTC, as remembered at `now` in `zone`.

        Raises InvalidInput for an integer that can only be of another unit.
        """
        moments = {
            name: microseconds(moment, zone, name=name, now=now)
            for name in _MOMENTS
            if (moment := getattr(self, name)) is not None
        }
        if "due_at" in self.attributes:
            attributes = attributes_with_moments(self.kind, self.attributes, zone=zone, now=now)
            return self.model_copy(update={**moments, "attributes": attributes})
        return self.model_copy(update=moments) if moments else self


_MOMENTS = ("occurred_at", "valid_from", "valid_until", "expires_at")


SecretsInMemory = Literal["redact", "refuse", "keep"]
"""What is done with a secret in a text that is to be stored."""
Processing = Literal["processed", "queued", "raw_saved"]
"""How far what was remembered has been worked on."""


class Remembered(Record):
    """The result of one `remember`."""

    id: str
    """Empty when it was skipped, as is `source_id`."""
    status: Literal["created", "duplicate", "skipped"]
    """`duplicate`: an active memory says the same already; its new occurrence was kept as a source.
    `skipped`: all of it was recalled from here, so that there was nothing to remember."""
    source_id: str
    version: int = 1
    processing: Processing = "raw_saved"
    """`raw_saved`: the text is stored as it is, and nothing is drawn from it. `queued`: the job
    `job_id` will. `processed`: that is done. The text is recallable in every case.
    """
    job_id: str | None = None
    """Follow-up work: what is drawn from the text, or else a remote embedding; None for none."""
    change: Literal["applied", "held", "shadow"] | None = None
    """What became of `replaces`: it passed the checks and was applied; it waits for a person and is
    shown beside the memory; or it is only shown, because `learning` is `shadow`.
    """
    proposal_id: str | None = None
    """The proposal of that change, among the reviews."""
    decision: DecisionAction | None = None
    """What became of it: it was added, also beside one that it contradicts; it replaces or ends
    one, as `change` says; or nothing, because a memory says it already. None in answers that were
    kept before there were decisions.
    """
    warnings: tuple[str, ...] = ()


class Change(Record):
    """The result of one `modify`, `forget`, `recover` or `correct`."""

    id: str
    event: Literal["UPDATE", "FORGET", "RECOVER", "CORRECT"]
    status: Literal["changed", "unchanged"]
    version: int
    state: MemoryState
    audit_id: str | None = None
    """The journal event of this change; None when nothing changed."""
    warnings: tuple[str, ...] = ()


Lifetime = Literal["run", "thread"]
"""How long a value of working memory lives: with its run, or from turn to turn of a thread."""


class WorkingValue(Record):
    """A value of working memory."""

    name: str
    value: Json
    lifetime: Lifetime
    updated_at: int
    """Microseconds UTC."""
    updated_time = datetime_of("updated_at")
    expires_at: int
    """Microseconds UTC."""
    expires_time = datetime_of("expires_at")


class Forgotten(Change):
    """The result of a `forget`; until `recoverable_until` the memory can be recovered."""

    recoverable_until: int | None = None
    recoverable_until_time = optional_datetime_of("recoverable_until")
    derived: tuple[str, ...] = ()
    """What was concluded from it, as far as the actor may see it. What rests on nothing else has
    left recall with it, unless a person accepted, edited or pinned it.
    """


class Changed(Record):
    """The result of one item of `modify_many`: a change, or the error that prevented it."""

    id: str
    change: Change | None = None
    error: str | None = None
    """Name of the error, such as `VersionConflict`; the item then changed nothing."""
    message: str | None = None
    expected: int | None = None
    """Both versions of a VersionConflict."""
    actual: int | None = None


class ForgetMatch(Record):
    """One memory that `forget_matching` found, at the version that was previewed."""

    id: str
    version: int
    score: float | None
    """As recall scores it against the query, 1 for the best; None without a query."""
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
    expires_time = optional_datetime_of("expires_at")
    results: tuple[Forgotten, ...] = ()


ChosenAs = Literal[
    "pinned", "learned", "constraint", "preference", "fact", "statement", "match", "later"
]
"""Why a piece is in a working set: it is pinned, was learned in place of another since the session
before, is of such a kind, tells most of what was said, answers the request, or speaks later of what
another piece does.
"""


class Hit(Record):
    """One recalled memory, with every reason for its place."""

    memory: Memory
    score: float
    """How likely it is that it answers, between 0 and 1, on one scale for all questions: of the
    best hit the confidence of the recall, of the others their part of it.
    """
    signals: dict[str, float] = {}
    """Each signal that ranked it, by name, before weighting."""
    sources: tuple[SourceRef, ...] = ()
    source_ids: tuple[str, ...] = ()
    visible_to: Scope
    access_reason: str
    """The reason why this actor may see it: a policy reason code."""
    path: str = "exact"
    """The search by vectors, as that of the whole answer: `exact`, `chroma`, `none`, or several."""
    fresh: bool = True
    """False if it does not hold: superseded, out of its validity, without its text, or concluded
    from what is gone.
    """
    history: bool = False
    """True for a memory of the past: superseded, or out of its validity at the requested moment."""
    replaced_by: str | None = None
    """The memory that replaces it."""
    duplicates: tuple[str, ...] = ()
    """Memories that say the same and are collapsed into this one."""
    contradicted_by: tuple[str, ...] = ()
    """Memories that contradict it and that the actor may read, the one to believe first."""
    held: tuple[HeldChange, ...] = ()
    """Changes of it that wait for a person, newest first."""
    learned: AppliedChange | None = None
    """What learning changed by it since the session before, in the first session after."""
    passage: tuple[int, int] | None = None
    """The slice of a long text that answers, as the characters from and up to which it goes; None
    for a text that is searched whole.
    """

    def __repr__(self) -> str:
        return f"Hit({cut(self.content)!r}, score={self.score:.2f}, id={self.memory.id!r})"

    @property
    def content(self) -> str:
        """The text of the memory."""
        return self.memory.content

    @property
    def why(self) -> str:
        """Why it was found, in words: the signals that speak for it."""
        reasons = reasons_of(self.signals)
        if self.history:
            reasons.append(
                "it held once" if self.replaced_by is None else "it was replaced by what holds now"
            )
        if self.memory.corrected == "origin_gone":
            reasons.append("what it was concluded from is gone")
        return "; ".join(reasons) or "nothing speaks for it: it is the nearest there is"


class Piece(Record):
    """One memory of a working set."""

    hit: Hit
    """The memory as it is now."""
    chosen_as: ChosenAs
    profile: bool
    """True for what stands in the stable prefix from the first turn of the session on."""
    new: bool = False
    """True if the turn added it."""


class WorkingSet(Record):
    """What memory shows in a session: the profile, then what the turns added, in their order."""

    pieces: tuple[Piece, ...] = ()
    replaced: tuple[str, ...] = ()
    """Ids of the memories whose text changed since the last turn, or that others replaced."""
    withdrawn: tuple[str, ...] = ()
    """Ids of the memories that left since the last turn."""
    asked_again: bool = False
    """True if the turn was asked before: nothing was searched for it."""
    warnings: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Piece]:  # type: ignore[override] # of a record its pieces
        return iter(self.pieces)


_WHY = {
    "text": (0.0, "it shares words with the question"),
    "vector": (0.3, "it is close in meaning"),
    "words": (0.5, "it has words of similar meaning"),
    "neighbours": (0.0, "it is next to a match"),
    "session": (0.0, "its conversation is about this"),
    "date": (0.0, "it is of a date that the question names"),
    "speaker": (0.0, "it was said by somebody whom the question names"),
    "source": (0.0, "it comes from a source that the question names"),
    "task": (0.0, "it was written in this run"),
    "project": (0.0, "it belongs to this project"),
    "filters": (0.0, "it passes the filters, and nothing was asked"),
}
"""For each signal the value above which it is told, and its words."""


def reasons_of(signals: Mapping[str, float]) -> list[str]:
    """Return in words the signals that speak for a hit."""
    return [words for name, (least, words) in _WHY.items() if signals.get(name, 0.0) > least]


class HistoryEntry(Record):
    """One event in the life of a memory, oldest first."""

    sequence: int
    event: Literal[
        "ADD",
        "SEEN",
        "UPDATE",
        "FORGET",
        "RECOVER",
        "CORRECT",
        "PROMOTE",
        "SHARE",
        "ERASE",
        "NONE",
        "LINK",
        "UNLINK",
    ]
    """`NONE`: a fact of it needed no memory."""
    correction: CorrectionKind | Literal["origin_gone"] | None = None
    """The kind of correction, for a CORRECT."""
    at: int
    time = datetime_of("at")
    actor: JsonObject
    surface: str
    reason: str | None = None
    version: int
    decision: DecisionAction | None = None
    """What a learner wanted, where the event came of learning; the fields below say which."""
    provider: str | None = None
    model: str | None = None
    prompt_version: str | None = None
    confidence: int | None = None
    """Percent."""
    old: JsonObject = {}
    """Changed fields as they were, where the text still exists."""
    new: JsonObject = {}
    withheld: tuple[str, ...] = ()
    """Changed fields whose values are not shown: the memory is forgotten, hidden or redacted there.
    """
    erased_at: int | None = None
    """Microseconds UTC when the text of this version was erased."""
    erased_time = optional_datetime_of("erased_at")
    correlation_id: str | None = None
    request_id: str | None = None
    session_id: str | None = None
    audit_id: str
