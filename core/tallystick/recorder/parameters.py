"""The parameters of a model call that are recorded: all but those that grant access."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

__all__ = ["recordable_tools", "recordable"]

_SECRET = ("api_key", "apikey", "headers", "authorization", "credentials", "secret")
_SECRETS = ("token", "access_token", "refresh_token", "id_token", "auth_token", "password")


def recordable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters without headers, keys and credentials, under every retention: a replay uses
    its own.
    """
    return {
        name: recordable_tools(value) if isinstance(value, list) else value
        for name, value in parameters.items()
        if not _is_secret(name)
    }


def recordable_tools(tools: Iterable[Any] | None) -> list[Any]:
    """Return tools and tool servers, without the credentials of such a server."""
    return [recordable(tool) if isinstance(tool, Mapping) else tool for tool in tools or ()]


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    return name.lower() in _SECRETS or any(word in name.lower() for word in _SECRET)
