"""Raw material and pointers to it: Source, SourceRef."""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import JsonObject, Persisted, Record
from tallystick.records.identity import Scope
from tallystick.records.times import datetime_of, optional_datetime_of

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
