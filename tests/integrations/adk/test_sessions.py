"""Sessions of ADK on a tally: kept whole, by their users, in other processes too."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from tallystick import Actor, Tally
from tallystick.errors import Denied, InvalidInput
from tallystick.records import SpaceMember
from tallystick_adk import TallySessionService

OpenTally = Callable[..., Tally]
ANN: dict[str, Any] = {"app_name": "desk", "user_id": "ann"}
BOB: dict[str, Any] = {"app_name": "desk", "user_id": "bob"}
SHARED = "shared:desk"


def said(text: str, *, at: float | None = None, **changes: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    when = {} if at is None else {"timestamp": at}
    event = Event(author="user", content=content, actions=EventActions(**changes), **when)
    return event


def texts(session: Session | None) -> list[str]:
    assert session is not None
    return [part.text for each in session.events for part in each.content.parts]


def shared_by_all(tally: Tally) -> None:
    root = tally.bind(Actor(user="root", role="operator"))
    members = [SpaceMember(principal_id=name, role="writer") for name in ("ann", "bob", "local")]
    root.spaces.create(SHARED, name="Desk", members=members, reason="one app for all")


async def test_an_event_comes_back_whole(open_tally: OpenTally) -> None:
    parts = [
        types.Part(text="look", thought_signature=b"\x00\xff"),
        types.Part(inline_data=types.Blob(data=b"\x89PNG\x00\xff", mime_type="image/png")),
        types.Part(function_call=types.FunctionCall(id="c", name="pay", args={"to": None})),
    ]
    event = Event(
        author="clerk",
        invocation_id="i",
        branch="desk.clerk",
        content=types.Content(role="model", parts=parts),
        actions=EventActions(state_delta={"done": None}, transfer_to_agent="boss"),
        long_running_tool_ids={"c"},
        custom_metadata={"of": "ours"},
    )
    with open_tally() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        await service.append_event(session, event)
        read = await service.get_session(**ANN, session_id="s")

    assert read is not None
    assert read.events == [event] == session.events
    assert read.state == {"done": None}
    assert read.last_update_time == event.timestamp == session.last_update_time


async def test_half_a_character_leaves_a_session_readable(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        await service.append_event(session, said("half \ud800", state_delta={"half": "\udfff"}))
        await service.append_event(session, said("whole"))
        again = await service.get_session(**ANN, session_id="s")
        assert texts(again) == ["half ?", "whole"]
        assert again is not None
        assert again.state == {"half": "\udfff"}


async def test_state_is_of_the_session_the_user_or_the_app_and_temporary_state_is_of_nobody(
    open_tally: OpenTally,
) -> None:
    state = {"step": 1, "user:name": "Ann", "app:tariff": {"per_hour": 12}, "temp:draft": "x"}
    with open_tally() as tally:
        shared_by_all(tally)
        service = TallySessionService(tally, app_scope=SHARED)
        first = await service.create_session(**ANN, state=state, session_id="one")
        changes = {"step": 2, "user:name": "Anna", "temp:draft": "y"}
        event = await service.append_event(first, said("hi", state_delta=changes))
        second = await service.create_session(**ANN, session_id="two")
        bobs = await service.create_session(**BOB)
        elsewhere = await service.create_session(app_name="shop", user_id="ann")
        read = await service.get_session(**ANN, session_id="one")
        users = await service.get_user_state(**ANN)

    shared = {"app:tariff": {"per_hour": 12}}
    assert first.state["temp:draft"] == "y"
    assert "temp:draft" not in event.actions.state_delta
    assert read is not None
    assert read.state == {"step": 2, "user:name": "Anna", **shared}
    assert second.state == {"user:name": "Anna", **shared}
    assert (bobs.state, elsewhere.state, users) == (shared, {}, {"name": "Anna"})


async def test_state_of_an_app_needs_a_scope_that_its_users_share(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        with pytest.raises(InvalidInput, match="app_scope"):
            await service.append_event(session, said("hi", state_delta={"app:x": 1, "y": 2}))
        read = await service.get_session(**ANN, session_id="s")
        closed = TallySessionService(tally, app_scope="shared:closed")
        with pytest.raises(Denied):
            await closed.create_session(**ANN, state={"app:x": 1}, session_id="other")

    assert read is not None
    assert (read.events, read.state) == ([], {})


async def test_a_session_that_was_changed_meanwhile_is_stale(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        service = TallySessionService(tally)
        first = await service.create_session(**ANN, session_id="s")
        second = await service.get_session(**ANN, session_id="s")
        assert second is not None
        await service.append_event(first, said("one"))
        changes = {"user:lost": True}
        with pytest.raises(StaleSessionError):
            await service.append_event(second, said("two", state_delta=changes))
        await service.append_event(first, said("three"))

        # One that is not of the service is known by its last event.
        read = await service.get_session(**ANN, session_id="s")
        assert read is not None
        copied = Session.model_validate_json(read.model_dump_json())
        await service.append_event(copied, said("four"))
        old = Session(**{**read.model_dump(), "events": read.events[:1], "last_update_time": 0})
        with pytest.raises(StaleSessionError):
            await service.append_event(old, said("five"))
        whole = await service.get_session(**ANN, session_id="s")

    assert texts(whole) == ["one", "three", "four"]
    assert whole is not None
    assert whole.state == {}


async def test_events_that_come_at_once_are_all_kept(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        events = [said(str(number), state_delta={f"k{number}": number}) for number in range(8)]
        await asyncio.gather(*(service.append_event(session, each) for each in events))
        read = await service.get_session(**ANN, session_id="s")

    assert sorted(texts(read)) == sorted(map(str, range(8)))
    assert read is not None
    assert read.state == {f"k{number}": number for number in range(8)}


async def test_a_session_is_created_once(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallySessionService(tally)
        made = await asyncio.gather(
            *(service.create_session(**ANN, session_id="s") for _ in range(4)),
            return_exceptions=True,
        )
        blank = await service.create_session(**ANN, session_id="  ")

    errors = [each for each in made if isinstance(each, Exception)]
    assert [type(each) for each in errors] == [AlreadyExistsError] * 3
    assert blank.id.strip()


async def test_the_newest_events_or_those_since_a_time_are_read(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        for number in range(5):
            await service.append_event(session, said(str(number), at=100.0 + number))

        async def read(**config: Any) -> list[str]:
            given = GetSessionConfig(**config)
            return texts(await service.get_session(**ANN, session_id="s", config=given))

        assert await read(num_recent_events=2) == ["3", "4"]
        assert await read(num_recent_events=0) == []
        assert await read(num_recent_events=50) == ["0", "1", "2", "3", "4"]
        assert await read(after_timestamp=102.0) == ["2", "3", "4"]
        assert await read(after_timestamp=101.0, num_recent_events=1) == ["4"]


async def test_a_session_is_its_users_alone(open_tally: OpenTally) -> None:
    with open_tally() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        await service.append_event(session, said("Ann's"))

        assert await service.get_session(**BOB, session_id="s") is None
        await service.delete_session(**BOB, session_id="s")
        own = await service.create_session(**BOB, session_id="s")
        await service.append_event(own, said("Bob's"))

        assert texts(await service.get_session(**ANN, session_id="s")) == ["Ann's"]
        assert [thread.count("/") for thread in tally.bind(Actor(user="ann")).threads.names()] == [
            2
        ]
        anns = TallySessionService(tally, actor=Actor(user="ann"))
        with pytest.raises(Denied, match="names another"):
            await anns.get_session(**BOB, session_id="s")


async def test_sessions_are_listed_the_last_changed_last(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallySessionService(tally)
        for number, name in enumerate(("b", "a/x", "c")):
            session = await service.create_session(**ANN, session_id=name, state={"n": name})
            await service.append_event(session, said("x", at=1000.0 - number))
        await service.create_session(app_name="desk/ann", user_id="x", session_id="other")
        await service.create_session(**BOB)
        listed = (await service.list_sessions(**ANN)).sessions
        with pytest.raises(InvalidInput, match="user_id"):
            await service.list_sessions(app_name="desk")

    assert [(each.id, each.state, each.events) for each in listed] == [
        ("c", {"n": "c"}, []),
        ("a/x", {"n": "a/x"}, []),
        ("b", {"n": "b"}, []),
    ]


async def test_one_scope_may_keep_the_sessions_of_many(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        shared_by_all(tally)
        service = TallySessionService(tally, scope=SHARED)
        ann = await service.create_session(**ANN, session_id="s", state={"app:x": 1})
        await service.create_session(**BOB, session_id="s", state={"mine": 2})
        ours = TallySessionService(tally.bind(Actor(user="local"), SHARED))
        listed = (await ours.list_sessions(app_name="desk")).sessions

    assert ann.state == {"app:x": 1}
    assert [(each.user_id, each.state) for each in listed] == [
        ("ann", {"app:x": 1}),
        ("bob", {"mine": 2, "app:x": 1}),
    ]


async def test_a_deleted_session_is_gone_and_its_users_state_stays(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s", state={"user:x": 1, "y": 2})
        await service.append_event(session, said("one"))
        await service.delete_session(**ANN, session_id="s")
        assert await service.get_session(**ANN, session_id="s") is None
        with pytest.raises(SessionNotFoundError):
            await service.append_event(session, said("two"))
        again = await service.create_session(**ANN, session_id="s")
        with pytest.raises(StaleSessionError):
            await service.append_event(session, said("three"))

    assert again.state == {"user:x": 1}


_OTHER = """
import asyncio, sys
from google.adk.events import Event, EventActions
from tallystick import Tally
from tallystick_adk import TallySessionService

async def main():
    with Tally.open(sys.argv[1]) as tally:
        service = TallySessionService(tally)
        named = dict(app_name="desk", user_id="ann", session_id="s")
        session = await service.get_session(**named)
        delta = {"theirs": len(session.events)}
        event = Event(author="other", actions=EventActions(state_delta=delta))
        await service.append_event(session, event)
        print(session.state)

asyncio.run(main())
"""


@pytest.mark.sqlite
async def test_another_process_goes_on_with_a_session(tmp_path: Path) -> None:
    with Tally.open(tmp_path / "tally") as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        await service.append_event(session, said("one"))

        done = subprocess.run(
            [sys.executable, "-c", _OTHER, str(tmp_path / "tally")],
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr

        with pytest.raises(StaleSessionError):
            await service.append_event(session, said("two"))
        read = await service.get_session(**ANN, session_id="s")
        assert read is not None
        assert ([each.author for each in read.events], read.state) == (
            ["user", "other"],
            {"theirs": 1},
        )


async def test_fields_that_a_later_adk_adds_stay_in_an_event(open_sqlite: OpenTally) -> None:
    class LaterEvent(Event):
        mood: str = "calm"

    with open_sqlite() as tally:
        service = TallySessionService(tally)
        session = await service.create_session(**ANN, session_id="s")
        await service.append_event(session, LaterEvent(author="user", mood="glad"))
        await service.append_event(session, said("next"))
        read = await service.get_session(**ANN, session_id="s")
        [thread] = tally.bind(Actor(user="ann")).threads.names()
        entries = tally.bind(Actor(user="ann")).threads.checkpoints(thread, namespace="adk")
        bodies = [json.loads(each.body.body) for each in entries]

    assert read is not None
    assert [each.author for each in read.events] == ["user", "user"]
    assert bodies[1]["mood"] == "glad"
