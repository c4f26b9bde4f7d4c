"""The runtime with Tallystick, and memory as files that the agent itself reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.tools import tool
from tests.benchmarks.agents.world import BUDGET, INSTRUCTIONS, Say, World

from tallystick import Actor, Tally
from tallystick.kit import MemoryFiles
from tallystick_langchain import TallyMiddleware
from tallystick_langgraph import TallySaver

TITLE = "Tallystick with memory as files only: the commands of Anthropic's memory tool"


@contextmanager
def opened(world: World) -> Iterator[Say]:
    """Give an agent with the commands of `TallyMemoryTool`, and a middleware that recalls nothing;
    a changed line asks nobody.
    """
    with Tally.open(world.folder / "tally") as tally:

        @tool
        def memory(
            command: Literal["view", "create", "str_replace", "insert", "delete", "rename"],
            path: str | None = None,
            file_text: str | None = None,
            old_str: str | None = None,
            new_str: str | None = None,
            insert_line: int | None = None,
            insert_text: str | None = None,
            old_path: str | None = None,
            new_path: str | None = None,
        ) -> str:
            """What you remember across sessions, as files below /memories; a line of notes.md is
            one memory. View them before you answer; write down what should be known next time.
            """
            given = {
                "command": command,
                "path": path,
                "file_text": file_text,
                "old_str": old_str,
                "new_str": new_str,
                "insert_line": insert_line,
                "insert_text": insert_text,
                "old_path": old_path,
                "new_path": new_path,
            }
            bound = tally.bind(Actor(user=world.user))
            return MemoryFiles(bound, runtime="langchain", approval="elsewhere").run(given).text

        agent: Any = create_agent(
            world.model(),
            [*world.tools(), memory],
            system_prompt=INSTRUCTIONS,
            middleware=[TallyMiddleware(tally, budget=BUDGET, memories=0)],
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
