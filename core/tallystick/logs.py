"""Structured logs with ids only: a key that is not on the list of safe ones never reaches a log."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import structlog
    from structlog.typing import EventDict, WrappedLogger

SAFE_KEYS = frozenset(
    {
        "event",
        "error",
        "reason",
        "count",
        "failures",
        "duration_ms",
        "memory_id",
        "source_id",
        "run_id",
        "step_id",
        "job_id",
        "audit_id",
        "thread_id",
        "attempt",
        "embedded",
        "indexed",
        "left",
        "room",
        "surface",
        "state",
        "request_id",
        "principal",
        "scope_kind",
        "operation",
        "outcome",
        "stage",
        "provider",
        "model",
        "action",
        "rule_id",
    }
)
"""Ids, counts, durations, names of events and errors. Content has no key."""

request_id: ContextVar[str | None] = ContextVar("tallystick_request_id", default=None)
"""The id of the request of a network caller that is being answered; each log line names it."""

WITHHELD = "(withheld)"
"""Replaces a value under a safe key that does not look like an id, a name or a number."""

_CODE = re.compile(r"[\w.:/@%+-]{1,128}", re.ASCII)

_SAFE_WORDS = re.compile(
    rf"(?: (?:{'|'.join(sorted(SAFE_KEYS))})=(?:'{_CODE.pattern}'|[\d.]+))*", re.ASCII
)
"""Words of a line that need no second look."""
_operations = logging.getLogger("tallystick.operations")
_is_logged = _operations.isEnabledFor

logging.getLogger("tallystick").addHandler(logging.NullHandler())


def log_operation(
    operation: str, *, outcome: str, duration_ms: float, **facts: str | int | None
) -> None:
    """Log one line at info about an operation that has ended: ids, names and numbers, no content.

    Where nobody reads the logger `tallystick.operations` at info, this is a comparison.
    """
    if _is_logged(logging.INFO):
        served = request_id.get()
        known = {
            "operation": operation,
            "outcome": outcome,
            "duration_ms": round(duration_ms, 1),
            **facts,
        }
        line = _Line(known if served is None else {**known, "request_id": served})
        # Made here, as the stack says nothing about it and to look for it takes longer than this.
        record = logging.LogRecord(
            _operations.name, logging.INFO, __file__, 0, line, (), None, "log_operation"
        )
        _operations.handle(record)


class _Line:
    """A line as the loggers of `get_logger` write them, put together by the handler that writes
    it: every call of memory has one.
    """

    __slots__ = ("_facts",)

    def __init__(self, facts: Mapping[str, str | float | None]) -> None:
        self._facts = facts

    def __str__(self) -> str:
        known = {key: each for key, each in self._facts.items() if each is not None}
        words = "".join([f" {key}={value!r}" for key, value in known.items()])
        if not _SAFE_WORDS.fullmatch(words):
            safe = [(key, _code(value)) for key, value in known.items() if key in SAFE_KEYS]
            words = "".join([f" {key}={value!r}" for key, value in safe])
        return f"event='operation'{words} level='info'"


@cache
def get_logger(context: str) -> structlog.stdlib.BoundLogger:
    """Return a structlog logger over the standard logger `tallystick.<context>`; it leaves the
    user's configuration alone.

    Nothing is shown until the application gives the logger `tallystick` a handler and a level. Ask
    for it where something is logged, not on import: structlog is slow to load and most runs log
    nothing.
    """
    import structlog

    logger = structlog.wrap_logger(
        logging.getLogger(f"tallystick.{context}"),
        processors=[
            structlog.stdlib.filter_by_level,
            _only_safe,
            structlog.stdlib.add_log_level,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return cast("structlog.stdlib.BoundLogger", logger)


def _only_safe(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    served = request_id.get()
    named = event if served is None else {**event, "request_id": served}
    return {key: _code(value) for key, value in named.items() if key in SAFE_KEYS}


def _code(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return value if isinstance(value, str) and _CODE.fullmatch(value) else WITHHELD
