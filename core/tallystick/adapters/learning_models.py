"""What learning models of the runtimes have in common: what they declare, and where they are."""

from __future__ import annotations

from urllib.parse import urlsplit

from tallystick.records import ProviderDeclaration

__all__ = ["declare", "is_loopback"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(address: object) -> bool:
    """Return True for the address of a server on this machine."""
    return urlsplit(str(address or "")).hostname in _LOOPBACK


def declare(
    name: str, model: str | None, *, address: object, local: bool | None, timeout_ms: int
) -> ProviderDeclaration:
    """Return what a model says of itself; it is local where its address is, unless `local` says."""
    return ProviderDeclaration(
        name=name,
        model=model,
        local=is_loopback(address) if local is None else local,
        timeout_ms=timeout_ms,
    )
