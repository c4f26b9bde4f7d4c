"""langgraph-supervisor: one handler records the supervisor and its workers."""

from __future__ import annotations

from langchain.agents import create_agent
from langgraph_supervisor import create_supervisor
from tests.peers.packages.common import (
    opened_tally,
    promise,
    scripted_chat_model,
    steps_of,
    verifies,
)

from tallystick_langchain import TallyCallbackHandler, TallyMiddleware
from tallystick_langgraph import TallySaver, TallyStore


def main() -> None:
    with opened_tally() as tally:
        worker_model = scripted_chat_model("It is 42.")
        model = scripted_chat_model(("transfer_to_math", {}), "The answer is 42.")
        # recipe
        math = create_agent(worker_model, [], name="math", middleware=[TallyMiddleware(tally)])
        graph = create_supervisor([math], model=model).compile(
            checkpointer=TallySaver(tally), store=TallyStore(tally)
        )
        handler = TallyCallbackHandler(tally, capture="both")
        config = {"configurable": {"thread_id": "1"}, "callbacks": [handler]}
        graph.invoke({"messages": [("user", "What is six times seven?")]}, config)
        # end
        view = tally.bind()
        [run] = view.recordings.runs()
        models = [step for step in steps_of(view) if step[0] == "model_call"]
        promise(
            "A question is one run with the steps of the supervisor and of its workers.",
            (run.status, "completed"),
            (len(models), 3),
            (handler.failures, 0),
        )
        promise(
            "The question and the answer are captured once.",
            (
                [turn.content for turn in view.memories(kinds=["turn"])][::-1],
                ["What is six times seven?", "The answer is 42."],
            ),
            verifies(view),
        )


main()
