"""The dicts that configure a store of LangGraph: what they say is honoured or refused."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from langgraph.store.base import IndexConfig, TTLConfig

from tallystick.errors import InvalidInput
from tallystick.kit import TallyElsewhere, check_embedder, check_names, describe_value
from tallystick.tally import Tally

_LONGEST_TTL = 1_000 * 365 * 24 * 60
"""Minutes that an item may live, exclusive."""
_WHOLE = ("$",)
"""The path of the whole value."""
_INDEX_KEYS = ("dims", "embed", "fields")
_TTL_KEYS = ("default_ttl", "omit_expired", "refresh_on_read", "sweep_interval_minutes")


def is_minutes(value: object) -> bool:
    """Return True for a time that an item may live, or a sweeper wait."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 < cast(float, value) < _LONGEST_TTL


def checked_fields(index: IndexConfig | None, tally: Tally | TallyElsewhere) -> tuple[str, ...]:
    """Return the paths that a query searches, such as `text` or `parts[*].text`.

    Raises InvalidInput for an embedder that is not that of the tally, and for unknown keys.
    """
    if index is None:
        return _WHOLE
    settings = _checked_keys("index", index, _INDEX_KEYS, "index={'fields': ['text']}")
    check_embedder(tally, embed=settings.get("embed"), dims=settings.get("dims"))
    fields = settings.get("fields")
    check_names("index['fields']", fields)
    return tuple(fields) if fields else _WHOLE


def checked_ttl(ttl: TTLConfig | None) -> TTLConfig | None:
    """Return how long items live. Raises InvalidInput for what cannot be honoured."""
    if ttl is None:
        return None
    if isinstance(ttl, timedelta):
        minutes = ttl / timedelta(minutes=1)
        raise InvalidInput(
            f"The `ttl` of TallyStore is LangGraph's, in minutes. Write "
            f"ttl={{'default_ttl': {minutes:g}}}.",
            argument="ttl",
        )
    if isinstance(ttl, int | float) and not isinstance(ttl, bool):
        raise InvalidInput(f"Write ttl={{'default_ttl': {ttl}}}, in minutes.")
    settings = _checked_keys("ttl", ttl, _TTL_KEYS, "ttl={'default_ttl': 60}")
    default = settings.get("default_ttl")
    if default is not None and not is_minutes(default):
        raise InvalidInput(
            "ttl['default_ttl'] has to be a number of minutes, more than 0 and less than a "
            "thousand years."
        )
    if not isinstance(settings.get("refresh_on_read", True), bool):
        raise InvalidInput("ttl['refresh_on_read'] has to be True or False.")
    if settings.get("omit_expired", True) is not True:
        raise InvalidInput(
            "ttl['omit_expired'] cannot be False: an expired item is never read. Leave it out."
        )
    interval = settings.get("sweep_interval_minutes")
    if interval is not None and not is_minutes(interval):
        raise InvalidInput(
            "ttl['sweep_interval_minutes'] has to be a number of minutes, more than 0. It is for "
            "`store.start_ttl_sweeper()`."
        )
    return ttl


def _checked_keys(
    name: str, value: object, known_keys: tuple[str, ...], example: str
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"`{name}` is {describe_value(value)}. Write {example}.")
    unknown = next((key for key in value if key not in known_keys), None)
    if unknown is not None:
        raise InvalidInput(
            f"`{name}` has no key {describe_value(unknown)}. Use {', '.join(known_keys)}."
        )
    return value
