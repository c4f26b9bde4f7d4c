"""Every result of a list that is read page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_PAGE = 1_000


def every(read: Callable[..., list[T]], /, **filters: Any) -> list[T]:
    """The memories, jobs or runs that a verb lists with these filters, newest first."""
    results: list[T] = []
    while True:
        last: Any = results[-1] if results else None
        before = None if last is None else last.id
        page = read(limit=_PAGE, before=before, **filters)
        results += page
        if len(page) < _PAGE:
            return results
