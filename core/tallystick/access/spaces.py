"""Spaces: open a scope to members, read, change and list; each change is journaled with its reason.
And who may read a scope, for text that moves from one into another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Annotated, Any
from urllib.parse import quote

from pydantic import Field

from tallystick.access.gate import Gate
from tallystick.errors import Denied, InvalidInput, NotFound, StateConflict, VersionConflict
from tallystick.policy import ROLES
from tallystick.records import (
    AccessDecision,
    AccessKind,
    Actor,
    MemorySpace,
    ReasonCode,
    Scope,
    SpaceMember,
    checked_arguments,
    tuple_of,
)
from tallystick.records.arguments import Fields, IdempotencyKey, Reason, SpaceScope
from tallystick.storage import Connection, Store
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import journal, spaces
from tallystick.storage.rows.idempotency import IdempotentCall

Members = Annotated[
    Sequence[SpaceMember | Mapping[str, Any]],
    tuple_of(SpaceMember),
]
"""Members of a space: records, or mappings of their fields."""
_CHANGEABLE = ("name", "description", "state", "members")


@checked_arguments
class Spaces:
    """The spaces that one actor may see or manage. Thread-safe."""

    def __init__(self, store: Store, gate: Gate, actor: Actor, *, zone: tzinfo = UTC) -> None:
        """Use `bound.spaces`. Memberships end at moments of `zone`, where they have no offset."""
        self._store = store
        self._gate = gate
        self._actor = actor
        self._zone = zone

    def create(
        self,
        scope: SpaceScope,
        *,
        name: Annotated[str, Field(description="The name that people see.")],
        description: Annotated[str, Field(description="What it is for.")] = "",
        members: Annotated[Members, Field(description="Who belongs to it, each with a role.")] = (),
        reason: Reason,
        idempotency_key: IdempotencyKey = None,
    ) -> MemorySpace:
        """Open `scope` to `members`; a person who creates a project or delegated space becomes its
        steward.

        Team, organization, shared and public spaces are created by an operator; a project space
        also by a member of the project; a delegated one, whose key begins with its user's name and
        `/`, by that user. Raises Denied, InvalidRecord, InvalidInput, or StateConflict when the
        scope has a space.
        """
        target, now = self._actor.home(scope), self._store.clock.now()
        _require(name=name, reason=reason)
        refusal = _may_not_create(self._actor, target)
        if refusal is not None:
            raise self._gate.refusal(self._actor, refusal, "manage", target)
        space = MemorySpace.load(
            {
                "id": self._store.ids.new(),
                "scope": target,
                "name": name,
                "description": description,
                "members": _with_creator(self._actor, target, self._members(members)),
                "created_at": now,
                "created_by": self._actor.user,
                "updated_at": now,
                "updated_by": self._actor.user,
            }
        )

        arguments = [name, description, [member.dump() for member in space.members], reason]
        call = IdempotentCall(target, "space.create", idempotency_key, arguments)

        def unit(tx: Connection) -> MemorySpace:
            answered = call.read_answer(tx)
            if answered is not None:
                return MemorySpace.load(answered)
            if spaces.of_scopes(tx, [target]):
                raise StateConflict(
                    str(target),
                    state="taken",
                    reason="this scope has a space",
                    hint="Update that one.",
                    what="Scope",
                )
            spaces.add(tx, space)
            self._journal(tx, "space.create", space, reason)
            call.keep(tx, space.dump(), at=now)
            return space

        return self._store.database.write(unit, name="space.create", writes=Writes.of(target))

    def get(self, scope: SpaceScope) -> MemorySpace:
        """Return the space of `scope`. Raises NotFound alike where there is none and where the
        actor may not inspect it.
        """
        target = self._actor.home(scope)
        with self._store.database.read() as connection:
            space = self._visible(connection, target)
        if space is None:
            raise NotFound(f"There is no space {target} that {self._actor.user} may see.")
        return space

    def list(self) -> tuple[MemorySpace, ...]:
        """Return every space that this actor may inspect, by the name of its scope."""
        with self._store.database.read() as connection:
            every = spaces.all_spaces(connection)
            return tuple(
                space
                for space in every
                if self._gate.decide(connection, self._actor, "inspect", space.scope).allowed
            )

    def update(
        self,
        /,
        scope: SpaceScope,
        *,
        reason: Reason,
        if_version: Annotated[
            int | None, Field(description="Only if the space is at this version.")
        ] = None,
        idempotency_key: IdempotencyKey = None,
        **changes: Annotated[
            Fields, Field(description="New values of name, description, state or members.")
        ],
    ) -> MemorySpace:
        """Change `name`, `description`, `state` (`open`, `closed`) or `members`; a steward's or
        operator's work.

        Rights that it takes away are gone with the next call of everybody. Raises NotFound, Denied,
        InvalidInput, InvalidRecord or VersionConflict.
        """
        target = self._actor.home(scope)
        _require(reason=reason)
        unknown = sorted(set(changes) - set(_CHANGEABLE))
        if unknown or not changes:
            problem = (
                f"{', '.join(unknown)} cannot be changed." if unknown else "Say what is to change."
            )
            raise InvalidInput(f"{problem} Give one or more of {', '.join(_CHANGEABLE)}.")
        if "members" in changes:
            changes["members"] = self._members(changes["members"])
        printable = {**changes, "members": [member.dump() for member in changes.get("members", ())]}
        call = IdempotentCall(
            target,
            "space.update",
            idempotency_key,
            [sorted(changes), printable, reason, if_version],
        )

        def unit(tx: Connection) -> MemorySpace:
            space = self._visible(tx, target)
            if space is None:
                raise NotFound(f"There is no space {target} that {self._actor.user} may see.")
            self._gate.confirm(tx, self._actor, "manage", target)
            answered = call.read_answer(tx)
            if answered is not None:
                return MemorySpace.load(answered)
            if if_version is not None and space.version != if_version:
                raise VersionConflict(space.id, expected=if_version, actual=space.version)
            changed = space.replace(
                **changes,
                version=space.version + 1,
                updated_at=self._store.clock.now(),
                updated_by=self._actor.user,
            )
            spaces.replace(tx, changed)
            self._journal(tx, "space.update", changed, reason)
            call.keep(tx, changed.dump(), at=changed.updated_at)
            return changed

        with self._gate.journaling(self._actor):
            return self._store.database.write(unit, name="space.update", writes=Writes.of(target))

    def _members(
        self, members: Iterable[SpaceMember | Mapping[str, Any]]
    ) -> tuple[SpaceMember, ...]:
        return tuple(SpaceMember.load(member).at(self._zone) for member in members)

    def _visible(self, connection: Connection, scope: Scope) -> MemorySpace | None:
        if not self._gate.decide(connection, self._actor, "inspect", scope).allowed:
            return None
        return spaces.of_scopes(connection, [scope]).get(scope)

    def _journal(self, tx: Connection, event: str, space: MemorySpace, reason: str) -> None:
        members = [member.dump() for member in space.members]
        journal.append(
            tx,
            journal.Event(
                stream=f"scope:{space.scope}",
                event=event,
                actor=self._actor,
                at=space.updated_at,
                audit_id=self._store.ids.new(),
                reason=reason,
                subject_id=space.id,
                details={"version": space.version, "state": space.state, "members": members},
            ),
        )


def _may_not_create(actor: Actor, scope: Scope) -> ReasonCode | None:
    """Return the reason for which `actor` may not open a space of `scope`, or None."""
    if scope.kind in ("private", "diary"):
        return "unsupported_scope"
    if scope.organization != actor.organization and not actor.operates_tally:
        return "missing_organization" if actor.organization is None else "unverified_membership"
    if actor.is_operator:
        return None
    if actor.agent is not None:
        return "missing_permission"
    if scope.kind == "project":
        return None if scope.key in actor.projects else "unverified_membership"
    if scope.kind == "delegated":
        return (
            None if scope.key.startswith(quote(actor.user, safe="") + "/") else "principal_mismatch"
        )
    return "missing_permission"


def _with_creator(
    actor: Actor, scope: Scope, members: tuple[SpaceMember, ...]
) -> tuple[SpaceMember, ...]:
    if scope.kind not in ("project", "delegated") or any(
        (member.principal_type, member.principal_id) == ("user", actor.user) for member in members
    ):
        return members
    return (SpaceMember(principal_id=actor.user, role="steward"), *members)


def _require(**texts: str) -> None:
    for name, value in texts.items():
        if not isinstance(value, str) or not value.strip():
            raise InvalidInput(f"`{name}` is empty. It is kept with the space and its history.")


_EVERYBODY = "everyone:"


def readers_of(connection: Connection, scope: Scope) -> tuple[str, ...]:
    """Return the principals that may read in a scope, as `type:id`."""
    space = spaces.of_scopes(connection, [scope]).get(scope)
    members = _readers(space) if space is not None and space.state == "open" else ()
    return (*_natural_readers(scope), *(_name(member) for member in members))


def widens(connection: Connection, gate: Gate, actor: Actor, origin: Scope, into: Scope) -> bool:
    """Return True if somebody may read `into` who may not read `origin`, as far as is known.

    `actor` reads `origin` and writes `into`. Its own private scope belongs to the person that it
    acts for, so that text enters it only where that person may read it without the agent; its diary
    has no other reader. Of any other scope each principal that may read there, or will when a
    closed space is opened again, must be one of those that may read `origin`.
    """
    if origin == into:
        return False
    if into.kind == "private" and into.key == actor.user:
        person = actor.model_copy(update={"agent": None})
        return not gate.decide(connection, person, "read", origin).allowed
    if into.kind == "diary":
        return not gate.decide(connection, actor, "read", origin).allowed
    stored = spaces.of_scopes(connection, [origin, into])
    within = {*_natural_readers(origin)}
    if origin in stored and stored[origin].state == "open":
        now = gate.state(connection, ()).now
        within |= {
            _name(member)
            for member in _readers(stored[origin])
            if member.ends_at is None or now < member.ends_at
        }
    if _EVERYBODY in within or f"organization:{into.organization}" in within:
        return False
    readers = {*_natural_readers(into)}
    if into in stored:
        readers |= {_name(member) for member in _readers(stored[into])}
    return not readers <= within


def require_no_widening(
    connection: Connection,
    gate: Gate,
    actor: Actor,
    origins: Iterable[Scope],
    into: Scope,
    *,
    operation: AccessKind,
    remedy: str,
) -> None:
    """Raise Denied (`scope_crossing_requires_promotion`) where text of one of `origins` would get
    more readers in `into`; `remedy` tells what to do instead. Use within `gate.journaling`.
    """
    for origin in dict.fromkeys(origins):
        if widens(connection, gate, actor, origin, into):
            reason: ReasonCode = "scope_crossing_requires_promotion"
            decision = AccessDecision.refusal(actor, reason, operation, into)
            raise Denied(decision, f"{into} has readers that {origin} has not. {remedy}")


def _natural_readers(scope: Scope) -> tuple[str, ...]:
    """Return the readers that a scope has without a space."""
    if scope.kind == "private":
        return (f"user:{scope.key}",)
    if scope.kind == "project":
        return (f"project:{scope.key}",)
    if scope.diary_of is not None:
        diary = scope.diary_of
        return (f"agent:{diary.agent} of {diary.user} in {diary.project}",)
    return ()


def _readers(space: MemorySpace) -> list[SpaceMember]:
    return [
        member
        for member in space.members
        if "read" in ROLES[member.role] or "read" in member.permissions
    ]


def _name(member: SpaceMember) -> str:
    return f"{member.principal_type}:{member.principal_id}"
