"""Damaged rows: the error that a reader of one raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tallystick.errors import CorruptTally

__all__ = ["readable"]


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn what Python, JSON or the records say of a damaged row into CorruptTally."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise CorruptTally(f"The row of {what} is not readable.") from error
