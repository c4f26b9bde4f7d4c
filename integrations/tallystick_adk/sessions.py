"""TallySessionService: sessions of ADK and their state, kept in threads of their user's scope.

Each event is an entry of the thread of its session. It is put in one transaction with the state
that it changes, and only where it follows the newest entry, so that of two writers one is told that
its session is stale. State is one entry for each key. Sessions are live state, as checkpoints are:
nothing in them is redacted, and fields of events that a later ADK adds stay in them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic_core import ValidationError, to_jsonable_python

from tallystick.aio import in_thread
from tallystick.checkpoints import NewCheckpoint, StoredCheckpoint, Summary, Threads
from tallystick.errors import InvalidInput, StateConflict
from tallystick.kit import ActorSource, Binder, dump_model
from tallystick.kit.arguments import check_scope
from tallystick.kit.thread_entries import json_entry, next_id, value_of
from tallystick.records import Scope
from tallystick.tally import BoundTally, Tally

_EVENTS, _STATE = "adk", "adk_state"
"""Namespaces of the events of a session, and of its state or that of a user or an app."""
_PLACE = "adk"
"""The key of the metadata of an entry: app, user, session, event and time."""
_APP, _USER, _TEMP = "app:", "user:", "temp:"
_LOCKS = 64

_Put = tuple[Threads, str, NewCheckpoint]


class TallySessionService(BaseSessionService):
    """Sessions that last: `Runner(…, session_service=TallySessionService(tally))`.

    The user of a session is who acts, and its scope keeps it: a session's id gives nobody else the
    authority of that user.
    """

    def __init__(
        self,
        tally: Tally | BoundTally,
        *,
        actor: ActorSource | None = None,
        scope: str | Scope | None = None,
        app_scope: str | Scope | None = None,
    ) -> None:
        """`actor` says who acts, by default the `user_id` of each call (docs/who-acts.md). Sessions
        and the state of users (`user:…`) are in `scope`, by default the private one of each user;
        the state of apps (`app:…`), which users share, in `app_scope`, by default `scope`. Raises
        InvalidInput, InvalidScope.
        """
        self._binder = Binder(
            tally, runtime="adk", piece="TallySessionService", actor=actor, scope=scope
        )
        check_scope(app_scope)
        if scope is None and isinstance(tally, BoundTally):
            scope = tally.scope
        self._scope = scope
        self._app_scope = app_scope if app_scope is not None else scope
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def __repr__(self) -> str:
        return self._binder.describe()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session. Raises AlreadyExistsError, Denied, InvalidInput."""
        return await in_thread(self._create, app_name, user_id, state or {}, session_id)

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Return a session of a user; None for one that this user does not have. Raises Denied."""
        return await in_thread(
            self._get, app_name, user_id, session_id, config or GetSessionConfig()
        )

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """Return the sessions of a user in an app without events, the last changed last; without a
        user those of all users, where one `scope` keeps them. Raises Denied, InvalidInput.
        """
        return await in_thread(self._list, app_name, user_id)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Remove a session; the state of its user and its app stays. Raises Denied."""
        bound = self._bound(user_id, session_id)
        await in_thread(bound.threads.delete, _thread(app_name, user_id, session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user in an app, by keys without `user:`. Raises Denied."""
        threads = self._bound(user_id).threads
        return await in_thread(_state_in, threads, _thread(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event and the state that it changes in one transaction; return after the commit.

        Raises StaleSessionError where the session was changed since it was read, and
        SessionNotFoundError, Denied, InvalidInput; then nothing was stored.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await in_thread(self._append, session, event)
        return self._commit_event_to_session(session, event)

    def _bound(self, user_id: str | None, session_id: str | None = None) -> BoundTally:
        named = {} if user_id is None else {"configurable": {"user_id": user_id}}
        return self._binder.bound(self._binder.call(session=session_id, **named))

    def _app_threads(self, bound: BoundTally) -> Threads | None:
        """Return where the state of apps is, as the same actor; None where nobody said."""
        if self._app_scope is None:
            return None
        return bound.tally.bind(bound.actor, self._app_scope).threads

    def _create(
        self, app_name: str, user_id: str, state: Mapping[str, Any], session_id: str | None
    ) -> Session:
        given = session_id.strip() if session_id else ""
        bound = self._bound(user_id, given or None)
        session = Session(id=given or bound.tally.new_id(), app_name=app_name, user_id=user_id)
        at = bound.tally.now() / 1_000_000
        first = _entry(session, next_id(bound, None), None, at, if_newest="")
        try:
            Threads.put_together(self._puts(bound, session, first, state))
        except StateConflict as error:
            raise AlreadyExistsError(f"Session with id {session.id} already exists.") from error
        session.state = self._whole_state(bound, session)
        session.last_update_time, session._storage_update_marker = at, first.id
        return session

    def _append(self, session: Session, event: Event) -> None:
        bound = self._bound(session.user_id, session.id)
        thread = _thread(session.app_name, session.user_id, session.id)
        with self._locks[hash(thread) % _LOCKS]:
            newest = session._storage_update_marker or self._revision_of(bound, session)
            id = next_id(bound, newest)
            entry = _entry(session, id, event, event.timestamp, if_newest=newest)
            try:
                Threads.put_together(self._puts(bound, session, entry, event.actions.state_delta))
            except StateConflict as error:
                if _newest(bound, thread) is None:
                    raise SessionNotFoundError(f"Session {session.id} not found.") from error
                raise _stale(session) from error
            session.last_update_time, session._storage_update_marker = event.timestamp, id

    def _revision_of(self, bound: BoundTally, session: Session) -> str:
        """Return the newest entry for a session that was not read here, and is at that entry."""
        newest = _newest(bound, _thread(session.app_name, session.user_id, session.id))
        if newest is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        place = newest.metadata[_PLACE]
        last = session.events[-1].id if session.events else None
        if place["at"] > session.last_update_time and place["event_id"] != last:
            raise _stale(session)
        return newest.id

    def _puts(
        self, bound: BoundTally, session: Session, entry: NewCheckpoint, delta: Mapping[str, Any]
    ) -> list[_Put]:
        """Return an entry with the state that it changes, each key where it belongs."""
        own, app = bound.threads, self._app_threads(bound)
        app_name, user_id = session.app_name, session.user_id
        puts: list[_Put] = [(own, _thread(app_name, user_id, session.id), entry)]
        for name, value in delta.items():
            if name.startswith(_TEMP):
                continue
            if not name.startswith(_APP):
                is_users = name.startswith(_USER)
                parts = (app_name, user_id) if is_users else (app_name, user_id, session.id)
                key = name.removeprefix(_USER) if is_users else name
                puts.append((own, _thread(*parts), _value(key, value)))
                continue
            if app is None:
                raise InvalidInput(
                    f"{name!r} is state that the users of an app share. Say in which scope: "
                    "TallySessionService(tally, app_scope='shared:…'), with a space that opens it.",
                    argument="app_scope",
                )
            puts.append((app, _thread(app_name), _value(name.removeprefix(_APP), value)))
        return puts

    def _whole_state(self, bound: BoundTally, session: Session) -> dict[str, Any]:
        """Return the state of a session with that of its user and its app."""
        own, app = bound.threads, self._app_threads(bound)
        app_name, user_id = session.app_name, session.user_id
        state = _state_in(own, _thread(app_name, user_id, session.id))
        users = _state_in(own, _thread(app_name, user_id))
        apps = {} if app is None else _state_in(app, _thread(app_name))
        state.update({f"{_APP}{name}": value for name, value in apps.items()})
        state.update({f"{_USER}{name}": value for name, value in users.items()})
        return state

    def _get(
        self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig
    ) -> Session | None:
        bound = self._bound(user_id, session_id)
        # The revision is read before events and state: what comes between makes it stale.
        newest = _newest(bound, _thread(app_name, user_id, session_id))
        if newest is None:
            return None
        session = self._session_of(bound, newest)
        most, since = config.num_recent_events, config.after_timestamp
        # Times may differ from the order: with one all events are looked at.
        looked_at = most if since is None else None
        newest_first = _events(bound, newest.thread, looked_at) if most != 0 else ()
        session.events = [
            event for event in newest_first if since is None or event.timestamp >= since
        ][:most][::-1]
        return session

    def _list(self, app_name: str, user_id: str | None) -> ListSessionsResponse:
        if user_id is None and self._scope is None and not self._binder.is_fixed:
            raise InvalidInput(
                "Each user's sessions are in a scope of their own. Name one: user_id='…'.",
                argument="user_id",
            )
        bound = self._bound(user_id)
        within = _thread(app_name) if user_id is None else _thread(app_name, user_id)
        threads = [each for each in bound.threads.names() if each.startswith(f"{within}/")]
        newest = [found for each in threads if (found := _newest(bound, each)) is not None]
        sessions = [self._session_of(bound, each) for each in newest]
        sessions.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=sessions)

    def _session_of(self, bound: BoundTally, newest: Summary) -> Session:
        """Return a session without its events."""
        place = newest.metadata[_PLACE]
        names = {name: place[name] for name in ("app_name", "user_id")}
        session = Session(id=place["session_id"], last_update_time=place["at"], **names)
        session.state = self._whole_state(bound, session)
        session._storage_update_marker = newest.id
        return session


def _thread(*parts: str) -> str:
    """Return the thread of an app, of a user in it, or of a session of that user."""
    return "/".join(quote(part, safe=" @") for part in parts)


def _newest(bound: BoundTally, thread: str) -> Summary | None:
    return next(iter(bound.threads.history(thread, namespace=_EVENTS, limit=1)), None)


def _entry(
    session: Session, id: str, event: Event | None, at: float, *, if_newest: str
) -> NewCheckpoint:
    place = {
        "app_name": session.app_name,
        "user_id": session.user_id,
        "session_id": session.id,
        "event_id": None if event is None else event.id,
        "at": at,
    }
    body = None
    if event is not None:
        # A default may be made anew when it is read: these are part of the event in any case.
        kept = {"id": event.id, "timestamp": event.timestamp}
        body = {**dump_model(event, exclude_defaults=True), **kept}
    return json_entry(_EVENTS, id, body, metadata={_PLACE: place}, if_newest=if_newest)


def _value(key: str, value: Any) -> NewCheckpoint:
    return json_entry(_STATE, key, to_jsonable_python(value, fallback=str, bytes_mode="base64"))


def _state_in(threads: Threads, thread: str) -> dict[str, Any]:
    entries = threads.checkpoints(thread, namespace=_STATE)
    return {each.summary.id: value_of(each) for each in entries}


def _events(bound: BoundTally, thread: str, most: int | None) -> Iterator[Event]:
    """Yield the events of a session, newest first; the entry before them says that it exists."""
    for each in bound.threads.checkpoints(thread, namespace=_EVENTS, limit=most):
        if each.summary.metadata[_PLACE]["event_id"] is not None:
            yield _event_in(each)


def _event_in(entry: StoredCheckpoint) -> Event:
    """Return the event of an entry. Half a character, which JSON may hold and no model of pydantic
    reads, is read as a question mark; stored it stays as it came.
    """
    try:
        return Event.model_validate_json(entry.body.body)
    except ValidationError:
        text = json.dumps(value_of(entry), ensure_ascii=False)
        return Event.model_validate_json(text.encode("utf-8", "replace"))


def _stale(session: Session) -> StaleSessionError:
    return StaleSessionError(
        f"Session {session.id} was changed since it was read. Get it again before you append."
    )
