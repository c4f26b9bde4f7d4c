"""The plain runtime: LangChain's agent with a checkpointer, and summaries of what grew too long.

https://docs.langchain.com/oss/python/langchain/short-term-memory
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from tests.benchmarks.agents.world import BUDGET, INSTRUCTIONS, Say, World

TITLE = "plain: `create_agent`, a checkpointer, `SummarizationMiddleware`"


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent that remembers a thread, and nothing beyond."""
    agent = create_agent(
        world.model(),
        world.tools(),
        system_prompt=INSTRUCTIONS,
        middleware=[
            SummarizationMiddleware(
                world.model(is_upkeep=True),
                trigger=("tokens", BUDGET),
                keep=("tokens", BUDGET // 2),
            )
        ],
        checkpointer=InMemorySaver(),
    )

    def say(user: str, thread: str, text: str) -> str:
        state = agent.invoke(
            {"messages": [{"role": "user", "content": text}]},
            {"configurable": {"thread_id": thread}},
        )
        answer: str = state["messages"][-1].text
        return answer

    yield say
