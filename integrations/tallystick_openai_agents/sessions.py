"""TallySession: the items of a conversation, kept as they came in the thread of the session.

Items are live state, as checkpoints are: nothing in them is redacted, and kinds that a later SDK
adds come back as they went in. Each `add_items` is one entry of the thread, so that two processes
that write at once lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast
from uuid import UUID

from agents import RunContextWrapper, TResponseInputItem
from agents.memory import SessionABC, SessionSettings
from agents.memory.session_settings import coerce_session_settings

from tallystick.aio import in_thread
from tallystick.checkpoints import NewCheckpoint, StoredCheckpoint
from tallystick.errors import InvalidInput, StateConflict
from tallystick.kit import ActorSource, Binder
from tallystick.kit.binder import id_text
from tallystick.kit.thread_entries import json_entry, next_id, value_of
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally

_NAMESPACE = _SESSION = "openai_agents"
"""The namespace of the entries in their thread, and the key of the session in their metadata."""


class TallySession(SessionABC):
    """A session that lasts: `Runner.run(agent, "…", session=TallySession(tally, "anna-1"))`.

    The same id is another session in another scope: an id gives nobody the authority of its owner.
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        session_id: str | int | UUID,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """`actor` says who acts, by default what the context of a run names (docs/who-acts.md).
        Raises InvalidInput.
        """
        self._binder = Binder(
            tally,
            runtime="openai_agents",
            piece="TallySession",
            actor=actor,
            scope=scope,
            usage="TallySession({}, 'chat-1')",
        )
        name = id_text(session_id)
        if not name:
            raise InvalidInput(
                "A session needs an id: text, a number or a UUID.", argument="session_id"
            )
        self.session_id = name
        given = session_settings if session_settings is not None else SessionSettings()
        self.session_settings: SessionSettings | None = coerce_session_settings(given)

    def __repr__(self) -> str:
        return self._binder.describe(session_id=self.session_id)

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the items, oldest first: all, or exactly the newest `limit`, by default that of
        the settings. Raises Denied.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await in_thread(self._read, limit, wrapper)

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Add items in one transaction; return after the commit. Raises Denied, and InvalidInput
        for an item that JSON does not know.
        """
        if items:
            await in_thread(self._add, items, wrapper)

    async def pop_item(
        self, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> TResponseInputItem | None:
        """Remove the newest item and return it; None where there is none. Raises Denied."""
        return await in_thread(self._pop, wrapper)

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Remove all items. Raises Denied."""
        await in_thread(self._clear, wrapper)

    def _bound(self, wrapper: RunContextWrapper[Any] | None) -> BoundTally:
        context = None if wrapper is None else wrapper.context
        return self._binder.bound(self._binder.call(context=context, session=self.session_id))

    def _entries(self, bound: BoundTally) -> Iterator[StoredCheckpoint]:
        """Yield the entries of the session, newest first."""
        return bound.threads.checkpoints(self.session_id, namespace=_NAMESPACE)

    def _read(
        self, limit: int | None, wrapper: RunContextWrapper[Any] | None
    ) -> list[TResponseInputItem]:
        newest_first: list[TResponseInputItem] = []
        if limit is not None and limit <= 0:
            return newest_first
        for entry in self._entries(self._bound(wrapper)):
            newest_first += reversed(value_of(entry))
            if limit is not None and len(newest_first) >= limit:
                break
        return newest_first[:limit][::-1]

    def _add(self, items: list[TResponseInputItem], wrapper: RunContextWrapper[Any] | None) -> None:
        bound = self._bound(wrapper)
        newest = bound.threads.get(self.session_id, namespace=_NAMESPACE)
        id = next_id(bound, None if newest is None else newest.summary.id)
        bound.threads.put(self.session_id, self._entry(id, items))

    def _entry(
        self, id: str, items: list[TResponseInputItem], if_newest: str | None = None
    ) -> NewCheckpoint:
        place = {_SESSION: self.session_id}
        return json_entry(
            _NAMESPACE, id, items, metadata=place, if_newest=if_newest, default=_as_json
        )

    def _pop(self, wrapper: RunContextWrapper[Any] | None) -> TResponseInputItem | None:
        bound = self._bound(wrapper)
        while True:
            with suppress(StateConflict):  # somebody was faster: the newest item is another
                return self._pop_newest(bound)

    def _pop_newest(self, bound: BoundTally) -> TResponseInputItem | None:
        """Pop the newest item. Raises StateConflict where the session changed meanwhile."""
        newest: str | None = None
        for entry in self._entries(bound):
            newest = newest or entry.summary.id
            items: list[Any] = value_of(entry)
            if items:
                # An entry without items goes behind the newest, by which a second one that pops
                # the same item sees that it was taken.
                taken = self._entry(next_id(bound, newest), [], if_newest=newest)
                rest = self._entry(entry.summary.id, items[:-1])
                bound.threads.put_together(
                    [(bound.threads, self.session_id, each) for each in (taken, rest)]
                )
                return cast(TResponseInputItem, items[-1])
        return None

    def _clear(self, wrapper: RunContextWrapper[Any] | None) -> None:
        # A graph may keep its own checkpoints in a thread of this name.
        self._bound(wrapper).threads.delete_where({_SESSION: self.session_id})


def _as_json(value: Any) -> Any:
    """Return a model of the SDK as JSON. Raises TypeError for any other value."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is not JSON")
