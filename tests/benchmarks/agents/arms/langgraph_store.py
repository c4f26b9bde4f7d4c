"""The runtime with LangGraph's own store: searched before the model is called, written to after.

The node is the one of https://docs.langchain.com/oss/python/langgraph/add-memory, as a middleware
of `create_agent`, so that tools and summaries are those of the plain arm. The documentation writes
down what the user asks to remember; here every turn of the user is written down.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain.messages import SystemMessage
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

TITLE = "LangGraph's store: semantic search into the system prompt"


@dataclass
class Context:
    """The runtime context of a call."""

    user_id: str


class StoreMemory(AgentMiddleware[Any, Any, Any]):
    """Search the store for the user's message, and put what it says into the system prompt."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Send the memories along."""
        said = next(each for each in reversed(request.messages) if each.type == "human")
        namespace = ("memories", request.runtime.context.user_id)
        memories = request.runtime.store.search(namespace, query=said.text)
        info = "\n".join(each.value["data"] for each in memories)
        system = SystemMessage(f"{INSTRUCTIONS} User info: {info}")
        return handler(request.override(system_message=system))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """Write down what the user said."""
        said = next(each for each in reversed(state["messages"]) if each.type == "human")
        namespace = ("memories", runtime.context.user_id)
        runtime.store.put(namespace, str(uuid.uuid4()), {"data": said.text})


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent with the store."""
    agent: Any = create_agent(
        world.model(),
        world.tools(),
        system_prompt=INSTRUCTIONS,
        middleware=[
            SummarizationMiddleware(
                world.model(is_upkeep=True),
                trigger=("tokens", BUDGET),
                keep=("tokens", BUDGET // 2),
            ),
            StoreMemory(),
        ],
        checkpointer=InMemorySaver(),
        store=InMemoryStore(index={"embed": SharedEmbeddings(), "dims": DIMENSIONS}),
        context_schema=Context,
    )

    def say(user: str, thread: str, text: str) -> str:
        state = agent.invoke(
            {"messages": [{"role": "user", "content": text}]},
            {"configurable": {"thread_id": thread}},
            context=Context(user_id=user),
        )
        answer: str = state["messages"][-1].text
        return answer

    yield say
