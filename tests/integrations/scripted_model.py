"""A model behind the four protocols that coding harnesses speak, scripted: it asks for one call of
a shell, then answers. It listens on the loopback alone.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMAND = "echo heron"
ANSWER = "The staging server is called heron."
_SHELLS = ("exec_command", "shell_command", "Bash", "bash", "run_shell_command")
_RESULTS = ("tool_result", "function_call_output", "functionResponse", '"role": "tool"')


class ScriptedModel(ThreadingHTTPServer):
    """Notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    """Serve the model until the end of the block."""
    with ScriptedModel() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._answer(b'{"object": "list", "data": []}', "application/json")

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        assert isinstance(self.server, ScriptedModel)
        self.server.asked.append(text)
        try:
            body = json.loads(text)
        except ValueError:
            body = {}
        is_called = any(mark in json.dumps(body) for mark in _RESULTS)
        shell = None if is_called else _shell_in(body)
        for end, events in (
            ("/chat/completions", _chat),
            ("/messages", _messages),
            ("/responses", _responses),
            ("GenerateContent", _gemini),
        ):
            if end in self.path.partition("?")[0]:
                self._answer(events(body, shell).encode(), "text/event-stream")
                return
        self._answer(b"{}", "application/json")

    def _answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _shell_in(body: dict[str, Any]) -> str | None:
    """Return the name of the tool that is a shell, in whatever form the tools are given."""
    tools = [
        each.get("name") or each.get("function", {}).get("name")
        for tool in body.get("tools") or []
        for each in tool.get("functionDeclarations", [tool])
    ]
    return next((name for name in tools if name in _SHELLS), None)


def _arguments(shell: str) -> dict[str, str]:
    field = "cmd" if shell == "exec_command" else "command"
    more = {"description": "Say heron."} if shell in ("Bash", "bash") else {}
    return {field: COMMAND, **more}


def _events(events: list[dict[str, Any]]) -> str:
    named = (f"event: {each['type']}\n" if "type" in each else "" for each in events)
    return "".join(
        f"{name}data: {json.dumps(each)}\n\n" for name, each in zip(named, events, strict=True)
    )


def _chat(body: dict[str, Any], shell: str | None) -> str:
    if shell is None:
        delta: dict[str, Any] = {"role": "assistant", "content": ANSWER}
    else:
        function = {"name": shell, "arguments": json.dumps(_arguments(shell))}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        delta = {"role": "assistant", "tool_calls": [call]}
    end = "stop" if shell is None else "tool_calls"
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    choices = [(delta, None), ({}, end)]
    chunks = [
        {**base, "choices": [{"index": 0, "delta": each, "finish_reason": reason}]}
        for each, reason in choices
    ]
    return _events(chunks) + "data: [DONE]\n\n"


def _messages(body: dict[str, Any], shell: str | None) -> str:
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": ANSWER}
    if shell is not None:
        block = {"type": "tool_use", "id": "toolu_1", "name": shell, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(_arguments(shell))}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "content": []}
    message |= {"model": body.get("model"), "stop_reason": None, "stop_sequence": None}
    end = {"stop_reason": "end_turn" if shell is None else "tool_use", "stop_sequence": None}
    return _events(
        [
            {"type": "message_start", "message": {**message, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
    )


def _responses(body: dict[str, Any], shell: str | None) -> str:
    item: dict[str, Any] = {"type": "message", "id": "m_1", "role": "assistant"}
    item["content"] = [{"type": "output_text", "text": ANSWER}]
    if shell is not None:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": shell}
        item["arguments"] = json.dumps(_arguments(shell))
    usage: dict[str, Any] = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": None, "output_tokens_details": None}
    return _events(
        [
            {"type": "response.created", "response": {"id": "r_1"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": "r_1", "usage": usage}},
        ]
    )


def _gemini(body: dict[str, Any], shell: str | None) -> str:
    part: dict[str, Any] = {"text": ANSWER}
    if shell is not None:
        part = {"functionCall": {"name": shell, "args": _arguments(shell)}}
    content = {"role": "model", "parts": [part]}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    return _events([{"candidates": [candidate], "usageMetadata": usage}])
