"""Boundaries: the scopes that a door to a tally leads to, whatever its actor may reach elsewhere.

A door is configured, or opened with a credential, for some scopes. Records of every other scope are
absent behind it, with the same error as records that do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tallystick.errors import InvalidScope, NotFound
from tallystick.memory.fields import STORE_ITEM
from tallystick.records import Actor, Scope, is_storable
from tallystick.storage import Connection, memories, recordings, sources
from tallystick.tally import BoundTally, Tally
from tallystick.tally.services import services_of

__all__ = ["BoundedKind", "Boundary", "own_scopes"]

BoundedKind = Literal["memory", "source", "run", "step"]
"""A kind of record that belongs to one scope."""


_ID = re.compile(r"[0-9a-f-]{6,36}")


def own_scopes(actor: Actor) -> tuple[Scope, ...]:
    """Return the scopes that an actor's identity names: the private one, and those of its
    projects.
    """
    projects = (
        Scope(kind="project", key=key, organization=actor.organization)
        for key in sorted(actor.projects)
    )
    return (actor.private_scope, *projects)


@dataclass(frozen=True)
class Boundary:
    """The scopes that a door leads to; the first one is where it writes."""

    scopes: tuple[Scope, ...]

    @classmethod
    def of(cls, actor: Actor, scopes: Sequence[str | Scope] | None = None) -> Boundary:
        """Return the boundary of these scopes, by default of the actor's own. Raises
        InvalidScope.
        """
        if scopes is None:
            return cls(own_scopes(actor))
        if isinstance(scopes, str) or not scopes:
            raise InvalidScope("`scopes` has to be a list such as ['project:apollo'].")
        return cls(tuple(dict.fromkeys(actor.home(scope) for scope in scopes)))

    def bind(self, tally: Tally, actor: Actor) -> BoundTally:
        """Return the view of an actor behind the door, which belongs to no project outside."""
        projects = {scope.key for scope in self.scopes if scope.kind == "project"}
        narrowed = actor.replace(projects=actor.projects & projects)
        return tally.bind(narrowed, self.scopes[0])

    def within(self, bound: BoundTally, scope: str | Scope | None) -> BoundTally:
        """Return the view in another scope of the boundary; None is the same view. Raises
        InvalidScope alike for a scope outside of it that exists and for one that does not.
        """
        if scope is None:
            return bound
        try:
            wanted = bound.actor.home(scope)
        except InvalidScope:
            wanted = None  # the error would repeat what was given
        if wanted is None or wanted not in self.scopes:
            raise InvalidScope(
                f"That scope is not served here. Served are: {', '.join(map(str, self.scopes))}."
            )
        return replace(bound, scope=wanted)

    def require(self, bound: BoundTally, kinds: Sequence[BoundedKind], identity: str) -> None:
        """Raise NotFound unless `identity` is the whole id of a record of one of these kinds within
        the boundary: alike for one outside of it and for one that does not exist.
        """
        store = services_of(bound).store
        if "run" in kinds or "step" in kinds:
            store.database.flush()  # what is recorded already, acknowledged or not
        if is_storable(identity):
            with store.database.read() as connection:
                for kind in kinds:
                    if _scope_of(connection, kind, identity) in self.scopes:
                        return
        # What does not look like an id is not repeated: it may be anything.
        name = f" {identity}" if _ID.fullmatch(identity) else ""
        raise NotFound(f"There is no {kinds[0]}{name} that {bound.actor.user} may see.")


def _scope_of(connection: Connection, kind: BoundedKind, identity: str) -> Scope | None:
    if kind == "memory":
        memory = memories.get(connection, identity, sources=False)
        # An item of a runtime's store is reached by its namespace alone.
        if memory is None or memory.memory.kind == STORE_ITEM:
            return None
        return memory.memory.scope
    if kind == "source":
        source = sources.find(connection, identity)
        return None if source is None else source.scope
    if kind == "step":
        step = recordings.find_step(connection, identity)
        if step is None:
            return None
        identity = step.run_id
    run = recordings.find_run(connection, identity)
    return None if run is None else run.record.scope
