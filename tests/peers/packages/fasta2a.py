"""PydanticAI behind A2A: a task's message is the prompt."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import httpx
from fasta2a.client import A2AClient
from fasta2a.pydantic_ai import agent_to_a2a
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from tests.peers.packages.common import opened_tally, promise, verifies

from tallystick_pydantic_ai import Tallystick


def _noted(messages: Any, info: Any) -> ModelResponse:
    return ModelResponse([TextPart("Noted.")])


async def _stream(messages: Any, info: Any) -> Any:
    yield "Noted."


def main() -> None:
    with opened_tally() as tally:
        model = FunctionModel(_noted, stream_function=_stream)
        # recipe
        agent = Agent(model, name="clerk", capabilities=[Tallystick(tally, capture="both")])
        app = agent_to_a2a(agent)
        # end
        asyncio.run(_talk(app))
        view = tally.bind()
        promise(
            "A task is one run.",
            (
                [(run.agent_name, run.status) for run in view.recordings.runs()],
                [("clerk", "completed")] * 2,
            ),
        )
        promise(
            "`capture` keeps the message of each task and its answer, once.",
            (
                [turn.content for turn in view.memories(kinds=["turn"])][::-1],
                ["I like windows.", "Noted.", "And the aisle?", "Noted."],
            ),
            verifies(view),
        )


async def _talk(app: Any) -> None:
    transport = httpx.ASGITransport(app=app)
    http = httpx.AsyncClient(transport=transport, base_url="http://a2a")
    async with app.router.lifespan_context(app), http:
        client, context = A2AClient("http://a2a", http_client=http), None
        for text in ("I like windows.", "And the aisle?"):
            message: Any = {
                "role": "user",
                "message_id": str(uuid.uuid4()),
                "parts": [{"text": text}],
            }
            if context is not None:
                message["context_id"] = context
            sent: Any = await client.send_message(message)
            task = sent["result"].get("task", sent["result"])
            context = task["context_id"]
            while task["status"]["state"] not in ("completed", "failed"):
                await asyncio.sleep(0.02)
                task = (await client.get_task(task["id"]))["result"]
            assert task["status"]["state"] == "completed", task


main()
