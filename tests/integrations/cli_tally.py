"""A tally with something for every command of the command line, made once for a module of tests."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from tallystick import Actor, ContextItem, PolicyRule, Tally
from tallystick.errors import ApprovalRequired
from tallystick.testing import StepClock
from tallystick_langgraph import TallySaver

OWNER = Actor(user="local", projects={"apollo"}, role="operator")
GOAL = "Mend the rounding of money in every invoice that was written since the move to Zurich"
_ASK = PolicyRule(
    id="ask-before-a-payment-of-any-size",
    name="Payments",
    effect="require_approval",
    applies_to="tool_call",
)


@dataclass(frozen=True)
class FilledTally:
    """The tally and the ids of what it has."""

    place: Path
    ids: dict[str, str]


class _State(TypedDict):
    note: str


def fill(place: Path) -> FilledTally:
    """Make the tally: memories, two runs with their steps, a thread, a space and an approval."""
    ids: dict[str, str] = {}
    # The seconds that a slow machine takes would change the freshness of what is compiled twice.
    clock = StepClock(time.time_ns() // 1_000)
    with Tally.open(place, owner=OWNER, rules=[_ASK], clock=clock, background=False) as tally:
        apollo = tally.bind(OWNER, scope="project:apollo")
        fact = apollo.remember(
            "Money is rounded to the nearest rappen, and half a rappen is rounded to even.",
            kind="preference",
            speaker="Ada",
            tags=["money"],
        )
        ids["fact"] = fact.id
        ids["source"] = fact.source_id
        ids["old"] = apollo.remember("Money is rounded up.", kind="decision").id
        memories = apollo.memories()
        with apollo.run("invoice-mender", goal=GOAL) as run:
            for name in ("first", "second"):
                with run.step("model_call", name=f"gpt-model-with-a-long-name-{name}") as step:
                    request = ContextItem(id="ask", kind="user_msg", content="Mend it.")
                    note = ContextItem(
                        id="invoices/rounding_of_money.py", kind="artifact", content="round(x, 2)"
                    )
                    apollo.compile([*memories, note, request], budget=1_000)
                    step.record("request", {"prompt": name})
                    step.record("response", {"text": "Done."})
                ids[name] = step.id
            with run.step("memory_write", name="remember"):
                ids["written"] = apollo.remember("The invoice of May was mended.").id
        ids["run"] = run.id
        bot = tally.bind(Actor(user="local", agent="bookkeeper"))
        with bot.run("bookkeeper") as asking:
            for name, amount in (("approval", 3), ("other", 4)):
                with pytest.raises(ApprovalRequired) as blocked:
                    bot.check_tool_call(
                        "pay", {"amount": amount, "to": "the painter of the house in Zurich"}
                    )
                ids[name] = blocked.value.approvals[0].id
        ids["asking"] = asking.id
        tally.bind(OWNER).spaces.create(
            "team:core", name="Everybody who works on invoices", members=[], reason="they ask"
        )
        builder: Any = StateGraph(_State)
        builder.add_node("write_the_note", lambda state: {"note": "written"})
        builder.add_edge(START, "write_the_note")
        builder.add_edge("write_the_note", END)
        graph = builder.compile(checkpointer=TallySaver(tally.bind(OWNER)))
        graph.invoke({"note": ""}, {"configurable": {"thread_id": "billing"}})
        ids["checkpoint"] = next(iter(tally.bind(OWNER).threads.history("billing"))).id
    return FilledTally(place, ids)
