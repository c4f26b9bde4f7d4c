"""LlamaIndex: workflows of agents, chat engines, and workflows of your own."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step
from tests.integrations.llama_scripted import Scripted, calls
from tests.peers.packages.common import opened_tally, promise, verifies

from tallystick_llama_index import TallyInstrumentation, TallyMemory, memory_tools


def main() -> None:
    with opened_tally() as tally:
        model: Any = Scripted(
            calls(("c1", "memory_store", {"content": "Ada likes windows."})),
            calls(("c2", "handoff", {"to_agent": "clerk", "reason": "booking"})),
            "Booked.",
        )
        # recipe
        watching = TallyInstrumentation(tally, capture="both").attach()
        host = FunctionAgent(
            name="host", description="Talks.", llm=model, tools=memory_tools(tally)
        )
        clerk = FunctionAgent(name="clerk", description="Books.", llm=model, tools=[])
        flow = AgentWorkflow(agents=[host, clerk], root_agent="host")
        memory = TallyMemory(tally, session_id="ada-1")

        async def ask(text: str) -> str:
            return str(await flow.run(text, memory=memory))

        # end
        assert asyncio.run(ask("Book me a seat by the window.")) == "Booked."
        view = tally.bind()
        [run] = view.recordings.runs()
        names = [each.name for each in view.recordings.steps(run.id)]
        promise(
            "A question is one run over all agents, with a step for each call and each handoff.",
            (run.status, "completed"),
            {"memory_store", "handoff"} <= set(names),
            (names.count("scripted"), 3),
        )
        promise(
            "Each turn is kept once; calls of tools stay in the session and are no memories.",
            (
                [turn.content for turn in view.memories(kinds=["turn"])][::-1],
                ["Book me a seat by the window.", "Booked."],
            ),
            "tool" in {message.role.value for message in memory.get_all()},
        )

        class Greeting(Workflow):
            @step
            async def greet(self, event: StartEvent) -> StopEvent:
                answer = await MockFunctionCallingLLM().achat([ChatMessage("Hello.")])
                return StopEvent(result=str(answer.message.content))

        async def greet() -> None:
            await Greeting().run()

        asyncio.run(greet())
        run = view.recordings.runs()[0]
        promise(
            "A `Workflow` of your own is a run named after its class, with its models' names.",
            (run.agent_name, "Greeting"),
            (
                [each.name for each in view.recordings.steps(run.id)],
                ["MockFunctionCallingLLM"],
            ),
        )
        chat = TallyMemory(tally, session_id="ada-2")
        engine = SimpleChatEngine.from_defaults(llm=MockLLM(max_tokens=2), memory=chat)
        for _ in range(5):
            assert "".join(engine.stream_chat("Hello again.").response_gen) == "text text"
        watching.detach()
        promise(
            "`stream_chat` ends without an error, and its run has the whole answer.",
            (len(chat.get_all()), 10),
            (watching.failures, 0),
            ({each.status for each in view.recordings.runs()}, {"completed"}),
            verifies(view),
        )


main()
