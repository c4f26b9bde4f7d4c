"""Logs hold ids, counts and names of events, never content, and leave the application's
configuration alone.
"""

from __future__ import annotations

import ast
import json
import logging
import subprocess
import sys
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tallystick.logs import SAFE_KEYS, WITHHELD, get_logger


class Kept(logging.Handler):
    """Keeps the message of each record."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _said(log: Any, event: str, *args: Any, **values: Any) -> dict[str, Any]:
    """What one warning under `tallystick.test` says."""
    kept, logger = Kept(), logging.getLogger("tallystick.test")
    logger.addHandler(kept)
    try:
        log.warning(event, *args, **values)
    finally:
        logger.removeHandler(kept)
    [line] = kept.lines
    call = ast.parse(f"dict({line.replace(' ', ', ')})", mode="eval").body
    assert isinstance(call, ast.Call)
    return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}


@pytest.mark.smoke
def test_a_log_tells_what_happened_to_which_record() -> None:
    log = get_logger("test").bind(room="memory")

    said = _said(
        log,
        "memory.forgotten",
        memory_id="0198-af",
        count=3,
        duration_ms=1.5,
        reason="pinned_memory",
    )

    assert said == {
        "event": "memory.forgotten",
        "room": "memory",
        "memory_id": "0198-af",
        "count": 3,
        "duration_ms": 1.5,
        "reason": "pinned_memory",
        "level": "warning",
    }


@pytest.mark.parametrize(
    "key", ["content", "text", "query", "payload", "exc_info", "stack_info", "user", "Event"]
)
def test_a_key_that_is_not_known_to_be_safe_is_dropped(key: str) -> None:
    assert _said(get_logger("test"), "kept", **{key: "private"}) == {
        "event": "kept",
        "level": "warning",
    }
    assert _said(get_logger("test").bind(**{key: "private"}), "kept") == {
        "event": "kept",
        "level": "warning",
    }


def test_text_in_the_arguments_of_a_message_is_dropped() -> None:
    assert _said(get_logger("test"), "kept", "private", 7) == {"event": "kept", "level": "warning"}


@given(
    st.sampled_from(sorted(SAFE_KEYS - {"event"})),
    st.sampled_from(
        [
            "my salary is 9,000",
            "zwei Wörter",
            "",
            "a\nb",
            "x" * 129,
            ["secret"],
            {"a": "secret"},
            b"raw",
        ]
    ),
)
def test_prose_under_a_safe_key_is_withheld(key: str, value: Any) -> None:
    assert _said(get_logger("test"), "kept", **{key: value})[key] == WITHHELD


def test_a_message_made_of_prose_is_withheld() -> None:
    assert _said(get_logger("test"), "could not store 'my salary'")["event"] == WITHHELD


def test_logging_leaves_the_configuration_of_the_application_alone() -> None:
    """Nothing is printed, no handler is put on the root, and structlog stays as the application has
    it.
    """
    code = """
import json, logging, structlog
from tallystick.logs import get_logger
get_logger("test").error("unseen")
print(json.dumps([structlog.is_configured(), len(logging.getLogger().handlers),
                  [type(each).__name__ for each in logging.getLogger("tallystick").handlers],
                  logging.getLogger("tallystick").level]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, timeout=120, check=True
    )

    assert json.loads(done.stdout) == [False, 0, ["NullHandler"], 0]
    assert done.stderr == ""


def test_the_applications_processors_never_see_our_events() -> None:
    seen: list[Any] = []

    def application(logger: Any, method: str, event: Any) -> Any:
        seen.append(event)
        return event

    before = structlog.get_config()
    structlog.configure(processors=[application])
    try:
        said = _said(get_logger("test"), "kept")
    finally:
        structlog.configure(**before)

    assert (said["event"], seen) == ("kept", [])


def test_the_level_is_the_applications() -> None:
    kept, logger = Kept(), logging.getLogger("tallystick.test")
    logger.addHandler(kept)
    try:
        get_logger("test").info("too.quiet")
        logger.setLevel(logging.INFO)
        get_logger("test").info("loud.enough")
    finally:
        logger.setLevel(logging.NOTSET)
        logger.removeHandler(kept)

    assert kept.lines == ["event='loud.enough' level='info'"]
