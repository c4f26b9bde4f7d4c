"""deepagents on a tally: files, subagents and approvals."""

from __future__ import annotations

import asyncio

from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend, StoreBackend
from langgraph.types import Command
from tests.peers.packages.common import (
    opened_tally,
    promise,
    scripted_chat_model,
    steps_of,
    verifies,
)

from tallystick import Actor
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver, TallyStore

NOTES = "# Preferences\nAda likes seats by the window."


def main() -> None:
    with opened_tally() as tally:
        model = scripted_chat_model(
            ("write_file", {"file_path": "/memories/seats.md", "content": NOTES}),
            ("task", {"description": "Look for trains.", "subagent_type": "researcher"}),
            "Noted.",
            "By the window.",
            ("delete_booking", {"number": 7}),
            "Deleted.",
        )
        researcher = {
            "name": "researcher",
            "description": "Looks things up.",
            "system_prompt": "Look it up.",
            "model": scripted_chat_model("Two trains."),
        }

        def delete_booking(number: int) -> str:
            """Delete a booking."""
            return f"deleted {number}"

        # recipe
        agent = create_deep_agent(
            model,
            tools=[delete_booking],
            subagents=[researcher],
            backend=CompositeBackend(
                default=StateBackend(),
                routes={
                    "/memories/": StoreBackend(
                        namespace=lambda runtime: ("files", runtime.context.user)
                    )
                },
            ),
            middleware=[TallyMiddleware(tally, namespace=("files", "{user_id}"), capture="user")],
            interrupt_on={"delete_booking": True},
            context_schema=Actor,
            checkpointer=TallySaver(tally),
            store=TallyStore(tally),
        )
        ada = Actor(user="ada")
        config = {"configurable": {"thread_id": "1", "user_id": "ada"}}
        agent.invoke({"messages": [("user", "Remember my seat.")]}, config, context=ada)
        # end

        view = tally.bind(ada)
        promise(
            "An agent call is one run, and the calls of a subagent are steps below `task`.",
            (len(view.recordings.runs()), 1),
            (
                [(kind, parent) for kind, _, parent, _ in steps_of(view)],
                [
                    ("model_call", None),
                    ("tool_call", None),
                    ("model_call", None),
                    ("tool_call", None),
                    ("model_call", "task"),
                    ("model_call", None),
                ],
            ),
        )
        config["configurable"]["thread_id"] = "2"
        agent.invoke({"messages": [("user", "Which seat does Ada like?")]}, config, context=ada)
        promise(
            "A file below `/memories/` is its user's, and recalled in any thread as its text.",
            "Ada likes seats by the window." in model.asked[-1],
            "encoding" not in model.asked[-1],
            (list(tally.bind(Actor(user="bob")).memories()), []),
        )
        state = agent.invoke({"messages": [("user", "Delete it.")]}, config, context=ada)
        promise("`interrupt_on` waits for a person.", bool(state["__interrupt__"]))
        resume = Command(resume={"decisions": [{"type": "approve"}]})
        state = agent.invoke(resume, config, context=ada)
        foreign = {"configurable": {**config["configurable"], "user_id": "bob"}}
        promise(
            "`get_state` and `aget_state` read a thread for the user that its config names.",
            (agent.get_state(config).values["messages"][-1].text, "Deleted."),
            (asyncio.run(agent.aget_state(config)).values["messages"][-1].text, "Deleted."),
            (asyncio.run(agent.aget_state(foreign)).values.get("messages", []), []),
        )
        promise(
            "Words of the user are captured once, and every run has receipts that verify.",
            (state["messages"][-1].text, "Deleted."),
            (
                [turn.content for turn in view.memories(kinds=["turn"])][::-1],
                ["Remember my seat.", "Which seat does Ada like?", "Delete it."],
            ),
            ({run.status for run in view.recordings.runs()}, {"completed"}),
            verifies(view),
        )


main()
