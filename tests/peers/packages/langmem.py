"""langmem's memory tools on a TallyStore."""

from __future__ import annotations

from langchain.agents import create_agent
from langmem import create_manage_memory_tool, create_search_memory_tool
from tests.peers.packages.common import opened_tally, promise, scripted_chat_model, verifies

from tallystick import Actor
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallyStore


def main() -> None:
    with opened_tally() as tally:
        model = scripted_chat_model(
            ("manage_memory", {"content": "Ada likes windows.", "action": "create"}),
            "Noted.",
            ("search_memory", {"query": "windows"}),
            "By the window.",
            ("search_memory", {"query": "windows"}),
            "I do not know.",
        )
        # recipe
        namespace = ("memories", "{user_id}")
        agent = create_agent(
            model,
            [create_manage_memory_tool(namespace), create_search_memory_tool(namespace)],
            middleware=[TallyMiddleware(tally, namespace=namespace)],
            store=TallyStore(tally),
        )
        config = {"configurable": {"user_id": "ada"}}
        agent.invoke({"messages": [("user", "I like windows.")]}, config)
        # end
        state = agent.invoke({"messages": [("user", "Where do I sit?")]}, config)
        [found] = [each.text for each in state["messages"] if each.type == "tool"]
        state = agent.invoke(
            {"messages": [("user", "Where do I sit?")]}, {"configurable": {"user_id": "bob"}}
        )
        [of_bob] = [each.text for each in state["messages"] if each.type == "tool"]
        promise(
            "What `manage_memory` creates is found by `search_memory`, for its user only.",
            "Ada likes windows." in found,
            "Ada likes windows." not in of_bob,
        )
        ada = tally.bind(Actor(user="ada"))
        [hit] = ada.recall("windows", namespace=("memories", "ada"))
        promise(
            "It is a memory with sources, which `recall(namespace=…)` finds.",
            "Ada likes windows." in hit.memory.content,
            bool(hit.sources),
            verifies(ada),
        )


main()
