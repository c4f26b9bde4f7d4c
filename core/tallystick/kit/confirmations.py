"""Confirmations for changes that have no preview of their own: a token of what was shown.

A surface that asks before it changes a memory shows the change first, and makes it with the token
of what it has shown. The token names the version that was shown, so that a memory that changed
since is left alone.
"""

from __future__ import annotations

import json
from typing import Literal

from tallystick.access import Confirmation
from tallystick.access.confirm import ConfirmToken
from tallystick.errors import Denied
from tallystick.records import AccessKind, Json, JsonObject, Scope
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of


def confirm_token(
    bound: BoundTally, operation: str, arguments: JsonObject, *, scope: Scope, version: int
) -> ConfirmToken:
    """Return the token with which this actor may call `operation` with exactly these arguments, on
    the version of a memory of `scope` that it was shown. It is good for 15 minutes.
    """
    token = _confirmation(bound, operation, scope).token(
        _preview(arguments, version), now=bound.tally.now()
    )
    return token._replace(token=f"{version}.{token.token}")


def confirmed_version(
    bound: BoundTally, operation: str, arguments: JsonObject, *, scope: Scope, token: str
) -> int:
    """Return the version that a token confirms. Raises StateConflict for a token that has run out,
    or of another call.
    """
    version, _, rest = token.partition(".")
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
    _confirmation(bound, operation, scope).require(
        rest, _preview(arguments, number), now=bound.tally.now(), subject=operation, what="Change"
    )
    return number


def refuse_unconfirmed(
    bound: BoundTally,
    operation: AccessKind,
    scope: Scope,
    reason: Literal["confirm_token_required", "person_required"],
) -> Denied:
    """Journal the refusal of a change that nobody has confirmed, or no person; return the error to
    raise.
    """
    return services_of(bound).gate.refusal(bound.actor, reason, operation, scope)


def _confirmation(bound: BoundTally, operation: str, scope: Scope) -> Confirmation:
    services = services_of(bound)
    key = services.memory.frame_keys.signing(scope)
    return Confirmation(services.gate, key, f"surface {operation}", bound.actor)


def _preview(arguments: JsonObject, version: int) -> Json:
    # As text: the canonical form of a token has no floats, and arguments may.
    return {"arguments": json.dumps(arguments, sort_keys=True), "version": version}
