"""Callers: who calls a tool, and the scopes that this server leads to for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp.server.mcpserver import Context

from tallystick.errors import InvalidScope
from tallystick.records import Actor, Credential, Scope
from tallystick.tally import BoundTally, Tally

_LONGEST_NAME = 64


@dataclass(frozen=True)
class Caller:
    """Who calls, and where."""

    bound: BoundTally
    """The view in the scope where this caller writes. Beyond a configured boundary it reaches
    nothing: the credential of its actor has the scopes.
    """
    scopes: tuple[Scope, ...]
    """The scopes that are searched where a call names no project."""
    is_bounded: bool
    """True if these scopes are all that the caller reaches."""

    @property
    def name(self) -> str:
        """The actor, as every answer names them."""
        actor = self.bound.actor
        return actor.user if actor.agent is None else f"{actor.agent} for {actor.user}"

    def within(self, project: str | None) -> BoundTally:
        """Return the view in a project, or in a scope; None is the view where the caller writes.
        Raises InvalidScope, for a bounded caller alike for scopes that exist and that do not.
        """
        if project is None:
            return self.bound
        actor = self.bound.actor
        try:
            scope = actor.home(project if ":" in project else f"project:{project}")
        except InvalidScope as error:
            # Its message repeats what was given.
            raise InvalidScope("A scope is written like apollo or project:apollo.") from error
        if self.is_bounded and scope not in self.scopes:
            served = ", ".join(map(str, self.scopes))
            raise InvalidScope(f"That scope is not served here. Served are: {served}.")
        return replace(self.bound, scope=scope)


Callers = Callable[[Context[Any, Any]], Caller]
"""Finds out who makes a call: the actor of the server, or that of the credential of the request."""


def as_agents(callers: Callers) -> Callers:
    """Return callers who are agents, whoever they act for: a call that names no agent is named
    after its client, because what calls over MCP is a model.
    """

    def caller(context: Context[Any, Any]) -> Caller:
        caller = callers(context)
        if caller.bound.actor.agent is not None:
            return caller
        agent = caller.bound.actor.replace(agent=_client_name(context))
        return replace(caller, bound=replace(caller.bound, actor=agent))

    return caller


def _client_name(context: Context[Any, Any]) -> str:
    """Return the name that a client gives itself, without what a name does not have."""
    try:
        params = context.session.client_params
    except ValueError:
        params = None  # no request is under way: the application calls
    name = "" if params is None else params.client_info.name
    return re.sub(r"[^\w.-]+", "-", name)[:_LONGEST_NAME].strip("-") or "mcp-client"


def caller_of(tally: Tally, actor: Actor, scopes: Sequence[str | Scope] | None = None) -> Caller:
    """Return the caller who acts as `actor`, bounded by `scopes` and by the actor's credential. The
    first of the scopes is where they write. Raises InvalidScope.
    """
    bounds = actor.credential
    if scopes is not None:
        if isinstance(scopes, str) or not scopes:
            raise InvalidScope("`scopes` has to be a list such as ['project:apollo'].")
        bounded = tuple(dict.fromkeys(actor.home(scope) for scope in scopes))
        if bounds is None:
            bounds = Credential(scopes=bounded, is_attended=True)
        elif all(map(bounds.reaches, bounded)):
            bounds = bounds.replace(scopes=bounded)
        else:
            raise InvalidScope("The credential is not good for all of these `scopes`.")
        actor = actor.replace(credential=bounds)
    reached = None if bounds is None else bounds.scopes
    own = own_scopes(actor)
    searched = reached or tuple(each for each in own if bounds is None or bounds.reaches(each))
    searched = searched or own
    return Caller(tally.bind(actor, searched[0]).on("mcp"), searched, reached is not None)


def own_scopes(actor: Actor) -> tuple[Scope, ...]:
    """Return the scopes that an actor's identity names: the private one, and those of its
    projects.
    """
    projects = (
        Scope(kind="project", key=key, organization=actor.organization)
        for key in sorted(actor.projects)
    )
    return (actor.private_scope, *projects)
