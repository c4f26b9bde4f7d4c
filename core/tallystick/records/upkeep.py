"""Results of upkeep: Proof, Searched, Erasure, Purge, Reembedding, Transfer, Backup, Migration,
Finding, Sizes.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from tallystick.records._base import JsonObject, Record, tuple_of
from tallystick.records.identity import Scope
from tallystick.records.model_calls import ModelCost
from tallystick.records.times import datetime_of, optional_datetime_of


class Searched(Record):
    """The result of the search for a text's bytes while the text was still known: at its
    erasure.
    """

    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    holds: bool
    """True if it found them nowhere."""
    problems: int = 0
    """The number of places in which it found them."""
    checked: tuple[str, ...]
    audit_id: str


class Proof(Record):
    """The proof that a memory is gone: the checks, their problems, and the limits of the proof."""

    id: str
    claim: Literal["unreachable", "erased"]
    holds: bool
    checked: tuple[str, ...]
    copies: tuple[str, ...] = ()
    """Copies that are kept on purpose, such as the versions from which it can be recovered."""
    problems: tuple[str, ...] = ()
    """Facts that contradict the claim."""
    cannot_prove: tuple[str, ...] = ()
    searched: Searched | None = None
    """The last search for the text's bytes, where this proof was given no text to search for."""
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    audit_id: str | None = None


class Erasure(Record):
    """The copies that erasing destroys or would destroy."""

    mode: Literal["preview", "apply"]
    memory_ids: tuple[str, ...]
    """The memories that were named, and the shared copies that go with them."""
    derived: tuple[str, ...] = ()
    """Memories that were concluded from these, or promoted: they are destroyed with them."""
    versions: int
    sources: tuple[str, ...]
    """Sources whose text is erased; those that another memory needs stay."""
    payloads: tuple[str, ...] = ()
    """Recorded steps whose payloads are erased; their receipts stay and say so."""
    threads: tuple[str, ...] = ()
    """Threads of checkpoints that contain the text, or whose id does: they are deleted, because
    live state cannot be cut.
    """
    working: int = 0
    """Values of working memory that contain the text, or whose name or run does."""
    runs: tuple[str, ...] = ()
    """Recorded runs whose names, goal or metadata contain the text: all of these are erased."""
    steps: tuple[str, ...] = ()
    """Recorded steps that have ended and whose name, metadata or summaries contain the text: all of
    these are erased.
    """
    approvals: tuple[str, ...] = ()
    """Approvals whose arguments contain the text: the arguments are erased, and what still waited
    expires.
    """
    proposals: tuple[str, ...] = ()
    """Proposals that contain the text or were drawn from a memory that is erased: their words are
    erased, and those that still waited are withdrawn.
    """
    journal: int = 0
    """Entries of journals that are about the memories, or of which what people wrote contains the
    text: reasons and ids of requests beside them are erased, and the chains go on to verify.
    """
    in_chain: tuple[str, ...] = ()
    """Entries of journals, as `stream#position`, that contain the text, as in an id that somebody
    chose: it stays there, because a chain cannot be changed.
    """
    elsewhere: tuple[str, ...] = ()
    """Memories that stay and contain the text: erase them too where that is meant."""
    cannot_prove: tuple[str, ...] = ()
    confirm_token: str | None = None
    expires_at: int | None = None
    """Microseconds UTC from which on the token is refused."""
    expires_time = optional_datetime_of("expires_at")
    proofs: tuple[Proof, ...] = ()
    audit_ids: tuple[str, ...] = ()


class ErasedUser(Record):
    """What erasing a user destroys or would destroy, by kind."""

    mode: Literal["preview", "apply"]
    user: str
    organization: str | None = None
    shared: Literal["destroy", "hand_over"]
    """What becomes of the memories that the user wrote in shared scopes."""
    counts: dict[str, int]
    """The things that go, or are handed over, by kind; kinds without any are left out."""
    payloads: tuple[str, ...] = ()
    """Steps of others that recorded one of the memories: their payloads are erased."""
    threads: tuple[str, ...] = ()
    """The threads of checkpoints that are deleted: by name in a preview, by number afterwards."""
    stays: tuple[str, ...] = ()
    """What no erasure of a user removes."""
    confirm_token: str | None = None
    expires_at: int | None = None
    """Microseconds UTC from which on the token is refused."""
    expires_time = optional_datetime_of("expires_at")
    proof: Proof | None = None
    audit_id: str | None = None


class Purge(Record):
    """The data that retention removes or would remove. Nothing within its window is among it."""

    mode: Literal["preview", "apply"]
    expired: int
    """Memories whose time has run out: they are forgotten, and recoverable for their window."""
    tombstones: int
    """Forgotten memories whose window has passed: their text, links and rows go."""
    derived: int = 0
    """Memories that were concluded from those: they go with them."""
    proposals: int = 0
    """Proposals that were drawn from either or are about them: their words go, and those that
    waited are withdrawn.
    """
    journal: int
    """Entries of journals older than the window that was chosen; 0 until one is."""
    streams: tuple[str, ...] = ()
    """The journals of scopes and threads that they come from; each keeps an anchor (count, head).
    """
    runs: tuple[str, ...] = ()
    """Recorded runs that ended before that window: steps and payloads go with their journals, an
    anchor stays.
    """
    reads: int = 0
    """Lines of the access log, which have the same window."""
    approvals: int = 0
    """Approvals that were over, which have the same window."""
    jobs: int
    answers: int = 0
    """First answers under idempotency keys: a call under one of them is done anew."""
    working: int
    journal_window_chosen: bool = False
    """True if somebody chose how long the journal is kept."""
    journal_window_days: int | None = None
    """None: no window was chosen, or to keep the journal for ever."""
    tombstones_window_chosen: bool = False
    """True if somebody chose after how long the text of forgotten memories goes by itself."""
    tombstones_window_days: int | None = None
    """None: it goes only when it is purged."""


class Finding(Record):
    """The finding of one check of the doctor."""

    check: str
    status: Literal["ok", "notice", "problem", "repaired"]
    text: str


class SpaceUse(Record):
    """The bytes of one kind of what a tally contains."""

    kind: str
    size: int
    """Bytes, with the indexes."""


class Sizes(Record):
    """Where the bytes of a tally are."""

    uses: tuple[SpaceUse, ...]
    """Largest first."""
    total: int
    """Bytes of the database and, of an embedded tally, of its folder."""
    text: int
    """Bytes of what arrived to be remembered."""


class RebuiltIndex(Record):
    """The index that was made anew from the database."""

    chroma: int
    """Vectors that Chroma has, of the scopes that the setting `vector_search` gives it."""


class Reembedding(Record):
    """What it takes to embed every text by an embedder, and how far that is."""

    mode: Literal["preview", "apply"]
    embedder: str
    """Who makes the vectors."""
    dimension: int
    local: bool
    """True if no text leaves this machine for it."""
    reads_by: str | None
    """The embedder by whose vectors this tally recalls meanwhile, besides words and structure; None
    where it is away.
    """
    is_own: bool
    """True if that is the same one: then each text is found by its words until it has a vector."""
    texts: int
    """Memories that have no vector of this embedder, when it was asked."""
    stays: int = 0
    """Memories that stay on this machine, and are found by their words: they are none of these."""
    tokens: int | None = None
    """Of these texts, in a preview; an estimate where the embedder's tokenizer is not here."""
    cost: ModelCost | None = None
    """What they cost, in a preview; None where nothing is paid for, as the embedder is local."""
    embedded: int = 0
    """Memories whose vectors were made."""
    refused: int = 0
    """Memories whose text the embedder did not take: they are found by their words."""
    left: int = 0
    """Memories that still have none, as it was paused or cut off: the same call goes on there."""
    problem: str | None = None
    """Why it was cut off."""


class Transfer(Record):
    """The contents of an export or import, or of an export that is previewed."""

    mode: Literal["preview", "apply"] = "apply"
    format: int
    digest: str = ""
    """Digest of the manifest, which lists every line and blob; empty in a preview."""
    scopes: tuple[str, ...]
    memories: int
    states: dict[str, int] = {}
    """Memories by state."""
    sources: int
    runs: int = 0
    threads: int = 0
    """Threads of checkpoints."""
    entries: int
    """Journal entries. An export adds one for each scope."""
    blobs: int
    """Long binary values, each stored once."""
    bytes: int
    """Of the blobs."""
    warnings: tuple[str, ...] = ()
    """Of an import: the secrets that were replaced."""


class Backup(Record):
    """A backup that was written, or one that was restored."""

    mode: Literal["backup", "restore"]
    digest: str
    """Digest of the manifest, which has that of every file."""
    version: str
    """The release that wrote it."""
    schema_revision: str
    """The schema of its rows."""
    database: Literal["sqlite", "postgresql"]
    at: int
    """When it was written, microseconds UTC."""
    time = datetime_of("at")
    tables: int
    rows: int
    """Of all tables; the manifest has those of each."""
    chains: int
    """Hash chains of the journal."""
    bytes: int
    """Of all its files."""
    took_ms: int
    checked: tuple[str, ...]
    """What was found to hold."""
    left_out: tuple[str, ...] = ()
    """What belongs to the tally and is not in the backup, and why."""


class MigrationStep(Record):
    """One migration of the schema."""

    schema_revision: str
    text: str
    """What it changes."""


class Migration(Record):
    """What bringing a tally to this release's schema changes, would change or changed."""

    mode: Literal["plan", "dry_run", "apply"]
    before: str
    """The schema that the tally has, or had."""
    after: str
    """The schema of this release."""
    steps: tuple[MigrationStep, ...] = ()
    """In the order in which they run; none where the tally has this schema already."""
    checked: tuple[str, ...] = ()
    """What was found to hold afterwards."""
    backup: Backup | None = None
    """The backup that was written before anything was changed."""
    took_ms: int = 0


JobState = Literal["pending", "leased", "retry_scheduled", "done", "empty", "failed", "dead"]
"""The state of a job. `empty`: there was nothing to do. `failed`: what it needs answered unusably,
after all attempts. `dead`: it was refused for good, cancelled, or its attempts are used up.
"""
JOB_STATES: tuple[JobState, ...] = (
    "pending",
    "leased",
    "retry_scheduled",
    "done",
    "empty",
    "failed",
    "dead",
)
"""All states, in the order in which a job goes through them."""


JobStates = Annotated[Sequence[JobState], tuple_of(JobState)]
"""States of jobs."""


class JobEvent(Record):
    """One change of a job's state."""

    at: int
    """Microseconds UTC, by the clock of the database."""
    time = datetime_of("at")
    state: JobState
    worker: str | None = None
    """Who leased it."""
    code: str | None = None
    """The reason: an error code, `requeued`, `cancelled`, `lease_expired`."""


class Job(Record):
    """A piece of follow-up work, committed with what makes it necessary."""

    id: str
    kind: str
    """Such as `embed`."""
    state: JobState
    scope: Scope | None = None
    """None where it concerns the whole tally."""
    subject_id: str
    """The id of the record that it is about."""
    version: int = 0
    """The version of that record for which it was made; 0: whichever there is."""
    priority: int = 100
    """A lower one is leased first, within a scope."""
    attempts: int = 0
    """Attempts that count: those that ended in an unusable answer or with the worker's death."""
    max_attempts: int = 5
    waits: int = 0
    """Attempts that do not count: what it needs was away."""
    leases: int = 0
    """How often it was leased."""
    progress: int = 0
    """Finished parts, of `total` where that is known."""
    total: int | None = None
    cost: JsonObject = {}
    """Whole numbers by name, such as calls and tokens."""
    result: JsonObject | None = None
    error_code: str | None = None
    error_text: str | None = None
    leased_by: str | None = None
    due_at: int | None = None
    """Microseconds UTC from which on it may be leased, or at which its lease ends; None once it
    ended.
    """
    due_time = optional_datetime_of("due_at")
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    updated_at: int
    updated_time = datetime_of("updated_at")
    user: str | None = None
    """The user under whose authority it runs; None where the stored actor is not readable."""
    trail: tuple[JobEvent, ...] = ()
    """The changes of its state, oldest first; of many alike the first ones."""

    @property
    def is_over(self) -> bool:
        """True if it ended: it is leased no more, unless it is requeued."""
        return self.state in ("done", "empty", "failed", "dead")
