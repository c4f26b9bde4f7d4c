"""Damaged rows: the error that reading one raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.errors import CorruptTally, InvalidRecord


@contextmanager
def readable(subject: str) -> Iterator[None]:
    """Raise CorruptTally for the errors of Python, JSON or the records on a damaged row."""
    try:
        yield
    except (TypeError, ValueError, InvalidRecord) as error:
        raise CorruptTally(f"The row of {subject} is not readable.") from error
