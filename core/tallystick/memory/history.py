"""History: every event of a memory, from ADD to RECOVER, with old and new values while they
exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Literal, cast

from tallystick.access import visible_docs
from tallystick.memory.context import MemoryContext
from tallystick.records import (
    Actor,
    CorrectionKind,
    DecisionAction,
    HistoryEntry,
    JournalEntry,
)
from tallystick.storage import Connection
from tallystick.storage.rows import journal, memories, memory_versions

_Event = Literal[
    "ADD",
    "SEEN",
    "UPDATE",
    "FORGET",
    "RECOVER",
    "CORRECT",
    "PROMOTE",
    "SHARE",
    "ERASE",
    "NONE",
]
_EVENTS: dict[str, _Event] = {
    "memory.add": "ADD",
    "memory.seen": "SEEN",
    "memory.update": "UPDATE",
    "memory.forget": "FORGET",
    "memory.recover": "RECOVER",
    "memory.correct": "CORRECT",
    "memory.promote": "PROMOTE",
    "memory.share": "SHARE",
    "memory.erase": "ERASE",
    "memory.none": "NONE",
}
_ALWAYS = (
    "kind",
    "state",
    "pinned",
    "confidence",
    "importance",
    "corrected",
    "redacted",
    "valid_from",
    "valid_until",
    "expires_at",
    "freshness_ts",
    "embedding_model",
    "transform_version",
    "extraction_model",
    "prompt_version",
)
"""Fields of a version that contain nobody's words."""


def history(context: MemoryContext, actor: Actor, memory_id: str) -> list[HistoryEntry]:
    """Return every event of one memory, oldest first. Raises NotFound for hidden and absent ones
    alike.
    """
    with context.store.database.read() as connection:
        stored = context.visible(connection, actor, memory_id, "read")
        events = journal.about(connection, memory_id)
        result = entries(connection, context, actor, stored, events)
    context.gate.log_read(actor, "history", [stored.memory.scope], results=len(events))
    return result


def entries(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    stored: memories.Stored,
    events: Iterable[JournalEntry],
) -> list[HistoryEntry]:
    """Return events of a memory with the values they changed, as far as this actor, who may read
    there, may see them.
    """
    versions = {
        version.version: version for version in memory_versions.versions_of(connection, stored.doc)
    }
    memory = stored.memory
    hidden = {field.partition(".")[0] for field in memory.redacted}
    if stored.doc not in visible_docs(
        connection, context.gate, actor, [stored], context.store.clock.now()
    ):
        hidden = set(memory_versions.BODY_FIELDS) - set(_ALWAYS)
    return [_entry(event, versions, hidden) for event in events if event.event in _EVENTS]


def _entry(
    event: JournalEntry,
    versions: Mapping[int, memory_versions.VersionBody],
    hidden: AbstractSet[str],
) -> HistoryEntry:
    number = int(cast(int, event.details["version"]))
    kind = _EVENTS[event.event]
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    if kind not in ("SEEN", "PROMOTE", "SHARE", "ERASE", "NONE"):
        old, new = _difference(versions.get(number - 1), versions.get(number))
    withheld = sorted(hidden & {*old, *new})
    version = versions.get(number)
    return HistoryEntry(
        sequence=event.sequence,
        event=kind,
        correction=cast("CorrectionKind | None", event.details.get("correction")),
        at=event.at,
        actor=event.actor,
        surface=event.surface,
        reason=event.reason,
        version=number,
        decision=cast("DecisionAction | None", event.details.get("decision")),
        provider=_text(event, "provider"),
        model=_text(event, "model"),
        prompt_version=_text(event, "prompt_version"),
        confidence=cast("int | None", event.details.get("confidence")),
        old={name: value for name, value in old.items() if name not in hidden},
        new={name: value for name, value in new.items() if name not in hidden},
        withheld=tuple(withheld),
        erased_at=None if version is None else version.erased_at,
        correlation_id=event.correlation_id,
        request_id=event.request_id,
        session_id=event.session_id,
        audit_id=event.audit_id,
    )


def _text(event: JournalEntry, name: str) -> str | None:
    value = event.details.get(name)
    return value if isinstance(value, str) else None


def _difference(
    before: memory_versions.VersionBody | None, after: memory_versions.VersionBody | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    new = dict(after.body) if after is not None and after.body is not None else {}
    if before is None:
        return {}, {name: value for name, value in new.items() if value not in (None, [], {})}
    old = dict(before.body) if before.body is not None else {}
    changed = [name for name in memory_versions.BODY_FIELDS if old.get(name) != new.get(name)]
    return {name: old.get(name) for name in changed}, {name: new.get(name) for name in changed}
