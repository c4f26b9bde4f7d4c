"""Imported secrets: memory's door for an export, whose chains are verified as they came.

The text of a version stands under a commitment of its journal: one with a secret is destroyed as an
erasure destroys it, and a newest one is followed by a version without the secret. Sources and
proposals, which no chain covers, are masked in their rows. Checkpoints, items of stores and working
memory are live state, which stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.errors import InvalidInput
from tallystick.memory import MemoryContext
from tallystick.memory.context import is_made_by_extension
from tallystick.memory.fields import STORE_ITEM
from tallystick.memory.memory_write import MemoryWrite
from tallystick.memory.secrets import mask_fields, mask_memory, placeholder_number
from tallystick.policy.redaction import Numbering
from tallystick.records import ProposalContent, SourceRef
from tallystick.records.framing import frame_key
from tallystick.storage import ScopeRow
from tallystick.storage.engine import containment
from tallystick.storage.rows import memories, memory_versions, parts, proposals, scopes, sources
from tallystick.upkeep.copies import Copies
from tallystick.upkeep.reach import destroy_copies, destroy_memories

_MOST_NAMED = 5
"""Memories that a refusal names."""
_REASON = "an import replaced its secrets"


@dataclass(frozen=True)
class _Mask:
    """The secrets that were met, and how each is numbered in its scope."""

    context: MemoryContext
    scopes: dict[int, ScopeRow]
    kinds: dict[str, str] = field(default_factory=dict)
    """The kind of each secret."""
    rows: Counter[str] = field(default_factory=Counter)
    """What held one, by kind of row."""

    def numbering(self, scope_id: int) -> Numbering:
        key = frame_key(self.scopes[scope_id].secret)

        def number(kind: str, secret: str) -> int:
            self.kinds[secret] = kind
            return placeholder_number(key, kind, secret)

        return number


def mask_import(write: MemoryWrite, docs: Sequence[int], scope_ids: Sequence[int]) -> str | None:
    """Replace the secrets of imported scopes, as `secrets_in_memory` says; return a warning, or
    None where there were none or the tally keeps them. Raises InvalidInput where it refuses them.

    What is left in the file of the database is for `finish` of an erasure.
    """
    context, tx = write.context, write.tx
    if context.secrets_in_memory == "keep":
        return None
    mask = _Mask(context, {scope_id: scopes.get_by_id(tx, scope_id) for scope_id in scope_ids})
    _mask_memories(write, docs, mask)
    _mask_sources(write, mask)
    _mask_proposals(write, mask)
    if not mask.kinds:
        return None
    needles = containment.needles_of(mask.kinds)
    destroy_copies(
        write,
        needles,
        Copies.in_scopes(tx, needles, scope_ids),
        [f"scope:{row.scope}" for row in mask.scopes.values()],
        reason=_REASON,
    )
    rows = ", ".join(f"{count} {kind}" for kind, count in mask.rows.items())
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(mask.kinds.values()).items())
    return f"secrets were replaced before it was stored, in {rows}: {kinds}"


def _mask_memories(write: MemoryWrite, docs: Sequence[int], mask: _Mask) -> None:
    """Write the masked version of each memory, and destroy the versions that hold a secret."""
    tx, held = write.tx, dict[int, list[int]]()
    for doc, scope_id, version, body in memory_versions.bodies(tx, docs):
        if (
            body["kind"] != STORE_ITEM
            and mask_fields(mask.context, body, mask.numbering(scope_id))[1]
        ):
            held.setdefault(doc, []).append(version)
    if not held:
        return
    if mask.context.secrets_in_memory == "refuse":
        first = memories.ids_of(tx, list(held)[:_MOST_NAMED])
        raise InvalidInput(
            f"{len(held)} memories of the export hold secrets, which `secrets_in_memory` refuses, "
            f"among them {', '.join(first)}. Erase them where they are from and export again, or "
            "open this tally with secrets_in_memory='redact'."
        )
    mask.rows["memories"] = len(held)
    stored = memories.get_docs(tx, held)
    derived = [each for each in stored.values() if is_made_by_extension(each.memory)]
    if derived:
        # What extensions made is made anew from the memories.
        destroy_memories(write, derived, keep_rows=True)
    for doc, versions in held.items():
        if stored[doc] not in derived:
            _mask_memory(write, stored[doc], versions, mask)


def _mask_memory(
    write: MemoryWrite, stored: memories.Stored, versions: list[int], mask: _Mask
) -> None:
    memory, scope = stored.memory, stored.scope
    details: dict[str, Any] = {"versions": versions}
    if memory.version in versions:
        masked = mask_memory(mask.context, memory, mask.numbering(stored.scope_id))
        body = masked.content.encode("utf-8", "surrogatepass")
        write.rewrite(
            write.permit_upkeep(stored),
            masked,
            "memory.erase",
            reason=_REASON,
            content_key=parts.put(write.tx, scope, body, at=write.now),
            details=details,
        )
    else:
        details["version"] = memory.version
        write.journal_event(memory.scope, "memory.erase", memory.id, details, reason=_REASON)
    memory_versions.erase_versions(write.tx, stored.doc, versions, at=write.now)


def _mask_sources(write: MemoryWrite, mask: _Mask) -> None:
    """Mask what sources say of themselves, and their texts: those that no memory has, whose own was
    looked at.
    """
    tx = write.tx
    for row in sources.in_scopes(tx, list(mask.scopes)):
        scope, number = mask.scopes[row.scope_id], mask.numbering(row.scope_id)
        reference = row.reference.model_dump(mode="json", exclude_defaults=True)
        body = None if row.is_remembered else parts.get(tx, row.scope_id, row.content_key)
        fields: dict[str, Any] = {"source": reference}
        if body is not None:
            fields["content"] = body.decode("utf-8", "surrogatepass")
        changed, counts = mask_fields(mask.context, fields, number)
        if not counts:
            continue
        _require_allowed(mask, "sources")
        key = row.content_key
        if "content" in changed:
            text = changed["content"].encode("utf-8", "surrogatepass")
            key = parts.put(tx, scope, text, at=write.now)
        sources.replace(tx, row.id, SourceRef.load(changed.get("source", reference)), key)
        if key != row.content_key:
            parts.drop(tx, row.scope_id, row.content_key)


def _mask_proposals(write: MemoryWrite, mask: _Mask) -> None:
    """Mask the words of proposals, and the reasons of those who decided."""
    for record, scope in proposals.in_scopes(write.tx, list(mask.scopes)):
        content = None if record.content is None else record.content.model_dump(mode="json")
        fields = {"attributes": {"content": content, "reason": record.decided_reason}}
        changed, counts = mask_fields(mask.context, fields, mask.numbering(scope.id))
        if counts:
            _require_allowed(mask, "proposals")
            words, reason = changed["attributes"].values()
            proposals.move(
                write.tx,
                record.id,
                before=[record.state],
                after=record.state,
                content=None if words is None else ProposalContent.load(words),
                decided_reason=reason,
            )


def _require_allowed(mask: _Mask, rows: str) -> None:
    """Count a row that held a secret. Raises InvalidInput where the tally refuses it."""
    mask.rows[rows] += 1
    if mask.context.secrets_in_memory == "refuse":
        raise InvalidInput(
            f"The {rows} of the export hold secrets, which `secrets_in_memory` refuses. Open this "
            "tally with secrets_in_memory='redact'."
        )
