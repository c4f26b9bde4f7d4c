"""An agent of LangChain that reaches the tally by langchain-mcp-adapters."""

from __future__ import annotations

import asyncio
import os
import tempfile
from typing import Any

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from tests.peers.packages.common import promise, scripted_chat_model

from tallystick import Tally

PYTHON = os.environ["SERVER_PYTHON"]
"""A Python that has tallystick with the extras `mcp` and `cli`."""


async def run(folder: str) -> list[str]:
    """Return what the tools answered in two conversations."""
    model = scripted_chat_model(
        ("add", {"content": "My locker is number 5."}),
        "Noted.",
        ("search", {"query": "Which locker is mine?"}),
        "Number 5.",
    )

    # recipe
    async def make_agent() -> Any:
        server = {
            "transport": "stdio",
            "command": PYTHON,
            "args": ["-m", "tallystick_cli", "mcp", "--stdio", "--tally", folder],
        }
        client = MultiServerMCPClient({"tallystick": server})
        return create_agent(model, await client.get_tools())

    # end
    agent = await make_agent()
    answers: list[str] = []
    for text in ("My locker is number 5.", "Which locker is mine?"):
        state: Any = await agent.ainvoke({"messages": [("user", text)]})
        answers += [str(each.text) for each in state["messages"] if each.type == "tool"]
    return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        added, found = asyncio.run(run(folder))
        with Tally.open(folder, create=False) as tally:
            [memory] = tally.bind().memories()
        promise(
            "What `add` keeps is in the message by which `search` answers later.",
            "created" in added,
            "My locker is number 5." in found,
            (memory.content, "My locker is number 5."),
        )


main()
