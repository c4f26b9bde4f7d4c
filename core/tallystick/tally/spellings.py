"""Names that callers of other memories type, answered with the spelling of this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_type_hints

from tallystick.errors import UnknownName
from tallystick.extension import load_extensions
from tallystick.settings import Settings

_VERBS: Mapping[str, str] = {
    "add": 'remember("…")',
    "create": 'remember("…")',
    "put": 'remember("…")',
    "save": 'remember("…")',
    "store": 'remember("…")',
    "add_many": 'remember_many(["…"])',
    "search": 'recall("…")',
    "query": 'recall("…")',
    "retrieve": 'recall("…")',
    "get_all": "memories()",
    "list": "memories()",
    "update": 'modify(memory_id, content="…", reason="…")',
    "edit": 'modify(memory_id, content="…", reason="…")',
    "delete": 'forget(memory_id, reason="…")',
    "remove": 'forget(memory_id, reason="…")',
    "delete_all": 'corrections.forget_matching("…", reason="…")',
    "undo": 'recover(memory_id, reason="…")',
}
"""Verbs of other memories, and the call that does the same here."""

_NO_PART = ("aio",)
"""Properties that offer the verbs of a bound tally itself."""

_LIMIT = dict.fromkeys(("k", "top_k", "n", "n_results", "size"), "limit={}")
_WHO = {
    **dict.fromkeys(("user", "user_id"), "tally.user({})"),
    **dict.fromkeys(("agent", "agent_id"), 'tally.bind(Actor(user="…", agent={}))'),
}
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "remember": {"metadata": "attributes={}", **_WHO},
    "recall": {**_LIMIT, "filter": "tags={}", "filters": "tags={}", **_WHO},
    "memories": {**_LIMIT, **_WHO},
    "bind": _WHO,
}
"""Arguments of other memories by verb, and how they are written here."""


def respell_argument(verb: str, name: str, value: object) -> str | None:
    """Return how an argument of another memory is written here, such as `limit=5`."""
    if verb == "open" and name in Settings.model_fields:
        return f"settings=Settings({name}={value!r})"
    spelling = _ARGUMENTS.get(verb, {}).get(name)
    return None if spelling is None else spelling.format(repr(value))


def unknown_verb(owner: str, name: str, receiver: str, bound: type) -> UnknownName:
    """Return the error for a verb that a tally has not, with the line to paste where another
    memory, or a part of a `bound` tally, has it.
    """
    if name in _VERBS:
        return UnknownName(f"A {owner} has no {name!r}. Write {receiver}.{_VERBS[name]}.")
    parts = {} if name.startswith("_") else vars(bound)
    for part, member in parts.items():
        if not isinstance(member, property) or part in _NO_PART or part.startswith("_"):
            continue
        if hasattr(get_type_hints(member.fget)["return"], name):
            return UnknownName(f"A {owner} has no {name!r}. Write {receiver}.{part}.{name}(…).")
    for operation in (each for extension in load_extensions() for each in extension.operations):
        if operation.name == name:
            face = operation.face.__name__
            return UnknownName(f"A {owner} has no {name!r}. Write {face}({receiver}).{name}(…).")
    return UnknownName(f"A {owner} has no attribute {name!r}.")
