"""Which parameters of a model call are recorded: all but those that say who may make it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

__all__ = ["recordable"]

_SECRET = ("api_key", "apikey", "headers", "authorization", "credentials", "secret")


def recordable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters without headers, keys and credentials, whatever the retention: a replay takes its own."""
    return {name: value for name, value in parameters.items() if not _is_secret(name)}


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET)
