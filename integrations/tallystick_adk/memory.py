"""TallyMemoryService: what ADK's agents load and add, as memories of the user who acts.

Events are remembered as turns, each once: not a second time for a session that is added again, nor
for words that a TallyPlugin has kept. What stems from another app of ADK is not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from google.adk.events import Event
from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from tallystick.aio import in_thread
from tallystick.errors import IdempotencyMismatch, InvalidInput
from tallystick.kit import ActorSource, Binder, check_count, recordable_metadata
from tallystick.kit.conversations import is_of_person, is_user, note_turns, turns_of
from tallystick.kit.rendering import hits_for_model, without_frames
from tallystick.kit.sessions import stored_text
from tallystick.memory.passages import passage_text
from tallystick.records import Hit, NewMemory, Remembered, Scope, SourceRef
from tallystick.records.canonical import text_digest
from tallystick.tally import BoundTally, Tally

_EVENT = "adk_event"
"""The attribute of a turn with the id of its event."""
_APP = "adk_app"
"""Key of the metadata of a source: the app that it stems from."""
_PAGE = 200
_REASON = "Deleted by the memory service of ADK."


class TallyMemoryService(BaseMemoryService):
    """Memory that lasts: `Runner(…, memory_service=TallyMemoryService(tally))`."""

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        memories: int = 10,
        across_apps: bool = False,
    ) -> None:
        """`actor` says who acts, by default the `user_id` of each call (docs/who-acts.md); memories
        are in `scope`, by default the private one of each user. A search gives `memories` at most,
        and with `across_apps` also what stems from other apps of ADK. Raises InvalidInput.
        """
        self._binder = Binder(
            tally, runtime="adk", piece="TallyMemoryService", actor=actor, scope=scope
        )
        check_count("memories", memories, least=1)
        self._memories, self._across_apps = memories, across_apps

    def __repr__(self) -> str:
        return self._binder.describe()

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember what was said in a session, each turn once. Raises as `remember_many`."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember what was said in events, each once, with `custom_metadata` as attributes. Raises
        as `remember_many`.
        """
        bound = self._bound(user_id, session_id)
        await in_thread(
            _add_events, bound, app_name, session_id, list(events), custom_metadata or {}
        )

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember entries as they are, all or none; those with an id once. Raises as
        `remember_many`.
        """
        bound = self._bound(user_id)
        new = [_note(app_name, each, custom_metadata or {}) for each in memories]
        await in_thread(bound.remember_many, [each for each in new if each.content.strip()])

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return the memories that answer a query, best first. Raises as `recall`."""
        bound = self._bound(user_id)
        found = await in_thread(self._search, bound, app_name, query)
        return SearchMemoryResponse(memories=[_entry(bound, each) for each in found])

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Forget a memory; it can be recovered for a while. Raises as `forget`, and InvalidInput
        where no memory is named.
        """
        if not memory_id:
            raise InvalidInput(
                "Name the memory to delete: memory_id='…', as a search gives it.",
                argument="memory_id",
            )
        bound = self._bound(user_id)
        await in_thread(lambda: bound.forget(memory_id, reason=_REASON))

    def _bound(self, user_id: str, session_id: str | None = None) -> BoundTally:
        named = {"configurable": {"user_id": user_id}}
        return self._binder.bound(self._binder.call(session=session_id, **named))

    def _search(self, bound: BoundTally, app_name: str, query: str) -> list[Hit]:
        limit, found = self._memories, list[Hit]()
        while True:
            recalled = bound.recall(query, limit=limit)
            found = [each for each in recalled if self._across_apps or _is_of(each, app_name)]
            if len(found) >= self._memories or len(recalled) < limit or limit >= _PAGE:
                return hits_for_model(bound, found[: self._memories])
            limit = min(4 * limit, _PAGE)


def _is_of(hit: Hit, app_name: str) -> bool:
    """Return True unless a memory stems from other apps alone. What was learned has the sources of
    the turns that it was learned from.
    """
    apps = {each.metadata[_APP] for each in hit.sources if _APP in each.metadata}
    return not apps or app_name in apps


def text_of(content: types.Content | None) -> str:
    """Return what is said in a content, without the thoughts of a model."""
    parts = (content.parts if content is not None else None) or []
    return "\n".join(part.text for part in parts if part.text and not part.thought)


def _add_events(
    bound: BoundTally,
    app_name: str,
    session_id: str | None,
    events: list[Event],
    custom_metadata: Mapping[str, object],
) -> None:
    kept = list(turns_of(bound, session_id)) if session_id is not None else []
    known = {str(each.attributes[_EVENT]) for each in kept if _EVENT in each.attributes}
    # What a plugin has kept of the same words is the turn of one event each.
    spoken = Counter(
        (is_of_person(bound, each), each.content) for each in kept if _EVENT not in each.attributes
    )
    new: list[NewMemory] = []
    for event in events:
        text = without_frames(bound, text_of(event.content)).strip()
        if event.partial or not text or event.id in known:
            continue
        words = (event.author == "user", stored_text(bound, text))
        if spoken[words] > 0:
            spoken[words] -= 1
            continue
        new.append(_turn(bound, app_name, session_id, event, text, custom_metadata))
    if new:
        stored = _remember(bound, new)
        roles = ("user" if is_user(bound, each.speaker) else "assistant" for each in new)
        noted = [
            (role, turn.content, remembered)
            for role, turn, remembered in zip(roles, new, stored, strict=True)
            if remembered is not None
        ]
        note_turns(bound, noted, observer="TallyMemoryService")


def _remember(bound: BoundTally, new: list[NewMemory]) -> list[Remembered | None]:
    """Remember turns; None for one that was remembered before with other metadata."""
    try:
        return [*bound.remember_many(new)]
    except IdempotencyMismatch:
        if len(new) == 1:
            return [None]
    return [remembered for each in new for remembered in _remember(bound, [each])]


def _turn(
    bound: BoundTally,
    app_name: str,
    session_id: str | None,
    event: Event,
    text: str,
    custom_metadata: Mapping[str, object],
) -> NewMemory:
    of_user = event.author == "user"
    actor = bound.actor
    speaker = (actor.acting_for or actor.user) if of_user else event.author
    place = f"{app_name}/{session_id or ''}/{event.id}"
    return NewMemory(
        content=text,
        kind="turn",
        speaker=speaker or None,
        occurred_at=round(event.timestamp * 1_000_000),
        conversation=session_id,
        attributes={**recordable_metadata(dict(custom_metadata)), _EVENT: event.id},
        source=_source(app_name, "user" if of_user else "other", uri=f"adk:{place}"),
        idempotency_key=f"adk {text_digest('adk-event', place + ' ' + text)}",
    )


def _note(app_name: str, entry: MemoryEntry, custom_metadata: Mapping[str, object]) -> NewMemory:
    key = None if not entry.id else f"adk {text_digest('adk-memory', f'{app_name}/{entry.id}')}"
    return NewMemory(
        content=text_of(entry.content),
        speaker=entry.author or None,
        occurred_at=entry.timestamp or None,
        attributes=recordable_metadata({**custom_metadata, **entry.custom_metadata}),
        source=_source(app_name, "other"),
        idempotency_key=key,
    )


def _source(app_name: str, source_type: Any, uri: str | None = None) -> SourceRef:
    return SourceRef(source_type=source_type, uri=uri, metadata={_APP: app_name})


def _entry(bound: BoundTally, hit: Hit) -> MemoryEntry:
    memory, is_persons = hit.memory, is_of_person(bound, hit.memory)
    text, place = passage_text(hit)
    text = text if place is None else f"(part {place}) {text}"
    said_at = memory.occurred_time or memory.created_time
    content = types.Content(role="user" if is_persons else "model", parts=[types.Part(text=text)])
    metadata = {name: value for name, value in memory.attributes.items() if name != _EVENT}
    return MemoryEntry(
        id=memory.id,
        content=content,
        author="user" if is_user(bound, memory.speaker) else memory.speaker,
        timestamp=said_at.isoformat(),
        custom_metadata=metadata,
    )
