"""Parameters of model calls that are recorded, all but credentials, and metadata of calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from tallystick.kit.rendering import json_value
from tallystick.records import JsonObject

_SECRET = ("api_key", "apikey", "headers", "authorization", "credentials", "secret")
_SECRETS = ("token", "access_token", "refresh_token", "id_token", "auth_token", "password")


def recordable_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters without headers, keys and credentials, whatever the retention.

    A replay uses its own.
    """
    return {
        name: recordable_tools(value) if isinstance(value, list) else value
        for name, value in parameters.items()
        if not _is_secret(name)
    }


def recordable_metadata(metadata: Mapping[str, Any]) -> JsonObject:
    """Return what a call says about itself as JSON: a UUID, a date or any other object is its text,
    so that nothing in a runtime's config costs the recording.
    """
    return {str(name): json_value(value) for name, value in metadata.items()}


def recordable_tools(tools: Iterable[Any] | None) -> list[Any]:
    """Return tools, and servers of tools without their credentials."""
    return [
        recordable_parameters(tool) if isinstance(tool, Mapping) else tool for tool in tools or ()
    ]


@lru_cache(maxsize=1_024)
def _is_secret(name: str) -> bool:
    return name.lower() in _SECRETS or any(word in name.lower() for word in _SECRET)
