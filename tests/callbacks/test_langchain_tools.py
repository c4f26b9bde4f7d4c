"""LangChain's memory tools keep the adapter contract, and ask a person in LangGraph's own way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from tallystick import Actor, Tally
from tallystick.operations import MEMORY_TOOLS
from tallystick.tally import BoundTally
from tallystick.testing.adapter_contract import AdapterContract
from tallystick_langchain import TallyCallbackHandler, memory_tools

OpenTally = Callable[..., Tally]
APPROVE: Any = Command(resume={"decisions": [{"type": "approve"}]})


class _Model(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


def _agent(
    bound: BoundTally | Tally, tool: str, arguments: dict[str, Any], *, saver: Any = None
) -> Any:
    call = AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": "c1"}])
    answers: Iterator[AIMessage | str] = iter([call, "done"])
    return create_agent(_Model(messages=answers), memory_tools(bound), checkpointer=saver)


def _through_tool(bound: BoundTally, tool: str, arguments: dict[str, Any]) -> Any:
    """What a memory tool returns in an agent; approvals are given."""
    agent, config = (
        _agent(bound, tool, arguments, saver=InMemorySaver()),
        {"configurable": {"thread_id": "t"}},
    )
    result = agent.invoke({"messages": [("user", "go")]}, config)
    if "__interrupt__" in result:
        result = agent.invoke(APPROVE, config)
    [returned] = [message for message in result["messages"] if isinstance(message, ToolMessage)]
    return json.loads(str(returned.content))


class TestTools(AdapterContract):
    verbs = frozenset({"recall", "remember", "modify", "forget"})

    def recall(self, bound: BoundTally, query: str) -> Sequence[str]:
        answer = _through_tool(bound, "memory_search", {"query": query})
        assert answer.get("error") in (None, "Denied")
        return [memory["id"] for memory in answer.get("memories", [])]

    def remember(self, bound: BoundTally, content: str) -> None:
        _through_tool(bound, "memory_store", {"content": content})

    def modify(
        self, bound: BoundTally, memory_id: str, content: str, reason: str, if_version: int
    ) -> None:
        arguments = {
            "memory_id": memory_id,
            "content": content,
            "reason": reason,
            "if_version": if_version,
        }
        _through_tool(bound, "memory_modify", arguments)

    def forget(self, bound: BoundTally, memory_id: str, reason: str) -> None:
        _through_tool(bound, "memory_forget", {"memory_id": memory_id, "reason": reason})


def test_the_six_tools_are_offered_with_their_descriptions_and_without_the_config(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        tools = memory_tools(tally)
    assert [tool.name for tool in tools] == list(MEMORY_TOOLS)
    assert [tool.description for tool in tools] == [
        memory_tool.description for memory_tool in MEMORY_TOOLS.values()
    ]
    assert list(tools[4].args) == ["memory_id", "content", "reason", "if_version"]


def test_forgetting_stops_the_graph_until_a_person_agrees(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        stored = owner.remember("Keep me.")
        agent = _agent(
            owner,
            "memory_forget",
            {"memory_id": stored.id, "reason": "tidy"},
            saver=InMemorySaver(),
        )
        config: Any = {
            "configurable": {"thread_id": "t"},
            "callbacks": [TallyCallbackHandler(tally, strict=True)],
        }
        [inputs] = agent.invoke({"messages": [("user", "forget it")]}, config)["__interrupt__"]
        assert inputs.value["action_requests"][0]["name"] == "memory_forget"
        assert owner.get(stored.id).content == "Keep me."
        assert [step.status for step in owner.recordings.steps(owner.runs()[0].run_id)] == [
            "completed",
            "blocked",
        ]
        agent.invoke(APPROVE, config)
        assert owner.memories() == []


def test_a_person_may_say_no_and_the_model_is_told_why(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        stored = owner.remember("Keep me.")
        agent = _agent(
            owner,
            "memory_forget",
            {"memory_id": stored.id, "reason": "tidy"},
            saver=InMemorySaver(),
        )
        config: Any = {"configurable": {"thread_id": "t"}}
        agent.invoke({"messages": [("user", "forget it")]}, config)
        answer = agent.invoke(
            Command(resume={"decisions": [{"type": "reject", "message": "It is dear to me."}]}),
            config,
        )
        [tool_message] = [
            message for message in answer["messages"] if isinstance(message, ToolMessage)
        ]
        assert (
            json.loads(str(tool_message.content))["message"]
            == "memory_forget was not done. It is dear to me."
        )
        assert owner.get(stored.id).content == "Keep me."


@pytest.mark.parametrize("asynchronous", [False, True])
def test_where_nobody_can_be_asked_nothing_is_changed(
    open_sqlite: OpenTally, asynchronous: bool
) -> None:
    with open_sqlite() as tally:
        stored = tally.bind().remember("Keep me.")
        forget = memory_tools(tally)[5]
        arguments = {"memory_id": stored.id, "reason": "tidy"}
        answer = (
            asyncio.run(forget.ainvoke(arguments)) if asynchronous else forget.invoke(arguments)
        )
        assert answer["reason"] == "not_approved"
        assert tally.bind().get(stored.id).content == "Keep me."


def test_whose_middleware_asks_may_leave_it_to_that(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        stored = tally.bind().remember("Forget me.")
        memory_tools(tally, approval="elsewhere")[5].invoke(
            {"memory_id": stored.id, "reason": "tidy"}
        )
        assert tally.bind().memories() == []


def test_the_metadata_of_a_call_may_say_who_acts(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        store = memory_tools(tally, actor=lambda call: Actor(user=call.metadata["who"]))[1]
        store.invoke({"content": "Mine."}, {"metadata": {"who": "alice"}})
        assert [memory.content for memory in tally.bind(Actor(user="alice")).memories()] == [
            "Mine."
        ]
        assert tally.bind().memories() == []


def test_the_history_of_what_a_tool_stores_names_the_thread(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        owner = tally.bind()
        stored = _through_tool(owner, "memory_store", {"content": "Noted."})
        assert [entry.session_id for entry in owner.history(stored["id"])] == ["t"]
