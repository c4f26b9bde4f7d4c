"""Labels that a call filters by: one that nothing bears is refused with the nearest that is known,
so that a slip of the pen is not taken for an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import get_args

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.records import Actor, Scope
from tallystick.records.kinds import TaskStatus
from tallystick.storage.index import search
from tallystick.storage.rows import scopes

_STATUSES = get_args(TaskStatus)
_LIKE = 0.75
"""The likeness from which on one label is taken for a misspelling of another."""


def require_known_labels(
    context: MemoryContext, actor: Actor, scope_list: Sequence[Scope], labels: Mapping[str, str]
) -> None:
    """Raise InvalidInput for a status that no memory of these scopes has and no task may have, and
    for another label that none has but that is like one which some have.

    Asked where a filter has left nothing. Only scopes that the actor may read are looked into.
    """
    if not labels:
        return
    with context.store.database.read() as connection:
        allowed = [
            scope
            for scope in scope_list
            if context.gate.decide(connection, actor, "read", scope).allowed
        ]
        ids = [row.id for row in scopes.find(connection, allowed)]
        known = search.label_values(connection, ids, list(labels))
    for name, value in labels.items():
        values = sorted(known.get(name, set()).union(_STATUSES if name == "status" else ()))
        if value not in values:
            _refuse(name, value, values)


def _refuse(name: str, value: str, known: Sequence[str]) -> None:
    folded = {each.casefold(): each for each in known}
    near = get_close_matches(value.casefold(), folded, n=1, cutoff=_LIKE)
    if near:
        meant = folded[near[0]]
        raise InvalidInput(
            f"`{name}` {value!r} is of no memory here. Did you mean {meant!r}?", argument=name
        )
    if name == "status":
        raise InvalidInput(
            f"`status` {value!r} is none. There are {', '.join(known)}.", argument=name
        )
