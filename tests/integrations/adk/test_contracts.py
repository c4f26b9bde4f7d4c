"""The adapter of ADK keeps the contracts of effects, of capture and of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.memory.memory_entry import MemoryEntry
from google.genai import types
from tests.integrations.adk.runtime import ADK
from tests.integrations.runtimes.base import Script, call
from tests.integrations.test_request_contract import _Played as RequestsPlayed
from tests.integrations.test_runtime_capture import _Played as CapturePlayed

from tallystick.errors import Conflict, Denied
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_adk import TallyMemoryService


@pytest.fixture
def open_tally(open_sqlite: Any) -> Any:
    """The store of the contract, on SQLite or on PostgreSQL."""
    return open_sqlite


def double(value: int) -> int:
    """Twice the value."""
    return value * 2


class TestEffects(AdapterContract):
    verbs = frozenset({"context", "model_call", "tool_call"})

    def context(self, bound: BoundTally, query: str) -> str:
        script = Script("So.")
        ADK().run(script, prompt=query, remembering=bound)
        return script.sent[0]

    def model_call(self, bound: BoundTally, prompt: str, answer: str) -> None:
        assert ADK().run(Script(answer), prompt=prompt, recorded=bound).text == answer

    def tool_call(self, bound: BoundTally, value: int) -> None:
        ADK().run(Script([call("double", value=value)], "So."), [double], recorded=bound)


class TestMemoryEffects(AdapterContract):
    verbs = frozenset({"recall", "forget"})

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        named = {"app_name": "desk", "user_id": bound.actor.user}
        service = TallyMemoryService(bound)
        try:
            found = asyncio.run(service.search_memory(query=query, **named))
        except Denied:
            return []
        return [str(each.id) for each in found.memories]

    def remember(self, bound: BoundTally, content: str) -> None:
        entry = MemoryEntry(content=types.Content(parts=[types.Part(text=content)]))
        named = {"app_name": "desk", "user_id": bound.actor.user}
        asyncio.run(TallyMemoryService(bound).add_memory(memories=[entry], **named))

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        named = {"app_name": "desk", "user_id": bound.actor.user}
        try:
            asyncio.run(TallyMemoryService(bound).delete_memory(memory_id=memory_id, **named))
        except Conflict:
            return


class TestCapture(CapturePlayed):
    runtime, stream = ADK(), ADK("run_async streamed")


class TestRequests(RequestsPlayed):
    runtime = ADK()


class TestStreamedRequests(RequestsPlayed):
    runtime = ADK("run_async streamed")


# The contracts themselves are not run as tests of this module.
del RequestsPlayed, CapturePlayed
