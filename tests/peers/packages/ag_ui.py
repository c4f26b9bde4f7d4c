"""PydanticAI behind AG-UI: the words come as the end of the history."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route
from tests.peers.packages.common import opened_tally, promise, verifies

from tallystick import Actor
from tallystick_pydantic_ai import Tallystick


async def _answer_of(messages: Any, info: Any) -> Any:
    yield "Noted."


def _plain(messages: Any, info: Any) -> ModelResponse:
    return ModelResponse([TextPart("Noted.")])


def main() -> None:
    with opened_tally() as tally:
        model = FunctionModel(_plain, stream_function=_answer_of)
        # recipe
        agent = Agent(model, deps_type=Actor, capabilities=[Tallystick(tally, capture="both")])

        async def chat(request: Request) -> Any:
            user = request.headers["x-user"]  # here you check a token
            return await AGUIAdapter.dispatch_request(request, agent=agent, deps=Actor(user=user))

        app = Starlette(routes=[Route("/", chat, methods=["POST"])])
        # end
        asyncio.run(_talk(app))
        ada = tally.bind(Actor(user="ada"))
        runs = ada.recordings.runs()
        promise(
            "A request is one run, and the requests of a thread are runs of one thread.",
            ([run.status for run in runs], ["completed"] * 2),
            ({run.metadata.get("thread_id") for run in runs}, {"t1"}),
        )
        promise(
            "`capture` keeps each turn once, although the client sends the conversation again.",
            (
                [turn.content for turn in ada.memories(kinds=["turn"])][::-1],
                ["I like windows.", "Noted.", "And the aisle?", "Noted."],
            ),
            (list(tally.bind(Actor(user="bob")).memories()), []),
            verifies(ada),
        )


async def _talk(app: Any) -> None:
    messages: list[dict[str, Any]] = []
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
        for number, text in enumerate(("I like windows.", "And the aisle?")):
            messages.append({"id": f"u{number}", "role": "user", "content": text})
            body = {
                "threadId": "t1",
                "runId": f"r{number}",
                "state": {},
                "messages": messages,
                "tools": [],
                "context": [],
                "forwardedProps": {},
            }
            headers = {"x-user": "ada", "content-type": "application/json"}
            response = await client.post("/", content=json.dumps(body), headers=headers)
            assert "Noted." in response.text, response.text
            messages.append({"id": f"a{number}", "role": "assistant", "content": "Noted."})


main()
