"""Memory of ADK on a tally: sessions become turns, searches find them, for their user alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.events import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from tallystick import Actor, Tally
from tallystick.errors import Denied, InvalidInput, NotFound
from tallystick_adk import TallyMemoryService

OpenTally = Callable[..., Tally]
ANN: dict[str, Any] = {"app_name": "desk", "user_id": "ann"}
BOB: dict[str, Any] = {"app_name": "desk", "user_id": "bob"}
SAID_AT = 1_760_000_000.5


def said(text: str, author: str = "user", **fields: Any) -> Event:
    role = "user" if author == "user" else "model"
    content = types.Content(role=role, parts=[types.Part(text=text)])
    return Event(author=author, content=content, timestamp=SAID_AT, **fields)


def session(*events: Event, user: str = "ann", app: str = "desk") -> Session:
    return Session(id="s", app_name=app, user_id=user, events=list(events))


def entry(text: str, **fields: Any) -> MemoryEntry:
    return MemoryEntry(content=types.Content(parts=[types.Part(text=text)]), **fields)


async def found(service: TallyMemoryService, query: str, **named: Any) -> list[MemoryEntry]:
    found: list[MemoryEntry] = (await service.search_memory(query=query, **(named or ANN))).memories
    return found


def texts(memories: list[MemoryEntry]) -> list[Any]:
    return [each.content.parts[0].text for each in memories]


async def test_what_was_said_in_a_session_is_found_with_who_said_it_and_when(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        service = TallyMemoryService(tally)
        call = types.Part(function_call=types.FunctionCall(name="pay", args={}))
        thought = types.Part(text="A penguin?", thought=True)
        others = Event(author="clerk", content=types.Content(role="model", parts=[call, thought]))
        asked, answered = said("My penguin is called Pingo."), said("Noted, Pingo.", "clerk")
        await service.add_session_to_memory(session(asked, others, answered))
        memories = await found(service, "What is the penguin called?")
        turns = tally.bind(Actor(user="ann")).memories()

    assert texts(memories)[0] == "My penguin is called Pingo."
    assert [(each.author, each.content.role) for each in memories][:1] == [("user", "user")]
    assert memories[0].timestamp == "2025-10-09T08:53:20.500000+00:00"
    assert [(each.content, each.speaker, each.conversation) for each in turns[::-1]] == [
        ("My penguin is called Pingo.", "ann", "s"),
        ("Noted, Pingo.", "clerk", "s"),
    ]


async def test_a_session_that_is_added_again_adds_what_is_new(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallyMemoryService(tally)
        first, second, again = said("Yes."), said("The lamp is green."), said("Yes.")
        await service.add_session_to_memory(session(first, second))
        await service.add_session_to_memory(session(first, second, again))
        given: dict[str, Any] = {"session_id": "s", "custom_metadata": {"topic": "lamps"}}
        await service.add_events_to_memory(**ANN, events=[again, said("It is on.")], **given)
        turns = tally.bind(Actor(user="ann")).memories()
        [lamp] = [each for each in await found(service, "Is it on?") if "on." in texts([each])[0]]

    assert [each.content for each in turns[::-1]] == [
        *("Yes.", "The lamp is green.", "Yes.", "It is on."),
    ]
    assert lamp.custom_metadata == {"topic": "lamps"}


async def test_words_with_a_secret_that_somebody_kept_without_it_are_added_once(
    open_sqlite: OpenTally,
) -> None:
    secret = f"The key is sk-proj-{'a1B2' * 10}."
    with open_sqlite() as tally:
        ann = tally.bind(Actor(user="ann"))
        with ann.run("clerk", metadata={"thread_id": "s"}) as run:
            ann.keep_turn(run, user=secret)
        await TallyMemoryService(tally).add_session_to_memory(session(said(secret)))
        assert len(ann.memories()) == 1


async def test_a_deleted_memory_is_forgotten_and_is_not_added_again(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        service, ann = TallyMemoryService(tally), tally.bind(Actor(user="ann"))
        event = said("The code of the shed is 4711.")
        await service.add_session_to_memory(session(event))
        [memory] = await found(service, "code of the shed")
        assert memory.id is not None
        with pytest.raises((NotFound, Denied)):
            await service.delete_memory(**BOB, memory_id=memory.id)
        await service.delete_memory(**ANN, memory_id=memory.id)
        with pytest.raises(InvalidInput):
            await service.delete_memory(**ANN)
        await service.add_session_to_memory(session(event))

        assert await found(service, "code of the shed") == []
        assert ann.memories() == []
        assert ann.recover(memory.id, reason="by mistake").id == memory.id


async def test_entries_are_remembered_as_they_are(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        service = TallyMemoryService(tally)
        one = entry(
            "Ann prefers tea.",
            id="e1",
            author="clerk",
            timestamp="2026-01-02T03:04:05+00:00",
            custom_metadata={"kind_of": "preference"},
        )
        for _ in range(2):
            await service.add_memory(**ANN, memories=[one, entry("")])
        [memory] = await found(service, "What does Ann prefer, tea?")

    assert (texts([memory]), memory.author, memory.timestamp, memory.custom_metadata) == (
        ["Ann prefers tea."],
        "clerk",
        "2026-01-02T03:04:05+00:00",
        {"kind_of": "preference"},
    )


async def test_memory_is_its_users_and_what_another_app_heard_is_not_found(
    open_sqlite: OpenTally,
) -> None:
    query = "Where is the harbour?"
    with open_sqlite() as tally:
        service = TallyMemoryService(tally)
        await service.add_session_to_memory(session(said("The harbour is in the north.")))
        await service.add_session_to_memory(session(said("The harbour is east."), app="shop"))
        ann = tally.bind(Actor(user="ann"))
        ann.remember("The harbour is deep.")

        assert await found(service, query, **BOB) == []
        desk = set(texts(await found(service, query)))
        every = await found(TallyMemoryService(tally, across_apps=True), query)
        with pytest.raises(Denied):
            await found(TallyMemoryService(tally.bind(Actor(user="ann"))), query, **BOB)

    assert desk == {"The harbour is in the north.", "The harbour is deep."}
    assert len(every) == 3


async def test_a_secret_is_not_given_to_a_model(open_sqlite: OpenTally) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLF"
    with open_sqlite() as tally:
        service = TallyMemoryService(tally)
        await service.add_session_to_memory(session(said(f"The key of the store is {key}.")))
        memories = await found(service, "key of the store")

    assert memories
    assert key not in str(memories)
