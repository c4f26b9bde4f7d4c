"""Canonical JSON and digests: the one form in which anything is hashed.

The form is RFC 8785 restricted to no floats and ASCII keys, which sorted compact JSON already is.
Every digest names its algorithm and its domain, so that a digest of one kind never equals one of
another.
"""

import hashlib
import hmac
import json
from typing import Any

import orjson

from tallystick.errors import InvalidInput


def canonical_json(value: Any, *, trusted: bool = False) -> bytes:
    """Return `value` as canonical JSON bytes (UTF-8, sorted ASCII keys, no spaces, no floats).

    Raises InvalidInput for floats, non-ASCII or non-string keys, lone surrogates, values that are
    not JSON and those nested too deeply to walk. With `trusted` the search for floats and keys is
    skipped: the caller knows that there are none.
    """
    try:
        if not trusted and not is_plain(value):
            _explain(value, "$")
        try:
            return orjson.dumps(
                value, option=orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_SUBCLASS
            )
        except orjson.JSONEncodeError:
            # Large integers, subclasses, half characters: the same form, or the reason why there is
            # none.
            return _encode(value).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidInput("text with a lone surrogate has no canonical form") from error
    except RecursionError as error:
        raise InvalidInput(
            "a value that contains itself or is nested too deeply has no canonical form"
        ) from error
    except ValueError as error:
        raise InvalidInput(
            "an integer of more digits than Python writes has no canonical form"
        ) from error


_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode
_LEAVES = frozenset({str, int, bool, type(None)})


def is_plain(value: Any) -> bool:
    """Return True if a value is text, whole numbers, truth values, nothing, or lists and objects of
    them with ASCII keys, and so has a canonical form. It runs for every entry of a journal, so it
    gives no reason.
    """
    kind = type(value)
    if kind in _LEAVES:
        return True
    if kind is dict:
        for key, inner in value.items():
            if (
                type(key) is not str
                or not key.isascii()
                or not (type(inner) in _LEAVES or is_plain(inner))
            ):
                return False
        return True
    if kind is list or kind is tuple:
        return all(type(inner) in _LEAVES or is_plain(inner) for inner in value)
    return False


def _explain(value: Any, path: str) -> None:
    """Raise InvalidInput that names what has no canonical form; subclasses of JSON's types have
    one.
    """
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise InvalidInput(
                    f"{path} has a key that is not ASCII text; canonical JSON cannot hold it"
                )
            _explain(inner, f"{path}.{key}")
        return
    if isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _explain(inner, f"{path}[{index}]")
        return
    raise InvalidInput(
        f"{path} is a {type(value).__name__}; canonical JSON holds text, integers, lists and "
        f"objects"
    )


def json_bytes(value: Any) -> bytes:
    """`value` as sorted compact JSON in UTF-8, floats and any text allowed: the bytes of stored
    bodies.

    Half a character is written as its escape, so that any text can be stored and comes back as it
    was. Raises InvalidInput for what contains itself, is nested too deeply to walk or has an
    integer of more digits than Python writes, and TypeError for what is not JSON.
    """
    try:
        if is_plain(value):
            try:
                return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            except orjson.JSONEncodeError:
                pass  # a large integer or half a character: the same form, by hand
        text = _encode_any(value)
        try:
            return text.encode()
        except UnicodeEncodeError:
            return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "The value contains itself, is nested too deeply, or has an integer of too many "
            "digits: JSON cannot hold it."
        ) from error


_encode_any = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def read_json(body: bytes | str) -> Any:
    """JSON text as values, by the fast parser where it reads the same as the exact one. Raises
    ValueError.
    """
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    # The fast parser makes a float of an integer of more than 64 bits.
    if _LONG_NUMBER in data.translate(_DIGITS):
        return json.loads(body)
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # Escapes of half a character, NaN and the like, or no JSON at all.
        return json.loads(body)


def strict_json(body: bytes | str) -> Any:
    """Return the values of JSON text (UTF-8) that somebody else wrote: no key twice, no NaN or
    infinity. Raises ValueError, also for what is nested too deeply.
    """
    text = body.decode("utf-8") if isinstance(body, bytes) else body
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key stands twice")
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DIGITS = bytes(ord("0") if chr(code).isdigit() and code < 128 else 0 for code in range(256))
_LONG_NUMBER = b"0" * 19


def digest(domain: str, value: Any) -> str:
    """SHA-256 of the canonical form of `value` under `domain`, as `sha256:<hex>`."""
    return _sha256(domain, canonical_json(value))


def text_digest(domain: str, body: str | bytes) -> str:
    """SHA-256 of bytes (text as UTF-8) under `domain`, as `sha256:<hex>`; for bodies that are not
    JSON.
    """
    return _sha256(domain, body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body)


def commitment(domain: str, salt: bytes, *pieces: bytes) -> str:
    """SHA-256 over domain, salt and body, given in one or more pieces: what journal and receipts
    hold instead of it.

    Without the salt, which is in an erasable row, it cannot be guessed even for short bodies.
    """
    return _sha256(f"commitment:{domain}", len(salt).to_bytes(2, "big"), salt, *pieces)


def part_key(scope_key: bytes, body: bytes) -> str:
    """HMAC-SHA-256 of `body` under the scope's key: equal bytes are stored once within a scope, and
    two scopes cannot be compared. It never enters a chain."""
    return "hmac-sha256:" + hmac.digest(scope_key, b"tallystick/part/v1\x00" + body, "sha256").hex()


def _sha256(domain: str, *pieces: bytes) -> str:
    return (
        "sha256:"
        + hashlib.sha256(b"".join((f"tallystick/{domain}/v1\x00".encode(), *pieces))).hexdigest()
    )
