"""Where the calls of one actor on one scope are carried out: its threads as rows, and what the
journal is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from tallystick.checkpoints.codec import Codec
from tallystick.checkpoints.context import ScopeCache
from tallystick.records import Actor, Scope
from tallystick.storage import Store, checkpoints, journal
from tallystick.storage.checkpoints import ThreadRow

__all__ = ["Desk"]


@dataclass(frozen=True)
class Desk:
    """A scope under one cipher, and who acts. What stands here was allowed."""

    store: Store
    actor: Actor
    scope: Scope
    scope_cache: ScopeCache
    writer: str
    """Who puts, as a thread remembers who put last."""

    @property
    def codec(self) -> Codec:
        """How the scope's state is coded."""
        return self.scope_cache.codec

    def now(self) -> int:
        """The time."""
        return self.store.clock.now()

    def over(self, row: ThreadRow) -> bool:
        """Whether a thread's time is over: then nobody finds it, whether or not it was removed."""
        return row.expires_at is not None and row.expires_at <= self.now()

    def thread(self, connection: Connection, name: str) -> ThreadRow | None:
        """The thread of this name, or None."""
        row = checkpoints.find_thread(connection, self.scope_cache.scope.id, name)
        return None if row is None or self.over(row) else row

    def thread_made(self, tx: Connection, name: str, at: int) -> ThreadRow:
        """The thread of this name, which begins now where there is none."""
        row = self.thread(tx, name)
        if row is not None:
            return row
        self.remove_thread(tx, name, "thread.expire")
        return checkpoints.add_thread(tx, self.scope_cache.scope.id, name, at=at)

    def remove_thread(self, tx: Connection, name: str, event: str) -> None:
        """Remove a thread and what only it needed, and note that in the journal; none is no
        error.
        """
        row = checkpoints.find_thread(tx, self.scope_cache.scope.id, name)
        if row is None:
            return
        count = checkpoints.delete_thread(tx, row.id)
        self._note(tx, name, event, self.now(), {"checkpoints": count})

    def anchor(
        self,
        tx: Connection,
        event: str,
        row: ThreadRow,
        at: int,
        *,
        removed: int = 0,
        run: str | None = None,
    ) -> None:
        """Note in the journal where a thread stands: what `verify` holds its rows against. `run` is
        who put last.
        """
        details = {"puts": row.puts, "checkpoints": row.states, "seal": row.seal}
        self._note(
            tx, row.name, event, at, {**details, **({"removed": removed} if removed else {})}, run
        )

    def _note(
        self,
        tx: Connection,
        thread: str,
        event: str,
        at: int,
        details: Mapping[str, Any],
        run: str | None = None,
    ) -> None:
        # A thread is its own session, and a run the request, unless who acts says otherwise; as
        # histories of memory.
        known = {
            "session_id": self.actor.session_id or thread,
            "request_id": self.actor.request_id or run,
        }
        journal.append(
            tx,
            journal.Event(
                stream=f"thread:{self.scope}/{thread}",
                event=event,
                actor=self.actor.model_copy(update=known),
                at=at,
                audit_id=self.store.ids.new(),
                subject_id=thread,
                details=details,
            ),
        )
