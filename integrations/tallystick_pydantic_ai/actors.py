"""Actor and conversation of a PydanticAI run, from its context."""

from __future__ import annotations

from typing import Any

from pydantic_ai import RunContext

from tallystick.records import Actor

__all__ = ["actor_from_deps", "conversation_of"]


def actor_from_deps(ctx: RunContext[Any]) -> Actor | None:
    """Return the deps if they are an Actor, else their `actor`, or None."""
    deps = ctx.deps
    if isinstance(deps, Actor):
        return deps
    actor = getattr(deps, "actor", None)
    return actor if isinstance(actor, Actor) else None


def conversation_of(ctx: RunContext[Any]) -> str | None:
    """Return the conversation of a run: the session in the history of the memories it changes."""
    conversation = getattr(ctx, "conversation_id", None)
    return conversation if isinstance(conversation, str) and conversation else None
