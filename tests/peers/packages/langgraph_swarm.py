"""langgraph-swarm: agents that hand over to one another."""

from __future__ import annotations

from langchain.agents import create_agent
from langgraph_swarm import create_handoff_tool, create_swarm
from tests.peers.packages.common import (
    opened_tally,
    promise,
    scripted_chat_model,
    steps_of,
    verifies,
)

from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_langgraph import TallySaver


def main() -> None:
    with opened_tally() as tally:

        def graph_of(*, name: str) -> None:
            alice_model = scripted_chat_model(("transfer_to_bob", {}))
            bob_model = scripted_chat_model("Ahoy.", "Ahoy again.")
            # recipe
            watching = [TallyMiddleware(tally)]
            to_bob, to_alice = (create_handoff_tool(agent_name=each) for each in ("bob", "alice"))
            alice = create_agent(alice_model, [to_bob], name="alice", middleware=watching)
            bob = create_agent(bob_model, [to_alice], name="bob", middleware=watching)
            swarm = create_swarm([alice, bob], default_active_agent="alice")
            graph = swarm.compile(checkpointer=TallySaver(tally))
            # end
            handlers = [TallyCallbackHandler(tally)] if name == "watched" else []
            config = {"configurable": {"thread_id": name}, "callbacks": handlers}
            for text in ("I want to talk to Bob.", "Are you Bob?"):
                graph.invoke({"messages": [("user", text)]}, config)

        view = tally.bind()
        graph_of(name="alone")
        promise(
            "An agent that hands over ends its run, and the next question goes to the other.",
            (
                [(run.agent_name, run.status) for run in view.recordings.runs()][::-1],
                [("alice", "completed"), ("bob", "completed"), ("bob", "completed")],
            ),
            (steps_of(view, 2)[-1][:2], ("tool_call", "transfer_to_bob")),
        )
        graph_of(name="watched")
        promise(
            "With a `TallyCallbackHandler`, each question is one run over all agents.",
            (len(view.recordings.runs()), 5),
            ({run.status for run in view.recordings.runs()}, {"completed"}),
            verifies(view),
        )


main()
