"""Documents and sources: what is imported, kept in step with where it comes from, and removable."""

from tallystick_ingest.contract import (
    Attachment,
    AuthorizationNeeded,
    Checkpoint,
    Connector,
    Corpus,
    Known,
    NotOfFormat,
    PrivacyClass,
    RateLimitReached,
    Removed,
    Resource,
    Skipped,
    SkipReason,
    SourceAdapter,
    SourceRecord,
    Unchanged,
    Yielded,
)
from tallystick_ingest.extension import EXTENSION
from tallystick_ingest.ingest import Ingest

__all__ = [
    "EXTENSION",
    "Attachment",
    "AuthorizationNeeded",
    "Checkpoint",
    "Connector",
    "Corpus",
    "Ingest",
    "Known",
    "NotOfFormat",
    "PrivacyClass",
    "RateLimitReached",
    "Removed",
    "Resource",
    "SkipReason",
    "Skipped",
    "SourceAdapter",
    "SourceRecord",
    "Unchanged",
    "Yielded",
]
