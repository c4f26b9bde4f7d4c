"""What learning models of the runtimes have in common: what they declare, and where they are."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import ValidationError

from tallystick.errors import InvalidInput
from tallystick.records import ProviderDeclaration

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(address: object) -> bool:
    """Return True for the address of a server on this machine."""
    return urlsplit(str(address or "")).hostname in _LOOPBACK


def declare(
    name: str,
    model: str | None,
    *,
    address: object,
    local: bool | None,
    timeout_ms: int,
    longest_text: int,
    longest_answer: int,
    structured_output: bool,
) -> ProviderDeclaration:
    """Return what a model says of itself; it is local where its address is, unless `local` says.
    Raises InvalidInput for a limit that is none.
    """
    try:
        return ProviderDeclaration(
            name=name,
            model=model,
            local=is_loopback(address) if local is None else local,
            timeout_ms=timeout_ms,
            longest_text=longest_text,
            longest_answer=longest_answer,
            structured_output=structured_output,
        )
    except ValidationError as error:
        [first, *_] = error.errors()
        raise InvalidInput(
            f"`{'.'.join(map(str, first['loc']))}` of the model {name}: {first['msg']}."
        ) from error
