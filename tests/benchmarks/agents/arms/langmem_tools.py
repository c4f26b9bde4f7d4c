"""The runtime with LangMem: the agent itself writes down and looks up, with two tools.

https://langchain-ai.github.io/langmem/guides/memory_tools/, with a namespace of each user, on the
agent of LangChain 1.x.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from tests.benchmarks.agents.world import (
    BUDGET,
    DIMENSIONS,
    INSTRUCTIONS,
    Say,
    SharedEmbeddings,
    World,
)

TITLE = "LangMem: `manage_memory` and `search_memory`"


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent with the tools of LangMem."""
    langmem: Any = importlib.import_module("langmem")
    namespace = ("memories", "{langgraph_user_id}")
    agent: Any = create_agent(
        world.model(),
        [
            *world.tools(),
            langmem.create_manage_memory_tool(namespace=namespace),
            langmem.create_search_memory_tool(namespace=namespace),
        ],
        system_prompt=INSTRUCTIONS,
        middleware=[
            SummarizationMiddleware(
                world.model(is_upkeep=True),
                trigger=("tokens", BUDGET),
                keep=("tokens", BUDGET // 2),
            )
        ],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(index={"embed": SharedEmbeddings(), "dims": DIMENSIONS}),
    )

    def say(user: str, thread: str, text: str) -> str:
        state = agent.invoke(
            {"messages": [{"role": "user", "content": text}]},
            {"configurable": {"thread_id": thread, "langgraph_user_id": user}},
        )
        answer: str = state["messages"][-1].text
        return answer

    yield say
