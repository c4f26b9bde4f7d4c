"""A deep agent on a tally: its files, its subagents and its questions to a person, with receipts.

Two users leave a wish in a file. In another conversation it is recalled as text, for its user only;
the steps of the researcher are below the call that sent it, and a booking waits for a person.

    python -m examples.deep_agent
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from examples.deep_agent.desk import build_desk
from examples.deep_agent.scripted import ScriptedDesk, ScriptedResearcher
from examples.running import OPERATOR, check_receipts, example_options
from langgraph.types import Command

from tallystick import Actor, Tally

WISHES = {"ada": ("seats by the window", "Oslo"), "bob": ("seats by the aisle", "Riga")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve two users, and show the steps of one request."""
    options = example_options(__doc__).parse_args(arguments)
    with Tally.open(options.tally, owner=OPERATOR) as tally:
        desk = build_desk(ScriptedDesk(), ScriptedResearcher(), tally)
        for user, (seat, city) in WISHES.items():
            ask(desk, user, "1", f"Remember: I like {seat}.")
            question = f"Which seats do I like, and how do I get to {city}?"
            print(f"{user}: {ask(desk, user, '2', question)}")
            print(f"{user}: {ask(desk, user, '2', f'Book a seat to {city}.')}")
        ada = tally.bind(Actor(user="ada"))
        show_steps(ada, ada.recordings.runs()[1].id)
        print(check_receipts(tally))


def ask(desk: Any, user: str, thread: str, text: str) -> str:
    """Return the answer to a user; a question to a person is answered with yes."""
    config = {"configurable": {"thread_id": thread, "user_id": user}}
    actor = Actor(user=user)
    state = desk.invoke({"messages": [("user", text)]}, config, context=actor)
    if "__interrupt__" in state:
        [question] = state["__interrupt__"]
        print(f"  a person is asked about: {question.value['action_requests'][0]['args']}")
        resume: Any = Command(resume={"decisions": [{"type": "approve"}]})
        state = desk.invoke(resume, config, context=actor)
    return str(state["messages"][-1].text)


def show_steps(view: Any, run_id: str) -> None:
    """Print the steps of a run, those inside of another below it."""
    steps = view.recordings.steps(run_id)
    depth: dict[str, int] = {}
    for step in steps:
        depth[step.id] = depth.get(step.parent_step_id or "", -1) + 1
        print(f"  {'  ' * depth[step.id]}{step.step_kind} {step.name or ''}".rstrip())


if __name__ == "__main__":
    main()
