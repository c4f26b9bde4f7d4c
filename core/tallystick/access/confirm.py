"""Confirm tokens: a change is previewed, and applied with the token of its preview.

A token is not stored. It is the MAC of its end and of everything that the preview showed, under the
secret of the scope, so that it confirms exactly that, by that actor, and nothing else.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import NamedTuple

from tallystick.access.gate import Gate
from tallystick.errors import Denied, StateConflict
from tallystick.records import AccessDecision, Actor, Json, ReasonCode, canonical_json, part_key

_LIFE_US = 15 * 60 * 1_000_000
"""The life of the token of a preview, microseconds."""


class ConfirmToken(NamedTuple):
    """A token with its end."""

    token: str
    expires_at: int
    """Microseconds UTC."""


@dataclass(frozen=True)
class Confirmation:
    """The confirmation of one purpose by one actor.

    `preview` is the same value for the token and for its check: whatever differs by then (a
    version, a reader, a link) changes the value, and the token does not confirm it.
    """

    gate: Gate
    secret: bytes | None
    """The key of the scope that the change is in; None confirms nothing: where nothing was written
    there is no key, and nothing to change.
    """
    purpose: str
    actor: Actor

    def token(self, preview: Json, *, now: int) -> ConfirmToken:
        """Return the token with which the actor may apply exactly `preview`."""
        assert self.secret is not None
        expires_at = now + _LIFE_US
        token_mac = self._token_mac(self.secret, preview, expires_at)
        return ConfirmToken(f"{expires_at}.{token_mac}", expires_at)

    def refusal(self, decision: AccessDecision) -> Denied:
        """Journal the refusal of a change that was not previewed; return the error to raise."""
        refused = decision.model_copy(update={"allowed": False, "reason": "confirm_token_required"})
        return self.gate.refuse(self.actor, refused)

    def require(
        self,
        token: str,
        preview: Json,
        *,
        now: int,
        subject: str,
        what: str = "Memory",
    ) -> None:
        """Raise StateConflict for `subject` unless `token` confirms `preview` and is still good.

        Its reason is `confirm_token_expired` for a token that has run out, else
        `confirm_token_mismatch`: it is of another actor or call, or something that the preview
        showed has changed since.
        """
        reason = self._problem(token, preview, now)
        if reason is not None:
            raise StateConflict(
                subject,
                state="not as previewed",
                reason=reason,
                hint="Preview again and confirm what it shows.",
                what=what,
            )

    def _problem(self, token: str, preview: Json, now: int) -> ReasonCode | None:
        end, _, token_mac = token.partition(".") if isinstance(token, str) else ("", "", "")
        if self.secret is None or not (end.isascii() and end.isdigit() and len(end) < 20):
            return "confirm_token_mismatch"
        expected = self._token_mac(self.secret, preview, int(end))
        if not hmac.compare_digest(token_mac.encode("utf-8", "replace"), expected.encode()):
            return "confirm_token_mismatch"
        return "confirm_token_expired" if int(end) <= now else None

    def _token_mac(self, secret: bytes, preview: Json, expires_at: int) -> str:
        identity = [self.actor.user, self.actor.agent, self.actor.organization]
        fields = ["confirm", self.purpose, identity, preview, expires_at]
        return part_key(secret, canonical_json(fields))
