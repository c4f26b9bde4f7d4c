"""The runtime with Tallystick, and a document made of the user's memory before each session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from langchain.agents import create_agent
from tests.benchmarks.agents.world import BUDGET, INSTRUCTIONS, Say, World

from tallystick import Actor, Tally
from tallystick.tally import BoundTally
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver
from tallystick_synthesis import Synthesis

TITLE = "the same, with an artifact of `Synthesis` before each session"


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent with the middleware and the checkpointer; what is kept of a user's sessions is
    made into an onboarding guide whenever the next one begins.
    """
    threads: set[str] = set()
    with Tally.open(world.folder / "tally") as tally:
        agent: Any = create_agent(
            world.model(),
            world.tools(),
            system_prompt=INSTRUCTIONS,
            middleware=[TallyMiddleware(tally, budget=BUDGET, capture="user")],
            checkpointer=TallySaver(tally),
        )

        def say(user: str, thread: str, text: str) -> str:
            if thread not in threads:
                threads.add(thread)
                _synthesise(tally.bind(Actor(user=user)))
            state = agent.invoke(
                {"messages": [{"role": "user", "content": text}]},
                {"configurable": {"thread_id": thread, "user_id": user}},
            )
            answer: str = state["messages"][-1].text
            return answer

        yield say


def _synthesise(bound: BoundTally) -> None:
    """Keep a guide of what the user said, in the place of the one before."""
    synthesis = Synthesis(bound)
    known = synthesis.runs(limit=1)
    run = known[0] if known else synthesis.plan("what we said", output_type="onboarding_guide")
    synthesis.sections(run.id)
    synthesis.draft(run.id)
    verified = synthesis.verify(run.id).verification
    if verified is None or verified.verdict.startswith("blocked"):
        return  # nothing was said before
    token = synthesis.remember(run.id).confirm_token
    synthesis.remember(run.id, mode="apply", confirm_token=token)
