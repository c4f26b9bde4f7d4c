"""Confirm tokens: what was previewed, by whom and until when, under the secret of its scope.

A token is not stored: it is the HMAC of what it confirms, so that it fits that and nothing else.
"""

from __future__ import annotations

import hmac

from tallystick.records import Actor, Json, canonical_json, part_key

__all__ = ["fits", "mint"]


def mint(secret: bytes, purpose: str, actor: Actor, bound: Json, *, expires_at: int) -> str:
    """The token with which `actor` may do `purpose` to exactly `bound` (ids, versions), before
    `expires_at` (µs).
    """
    return f"{expires_at}.{_seal(secret, purpose, actor, bound, expires_at)}"


def fits(token: str, secret: bytes, purpose: str, actor: Actor, bound: Json, *, now: int) -> bool:
    """Whether `token` was minted for exactly this and has not run out."""
    until, _, seal = token.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) < 20 and now < int(until)):
        return False
    return hmac.compare_digest(
        seal.encode(), _seal(secret, purpose, actor, bound, int(until)).encode()
    )


def _seal(secret: bytes, purpose: str, actor: Actor, bound: Json, expires_at: int) -> str:
    who = [actor.user, actor.agent, actor.organization]
    return part_key(secret, canonical_json(["confirm", purpose, who, bound, expires_at]))
