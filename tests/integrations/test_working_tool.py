"""Working memory as a tool: a model keeps its plan in one turn and has it in the next, in every
runtime, over MCP and behind a server; by default no model is offered it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.integrations.mcp_clients import connected, payload

from tallystick import Actor, Tally
from tallystick.operations import MEMORY_TOOLS, MODEL_TOOLS, WORKING_TOOL
from tallystick.records import ContextItem, ModelToolCall
from tallystick_anthropic import MessagesMemoryTools
from tallystick_langchain import memory_tools as langchain_tools
from tallystick_llama_index import memory_tools as llama_tools
from tallystick_mcp import serve
from tallystick_openai import ResponsesMemoryTools
from tallystick_pydantic_ai import Tallystick

from .served import ADA, Served, served

OpenTally = Callable[..., Tally]
KEEP: dict[str, Any] = {"action": "set", "name": "plan", "value": ["read", "mend"]}


@pytest.fixture
def tally(open_sqlite: OpenTally) -> Iterator[Tally]:
    with open_sqlite() as opened:
        yield opened


def _next_turn(tally: Tally, thread: str) -> set[str]:
    """What a compile of the next turn of a thread has beside the request."""
    bound = tally.bind(ADA)
    with bound.run("next", metadata={"thread_id": thread}):
        ask = ContextItem(id="ask", kind="user_msg", content="Go on.")
        return {item.id for item in bound.compile([ask], budget=500).selected_items} - {"ask"}


def test_no_runtime_offers_it_unless_it_is_asked_for(tally: Tally) -> None:
    bound = tally.bind(ADA)
    offered: dict[str, Callable[[bool], list[Any]]] = {
        "langchain": lambda on: [tool.name for tool in langchain_tools(bound, working=on)],
        "llama_index": lambda on: [tool.metadata.name for tool in llama_tools(bound, working=on)],
        "openai": lambda on: [spec.name for spec in ResponsesMemoryTools(bound, working=on).specs],
        "anthropic": lambda on: [
            spec.name for spec in MessagesMemoryTools(bound, working=on).specs
        ],
    }
    for runtime, names in offered.items():
        assert sorted(names(False)) == sorted(MEMORY_TOOLS), runtime
        assert sorted(names(True)) == sorted(MODEL_TOOLS), runtime
    assert not ResponsesMemoryTools(bound).has(WORKING_TOOL.name)


def test_langchain_keeps_a_plan_in_the_thread(tally: Tally) -> None:
    [tool] = [
        each
        for each in langchain_tools(tally.bind(ADA), working=True)
        if each.name == "memory_working"
    ]
    config: Any = {"configurable": {"thread_id": "lc"}}
    kept = tool.invoke(KEEP, config)
    listed = tool.invoke({"action": "list"}, config)
    nowhere = tool.invoke(KEEP)

    assert kept == {"name": "plan", "lifetime": "thread"}
    assert listed["values"] == {"plan": '["read", "mend"]'}
    assert "thread" in nowhere["message"]
    assert _next_turn(tally, "lc") == {"working:plan"}
    assert tool.invoke({"action": "drop", "name": "plan"}, config) == {"dropped": True}
    assert _next_turn(tally, "lc") == set()


def test_pydantic_ai_keeps_a_plan_in_the_conversation(tally: Tally) -> None:
    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert "memory_working" in [tool.name for tool in info.function_tools]
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("memory_working", KEEP)])
        return ModelResponse(parts=[TextPart("Kept.")])

    agent = Agent(FunctionModel(model), capabilities=[Tallystick(tally.bind(ADA), working=True)])
    agent.run_sync("Plan it.", conversation_id="pai")

    assert _next_turn(tally, "pai") == {"working:plan"}


def test_an_sdk_and_llama_index_keep_a_plan_in_the_run_under_way(tally: Tally) -> None:
    bound = tally.bind(ADA)
    plain = ResponsesMemoryTools(bound, working=True)
    [llama] = [
        each for each in llama_tools(bound, working=True) if each.metadata.name == "memory_working"
    ]
    with bound.run("agent", metadata={"thread_id": "sdk"}):
        plain.run(ModelToolCall(id="c1", name="memory_working", arguments=KEEP))
    with bound.run("agent", metadata={"thread_id": "li"}):
        asyncio.run(llama.acall(**KEEP))
    with bound.run("agent") as run:
        answer = plain.run(ModelToolCall(id="c2", name="memory_working", arguments=KEEP))

    assert _next_turn(tally, "sdk") == _next_turn(tally, "li") == {"working:plan"}
    assert answer == {"name": "plan", "lifetime": "run"}
    assert bound.working.of(run.id).all() == {"plan": ["read", "mend"]}


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("working")) as there:
        yield there


def test_it_works_behind_a_server_with_every_operation(there: Served) -> None:
    turn: dict[str, Any] = {"thread_id": "http"}
    ask = ContextItem(id="ask", kind="user_msg", content="Go on.")
    with there.remote() as remote:
        with remote.run("agent", metadata=turn):
            remote.working.set("plan", ["read", "mend"], lifetime="thread")
            assert remote.call_tool("memory_working", {"action": "list"})["values"]
        with remote.run("agent", metadata=turn):
            compiled = remote.compile([ask], budget=500)
            [value] = remote.working.list()
        by_thread = remote.compile([ask], budget=500, thread="http")
        same = remote.working.get("plan", thread="http")
        dropped = remote.working.drop("plan", thread="http")
        nothing = remote.working.get("plan", thread="http")

    for each in (compiled, by_thread):
        assert {item.id for item in each.selected_items} == {"ask", "working:plan"}
    assert same == value
    assert (value.value, value.lifetime) == (["read", "mend"], "thread")
    assert (dropped, nothing) == (True, None)


async def test_mcp_holds_a_plan_and_replays_with_changes(tally: Tally) -> None:
    owner = Actor(user="ann")
    bound = tally.bind(owner)
    with bound.run("agent") as run, run.step("model_call", name="m") as step:
        items = [
            ContextItem(id=f"i{number}", kind="user_msg", content="A question of ours. " * 9)
            for number in range(3)
        ]
        bound.compile(items, budget=400)
        step.record("request", {"prompt": "x"})
    async with connected(serve(tally, actor=owner), "auto") as client:
        held = {"action": "hold", "id": "chat", "field": "plan", "replacement": "mend it"}
        kept = await client.call_tool("manage", held)
        listed = payload(await client.call_tool("explore", {"mode": "working", "id": "chat"}))
        let_go = {"action": "hold", "id": "chat", "field": "plan"}
        dropped = payload(await client.call_tool("manage", let_go))
        replay = {"action": "replay", "id": step.id, "changes": {"context_mutations": {"i0": None}}}
        changed = payload(await client.call_tool("manage", replay))["replay"]
        unlisted = {**replay, "changes": {"send": True, "provider_override": "p"}}
        refused = await client.call_tool("manage", unlisted)

    assert not kept.is_error
    assert [value["value"] for value in listed["working"]] == ["mend it"]
    assert dropped["hold"] is True
    assert [each["item_id"] for each in changed["diff"]["removed"]] == ["i0"]
    assert "request" not in changed
    assert payload(refused)["error"]["code"] == "egress_denied"
