"""The runtime with Tallystick: the line of the README, for two users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain.agents import create_agent
from tests.benchmarks.agents.world import BUDGET, INSTRUCTIONS, Say, World

from tallystick import Tally
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver

TITLE = 'Tallystick: `TallyMiddleware(tally, capture="user")`, `TallySaver(tally)`'


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent with the middleware and the checkpointer."""
    with Tally.open(world.folder / "tally") as tally:
        agent: Any = create_agent(
            world.model(),
            world.tools(),
            system_prompt=INSTRUCTIONS,
            middleware=[TallyMiddleware(tally, budget=BUDGET, capture="user")],
            checkpointer=TallySaver(tally),
        )

        def say(user: str, thread: str, text: str) -> str:
            state = agent.invoke(
                {"messages": [{"role": "user", "content": text}]},
                {"configurable": {"thread_id": thread, "user_id": user}},
            )
            answer: str = state["messages"][-1].text
            return answer

        yield say
