"""Who acts in a PydanticAI run: an Actor, a callable from the run's context, or what the deps
say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_ai import RunContext

from tallystick.records import Actor

__all__ = ["ActorSource", "actor_from_deps", "conversation_of"]

ActorSource = Actor | Callable[[RunContext[Any]], Actor | None]
"""Who acts: an Actor, or a callable from the run's context."""


def actor_from_deps(ctx: RunContext[Any]) -> Actor | None:
    """The deps when they are an Actor, else their `actor`: the runtime's own way to say who
    acts.
    """
    deps = ctx.deps
    if isinstance(deps, Actor):
        return deps
    actor = getattr(deps, "actor", None)
    return actor if isinstance(actor, Actor) else None


def conversation_of(ctx: RunContext[Any]) -> str | None:
    """The conversation of a run, which the history of what it changes names as the session."""
    conversation = getattr(ctx, "conversation_id", None)
    return conversation if isinstance(conversation, str) and conversation else None
