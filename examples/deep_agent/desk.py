"""A travel desk with deepagents: a file of wishes for each user, a researcher, and bookings that
wait for a person. Tallystick brings the last three arguments.
"""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
from examples.deep_agent.scripted import TRIPS

from tallystick import Actor, Tally
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver, TallyStore

WISHES = ("wishes", "{user_id}")
"""Namespace of the files below `/memories/`: each user has their own."""


def timetable(city: str) -> str:
    """Look up how to get to a city."""
    return TRIPS.get(city.lower(), "no trip")


def book(journey: str) -> str:
    """Book a journey."""
    return f"Booked: {journey}."


def build_desk(model: Any, researcher: Any, tally: Tally) -> Any:
    """Return the agent."""
    return create_deep_agent(
        model,
        name="desk",
        tools=[book],
        subagents=[
            {
                "name": "researcher",
                "description": "Looks up trips.",
                "system_prompt": "Look up what is asked.",
                "tools": [timetable],
                "model": researcher,
            }
        ],
        backend=CompositeBackend(
            default=StateBackend(),
            routes={"/memories/": StoreBackend(namespace=lambda run: ("wishes", run.context.user))},
        ),
        interrupt_on={"book": True},
        context_schema=Actor,
        middleware=[TallyMiddleware(tally, namespace=WISHES, capture="user")],
        checkpointer=TallySaver(tally),
        store=TallyStore(tally),
    )
