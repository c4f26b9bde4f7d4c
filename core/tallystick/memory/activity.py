"""Activity: what happened in a scope, in the order of its journal, and who has read there.

Texts are never in the journal. The beginning of a memory is shown beside its events as far as the
actor may see it now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache

from tallystick.access import visible_docs
from tallystick.errors import InvalidInput
from tallystick.memory.context import MemoryContext
from tallystick.memory.read import preview_of
from tallystick.records import Activity, Actor, LoggedRead, Scope
from tallystick.storage import Connection
from tallystick.storage.rows import access_log, journal, memories

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
            user=_text(entry.actor.get("user")),
            agent=_text(entry.actor.get("agent")) or None,
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
                    user=_text(who.get("user")),
                    agent=_text(who.get("agent")) or None,
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


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
