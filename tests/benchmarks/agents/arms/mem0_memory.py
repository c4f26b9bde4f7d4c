"""The runtime with mem0's open-source memory: searched before the model is called, added to after.

The node is the one of https://docs.mem0.ai/integrations/langgraph, as a middleware of
`create_agent`, so that tools and summaries are those of the plain arm. The vectors are in a folder,
by Qdrant; the same model answers and draws the facts out of each exchange. Its search by keywords
is off: the model for that is downloaded when it is first used.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain.messages import SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from tests.benchmarks.agents.world import (
    BUDGET,
    DIMENSIONS,
    INSTRUCTIONS,
    Say,
    SharedEmbeddings,
    World,
)

TITLE = "mem0, open source: facts drawn from each exchange"


@dataclass
class Context:
    """The runtime context of a call."""

    user_id: str


class Mem0(AgentMiddleware[Any, Any, Any]):
    """Search mem0 for the user's message; add the exchange when it is over."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Send the relevant memories along."""
        said = next(each for each in reversed(request.messages) if each.type == "human")
        user_id = request.runtime.context.user_id
        memories = self._memory.search(said.text, filters={"user_id": user_id})
        context = "Relevant information from previous conversations:\n"
        context += "".join(f"- {each['memory']}\n" for each in memories["results"])
        system = SystemMessage(f"{INSTRUCTIONS}\n{context}")
        return handler(request.override(system_message=system))

    def after_agent(self, state: Any, runtime: Any) -> None:
        """Store the exchange."""
        said = next(each for each in reversed(state["messages"]) if each.type == "human")
        exchange = [
            {"role": "user", "content": said.text},
            {"role": "assistant", "content": state["messages"][-1].text},
        ]
        self._memory.add(exchange, user_id=runtime.context.user_id)


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent with mem0, which sends nothing to its makers."""
    os.environ["MEM0_TELEMETRY"] = "False"
    os.environ.setdefault("MEM0_DIR", str(world.folder / "mem0-home"))
    config = {
        "llm": {"provider": "langchain", "config": {"model": world.model(is_upkeep=True)}},
        "embedder": {
            "provider": "langchain",
            "config": {"model": SharedEmbeddings(), "embedding_dims": DIMENSIONS},
        },
        "vector_store": {
            "provider": "qdrant",
            "config": {
                "path": str(world.folder / "qdrant"),
                "embedding_model_dims": DIMENSIONS,
                "on_disk": True,
            },
        },
        "history_db_path": str(world.folder / "mem0.db"),
    }
    memory: Any = importlib.import_module("mem0").Memory.from_config(config)
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
            Mem0(memory),
        ],
        checkpointer=InMemorySaver(),
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
    memory.close()
