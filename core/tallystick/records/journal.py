"""One entry of the append-only journal of changes and decisions."""

from __future__ import annotations

from tallystick.records._base import JsonObject, Persisted
from tallystick.records.times import datetime_of


class JournalEntry(Persisted):
    """Ids, counts, digests and reason codes; never a private body."""

    sequence: int
    """Place in the whole journal; the only order there is."""
    audit_id: str
    stream: str
    """`scope:…`, `run:…` or `thread:…`; each is one hash chain."""
    position: int
    """Place in the stream, counted from 0."""
    event: str
    at: int
    """Microseconds UTC."""
    time = datetime_of("at")
    actor: JsonObject
    surface: str
    reason: str | None = None
    correlation_id: str | None = None
    request_id: str | None = None
    session_id: str | None = None
    texts: str | None = None
    """The commitment to what people wrote: `reason`, `request_id`, `session_id` and such `details`.
    """
    row_texts: str | None = None
    """The commitment to names, goal, metadata and summaries, which are in the rows of a run or
    step.
    """
    texts_erased: bool = False
    """True if what it commits to was erased: the texts are None, or missing from `details`."""
    subject_id: str | None = None
    """The record that it is about."""
    details: JsonObject = {}
    previous: str
    digest: str
