"""History: every event of a memory, from ADD to RECOVER, with old and new values while they exist;
and what happened in a scope, in the order of its journal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, Literal, cast

from tallystick.access import visible_docs
from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.memory.links import CHANGEABLE_LINKS
from tallystick.memory.read import preview_of
from tallystick.records import (
    Activity,
    Actor,
    CorrectionKind,
    DecisionAction,
    HistoryEntry,
    JournalEntry,
    LoggedRead,
    Scope,
)
from tallystick.storage import Connection
from tallystick.storage.rows import access_log, journal, memories, memory_versions

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
    "LINK",
    "UNLINK",
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
    "memory.link": "LINK",
    "memory.unlink": "UNLINK",
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
    shown = [event for event in events if event.event in _EVENTS]
    ends = _readable_ends(connection, context, actor, shown)
    return [_entry(event, versions, hidden, ends) for event in shown]


def _readable_ends(
    connection: Connection, context: MemoryContext, actor: Actor, events: Sequence[JournalEntry]
) -> AbstractSet[str]:
    """Return the memories that links were made to or removed from, as far as they may be read."""
    ids = {each for event in events for ids in _links_of(event).values() for each in ids}
    if not ids:
        return ids
    return {
        stored.memory.id
        for stored in memories.get_many(connection, ids)
        if context.gate.decide(connection, actor, "read", stored.memory.scope).allowed
    }


def _links_of(event: JournalEntry) -> dict[str, list[str]]:
    """Return the other ends of the links that an event is about, by argument."""
    if event.event not in ("memory.link", "memory.unlink"):
        return {}
    return {name: cast("list[str]", event.details.get(name, [])) for name in CHANGEABLE_LINKS}


def _entry(
    event: JournalEntry,
    versions: Mapping[int, memory_versions.VersionBody],
    hidden: AbstractSet[str],
    ends: AbstractSet[str],
) -> HistoryEntry:
    number = int(cast(int, event.details["version"]))
    kind = _EVENTS[event.event]
    old: dict[str, Any] = {}
    new: dict[str, Any] = {}
    if kind in ("LINK", "UNLINK"):
        links = {name: [*filter(ends.__contains__, ids)] for name, ids in _links_of(event).items()}
        changed = {name: ids for name, ids in links.items() if ids}
        old, new = ({}, changed) if kind == "LINK" else (changed, {})
    elif kind not in ("SEEN", "PROMOTE", "SHARE", "ERASE", "NONE"):
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


_COUNTED = frozenset({"memory.imported", "memory.reflected"})
"""Events whose details are numbers and the names of formats: nothing that was said."""
_MOST = 160
"""Characters of a text that are shown."""
_SCANNED = 5_000
"""Lines of the access log that one call looks at."""


def activity(
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    *,
    since: int | None,
    until: int | None,
    after: int | None,
    limit: int,
    newest: bool,
    events: Sequence[str] = (),
) -> list[Activity]:
    """Return what happened in `scope` from `since` until before `until` (microseconds UTC), behind
    the position `after`: the first `limit` events in order, or with `newest` the last ones, newest
    first; those of `events` alone, where these are named, of the last 5,000 of the scope.

    Raises Denied where the actor may not both read and inspect, InvalidInput.
    """
    if limit < 1:
        raise InvalidInput("`limit` must be at least 1.")
    context.gate.require(actor, "read", scope)
    context.gate.require(actor, "inspect", scope)
    with context.store.database.read() as connection:
        entries = journal.within(
            connection,
            f"scope:{scope}",
            since=since,
            until=until,
            after=after,
            limit=limit,
            newest=newest,
            events=events,
        )
        subjects = {entry.subject_id for entry in entries if entry.subject_id is not None}
        stored = memories.get_many(connection, subjects)
        previews = _previews(connection, context, actor, scope, stored)
        known = {each.memory.id for each in stored}
    context.gate.log_read(actor, "activity", [scope], results=len(entries))
    return [
        Activity(
            at=entry.at,
            position=entry.position,
            event=entry.event,
            user=_string(entry.actor.get("user")),
            agent=_string(entry.actor.get("agent")) or None,
            surface=entry.surface,
            # A reason may quote the text that it is about.
            reason=None
            if entry.subject_id in known and entry.subject_id not in previews
            else entry.reason,
            subject_id=entry.subject_id,
            is_memory=entry.subject_id in known,
            preview=previews.get(entry.subject_id or ""),
            facts=entry.details if entry.event in _COUNTED else {},
            audit_id=entry.audit_id,
        )
        for entry in entries
    ]


def _previews(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    scope: Scope,
    stored: Sequence[memories.Stored],
) -> dict[str, str]:
    """Return the beginnings of those memories of the scope whose text the actor may see, by id."""
    here = [each for each in stored if each.memory.scope == scope]
    visible = visible_docs(connection, context.gate, actor, here, context.store.clock.now())
    return {
        each.memory.id: preview_of(context, each.memory, most=_MOST)
        for each in here
        if each.doc in visible
    }


def reads(
    context: MemoryContext,
    actor: Actor,
    *,
    operation: str | None,
    limit: int,
    before: int | None,
) -> list[LoggedRead]:
    """Return the newest lines of the access log that the actor may see, newest first: those of
    scopes that it may inspect, and its own of scopes that it may read.

    Give the number of the last line as `before` for the next page. The last 5,000 lines before that
    are looked at. Raises InvalidInput.
    """
    if limit < 1:
        raise InvalidInput("`limit` must be at least 1.")
    lines = context.gate.unwritten_reads() if before is None else []
    lines = [line for line in lines if operation in (None, line["operation"])]
    shown: list[LoggedRead] = []
    with context.store.database.read() as connection:
        may_inspect = _may(connection, context, actor, "inspect")
        may_read = _may(connection, context, actor, "read")
        lines += access_log.recent(connection, limit=_SCANNED, before=before, operation=operation)
        for row in lines:
            who = json.loads(row["actor"])
            named = tuple(json.loads(row["scopes"]))
            is_own = who.get("user") == actor.user and who.get("organization") == (
                actor.organization
            )
            allowed = bool(named) and all(map(may_inspect, named))
            if not allowed and not (is_own and all(map(may_read, named))):
                continue
            shown.append(
                LoggedRead(
                    number=row.get("id"),
                    at=row["at"],
                    user=_string(who.get("user")),
                    agent=_string(who.get("agent")) or None,
                    surface=row["surface"],
                    operation=row["operation"],
                    scopes=named,
                    results=row["results"],
                )
            )
            if len(shown) == limit:
                break
    return shown


def _may(
    connection: Connection, context: MemoryContext, actor: Actor, access: str
) -> Callable[[str], bool]:
    """Return the decision over a scope by its name, made once for each."""
    return cache(
        lambda name: (
            context.gate.decide(
                connection,
                actor,
                "inspect" if access == "inspect" else "read",
                Scope.parse(name),
            ).allowed
        )
    )


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
