"""A client of OpenAI's own SDK whose server is in this process, and gives one answer."""

from __future__ import annotations

import json

import httpx2
import openai


def offline_client(answer: str) -> openai.OpenAI:
    """Return a client to which every request is answered with this text."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        size = len(request.content) // 4
        text = {"type": "output_text", "text": answer, "annotations": []}
        message = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
        return httpx2.Response(
            200,
            json={
                "id": "resp_1",
                "object": "response",
                "created_at": 0,
                "model": body["model"],
                "status": "completed",
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "output": [message],
                "usage": {
                    "input_tokens": size,
                    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                    "output_tokens": len(answer) // 4,
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": size + len(answer) // 4,
                },
            },
        )

    transport = httpx2.MockTransport(respond)
    return openai.OpenAI(
        api_key="offline", http_client=openai.DefaultHttpxClient(transport=transport)
    )
