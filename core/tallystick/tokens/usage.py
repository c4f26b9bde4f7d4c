"""Usage: the token counts that a model's answer reports, under one set of names whatever the
provider calls them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NAMES: dict[str, tuple[str, ...]] = {
    "input_tokens": (
        "input_tokens",
        "prompt_tokens",
        "prompt_token_count",
        "prompt_eval_count",
        "inputTokens",
    ),
    "output_tokens": (
        "output_tokens",
        "completion_tokens",
        "candidates_token_count",
        "eval_count",
        "outputTokens",
    ),
    "cache_read_tokens": (
        "cache_read_tokens",
        "cached_content_token_count",
        "prompt_cache_hit_tokens",
        "cacheReadInputTokens",
        "input_token_details.cache_read",
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
    ),
    "cache_write_tokens": (
        "cache_write_tokens",
        "cacheWriteInputTokens",
        "input_token_details.cache_creation",
        "input_tokens_details.cache_write_tokens",
    ),
}
_APART = {
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
"""Anthropic's own names: it counts these tokens apart from `input_tokens`, where all others count
them in.
"""

_PATHS = {
    name: tuple(tuple(spelling.split(".")) for spelling in spellings)
    for name, spellings in _NAMES.items()
}
_ALONE = {name: ((spelling,),) for name, spelling in _APART.items()}


def usage_of(reported: Any) -> dict[str, int]:
    """Return `input_tokens`, `output_tokens`, `cache_read_tokens` and `cache_write_tokens`, as far
    as `reported` has them.

    `reported` is a mapping or an object with attributes. Tokens read from and written to a cache
    are part of the input tokens. A count that is not reported is left out, so that an unknown count
    is never a zero.
    """
    if reported is None or (type(reported) is dict and not reported):
        return {}
    counts = {
        name: count
        for name, spellings in _PATHS.items()
        if (count := _first_count(reported, spellings)) is not None
    }
    apart = {
        name: count
        for name, spellings in _ALONE.items()
        if (count := _first_count(reported, spellings)) is not None
    }
    if apart and "input_tokens" in counts:
        counts["input_tokens"] += sum(apart.values())
    return counts | apart


def _first_count(reported: Any, paths: Sequence[tuple[str, ...]]) -> int | None:
    for path in paths:
        value = reported
        for part in path:
            value = _get(value, part)
            if value is None:
                break
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _get(value: Any, name: str) -> Any:
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)
