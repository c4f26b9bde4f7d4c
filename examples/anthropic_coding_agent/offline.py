"""A client of Anthropic's own SDK whose server is in this process: the stand-in of the coding agent
as a model behind the Messages API.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import anthropic
import httpx2
from examples.coding_agent.scripted import Result, answer


def offline_client() -> anthropic.Anthropic:
    """Return a client whose every request is answered from what stands in it."""
    transport = httpx2.MockTransport(_respond)
    return anthropic.Anthropic(
        api_key="offline", http_client=anthropic.DefaultHttpxClient(transport=transport)
    )


def _respond(request: httpx2.Request) -> httpx2.Response:
    body = json.loads(request.content)
    blocks = list(_blocks(body))
    names = {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
    results = [
        Result(names[block["tool_use_id"]], block["content"])
        for block in blocks
        if block["type"] == "tool_result"
    ]
    context = "\n".join(block.get("text") or str(block.get("content", "")) for block in blocks)
    text, calls = answer(context, results)
    content: list[dict[str, Any]] = [{"type": "text", "text": text, "citations": None}]
    for number, (name, arguments) in enumerate(calls, len(results) + 1):
        call = {"type": "tool_use", "id": f"call_{number}", "name": name, "input": arguments}
        content.append(call)
    return httpx2.Response(
        200,
        json={
            "id": f"msg_{len(results)}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": len(request.content) // 4,
                "cache_read_input_tokens": 0,
                "cache_creation_input_tokens": 0,
                "output_tokens": len(json.dumps(content)) // 4,
            },
        },
    )


def _blocks(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from body.get("system", ())
    for message in body["messages"]:
        yield from message["content"]
