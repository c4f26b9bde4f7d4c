"""The memory tools of ADK keep the adapter contract, ask a person, and go by the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("google.adk", exc_type=ImportError)

from google.adk.agents import LlmAgent
from tests.integrations.adk.runtime import ADK, Conversation, scripted
from tests.integrations.runtimes.base import Script, call
from tests.integrations.runtimes.ruling import rule

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick.operations import MEMORY_TOOLS
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_adk import TallyPlugin, memory_tools

OpenTally = Callable[..., Tally]


@pytest.fixture
def open_tally(open_sqlite: Any) -> Any:
    """The store of the contract, on SQLite or on PostgreSQL."""
    return open_sqlite


class TestMemoryTools(AdapterContract):
    verbs = frozenset({"recall", "remember", "modify", "forget"})

    def _result(self, bound: BoundTally, name: str, **arguments: Any) -> Any:
        """Return the result of a memory tool; approvals are given."""
        script = Script([call(name, **arguments)], "done")
        return ADK().run(script, tools_of=bound, answers=lambda asked: True).values[-1]

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        answer = self._result(bound, "memory_search", query=query)
        assert answer.get("error") in (None, "Denied")
        return [memory["id"] for memory in answer.get("memories", [])]

    def remember(self, bound: BoundTally, content: str) -> None:
        answer = self._result(bound, "memory_store", content=content)
        assert answer.get("status") in ("created", "skipped") or answer["error"] == "Denied"

    def modify(
        self, bound: BoundTally, memory_id: str, content: str, reason: str, if_version: int
    ) -> None:
        fields = {"memory_id": memory_id, "content": content, "reason": reason}
        answer = self._result(bound, "memory_modify", if_version=if_version, **fields)
        conflicts = ("StateConflict", "VersionConflict")
        assert answer.get("status") == "changed" or answer["error"] in conflicts

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        answer = self._result(bound, "memory_forget", memory_id=memory_id, reason=reason)
        assert answer.get("state") == "deleted" or answer["error"] == "StateConflict"


def test_the_tools_are_those_of_the_other_runtimes(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        shapes = ADK().tool_shapes(tally)
        assert [name for name, _, _ in shapes] == sorted(MEMORY_TOOLS)
        assert len(memory_tools(tally, working=True)) == len(shapes) + 1
        with pytest.raises(InvalidInput, match="approval"):
            memory_tools(tally, approval="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize("agrees", [True, False])
def test_a_change_waits_for_a_confirmation(open_sqlite: OpenTally, agrees: bool) -> None:
    with open_sqlite() as tally:
        bound = tally.bind()
        note = bound.remember("The depot is at pier 4.")
        change = call(
            "memory_modify", memory_id=note.id, content="At pier 5.", reason="moved", if_version=1
        )
        waiting = ADK().run(Script([change]), tools_of=bound, recorded=bound)
        assert [asked.name for asked in waiting.waiting] == ["memory_modify"]
        assert bound.get(note.id).content == "The depot is at pier 4."
        ADK().run(
            Script([change], "done"),
            tools_of=bound,
            recorded=bound,
            answers=lambda asked: agrees or "Leave it.",
        )
        assert (bound.get(note.id).content == "At pier 5.") is agrees


def test_rules_hold_without_a_plugin_and_memory_is_the_users(open_sqlite: OpenTally) -> None:
    async def say(tally: Tally, user: str, **arguments: Any) -> str:
        model = scripted([call("memory_store", **arguments)], "done")
        agent = LlmAgent(name="agent", model=model, tools=[*memory_tools(tally)])
        chat = Conversation(agent, user=user)
        await chat.begin()
        return str(await chat.say("Note it."))

    async def say_beside(tally: Tally, other: Tally) -> str:
        model = scripted([call("memory_store", content="And 7.")], "done")
        agent = LlmAgent(name="agent", model=model, tools=[*memory_tools(tally)])
        chat = Conversation(agent, TallyPlugin(other, context=False), user="ann")
        await chat.begin()
        return str(await chat.say("Note it."))

    denied = rule("deny", tool=("memory_store",))
    with open_sqlite() as tally:
        asyncio.run(say(tally, "ann", content="My locker is number 5."))
        assert [each.content for each in tally.user("ann").memories()] == ["My locker is number 5."]
        assert not tally.user("bob").memories()
    with open_sqlite(rules=[denied]) as tally:
        assert "denied" in asyncio.run(say(tally, "ann", content="And 6.")).lower()
        # A plugin of another tally checks by that one's rules.
        with Tally.open(":memory:", background=False) as other:
            assert "denied" in asyncio.run(say_beside(tally, other)).lower()
        assert "And 6." not in [each.content for each in tally.bind(Actor(user="ann")).memories()]
