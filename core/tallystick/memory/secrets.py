"""Secrets at memory's door: what a memory says is stored without them, whoever stores it."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.policy.redaction import Numbering
from tallystick.records import Json, Memory, NewMemory, Scope, SourceRef

_TEXTS = ("content", "subject", "speaker", "category", "tags", "attributes", "entities", "source")
"""The fields of a memory that somebody wrote."""
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
    changed, counts = mask_fields(context, fields, _numbering(context, scope))
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
    return mask_memory(context, memory, _numbering(context, scope))


def stored_text(context: MemoryContext, scope: Scope, text: str) -> str:
    """Return a text as the content of a memory in `scope` is stored."""
    masked, _ = mask_fields(context, {"content": text}, _numbering(context, scope))
    return str(masked.get("content", text))


def mask_memory(context: MemoryContext, memory: Memory, number: Numbering) -> Memory:
    """Return a stored memory with its secrets replaced, unless the tally keeps them."""
    fields = {name: getattr(memory, name) for name in _TEXTS if hasattr(memory, name)}
    return memory.model_copy(update=mask_fields(context, fields, number)[0])


def mask_fields(
    context: MemoryContext, fields: Mapping[str, Any], number: Numbering
) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Return the fields that have secrets without them, and the number of each kind: none where
    the tally keeps them.
    """
    if context.secrets_in_memory == "keep":
        return {}, {}
    texts: dict[str, Json] = {
        name: list(value) if isinstance(value, tuple) else value
        for name in _TEXTS
        if (value := fields.get(name))
    }
    redacted, counts = context.redactor.redact_json(texts, number=number)
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


def _numbering(context: MemoryContext, scope: Scope) -> Numbering:
    return lambda kind, secret: placeholder_number(context.frame_keys.signing(scope), kind, secret)


def placeholder_number(key: bytes, kind: str, secret: str) -> int:
    """Return the number of a secret's placeholder under the frame key of a scope, of twelve
    digits.
    """
    digest = blake2b(
        f"{kind}\x00{secret}".encode("utf-8", "surrogatepass"), key=key, person=b"tally/secret"
    )
    return _FIRST_NUMBER + int.from_bytes(digest.digest()[:8]) % _NUMBERS
