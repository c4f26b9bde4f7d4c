"""What learning models of the runtimes have in common: what they declare, and where they are."""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack
from urllib.parse import urlsplit

from pydantic import ValidationError

from tallystick.errors import InvalidInput
from tallystick.records import ProviderDeclaration

__all__ = ["Limits", "declare", "is_loopback"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Limits(TypedDict, total=False):
    """What every learning model may declare; what is left out is as in `ProviderDeclaration`."""

    timeout_ms: int
    """How long one call may take, milliseconds."""
    longest_text: int
    """Characters of one call at most."""
    reliability: Literal["high", "ordinary", "low"]
    """`low`: what it proposes never changes or withdraws a memory without a person."""
    structured_output: bool
    """False if it answers with prose; then it is told the schema, and JSON in its text is read."""


def is_loopback(address: object) -> bool:
    """Return True for the address of a server on this machine."""
    return urlsplit(str(address or "")).hostname in _LOOPBACK


def declare(
    name: str,
    model: str | None,
    *,
    address: object,
    local: bool | None,
    **limits: Unpack[Limits],
) -> ProviderDeclaration:
    """Return what a model says of itself; it is local where its address is, unless `local` says.
    Raises InvalidInput for a limit that is none.
    """
    try:
        return ProviderDeclaration(
            name=name,
            model=model,
            local=is_loopback(address) if local is None else local,
            **limits,
        )
    except ValidationError as error:
        [first, *_] = error.errors()
        raise InvalidInput(
            f"`{'.'.join(map(str, first['loc']))}` of the model {name}: {first['msg']}."
        ) from error
