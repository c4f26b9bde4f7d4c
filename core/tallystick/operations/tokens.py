"""Operations on access tokens: let somebody in over a network, and take that back."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tallystick.operations.operation import (
    Arguments,
    IdempotencyKey,
    NoArguments,
    Operation,
    Reason,
)
from tallystick.records import AccessKind, AccessToken, Actor, DurationField, TokenClass

TokenId = Annotated[str, Field(description="Id of an access token.")]


class MakeToken(Arguments):
    """Arguments of `make_token`."""

    name: Annotated[
        str, Field(description="By which it is known, such as the machine that has it.")
    ]
    token_class: Annotated[
        TokenClass,
        Field(
            description="Good for all, for some scopes or operations, or for a person's sitting."
        ),
    ] = "personal"
    actor: Annotated[
        Actor | None, Field(description="Who comes in with it; by default whoever makes it.")
    ] = None
    scopes: Annotated[
        tuple[str, ...] | None, Field(description="The scopes that it is good for.")
    ] = None
    operations: Annotated[
        tuple[AccessKind, ...] | None, Field(description="What it is good for.")
    ] = None
    expires_in: Annotated[
        DurationField | None,
        Field(description="Seconds, or an ISO 8601 duration, until it ends; else by its class."),
    ] = None
    idempotency_key: IdempotencyKey = None


class RotateToken(Arguments):
    """Arguments of `rotate_token`."""

    token_id: TokenId
    idempotency_key: IdempotencyKey = None


class RevokeToken(Arguments):
    """Arguments of `revoke_token`."""

    token_id: TokenId
    reason: Reason
    idempotency_key: IdempotencyKey = None


OPERATIONS = (
    Operation(
        name="make_token",
        title="Let somebody in",
        description="Make an access token; its secret is shown once.",
        effect="operate",
        arguments=MakeToken,
        result=AccessToken,
        errors=("denied", "invalid_input", "idempotency_mismatch"),
        verb="tokens.make",
    ),
    Operation(
        name="tokens",
        title="List access tokens",
        description="List the access tokens, and those that have ended.",
        effect="read",
        arguments=NoArguments,
        result=tuple[AccessToken, ...],
        errors=(),
        verb="tokens.list",
    ),
    Operation(
        name="rotate_token",
        title="Replace an access token",
        description="Revoke an access token and make another with the same bounds.",
        effect="operate",
        arguments=RotateToken,
        result=AccessToken,
        errors=("denied", "not_found", "state_conflict", "idempotency_mismatch"),
        verb="tokens.rotate",
    ),
    Operation(
        name="revoke_token",
        title="End an access token",
        description="Revoke an access token: the next request with it is refused.",
        effect="operate",
        arguments=RevokeToken,
        result=AccessToken,
        errors=("not_found", "invalid_input", "idempotency_mismatch"),
        verb="tokens.revoke",
    ),
)
"""In the order in which surfaces list them."""
