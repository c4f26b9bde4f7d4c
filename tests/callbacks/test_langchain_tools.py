"""Memory tools of LangChain that are called without an agent; tests/integrations/
test_runtime_adapters.py holds the facts of every runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tallystick import Actor, Tally
from tallystick_langchain import memory_tools

OpenTally = Callable[..., Tally]


@pytest.mark.parametrize("is_async", [False, True])
def test_where_nobody_can_be_asked_nothing_is_changed(
    open_sqlite: OpenTally, is_async: bool
) -> None:
    with open_sqlite() as tally:
        stored = tally.bind().remember("Keep me.")
        forget = memory_tools(tally)[5]
        arguments = {"memory_id": stored.id, "reason": "tidy"}
        answer = asyncio.run(forget.ainvoke(arguments)) if is_async else forget.invoke(arguments)
        assert answer["reason"] == "not_approved"
        assert tally.bind().get(stored.id).content == "Keep me."


def test_the_metadata_of_a_call_may_say_who_acts(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        store = memory_tools(tally, actor=lambda call: Actor(user=call.metadata["who"]))[1]
        store.invoke({"content": "Mine."}, {"metadata": {"who": "alice"}})
        alice = tally.bind(Actor(user="alice"))
        assert [memory.content for memory in alice.memories()] == ["Mine."]
        assert tally.bind().memories() == []
