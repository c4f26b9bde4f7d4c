"""Structured logs with ids only: what is not on the list of safe keys never reaches a log."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

__all__ = ["SAFE_KEYS", "get_logger"]

SAFE_KEYS = frozenset(
    {
        "event", "error", "reason", "count", "failures", "duration_ms", "memory_id", "source_id", "run_id", "step_id",
        "job_id", "audit_id", "thread_id", "attempt", "embedded", "indexed", "left", "room", "surface", "state",
    }
)  # fmt: skip
"""Ids, counts, durations, names of events and errors. Content has no key."""

logging.getLogger("tallystick").addHandler(logging.NullHandler())


def get_logger(room: str) -> Any:
    """A structlog logger over the standard logger `tallystick.<room>`; it leaves the user's configuration alone."""
    return structlog.wrap_logger(
        logging.getLogger(f"tallystick.{room}"),
        processors=[
            structlog.stdlib.filter_by_level,
            _only_safe,
            structlog.stdlib.add_log_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def _only_safe(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return {key: value for key, value in event.items() if key in SAFE_KEYS}
