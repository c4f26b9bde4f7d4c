"""Contract: what the author of a source writes.

An adapter reads: it says which corpus a target names, and yields its records in an order that is
the same each time, with a checkpoint from which it can go on. Scopes, rights, the journal, jobs and
what is stored are of the service that calls it; an adapter is told none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from tallystick.errors import AuthorizationNeeded as AuthorizationNeeded
from tallystick.errors import NotOfFormat as NotOfFormat
from tallystick.errors import RateLimitReached as RateLimitReached
from tallystick.formats import TextReason

CHECKPOINT_RECORDS = 100
"""Records between two checkpoints, at most."""
CHECKPOINT_BYTES = 16_000_000
"""Bytes of bodies and attachments between two checkpoints, at most, but for a single record."""
LARGEST_ATTACHMENT = 25_000_000
"""Bytes of an attachment that is kept; of a larger one its name, type, size and digest are."""

PrivacyClass = Literal["personal", "internal", "public"]
"""Whom the records of a source concern before anybody shares them: one person, a group, anybody."""
SkipReason = Literal[
    TextReason,
    "outside",
    "ignored",
    "refused_by_robots",
    "private_address",
    "not_found",
    "missing_extra",
]
"""Why a record was left out: it stands in the counters of an import and in its list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """What a target names: a mailbox, a folder, a ref of a repository, a drive, a site."""

    id: str
    """The same for the same corpus, wherever and as often as it is read."""
    version: str | None = None
    """A token that changes with any change of the corpus, where the source has one."""
    title: str = ""
    """Its name for people."""
    lists_all: bool = True
    """Whether records from no checkpoint on are all that there are, so that what is not among them
    has vanished. A feed of changes says `Removed` instead.
    """
    size: int | None = None
    """Records in it, where that is known before they are read; where only their bytes are, the
    checkpoints say which share was read.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file that belongs to a record."""

    name: str
    media_type: str
    size: int
    """Bytes."""
    sha256: str
    """Hexadecimal digest of its bytes, those too that are not carried."""
    content: bytes | None = None
    """Its bytes, to LARGEST_ATTACHMENT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRecord:
    """One message, file, page or document, as it arrived."""

    record_id: str
    """Its name within the corpus: a path, a message id, an address."""
    version: str
    """Changes when the record does: an ETag, a revision, a digest."""
    dedupe_key: str
    """Equal for the same content under another name, such as a digest of the bytes."""
    body: str | bytes
    """The text, or the bytes of a media type that the service reads into text."""
    media_type: str = "text/plain"
    title: str = ""
    url: str | None = None
    """Where a person finds it."""
    parent_url: str | None = None
    """What led to it."""
    occurred_at: int | None = None
    """Microseconds UTC: sent, changed or published."""
    participants: tuple[str, ...] = ()
    """Who wrote and received it, the writer first."""
    thread: str | None = None
    """The exchange that it belongs to, such as a message's thread."""
    labels: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """By `metadata_schema` of the adapter."""
    attachments: tuple[Attachment, ...] = ()
    transforms: tuple[str, ...] = ()
    """What the adapter did to the body, as name/version: it is as it arrived without any."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that cannot be taken. It never ends an import."""

    record_id: str
    reason: SkipReason
    detail: str = ""
    """What was found, for a person."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A record that has the version which is stored: it was not read."""

    record_id: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A record that a feed of changes says is gone. The service shows it before it goes."""

    record_id: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place from which `records` goes on: all that was yielded before it is taken."""

    cursor: str
    share: float | None = None
    """How much of the corpus lies before it, from 0 to 1, where that can be told: from it follows
    how long the rest takes.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Something of an account that can be a target: a drive, a folder, a repository."""

    target: str
    title: str
    media_type: str | None = None


Yielded = SourceRecord | Skipped | Unchanged | Removed | Checkpoint
Known = Callable[[str], str | None]
"""The stored version of a record by its id, None for a new one: for requests with a condition."""


class SourceAdapter(Protocol):
    """Reads one kind of source. It is deterministic: the same corpus gives the same records in the
    same order, and a checkpoint gives what comes after it.
    """

    name: str
    version: str
    """Of the adapter: it changes when the same source would give other records."""
    privacy_class: PrivacyClass
    metadata_schema: Mapping[str, Any]
    """JSON Schema of `metadata`. An adapter whose constructor takes options, by their names, has
    their schema as `options_schema`; `localOnly` marks one that callers from outside may not give.
    """

    def corpus(self, target: str) -> Corpus:
        """Return what a target names. Raises NotOfFormat for what is none of its kind,
        AuthorizationNeeded, RateLimitReached.
        """
        ...

    def records(self, target: str, checkpoint: str | None, known: Known) -> Iterator[Yielded]:
        """Yield what comes after a checkpoint, or all; a Checkpoint after at most
        CHECKPOINT_RECORDS records or CHECKPOINT_BYTES, and one at the end.

        Any other error than those of this module is a failure of the source: it is tried again
        from the last checkpoint, later each time.
        """
        ...


@runtime_checkable
class Connector(Protocol):
    """What an adapter of an account has beside `SourceAdapter`."""

    def authorize(self) -> None:
        """Prove that the credential still opens the source. Raises AuthorizationNeeded."""
        ...

    def list_resources(self) -> Iterable[Resource]:
        """Yield what the credential opens."""
        ...

    def replay(self, target: str, record_id: str, from_version: str | None) -> Iterator[Yielded]:
        """Yield one record again as it is now, from a version on where the source keeps several.
        Doing so twice changes nothing.
        """
        ...
