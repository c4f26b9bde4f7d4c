"""Servers of embedders and models on this machine, as their libraries meet them: Ollama, and one
that speaks the API of OpenAI. They answer over HTTP, with vectors of words and answers told in
advance.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tallystick.testing import HashEmbedder

Json = dict[str, Any]


class ModelServer:
    """Has the models that are listed, and answers with JSON."""

    def __init__(self, *models: str, dimension: int = 32, answer: Json | None = None) -> None:
        self.models = set(models)
        self.dimension = dimension
        self.answer = answer or {}
        """What a model answers when it is asked for a record."""
        self.digest = "sha256:" + "5e" * 32
        """Of the weights of each model."""
        self.seen: list[str] = []
        """The texts that were to be embedded."""
        self.asked: list[Json] = []
        """The bodies that came, with the place under `_path`."""
        self.status = 200
        """What each call is answered with."""
        self.pause = 0.0
        """Seconds that it takes to embed what comes at once."""
        self.address = ""

    def respond(self, path: str, body: Json) -> tuple[int, Json]:
        """Return the status and the answer to a request."""
        self.asked.append({"_path": path, **body})
        if self.status != 200:
            return self.status, {"error": {"message": "no"}}
        model = body.get("model", "")
        if path == "/api/tags":
            return 200, {
                "models": [
                    {"model": f"{each}:latest", "name": f"{each}:latest", "digest": self.digest}
                    for each in sorted(self.models)
                ]
            }
        if model not in self.models:
            return 404, {"error": f"model {model!r} not found"}
        if path == "/api/show":
            return 200, {
                "model_info": {
                    "general.architecture": "bert",
                    "bert.embedding_length": self.dimension,
                }
            }
        if path in ("/api/embed", "/v1/embeddings"):
            return 200, self._embed(path, body)
        return 200, self._answer(path, model)

    def _embed(self, path: str, body: Json) -> Json:
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        time.sleep(self.pause)
        self.seen += texts
        vectors = HashEmbedder(self.dimension).embed(texts).tolist()
        if path == "/api/embed":
            return {"model": body["model"], "embeddings": vectors}
        data = [
            {"object": "embedding", "index": place, "embedding": vector}
            for place, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": 3, "total_tokens": 3}
        return {"object": "list", "model": body["model"], "data": data[::-1], "usage": usage}

    def _answer(self, path: str, model: str) -> Json:
        message = {"role": "assistant", "content": json.dumps(self.answer)}
        if path == "/api/chat":
            return {
                "model": model,
                "message": message,
                "done": True,
                "prompt_eval_count": 7,
                "eval_count": 5,
            }
        if path.endswith("/messages"):
            return {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": [{"type": "text", "text": message["content"]}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 7, "output_tokens": 5},
            }
        return {
            "id": "chat_1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12},
        }


@contextmanager
def serving(server: ModelServer) -> Iterator[Mapping[str, str]]:
    """Serve on this machine; yields the variables by which the libraries find it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond({})

        def do_POST(self) -> None:
            self._respond(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _respond(self, body: Json) -> None:
            status, answer = server.respond(self.path, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, daemon=True).start()
        server.address = f"http://127.0.0.1:{http.server_port}"
        try:
            yield {
                "OLLAMA_HOST": server.address,
                "OPENAI_BASE_URL": f"{server.address}/v1",
                "ANTHROPIC_BASE_URL": server.address,
                "ANTHROPIC_API_KEY": "none",
            }
        finally:
            http.shutdown()
