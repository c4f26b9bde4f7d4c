"""Opening a tally for one command: as its owner, or as the actor named with `--as`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import get_args

from tallystick.errors import InvalidInput, NotFound
from tallystick.records import Actor, MemoryState
from tallystick.tally import BoundTally, Tally

__all__ = ["set_actor", "memory_id_of", "open_as_owner"]

_ACTING: ContextVar[Actor | None] = ContextVar("tallystick_cli_acting", default=None)


def set_actor(user: str | None, projects: Iterable[str]) -> None:
    """Set the actor of the commands that follow. Raises InvalidRecord."""
    named = {"user": user, "projects": frozenset(projects)}
    _ACTING.set(None if user is None else Actor.load(named))


@contextmanager
def open_as_owner(where: str, *, create: bool = False) -> Iterator[BoundTally]:
    """Open the tally as its owner, or as the actor named with `--as`; close it afterwards.

    Where a tally has an owner, the owner alone operates it; without one, whoever may write to its
    database.
    """
    with Tally.open(where, create=create, background=False) as tally:
        acting, owner = _ACTING.get(), tally.owner
        if owner is None and acting is None:
            raise InvalidInput(
                "This tally has no owner. Name who acts, before the command: tally --as ada "
                "--project apollo memories …"
            )
        if acting is not None and owner is None:
            acting = acting.replace(role="operator")
        elif acting is not None and owner is not None and acting.user == owner.user:
            acting = owner.replace(projects=owner.projects | acting.projects)
        yield tally.bind(acting).on("cli")


def memory_id_of(owner: BoundTally, text: str) -> str:
    """Return the id of the memory whose id is, or ends with, `text`, in the owner's scopes. Raises
    InvalidInput, NotFound.
    """
    if len(text) >= 36:
        return text
    if len(text) < 6:
        raise InvalidInput("Give at least 6 characters of the id.")
    ids = set()
    for scope in owner.tally.scopes():
        if scope.kind == "private" and scope != owner.actor.private_scope:
            continue
        preview = owner.preview_access(scopes=[scope])
        if not preview.scopes[0].decision.allowed:
            continue
        bound = owner.tally.bind(owner.actor, scope).on("cli")
        listed = bound.memories(states=get_args(MemoryState), limit=1_000_000)
        ids |= {memory.id for memory in listed if memory.id.endswith(text)}
    if len(ids) > 1:
        raise InvalidInput(f"{len(ids)} memories end with {text}. Give more of the id.")
    if not ids:
        raise NotFound(f"There is no memory {text} that {owner.actor.user} may see.")
    return ids.pop()
