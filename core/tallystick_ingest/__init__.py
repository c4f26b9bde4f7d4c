"""Documents and sources: what is imported, kept in step with where it comes from, and removable."""

from typing import TYPE_CHECKING

from tallystick.loading import late_names
from tallystick_ingest.extension import EXTENSION

if TYPE_CHECKING:
    from tallystick_ingest.contract import (
        Attachment,
        Checkpoint,
        Connector,
        Corpus,
        Known,
        PrivacyClass,
        Removed,
        Resource,
        Skipped,
        SkipReason,
        SourceAdapter,
        SourceRecord,
        Unchanged,
        Yielded,
    )
    from tallystick_ingest.ingest import Ingest
else:
    __getattr__ = late_names(
        __name__,
        {
            "contract": "Attachment Checkpoint Connector Corpus Known PrivacyClass Removed "
            "Resource Skipped SkipReason SourceAdapter SourceRecord Unchanged Yielded",
            "ingest": "Ingest",
        },
    )

__all__ = [
    "EXTENSION",
    "Attachment",
    "Checkpoint",
    "Connector",
    "Corpus",
    "Ingest",
    "Known",
    "PrivacyClass",
    "Removed",
    "Resource",
    "SkipReason",
    "Skipped",
    "SourceAdapter",
    "SourceRecord",
    "Unchanged",
    "Yielded",
]
