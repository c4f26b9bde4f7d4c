"""Canonical JSON and digests: the one form in which anything is hashed.

The form is RFC 8785 restricted to no floats and ASCII keys, which sorted compact JSON already is.
Every digest names its algorithm and its domain, so that a digest of one kind never equals one of another.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from tallystick.errors import InvalidInput

__all__ = ["canonical_json", "commitment", "digest", "json_bytes", "part_key", "text_digest"]


def canonical_json(value: Any) -> bytes:
    """`value` as canonical JSON bytes (UTF-8, sorted ASCII keys, no spaces, no floats).

    Raises InvalidInput for floats, non-ASCII or non-string keys, lone surrogates, values that are not JSON
    and those nested too deeply to walk.
    """
    try:
        _check(value, "$")
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False).encode(
            "utf-8"
        )
    except UnicodeEncodeError as error:
        raise InvalidInput("text with a lone surrogate has no canonical form") from error
    except RecursionError as error:
        raise InvalidInput("a value that contains itself or is nested too deeply has no canonical form") from error


def _check(value: Any, path: str) -> None:
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise InvalidInput(f"{path} has a key that is not ASCII text; canonical JSON cannot hold it")
            _check(inner, f"{path}.{key}")
        return
    if isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check(inner, f"{path}[{index}]")
        return
    raise InvalidInput(f"{path} is a {type(value).__name__}; canonical JSON holds text, integers, lists and objects")


def json_bytes(value: Any) -> bytes:
    """`value` as sorted compact JSON in UTF-8, floats and any text allowed: the bytes of stored bodies.

    Half a character is written as its escape, so that any text can be stored and comes back as it was.
    """
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest(domain: str, value: Any) -> str:
    """SHA-256 of the canonical form of `value` under `domain`, as `sha256:<hex>`."""
    return _sha256(domain, canonical_json(value))


def text_digest(domain: str, body: str | bytes) -> str:
    """SHA-256 of bytes (text as UTF-8) under `domain`, as `sha256:<hex>`; for bodies that are not JSON."""
    return _sha256(domain, body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body)


def commitment(domain: str, salt: bytes, body: bytes) -> str:
    """SHA-256 over domain, salt and body: what journal and receipts hold instead of a body.

    Without the salt, which stands in an erasable row, it cannot be guessed even for short bodies.
    """
    return _sha256(f"commitment:{domain}", len(salt).to_bytes(2, "big") + salt + body)


def part_key(scope_key: bytes, body: bytes) -> str:
    """HMAC-SHA-256 of `body` under the scope's key: equal bytes are stored once within a scope, and
    two scopes cannot be compared. It never enters a chain."""
    return "hmac-sha256:" + hmac.new(scope_key, b"tallystick/part/v1\x00" + body, hashlib.sha256).hexdigest()


def _sha256(domain: str, body: bytes) -> str:
    return "sha256:" + hashlib.sha256(f"tallystick/{domain}/v1\x00".encode() + body).hexdigest()
