"""Labels that a call filters by: one that nothing bears is refused with the nearest that is known,
so that a slip of the pen is not taken for an empty list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import get_args

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.records import Actor, Scope
from tallystick.records.kinds import TaskStatus
from tallystick.storage.index import search
from tallystick.storage.rows import scopes

_STATUSES = get_args(TaskStatus)
_LIKE, _LIKE_OF_FEW = 0.75, 0.6
"""The likeness from which on one label is taken for a misspelling of another; of a closed set."""


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
        is_status = name == "status"
        values = known.get(name, set()).union(_STATUSES if is_status else ())
        refuse_unknown(name, value, sorted(values), closed=is_status)


def refuse_unknown(name: str, value: str, known: Iterable[str], *, closed: bool = False) -> None:
    """Raise InvalidInput for a value that is not among the known ones: with the nearest, and of a
    `closed` set in any case.
    """
    folded = {each.casefold(): each for each in known}
    if value in folded.values():
        return
    cutoff = _LIKE_OF_FEW if closed else _LIKE
    near = get_close_matches(value.casefold(), folded, n=1, cutoff=cutoff)
    hint = f" Did you mean {folded[near[0]]!r}?" if near else ""
    if closed:
        hint += f" There are {', '.join(folded.values())}."
    if hint:
        raise InvalidInput(f"`{name}` {value!r} is of nothing here.{hint}", argument=name)
