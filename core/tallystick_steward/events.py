"""Events: what subscribers are told, read from the journal behind a cursor.

The journal is the outbox: an event is there in the commit of what happened, so that none is lost
with a process, and its id is the same whenever it is told again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from tallystick.errors import ClosedTally, ForkedTally, StorageError
from tallystick.logs import get_logger
from tallystick.memory import MemoryContext
from tallystick.records import AccessKind, Actor, EventKind, JournalEntry, Scope, TallyEvent
from tallystick.records.times import MINUTE
from tallystick.storage import Connection
from tallystick.storage.rows import journal_reading, recordings

_CHANGES = "add update forget recover correct promote share erase purge"
_OF: Mapping[str, EventKind] = {
    **{f"memory.{each}": "memory.changed" for each in _CHANGES.split()},
    "proposal.made": "review.needed",
    "approval.asked": "approval.needed",
    "steward.escalated": "approval.needed",
    "run.end": "run.ended",
    "alert.raised": "alert.raised",
    "alert.cleared": "alert.cleared",
}
_FACTS = ("version", "kind", "action", "status", "alert")
"""Details that a subscriber is told: names and numbers."""
_PAGE = 500
_LOOK_SECONDS = 0.25
_TOLD = 10_000
"""Ids that a subscription remembers, so that it tells nothing twice."""


def newest_cursor(context: MemoryContext) -> int:
    """Return the cursor behind which nothing has happened yet."""
    with context.store.database.read() as connection:
        return journal_reading.last_sequence(connection)


class Page(NamedTuple):
    """Events behind a cursor, and the cursor behind all that was looked at."""

    events: Sequence[TallyEvent]
    cursor: int


def read_events(
    context: MemoryContext,
    actor: Actor,
    after: int,
    kinds: Collection[EventKind],
    *,
    limit: int,
    told: Collection[str] = (),
) -> Page:
    """Return the events behind a cursor that the actor may read, in order; of all kinds where none
    is named.

    Several writers of PostgreSQL may commit in another order than they were numbered in: what is
    younger than a minute is looked at again there, and `told` leaves out what was told already.
    """
    names = [event for event, kind in _OF.items() if not kinds or kind in kinds]
    found: list[TallyEvent] = []
    with context.store.database.read() as connection:
        cursor = max(0, after)
        young = context.store.clock.now() - MINUTE
        place = journal_reading.settled_before(connection, cursor, young)
        for entry in _entries_behind(connection, place, names):
            cursor = max(cursor, entry.sequence)
            if entry.audit_id not in told and may_see(connection, context, actor, entry, "read"):
                found.append(_event_of(connection, entry))
                if len(found) == limit:
                    return Page(found, cursor)
        return Page(found, max(cursor, journal_reading.last_sequence(connection)))


def _entries_behind(
    connection: Connection, place: int, names: Sequence[str]
) -> Iterator[JournalEntry]:
    while page := journal_reading.after(connection, place, events=names, limit=_PAGE):
        yield from page
        place = page[-1].sequence


def scope_of(connection: Connection, entry: JournalEntry) -> Scope | None:
    """Return the scope of an entry; None for what is about the whole tally, or a run that is
    gone.
    """
    kind, _, name = entry.stream.partition(":")
    if kind == "run":
        run = recordings.find_run(connection, name)
        return None if run is None else run.record.scope
    return Scope.parse(name) if kind == "scope" else None


def may_see(
    connection: Connection,
    context: MemoryContext,
    actor: Actor,
    entry: JournalEntry,
    *accesses: AccessKind,
) -> bool:
    """Return True if an actor may read an entry by one of these rights: of the whole tally, an
    operator.
    """
    scope = scope_of(connection, entry)
    if scope is None:
        return entry.stream == "tally" and actor.operates_tally
    return any(context.gate.decide(connection, actor, each, scope).allowed for each in accesses)


def _event_of(connection: Connection, entry: JournalEntry) -> TallyEvent:
    return TallyEvent(
        id=entry.audit_id,
        cursor=entry.sequence,
        kind=_OF[entry.event],
        event=entry.event,
        subject_id=entry.subject_id,
        scope=scope_of(connection, entry),
        at=entry.at,
        facts={each: entry.details[each] for each in _FACTS if each in entry.details},
    )


class EventSubscription:
    """A listener that is called with events, in a thread of its own. Thread-safe.

    An event counts as told when the listener has returned: one that raises is called again with the
    same event. Keep `cursor`, and give it as `after` to the next subscription.
    """

    def __init__(
        self,
        context: MemoryContext,
        actor: Actor,
        listener: Callable[[TallyEvent], object],
        after: int | None,
        kinds: Collection[EventKind],
    ) -> None:
        self._context, self._actor, self._listener = context, actor, listener
        self._kinds = kinds
        self._closing = threading.Event()
        self._told: OrderedDict[str, None] = OrderedDict()
        self.cursor = newest_cursor(context) if after is None else after
        """The cursor behind what was told."""
        self.failures = 0
        """Number of exceptions that the listener raised."""
        self._thread = threading.Thread(target=self._run, name="tallystick-events", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the call under way. Closing twice is allowed."""
        self._closing.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                is_more = self._turn()
            except (ClosedTally, ForkedTally):
                return
            except StorageError as error:
                get_logger("steward").warning("events.waiting", error=type(error).__name__)
                is_more = False
            if not is_more:
                self._closing.wait(_LOOK_SECONDS)

    def _turn(self) -> bool:
        """Tell one page; return True if there may be more."""
        page = read_events(
            self._context, self._actor, self.cursor, self._kinds, limit=_PAGE, told=self._told
        )
        for event in page.events:
            if self._closing.is_set():
                return False
            try:
                self._listener(event)
            except Exception as error:  # noqa: BLE001 - it is told again; counted and logged
                self.failures += 1
                get_logger("steward").warning(
                    "event.listener", error=type(error).__name__, failures=self.failures
                )
                return False
            self._told[event.id] = None
            while len(self._told) > _TOLD:
                self._told.popitem(last=False)
            self.cursor = max(self.cursor, event.cursor)
        self.cursor = max(self.cursor, page.cursor)
        return len(page.events) == _PAGE
