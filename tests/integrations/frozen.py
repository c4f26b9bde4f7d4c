"""Answers as they can be kept in a file: what differs from run to run is replaced."""

from __future__ import annotations

import re
from typing import Any

_MOVING = re.compile(
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<digest>(?:hmac-)?sha256:[0-9a-f]{64})"
    r"|(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)"
    r"|(?P<instant>\b1[678]\d{14}\b)"
    r"|(?P<day>\b20\d\d-\d\d-\d\d\b)"
    r"|(?P<secret>\btally_[\w-]{20,}|\b\d+\.[\w-]{20,})"
    r"|(?P<code>\b\d{25,}\b)"
)
"""What is made anew in each run."""


def frozen(value: Any, names: dict[str, str] | None = None) -> Any:
    """Return plain values with ids by the order in which they come, without times, digests and
    secrets; numbers with three digits after the point.
    """
    known: dict[str, str] = {} if names is None else names

    def replaced(match: re.Match[str]) -> str:
        if match.lastgroup == "id":
            return known.setdefault(match[0], f"id{len(known) + 1}")
        return f"<{match.lastgroup}>"

    if isinstance(value, dict):
        return {frozen(name, known): frozen(each, known) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [frozen(each, known) for each in value]
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, int) and not isinstance(value, bool) and value > 10**15:
        return "<instant>"
    if isinstance(value, str):
        return _MOVING.sub(replaced, value)
    return value
