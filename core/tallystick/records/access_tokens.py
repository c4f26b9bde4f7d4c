"""Access tokens: what lets a caller in over a network, and as whom."""

from __future__ import annotations

from typing import Literal

from tallystick.records._base import JsonObject, Persisted
from tallystick.records.identity import AccessKind, Actor, Credential, Scope
from tallystick.records.times import datetime_of, optional_datetime_of

TokenClass = Literal["personal", "scoped", "session"]
"""`personal` is good for all that its user may do, `scoped` for some scopes or operations.

`session` is for a person's sitting of a few hours, made at a terminal: with that one alone is
anything granted, forced or erased.
"""


class AccessToken(Persisted):
    """A token of an access to a tally: who comes in with it, for what, until when."""

    id: str
    token_class: TokenClass
    name: str
    """What people call it, such as the machine that has it."""
    actor: Actor
    """Who comes in with it: user, agent, organization, projects, delegations and role."""
    scopes: tuple[Scope, ...] | None = None
    """The scopes that it is good for; None for all that the actor may reach."""
    operations: tuple[AccessKind, ...] | None = None
    """What it is good for; None for all that the actor may do."""
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    created_by: JsonObject
    """The identity of who made it."""
    expires_at: int
    expires_time = datetime_of("expires_at")
    revoked_at: int | None = None
    revoked_time = optional_datetime_of("revoked_at")
    revoked_reason: str | None = None
    replaced_by: str | None = None
    """The token that took its place when it was rotated."""
    secret: str | None = None
    """What the caller sends, only in the answer to whoever made it: the tally keeps its digest."""

    @property
    def credential(self) -> Credential:
        """The bounds of whoever comes in with it."""
        return Credential(
            token_id=self.id,
            scopes=self.scopes,
            operations=self.operations,
            is_attended=self.token_class == "session",
            is_agents=self.actor.agent is not None,
        )

    def caller(self, surface: str) -> Actor:
        """Return the actor who comes in with it through `surface`."""
        return self.actor.replace(surface=surface, credential=self.credential)

    def is_good_at(self, now: int) -> bool:
        """Return True if it lets anybody in at `now`, microseconds UTC."""
        return self.revoked_at is None and now < self.expires_at
