"""A LangGraph graph as it was, and as it is on a tally: the same graph, with a few lines changed.

Two users book trips in a subgraph that waits for a person. On the tally each call is recorded, and
what was booked in one conversation is known in the next one of the same user.

    python -m examples.langgraph_wrapper
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

from examples.langgraph_wrapper import after, before
from examples.langgraph_wrapper.scripted import ScriptedChatModel
from examples.running import OPERATOR, check_receipts, example_options
from langgraph.types import Command

from tallystick import Tally

TRIPS = {"ada": "the night train to Oslo", "bob": "the ferry to Riga"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the graph before and after, and show what differs."""
    options = example_options(__doc__).parse_args(arguments)
    lines = [line for line in diff() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    print(f"{len(lines)} changed lines take the graph onto a tally:\n\n{''.join(diff())}")

    print("\nBefore:")
    desk = before.build_desk(ScriptedChatModel())
    for user in TRIPS:
        visit(desk, user, lambda thread, user=user: before.config_of(user, thread))
    print("\nAfter:")
    with Tally.open(options.tally, owner=OPERATOR) as tally:
        desk = after.build_desk(ScriptedChatModel(), tally)
        for user in TRIPS:
            visit(desk, user, lambda thread, user=user: after.config_of(user, thread, tally))
        print(f"\n{check_receipts(tally)}")


def visit(desk: Any, user: str, config: Any) -> None:
    """Let a user book a trip, and ask about it in another conversation."""
    state = desk.invoke({"messages": [("user", f"Book {TRIPS[user]}.")]}, config("booking"))
    [question] = state["__interrupt__"]
    state = desk.invoke(Command(resume="yes"), config("booking"))
    print(f"  {user}: {question.value} Yes. {state['messages'][-1].text}")
    state = desk.invoke({"messages": [("user", f"Is {TRIPS[user]} booked?")]}, config("question"))
    print(f"  {user}, in another conversation: {state['messages'][-1].text}")


def diff() -> list[str]:
    """Return the lines of the difference between before and after."""
    old, new = (
        Path(str(module.__file__)).read_text(encoding="utf-8").splitlines(keepends=True)
        for module in (before, after)
    )
    return list(unified_diff(old, new, "before.py", "after.py", n=1))


if __name__ == "__main__":
    main()
