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
    """Set the actor for a tally without an owner: whoever may write to its database may operate
    it.

    Raises InvalidRecord.
    """
    named = {"user": user, "projects": frozenset(projects), "role": "operator"}
    _ACTING.set(None if user is None else Actor.load(named))


@contextmanager
def open_as_owner(where: str, *, create: bool = False) -> Iterator[BoundTally]:
    """Open the tally as its owner, or without one as the actor named with `--as`; close it
    afterwards.
    """
    with Tally.open(where, create=create, background=False) as tally:
        if tally.owner is None and _ACTING.get() is None:
            raise InvalidInput(
                "This tally has no owner. Name who acts, before the command: tally --as ada "
                "--project apollo memories …"
            )
        yield tally.bind(_ACTING.get() if tally.owner is None else None).on("cli")


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
