"""The servers of OpenAI and Anthropic as their SDKs meet them: answers in JSON and as event
streams, told in advance, behind the SDKs' real clients.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import openai

Json = dict[str, Any]


class Server:
    """Answers each request with the next of its answers; the last one again and again."""

    def __init__(self, *answers: Json | Callable[[Json], httpx2.Response]) -> None:
        self.answers = list(answers)
        self.requests: list[Json] = []
        """The bodies that came, in order, and under `_path` where to."""
        self.counts: list[int] = []
        """Answers to requests for a count."""

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        self.requests.append({"_path": request.url.path, **body})
        if request.url.path.endswith(("count_tokens", "input_tokens")):
            return httpx2.Response(
                200, json={"object": "response.input_tokens", "input_tokens": self.counts.pop(0)}
            )
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            return answer(body)
        if body.get("stream"):
            content = b"".join(self.events(answer))
            headers = {"content-type": "text/event-stream", **self.headers}
            return httpx2.Response(200, headers=headers, content=content)
        return httpx2.Response(200, headers=self.headers, json=answer)

    @property
    def bodies(self) -> list[Json]:
        """The requests for answers."""
        return [
            {name: value for name, value in body.items() if name != "_path"}
            for body in self.requests
            if body["_path"].endswith(("/responses", "/messages"))
        ]

    headers: dict[str, str] = {}

    def events(self, answer: Json) -> Iterator[bytes]:
        raise NotImplementedError

    @property
    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self._handle)


def sse(events: list[Json]) -> Iterator[bytes]:
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def refusing(status: int, kind: str, **headers: str) -> Callable[[Json], httpx2.Response]:
    """An answer with an error."""
    error = {"type": kind, "message": f"{kind} it is", "code": kind, "param": None}
    return lambda _: httpx2.Response(
        status, headers=headers, json={"type": "error", "error": error}
    )


class Openais(Server):
    """The Responses API."""

    headers = {"x-request-id": "req_1", "x-ratelimit-remaining-tokens": "99", "set-cookie": "s=1"}

    @property
    def client(self) -> openai.OpenAI:
        return openai.OpenAI(
            api_key="sk-test",
            http_client=openai.DefaultHttpxClient(transport=self.transport),
            max_retries=0,
        )

    @staticmethod
    def answer(*output: Json, status: str = "completed", **fields: Any) -> Json:
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1.5,
            "model": "gpt-5",
            "status": status,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": list(output),
            "usage": {
                "input_tokens": 1_000,
                "input_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 0},
                "output_tokens": 20,
                "output_tokens_details": {"reasoning_tokens": 4},
                "total_tokens": 1_020,
            },
            **fields,
        }

    @staticmethod
    def text(text: str) -> Json:
        part = {"type": "output_text", "text": text, "annotations": []}
        return {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }

    @staticmethod
    def refusal(text: str) -> Json:
        part = {"type": "refusal", "refusal": text}
        return {**Openais.text(""), "content": [part]}

    @staticmethod
    def call(call_id: str, name: str, **arguments: Any) -> Json:
        return {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": call_id,
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }

    @staticmethod
    def thought(text: str) -> Json:
        summary = [{"type": "summary_text", "text": text}]
        return {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "xyz"}

    def events(self, answer: Json, *, until: int | None = None) -> Iterator[bytes]:
        start = {**answer, "status": "in_progress", "output": [], "usage": None}
        events: list[Json] = [{"type": "response.created", "response": start}]
        for place, item in enumerate(answer["output"]):
            at = {"output_index": place, "item_id": item.get("id")}
            empty = {**item, "status": "in_progress"}
            if item["type"] == "message":
                empty["content"] = []
            events.append({"type": "response.output_item.added", "item": empty, **at})
            if item["type"] == "message":
                for word in item["content"][0].get("text", "").split(" "):
                    delta = {"delta": f"{word} ", "content_index": 0, "logprobs": []}
                    events.append({"type": "response.output_text.delta", **delta, **at})
            events.append({"type": "response.output_item.done", "item": item, **at})
        events.append({"type": "response.completed", "response": answer})
        numbered = [{**event, "sequence_number": n} for n, event in enumerate(events)]
        yield from sse(numbered[:until])


class Anthropics(Server):
    """The Messages API."""

    headers = {"request-id": "req_1", "anthropic-ratelimit-tokens-remaining": "99"}

    @property
    def client(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(
            api_key="sk-ant-test",
            http_client=anthropic.DefaultHttpxClient(transport=self.transport),
            max_retries=0,
        )

    @staticmethod
    def answer(*content: Json, stop_reason: str = "end_turn", **fields: Any) -> Json:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5",
            "content": list(content),
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 400,
                "cache_read_input_tokens": 600,
                "cache_creation_input_tokens": 0,
                "output_tokens": 20,
            },
            **fields,
        }

    @staticmethod
    def text(text: str) -> Json:
        return {"type": "text", "text": text, "citations": None}

    @staticmethod
    def call(call_id: str, name: str, **arguments: Any) -> Json:
        return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}

    @staticmethod
    def thought(text: str) -> Json:
        return {"type": "thinking", "thinking": text, "signature": "signed"}

    def events(self, answer: Json, *, until: int | None = None) -> Iterator[bytes]:
        start = {**answer, "content": [], "stop_reason": None}
        events: list[Json] = [{"type": "message_start", "message": start}]
        for index, block in enumerate(answer["content"]):
            kind = block["type"]
            empty = {**block, **({"text": ""} if kind == "text" else {})}
            if kind == "tool_use":
                empty["input"] = {}
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            deltas: list[Json] = []
            if kind == "text":
                words = block["text"].split(" ")
                deltas = [{"type": "text_delta", "text": f"{word} "} for word in words]
            elif kind == "tool_use":
                text = json.dumps(block["input"])
                halves = (text[: len(text) // 2], text[len(text) // 2 :])
                deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
            events += [
                {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
            ]
            events.append({"type": "content_block_stop", "index": index})
        end = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
        usage = {"output_tokens": answer["usage"]["output_tokens"]}
        events.append({"type": "message_delta", "delta": end, "usage": usage})
        events.append({"type": "message_stop"})
        yield from sse(events[:until])
