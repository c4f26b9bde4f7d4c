"""Secrets at memory's door: what a memory says is stored without them, whoever stores it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.memory.fields import STORE_ITEM
from tallystick.records import Json, Memory, NewMemory, Scope, SourceRef
from tallystick.storage import Connection, memories

_TEXTS = ("content", "subject", "speaker", "category", "tags", "attributes", "entities", "source")
"""The fields of a memory that somebody wrote."""
_MOST_NAMED = 5
"""Memories that a refusal names."""
_FIRST_NUMBER, _NUMBERS = 10**11, 9 * 10**11


class Admitted(NamedTuple):
    """The fields of a memory as they may be stored."""

    fields: Mapping[str, Any]
    """The fields that were changed."""
    warnings: tuple[str, ...] = ()


def admit_fields(context: MemoryContext, scope: Scope, fields: Mapping[str, Any]) -> Admitted:
    """Return the fields of a memory in which secrets were replaced, as `secrets_in_memory` says.

    A placeholder is numbered by a digest of its secret under a key of the scope, so that memories
    with different secrets stay different. Raises InvalidInput where secrets are refused.
    """
    changed, counts = _without_secrets(context, scope, fields)
    if not counts:
        return Admitted({})
    found = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    if context.secrets_in_memory == "refuse":
        raise InvalidInput(
            f"The memory holds secrets ({found}), which `secrets_in_memory` refuses. Take them out."
        )
    return Admitted(changed, (f"secrets were replaced before it was stored: {found}",))


def without_secrets(context: MemoryContext, scope: Scope, memory: Memory) -> Memory:
    """Return a stored memory as its copy in `scope` has it: with its secrets under `keep` alone."""
    fields = {name: getattr(memory, name) for name in _TEXTS if hasattr(memory, name)}
    return memory.model_copy(update=_without_secrets(context, scope, fields)[0])


def require_no_secrets(context: MemoryContext, tx: Connection, docs: Sequence[int]) -> None:
    """Raise InvalidInput where a version of these imported memories has a secret, unless the tally
    keeps them.

    The text of a version stands under a commitment in the chain of its scope: it is taken as it is,
    or not at all. Items of stores are live state.
    """
    held: dict[int, None] = {}
    for doc, body in memories.bodies(tx, docs):
        if body["kind"] != STORE_ITEM and _without_secrets(context, None, body)[1]:
            held[doc] = None
    if held:
        first = list(held)[:_MOST_NAMED]
        raise InvalidInput(
            f"{len(held)} memories of the export hold secrets, among them "
            f"{', '.join(memories.ids_of(tx, first))}. Their texts stand under digests of their "
            "journal, so that nothing can replace the secrets on the way. Erase the memories where "
            "they are from and export again, or open this tally with secrets_in_memory='keep', "
            "which shows them to no model either."
        )


def _without_secrets(
    context: MemoryContext, scope: Scope | None, fields: Mapping[str, Any]
) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Return the fields that have secrets without them, and the number of each kind. Without a
    scope the placeholders are numbered in order.
    """
    if context.secrets_in_memory == "keep":
        return {}, {}
    texts: dict[str, Json] = {
        name: list(value) if isinstance(value, tuple) else value
        for name in _TEXTS
        if (value := fields.get(name))
    }
    redacted, counts = context.redactor.redact_json(
        texts, number=None if scope is None else partial(_number, context, scope)
    )
    assert isinstance(redacted, dict)
    changed: dict[str, Any] = {
        name: value for name, value in redacted.items() if value != texts[name]
    }
    for name in ("tags", "entities"):
        if name in changed:
            changed[name] = tuple(dict.fromkeys(changed[name]))
    return changed, counts


def admit_memory(
    context: MemoryContext, scope: Scope, item: NewMemory
) -> tuple[NewMemory, tuple[str, ...]]:
    """Return a new memory as it may be stored, with warnings; see `admit_fields`."""
    fields: dict[str, Any] = {name: getattr(item, name) for name in _TEXTS}
    if item.source is not None:
        fields["source"] = item.source.model_dump(mode="json", exclude_defaults=True)
    admitted = admit_fields(context, scope, fields)
    if not admitted.fields:
        return item, admitted.warnings
    changed = dict(admitted.fields)
    if "source" in changed:
        changed["source"] = SourceRef.load(changed["source"])
    return item.model_copy(update=changed), admitted.warnings


def _number(context: MemoryContext, scope: Scope, kind: str, secret: str) -> int:
    """Return the number of a secret's placeholder, of twelve digits."""
    key = context.frame_keys.signing(scope)
    digest = blake2b(
        f"{kind}\x00{secret}".encode("utf-8", "surrogatepass"), key=key, person=b"tally/secret"
    )
    return _FIRST_NUMBER + int.from_bytes(digest.digest()[:8]) % _NUMBERS
