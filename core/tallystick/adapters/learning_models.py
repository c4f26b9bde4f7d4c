"""What learning models of the runtimes have in common: what they declare, and where they are."""

from __future__ import annotations

from typing import TypedDict, Unpack
from urllib.parse import urlsplit

from pydantic import ValidationError

from tallystick.errors import InvalidInput
from tallystick.records import ProviderDeclaration

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(address: object) -> bool:
    """Return True for the address of a server on this machine."""
    return urlsplit(str(address or "")).hostname in _LOOPBACK


class DeclaredLimits(TypedDict, total=False):
    """Limits that a caller declares of a model, by default those of `ProviderDeclaration`."""

    timeout_ms: int
    longest_text: int
    longest_answer: int
    structured_output: bool


def declare(
    name: str,
    model: str | None,
    *,
    address: object,
    local: bool | None,
    **limits: Unpack[DeclaredLimits],
) -> ProviderDeclaration:
    """Return what a model says of itself; it is local where its address is, unless `local` says.
    Raises InvalidInput for a limit that is none.
    """
    if local is None:
        local = is_loopback(address)
    try:
        return ProviderDeclaration(name=name, model=model, local=local, **limits)
    except ValidationError as error:
        [first, *_] = error.errors()
        raise InvalidInput(
            f"`{'.'.join(map(str, first['loc']))}` of the model {name}: {first['msg']}."
        ) from error
