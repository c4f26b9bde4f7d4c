"""A tapped HTTP client tells what went over the wire in the model step under way, and never a
credential.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tallystick import Tally
from tallystick.kit import tap
from tallystick_langchain import TallyCallbackHandler
from tallystick_pydantic_ai import TallyRecorder

OpenTally = Callable[..., Tally]
SECRET = "sk-wire-0123456789abcdefghijklmnop"
HEADERS = {"Authorization": f"Bearer {SECRET}"}


class _Provider(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = b'{"answer": "It is 42."}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of an HTTP server on this machine that answers every POST."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/chat?key={SECRET}"
    server.shutdown()
    thread.join()
    server.server_close()


class Remote(BaseChatModel):
    """A chat model that asks a provider over HTTP."""

    url: str
    client: Any

    @property
    def _llm_type(self) -> str:
        return "remote"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        body = {"model": "remote-1", "messages": [str(message.content) for message in messages]}
        answer = self.client.post(self.url, json=body, headers=HEADERS).json()["answer"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        body = {"model": "remote-1", "messages": [str(message.content) for message in messages]}
        answer = (await self.client.post(self.url, json=body, headers=HEADERS)).json()["answer"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer))])


def _payloads(tally: Tally) -> dict[str, Any]:
    [step] = tally.recordings.steps(tally.bind().recordings.runs()[0].run_id)
    return {entry.kind: entry.payload for entry in tally.recordings.entries(step.step_id)}


def _check(tally: Tally, provider: str) -> None:
    payloads = _payloads(tally)
    assert {"request", "wire_request", "wire_response", "response"} <= set(payloads)
    assert payloads["wire_request"]["body"]["messages"] == ["How much?"]
    assert (payloads["wire_request"]["level"], payloads["request"]["level"]) == ("wire", "runtime")
    assert payloads["wire_request"]["url"] == provider.partition("?")[0]
    assert payloads["wire_response"]["status"] == 200
    assert SECRET not in str(payloads)
    assert tally.recordings.verify(tally.bind().recordings.runs()[0].run_id).ok


def test_what_a_chat_model_sends_stands_beside_what_langchain_asked(
    open_sqlite: OpenTally, provider: str
) -> None:
    with open_sqlite() as tally, tap(httpx.Client()) as client:
        config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
        Remote(url=provider, client=tap(client)).invoke("How much?", config)
        _check(tally, provider)


def test_the_same_without_threads(open_sqlite: OpenTally, provider: str) -> None:
    async def ask(tally: Tally) -> None:
        async with tap(httpx.AsyncClient()) as client:
            config: Any = {"callbacks": [TallyCallbackHandler(tally, strict=True)]}
            await Remote(url=provider, client=client).ainvoke("How much?", config)

    with open_sqlite() as tally:
        asyncio.run(ask(tally))
        _check(tally, provider)


def test_what_a_model_of_pydantic_ai_sends_stands_beside_what_it_asked(
    open_sqlite: OpenTally, provider: str
) -> None:
    async def ask(tally: Tally) -> None:
        async with tap(httpx.AsyncClient()) as client:

            async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
                response = await client.post(
                    provider, json={"messages": ["How much?"]}, headers=HEADERS
                )
                return ModelResponse(parts=[TextPart(response.json()["answer"])])

            await Agent(
                FunctionModel(answer), capabilities=[TallyRecorder(tally, strict=True)]
            ).run("How much?")

    with open_sqlite() as tally:
        asyncio.run(ask(tally))
        _check(tally, provider)


def test_a_request_outside_of_a_model_step_is_let_alone(
    open_sqlite: OpenTally, provider: str
) -> None:
    with open_sqlite() as tally, tap(httpx.Client()) as client:
        assert client.post(provider, json={}).status_code == 200
        with tally.bind().run("agent") as run, run.step("tool_call", name="fetch"):
            assert client.post(provider, content=b"\xff\xfe").status_code == 200
        assert _payloads(tally) == {}


def test_bytes_that_are_no_text_are_kept_as_base64(open_sqlite: OpenTally, provider: str) -> None:
    with open_sqlite() as tally, tap(httpx.Client()) as client:
        with tally.bind().run("agent") as run, run.step("model_call"):
            client.post(provider, content=b"\xff\xfe")
        assert _payloads(tally)["wire_request"]["body"] == {"base64": "//4="}


def test_a_tap_that_fails_breaks_no_request_and_is_a_gap(
    open_sqlite: OpenTally, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(url: str) -> str:
        raise ValueError("no address")

    monkeypatch.setattr("tallystick.kit.wire_tap._address", broken)
    with open_sqlite() as tally, tap(httpx.Client()) as client:
        with tally.bind().run("agent") as run, run.step("model_call"):
            assert client.post(provider, json={}).status_code == 200
        assert tally.bind().recordings.runs()[0].gaps == 2


@pytest.mark.parametrize("retention", ["redacted_payloads", "full_payloads"])
@pytest.mark.parametrize(
    ("asked", "noted"),
    [
        # How tokens are asked for: of a form there are the names alone.
        (
            {"data": {"grant_type": "client_credentials", "client_secret": SECRET}},
            {"fields": ["client_secret", "grant_type"]},
        ),
        (
            {"data": {"grant_type": "authorization_code", "code": SECRET}},
            {"fields": ["code", "grant_type"]},
        ),
        ({"data": {"token": SECRET}}, {"fields": ["token"]}),
        (
            {"json": {"grant_type": "refresh_token", "refresh_token": SECRET}},
            {"fields": ["grant_type", "refresh_token"]},
        ),
        ({"json": {"api_key": SECRET, "token": SECRET, "model": "m"}}, {"model": "m"}),
        (
            {
                "json": {
                    "tools": [{"type": "mcp", "headers": {"X-Key": SECRET}, "server_label": "s"}]
                }
            },
            {"tools": [{"type": "mcp", "server_label": "s"}]},
        ),
        (
            {"json": {"mcp_servers": [{"authorization_token": SECRET, "name": "s"}]}},
            {"mcp_servers": [{"name": "s"}]},
        ),
        (
            {
                "json": {},
                "headers": {"Cookie": SECRET, "X-Api-Key": SECRET, "Proxy-Authorization": SECRET},
            },
            {},
        ),
    ],
)
def test_no_credential_of_a_request_is_noted(
    open_sqlite: OpenTally, provider: str, asked: dict[str, Any], noted: Any, retention: Any
) -> None:
    with open_sqlite() as tally, tap(httpx.Client()) as client:
        with tally.bind().run("agent", retention=retention) as run, run.step("model_call"):
            client.post(provider.replace("//", f"//me:{SECRET}@"), **asked)
        payloads = _payloads(tally)
        assert payloads["wire_request"]["body"] == noted
        assert SECRET not in str(payloads)


def test_a_receipt_names_the_server_and_no_path(open_sqlite: OpenTally, provider: str) -> None:
    """Some servers take a key in the path, and nothing is ever taken out of a receipt."""
    with open_sqlite() as tally, tap(httpx.Client()) as client:
        with tally.bind().run("agent") as run, run.step("model_call") as step:
            client.post(provider.replace("/v1/chat", f"/bot{SECRET}/send"), json={})
        summaries = {
            entry.kind: entry.summary for entry in tally.recordings.receipt(step.id).entries
        }
    server = provider.partition("/v1")[0]
    assert summaries["wire_request"] == {"method": "POST", "bytes": 2, "server": server}
    assert (summaries["wire_response"]["status"], summaries["wire_response"]["server"]) == (
        200,
        server,
    )


def test_a_key_in_the_address_of_a_failure_is_redacted(
    open_sqlite: OpenTally, provider: str
) -> None:
    def fail() -> None:
        raise ConnectionError(f"401 Unauthorized for url '{provider}'")

    with open_sqlite() as tally:
        with (
            pytest.raises(ConnectionError),
            tally.bind().run("agent") as run,
            run.step("model_call"),
        ):
            fail()
        assert SECRET in provider
        assert SECRET not in str(_payloads(tally)["error"])
