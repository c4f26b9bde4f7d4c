"""Spaces: stored scopes with members, and previews of access to them."""

from __future__ import annotations

from datetime import tzinfo
from typing import Literal, Self

from pydantic import Field, model_validator

from tallystick.records._base import Persisted, Record
from tallystick.records.identity import AccessKind, Scope
from tallystick.records.policy import AccessDecision
from tallystick.records.times import MomentField, datetime_of, microseconds, resolve_moment

PrincipalType = Literal["user", "agent", "project", "organization", "everyone"]
SpaceRole = Literal["reader", "writer", "maintainer", "steward"]
SpaceState = Literal["open", "closed"]


class SpaceMember(Record):
    """One member of a space, with its role and the end of its membership."""

    principal_type: PrincipalType = "user"
    principal_id: str = ""
    """Compared whole; empty for `everyone` only."""
    role: SpaceRole = "reader"
    permissions: tuple[AccessKind, ...] = ()
    """Operations granted beyond those of the role; never `manage`, which only the role of a steward
    gives.
    """
    expires_at: MomentField | None = None
    """The moment from which on this membership no longer counts; None means never."""

    @property
    def ends_at(self) -> int | None:
        """Microseconds UTC from which on it no longer counts; None means never."""
        return resolve_moment(self.expires_at)

    def at(self, zone: tzinfo) -> Self:
        """Return it with its end in microseconds UTC, as meant in `zone`."""
        end = microseconds(self.expires_at, zone, name="expires_at")
        return self if end == self.expires_at else self.model_copy(update={"expires_at": end})

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.principal_type == "everyone") == bool(self.principal_id):
            raise ValueError("`principal_id` names the principal; only `everyone` has none")
        if self.principal_type == "everyone" and (self.role != "reader" or self.permissions):
            raise ValueError("`everyone` can be a reader only")
        if "manage" in self.permissions:
            raise ValueError("`manage` cannot be granted; make the member a steward")
        return self


class MemorySpace(Persisted):
    """A stored scope with its members. Team, organization, shared and public scopes are open
    through one only.
    """

    id: str
    scope: Scope
    name: str
    description: str = ""
    state: SpaceState = "open"
    """A closed space refuses everything but inspection and management, members included."""
    members: tuple[SpaceMember, ...] = ()
    version: int = Field(default=1, ge=1)
    created_at: int
    """Microseconds UTC."""
    created_time = datetime_of("created_at")
    created_by: str
    updated_at: int
    updated_time = datetime_of("updated_at")
    updated_by: str

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.scope.kind in ("private", "diary"):
            raise ValueError(
                f"a {self.scope.kind} scope belongs to its principal; it takes no members"
            )
        named = [(member.principal_type, member.principal_id) for member in self.members]
        if len(set(named)) != len(named):
            raise ValueError("a principal is named twice among the members")
        if ("everyone", "") in named and self.scope.kind != "public":
            raise ValueError("`everyone` can be a member of the public space only")
        return self


class ScopePreview(Record):
    """The memories that one actor could recall from one scope."""

    scope: Scope
    decision: AccessDecision
    """The decision about the actor's reading there."""
    visible: tuple[str, ...] = ()
    """Ids that a recall can return, oldest first."""
    hidden: dict[str, int] = {}
    """The number of memories kept from recall, by state (or `expired`); only for an actor that may
    inspect the scope.
    """
    denied: tuple[str, ...] = ()
    """Ids that would be visible if the actor were allowed; only for an actor that may inspect the
    scope.
    """


class AccessPreview(Record):
    """The memories that an actor could recall, scope by scope. A preview changes nothing."""

    user: str
    agent: str | None = None
    scopes: tuple[ScopePreview, ...]

    @property
    def visible(self) -> tuple[str, ...]:
        """Every id that a recall over these scopes can return."""
        return tuple(memory_id for scope in self.scopes for memory_id in scope.visible)


class MemberPreview(Record):
    """The access that a principal would have as a member of a space. A preview changes nothing."""

    member: SpaceMember
    operations: tuple[AccessKind, ...]
    """What it could do in the scope then."""
    before: ScopePreview
    """What it can recall there now."""
    after: ScopePreview
    """What it could recall there then."""

    @property
    def gained(self) -> tuple[str, ...]:
        """The ids that it could recall then, and cannot now, oldest first."""
        now = set(self.before.visible)
        return tuple(memory_id for memory_id in self.after.visible if memory_id not in now)
