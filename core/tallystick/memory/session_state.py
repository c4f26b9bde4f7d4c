"""Where a session's working set is kept between its turns, and what is kept of its user: ids and
numbers and no text, live state as a checkpoint is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tallystick.errors import Denied
from tallystick.memory.context import MemoryContext
from tallystick.records import Actor, ChosenAs, Scope
from tallystick.storage import Connection
from tallystick.storage.engine.writes import Writes
from tallystick.storage.rows import scopes, working
from tallystick.storage.rows.working import Holder

_USUAL_FOR = 90 * 24 * 3600 * 1_000_000
"""The time for which what is kept of a user stays after the last request, microseconds."""


class Entry(NamedTuple):
    """One piece as the session keeps it."""

    id: str
    version: int
    chosen_as: ChosenAs
    is_profile: bool
    score: float


@dataclass(frozen=True)
class SessionState:
    """What a session has."""

    entries: tuple[Entry, ...] = ()
    turn: str | None = None
    """The digest of the last turn."""
    last: int = 0
    """When that was, microseconds UTC."""
    began: int = 0
    """When the session began, microseconds UTC."""
    before: int | None = None
    """When the user's session before it began; None for the first one that is known."""

    @classmethod
    def load(cls, body: str) -> SessionState:
        value = json.loads(body)
        return cls(**{**value, "entries": tuple(Entry(*each) for each in value["entries"])})

    def dumps(self) -> str:
        return json.dumps(vars(self))


@dataclass(frozen=True)
class Habits:
    """What is kept of a user beside the sessions."""

    matches: tuple[float, ...] = ()
    """The best matches of the latest requests."""
    began: int | None = None
    """When the latest session began, microseconds UTC."""

    @classmethod
    def load(cls, body: str) -> Habits:
        value = json.loads(body)
        return cls(tuple(value["matches"]), value["began"])

    def dumps(self) -> str:
        return json.dumps(vars(self))


class KeptSession:
    """Where a session is kept between its turns."""

    def __init__(
        self,
        context: MemoryContext,
        actor: Actor,
        home: Scope,
        *,
        conversation: str | None,
        turn: str | None,
        pause: int,
    ) -> None:
        self._context, self._actor, self._home = context, actor, home
        self._pause = pause
        who = json.dumps([actor.user, actor.agent])
        session = conversation or turn
        self._session = Holder("session", session) if session else None
        self._user = Holder("user", who)
        self._name = who
        # A turn without a conversation ends with its process.
        self._is_stored = bool(conversation)
        self._may_write = context.store.database.unwritable is None
        self._stored: str | None = None
        """What was stored of the session when it was loaded."""

    def load(self) -> tuple[SessionState | None, Habits]:
        """Return what the session has, or None at its first turn, and the habits of the user."""
        now = self._context.store.clock.now()
        holders = [self._user, *([self._session] if self._session is not None else [])]
        with self._context.store.database.read() as connection:
            ids = [row.id for row in scopes.find(connection, [self._home])]
            values = working.values_of(connection, ids, holders, at=now) if ids else []
            if self._may_write:
                decision = self._context.gate.decide(connection, self._actor, "write", self._home)
                self._may_write = decision.allowed
        bodies = {value.lifetime: value.body for value in values if value.name == self._name}
        kept_here = self._context.sessions
        state = self._stored = bodies.get("session")
        if state is None and self._session is not None:
            state = kept_here.get(self._key("session", self._session.id))
        user = bodies.get("user") or kept_here.get(self._key("user", ""))
        return (
            None if state is None else SessionState.load(state),
            Habits() if user is None else Habits.load(user),
        )

    def store(
        self, state: SessionState, user: Habits, now: int, *, had: Sequence[Entry]
    ) -> tuple[str, ...]:
        """Keep the state for the next turn, which `had` these entries before; return what to say
        of it.
        """
        habits = user.dumps()
        if self._is_stored and self._may_write and self._write(state, habits, now, had):
            return ()
        if self._session is not None:
            self._context.sessions.put(self._key("session", self._session.id), state.dumps())
        self._context.sessions.put(self._key("user", ""), habits)
        if not self._is_stored:
            return ()
        return (
            "the session is kept by this process alone: nothing can be written here for the actor",
        )

    def _key(self, lifetime: str, holder: str) -> tuple[str, ...]:
        return str(self._home), self._name, lifetime, holder

    def _write(self, state: SessionState, habits: str, now: int, had: Sequence[Entry]) -> bool:
        """Write the rows of the session, and of the user's requests; return False where the actor
        may no longer, or nobody may for now.
        """
        context, actor, home = self._context, self._actor, self._home

        def unit(tx: Connection) -> None:
            context.gate.confirm(tx, actor, "write", home)
            row = scopes.ensure(tx, home)
            assert self._session is not None
            joined = self._join(tx, row.id, self._session, state, now, had)
            for holder, value, until in (
                (self._session, joined.dumps(), now + self._pause),
                (self._user, habits, now + _USUAL_FOR),
            ):
                working.put(
                    tx,
                    row.id,
                    holder,
                    self._name,
                    value,
                    created_by=actor.user,
                    at=now,
                    expires_at=until,
                )

        try:
            context.store.database.write(unit, name="working_set", writes=Writes.of(home))
        except Denied:
            return False
        return True

    def _join(
        self,
        tx: Connection,
        scope_id: int,
        session: Holder,
        state: SessionState,
        now: int,
        had: Sequence[Entry],
    ) -> SessionState:
        """Return a state with what another turn of the session, at the same time, has shown since
        it was loaded.
        """
        values = working.values_of(tx, [scope_id], [session], at=now)
        stored = next((value.body for value in values if value.name == self._name), None)
        if stored is None or stored == self._stored:
            return state
        known = {entry.id for entry in (*had, *state.entries)}
        more = [entry for entry in SessionState.load(stored).entries if entry.id not in known]
        return replace(state, entries=(*state.entries, *more))
