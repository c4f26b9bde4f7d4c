"""Names that callers of other memories type, answered with the spelling of this one."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import getattr_static

from tallystick.errors import UnknownName
from tallystick.extension import load_extensions
from tallystick.records._base import hints_of
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
    "delete_user": 'operator.erase_user("…", reason="…")',
    "undo": 'recover(memory_id, reason="…")',
}
"""Verbs of other memories, and the call that does the same here."""

_COMMANDS: Mapping[str, str] = {
    'corrections.forget_matching("…", reason="…")': "forget",
    'operator.erase_user("…", reason="…")': "erase-user",
}
"""Commands of those calls that are not named after their verb."""

_NO_PARTS = ("actor", "aio", "scope")
"""Properties whose verbs are others, or those of a bound tally itself."""

_OWNERS_PART = "operator"
"""The part that is the owner's alone, whoever else is bound."""

_LIMIT = dict.fromkeys(("k", "top_k", "n", "n_results", "size"), "limit={}")
_WHO = {
    **dict.fromkeys(("user", "user_id"), "tally.user({})"),
    **dict.fromkeys(("agent", "agent_id"), 'tally.bind(Actor(user="…", agent={}))'),
}
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "remember": {"metadata": "attributes={}", **_WHO},
    "recall": {
        **_LIMIT,
        **dict.fromkeys(("filter", "filters"), "tags=[…] or kinds=[…]"),
        **dict.fromkeys(("threshold", "score_threshold"), "min_score={}"),
        **_WHO,
    },
    "memories": {**_LIMIT, **_WHO},
    "modify": dict.fromkeys(("data", "text"), "content={}"),
    "bind": _WHO,
}
"""Arguments of other memories by verb, and how they are written here."""


def respell_argument(verb: str, name: str, value: object) -> str | None:
    """Return how an argument of another memory is written here, such as `limit=5`."""
    if verb == "open" and name in Settings.model_fields:
        return f"settings=Settings({name}={value!r})"
    if name in ("filter", "filters") and isinstance(value, Mapping) and _WHO.keys() & value:
        # Other memories filter by who acts.
        return respell_argument(verb, *next(each for each in value.items() if each[0] in _WHO))
    spelling = _ARGUMENTS.get(verb, {}).get(name)
    return None if spelling is None else spelling.format(repr(value))


def respell_remotely(verb: str, name: str, value: object) -> str | None:
    """Same as `respell_argument`, where a token says who acts."""
    spelling = respell_argument(verb, name, value)
    return None if spelling is None or spelling.startswith("tally.") else spelling


def unknown_verb(
    owner: str, name: str, receiver: str, bound: type, *, is_awaited: bool = False
) -> UnknownName:
    """Return the error for a verb that a tally has not, with the line to paste where another
    memory, or a part of `bound`, the class of a bound tally or of a face of one, has it.
    """
    before, after = ("await ", ".aio") if is_awaited else ("", "")
    call = _VERBS.get(name)
    if call is None and not name.startswith("_"):
        parts = [each for each in dir(bound) if hasattr(_part_of(bound, each), name)]
        faces = [
            operation.face
            for extension in load_extensions()
            for operation in extension.operations
            if operation.name == name
        ]
        if parts:
            call = f"{parts[0]}.{name}(…)"
        elif faces:
            line = f"{before}{faces[0].__name__}({receiver}){after}.{name}(…)"
            return UnknownName(f"A {owner} has no {name!r}. Write {line}.")
    if call is None:
        return UnknownName(f"A {owner} has no attribute {name!r}.")
    if call.startswith(f"{_OWNERS_PART}.") and receiver.startswith("tally."):
        receiver = "tally.bind()"
    return UnknownName(f"A {owner} has no {name!r}. Write {before}{receiver}{after}.{call}.")


def command_for(name: str) -> str | None:
    """Return the command that does what a verb of another memory does."""
    call = _VERBS.get(name.replace("-", "_"))
    return None if call is None else _COMMANDS.get(call) or call.partition("(")[0]


def _part_of(bound: type, name: str) -> object:
    """Return the class of a part of a tally or of a face of one, or None for another attribute."""
    if name.startswith("_") or name in _NO_PARTS:
        return None
    member = getattr_static(bound, name)
    if isinstance(member, property) and member.fget is not None:
        return hints_of(member.fget)["return"]
    return getattr(member, "face", None)
