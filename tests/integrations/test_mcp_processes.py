"""MCP servers as processes: over standard input and output, and over HTTP behind the guard."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import uvicorn
from hypothesis import settings
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from tests.integrations.mcp_clients import ERAS, Person, payload

from tallystick import Actor
from tallystick.tally import Tally
from tallystick_mcp import serve
from tallystick_mcp.transports import http_app
from tallystick_server.guard import bind_socket

ANN = Actor(user="ann", projects={"apollo"})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    Tally.open(tmp_path / "tally", background=False).close()
    return tmp_path / "tally"


def command(place: Path, *options: str) -> list[str]:
    run = "from tallystick_cli import main; main()"
    return [sys.executable, "-c", run, "mcp", "--tally", str(place), *options]


def parameters(place: Path) -> StdioServerParameters:
    program, *arguments = command(place, "--stdio")
    return StdioServerParameters(command=program, args=arguments)


@pytest.mark.slow
async def test_servers_on_one_folder_lose_nothing(place: Path) -> None:
    """Eight in `make soak`, one of each era in each commit, which write at the same time."""
    servers = 8 if settings().max_examples > 100 else 2

    async def write(number: int) -> list[str]:
        ids = []
        async with Client(parameters(place), mode=ERAS[number % 2]) as client:
            for turn in range(5):
                content = f"Server {number} wrote number {turn}."
                result = await client.call_tool("add", {"content": content})
                ids.append(payload(result)["id"])
                found = await client.call_tool("explore", {"mode": "get", "id": ids[-1]})
                assert payload(found)["memory"]["text"] == content
        return ids

    written = await asyncio.gather(*(write(number) for number in range(servers)))

    with Tally.open(place, background=False) as tally:
        stored = {memory.id for memory in tally.bind().memories(limit=100)}
    ids = [identity for each in written for identity in each]
    assert stored == set(ids)
    assert len(ids) == 5 * servers


def test_standard_output_is_json_rpc_alone_and_the_server_ends_with_its_input(
    place: Path,
) -> None:
    started = subprocess.Popen(
        command(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdin is not None
    assert started.stdout is not None
    lines = [
        _request(1, "initialize", **_HELLO),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        _request(2, "tools/call", name="add", arguments={"content": "We indent with tabs."}),
        _request(3, "tools/call", name="nothing", arguments={"a": "b"}),
    ]
    for line in lines:
        started.stdin.write(json.dumps(line).encode() + b"\n")
    started.stdin.write(b"no json\n")
    started.stdin.flush()
    answers = [json.loads(started.stdout.readline()) for _ in range(4)]
    started.stdin.close()
    closed_at = time.monotonic()
    rest = started.stdout.read()
    started.wait(timeout=60)
    # Two seconds on an idle machine; this one may be busy, and what lives on lives for ever.
    assert time.monotonic() - closed_at < 30
    started.stdout.close()
    assert started.stderr is not None
    errors = started.stderr.read()
    started.stderr.close()

    assert started.returncode == 0
    assert {answer["id"] for answer in answers} == {1, 2, 3, None}
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())
    assert b"Traceback" not in errors


@pytest.mark.slow
def test_a_line_that_is_no_message_is_answered(place: Path) -> None:
    asked = json.dumps(_request(7, "tools/call", name="search", arguments={"query": "HALF"}))
    lines = [
        (b"no json", None, -32700),
        (b'{"jsonrpc": "2.0", "id": 6, "method": "tools/list"', None, -32700),
        (asked.replace("HALF", "\\ud83d").encode(), 7, -32700),
        (b'{"id": 8, "method": "ping"}', 8, -32600),
        (b'{"jsonrpc": "2.0", "id": 9, "result": 5}', None, -32600),
        (b'[{"jsonrpc": "2.0", "id": 10, "method": "ping"}]', None, -32600),
        (b"[" * 20_000, None, -32700),
        (b"17", None, -32600),
    ]
    hello = json.dumps(_request(1, "initialize", **_HELLO)).encode()
    ping = json.dumps(_request(2, "ping")).encode()
    started = subprocess.Popen(
        command(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write(b"\n".join([hello, b"", *(line for line, _, _ in lines), ping, b""]))
    started.stdin.flush()
    said = [started.stdout.readline() for _ in range(len(lines) + 2)]
    rest, errors = started.communicate(timeout=120)
    answers = [json.loads(line) for line in [*said, *rest.splitlines()]]
    refused = [(each["id"], each["error"]["code"]) for each in answers if "error" in each]

    assert refused == [(identity, code) for _, identity, code in lines]
    # It goes on, and repeats nothing.
    assert {each["id"] for each in answers if "result" in each} == {1, 2}
    assert b"ud83d" not in b"".join(said)
    assert b"Traceback" not in errors


_LOADED = (
    *("tallystick.errors", "tallystick.loading", "tallystick_cli.version"),
    *(
        "tallystick_mcp.late_start",
        "tallystick_mcp.front",
        "tallystick_mcp.malformed",
        "tallystick_mcp.stdio",
    ),
)
"""The modules of ours beside the packages themselves."""
_UNUSED = ("structlog", "sqlalchemy", "orjson", "zstandard", "numpy", "typer", "chromadb")


@pytest.mark.slow
def test_a_server_that_has_said_hello_has_not_loaded_what_it_may_never_use(place: Path) -> None:
    """A client keeps one running for each window, and most of them are asked nothing."""
    code = (
        "import sys\nfrom tallystick_cli import main\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
    messages = [
        _request(1, "initialize", **_HELLO),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        *(_request(number, method) for number, method in enumerate(lists, 2)),
    ]
    started = subprocess.Popen(
        [sys.executable, "-c", code, "mcp", "--tally", str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write("".join(f"{json.dumps(message)}\n" for message in messages))
    started.stdin.flush()
    answers = [json.loads(started.stdout.readline()) for _ in range(5)]
    _, errors = started.communicate(timeout=120)
    # The command has run in a child, which said before what it loaded.
    loaded = errors.splitlines()[-1].split()
    ours = {name for name in loaded if name.startswith("tallystick") and "." in name}
    ours = {name for name in ours if not name.startswith("tallystick.errors.")}

    assert {answer["id"] for answer in answers} == {1, 2, 3, 4, 5}
    assert ours == set(_LOADED)
    assert [name for name in _UNUSED if name in loaded] == []


@pytest.mark.slow
async def test_a_server_says_the_same_before_its_first_call_as_after_it(place: Path) -> None:
    async def said(client: Client) -> list[Any]:
        return [
            client.server_info,
            client.instructions,
            client.server_capabilities,
            (await client.list_tools()).tools,
            (await client.list_prompts()).prompts,
            (await client.list_resources()).resources,
            (await client.list_resource_templates()).resource_templates,
        ]

    for era in ERAS:
        async with Client(parameters(place), mode=era) as client:
            first = await said(client)
            stored = payload(await client.call_tool("add", {"content": "Herons nest in March."}))
            [content] = (await client.read_resource(f"tally://memory/{stored['id']}")).contents
            asked = await client.get_prompt("recall_first", {"request": "When do herons nest?"})
            then = await said(client)
        with Tally.open(place, background=False) as tally:
            async with Client(serve(tally), mode=era) as client:
                eager = await said(client)

        assert first == then == eager
        assert "Herons nest" in content.model_dump_json()
        assert "Herons nest" in asked.messages[0].model_dump_json()


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_person_is_asked_in_the_first_call_of_a_server(place: Path, era: str) -> None:
    with Tally.open(place, background=False) as tally:
        stored = tally.bind().remember("Herons nest in March.").id
    person = Person()
    wish = {"action": "forget", "id": stored, "reason": "They moved.", "mode": "apply"}
    async with Client(parameters(place), mode=era, elicitation_callback=person) as client:
        answer = await client.call_tool("manage", wish)
        found = await client.call_tool("search", {"query": "heron"})

    assert not answer.is_error
    assert len(person.questions) == 1
    assert payload(found)["memories"] == []


@pytest.mark.slow
async def test_a_tally_that_cannot_be_opened_at_the_first_call_is_tried_at_the_next(
    place: Path,
) -> None:
    async with Client(parameters(place)) as client:
        place.rename(place.with_name("moved"))
        with pytest.raises(MCPError) as refused:
            await client.call_tool("search", {"query": "heron"})
        place.with_name("moved").rename(place)
        found = await client.call_tool("search", {"query": "heron"})

    assert "There is no tally" in refused.value.error.message
    assert not found.is_error


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--rules", "no.toml"], ["--boundary", "x:y:z"], ["--nope"]])
def test_a_server_that_cannot_serve_says_so_once_and_ends(place: Path, options: list[str]) -> None:
    ended = subprocess.run(command(place, *options), input="", capture_output=True, text=True)

    assert ended.returncode == 2
    assert ended.stderr.count("tally: ") == 1
    assert not ended.stdout
    assert "Traceback" not in ended.stderr


_HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def _request(number: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


@pytest.mark.slow
def test_what_was_answered_before_a_kill_is_stored(place: Path) -> None:
    started = subprocess.Popen(command(place), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdin is not None
    assert started.stdout is not None

    def send(message: dict[str, Any]) -> None:
        assert started.stdin is not None
        started.stdin.write(json.dumps(message).encode() + b"\n")
        started.stdin.flush()

    send(_request(0, "initialize", **_HELLO))
    started.stdout.readline()
    send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    for number in range(1, 200):
        content = f"Written before the kill, number {number}."
        send(_request(number, "tools/call", name="add", arguments={"content": content}))
    answered = [json.loads(started.stdout.readline()) for _ in range(20)]
    started.send_signal(signal.SIGKILL)
    # What it wrote to the pipe before it died was answered too.
    answered += [json.loads(line) for line in started.stdout if line.endswith(b"\n")]
    started.wait(timeout=60)
    started.stdin.close()
    started.stdout.close()

    ids = {answer["result"]["structuredContent"]["id"] for answer in answered}
    with Tally.open(place, background=False) as tally:
        stored = {memory.id for memory in tally.bind().memories(limit=300)}
        findings = tally.bind().operator.doctor()
    assert len(ids) >= 20
    assert ids <= stored
    assert [finding for finding in findings if finding.status == "problem"] == []


# HTTP


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Tally, str, dict[str, str]]]:
    """A tally whose MCP server listens on a socket, with two tokens."""
    path = str(tmp_path / "mcp.sock")
    with Tally.open(tmp_path / "tally", owner=ANN.replace(role="operator")) as tally:
        tokens = tally.bind().tokens
        secrets = {
            "apollo": tokens.make(
                "apollo", token_class="scoped", actor=ANN, scopes=["project:apollo"]
            ).secret,
            "bob": tokens.make("bob", token_class="personal", actor=Actor(user="bob")).secret,
        }
        with bind_socket(path) as bound:
            config = uvicorn.Config(http_app(tally, local=ANN), log_config=None, lifespan="on")
            server = uvicorn.Server(config)
            thread = threading.Thread(
                target=lambda: asyncio.run(server.serve(sockets=[bound])), daemon=True
            )
            thread.start()
            while not server.started:
                time.sleep(0.01)
            yield tally, path, {name: secret or "" for name, secret in secrets.items()}
            server.should_exit = True
            thread.join(timeout=30)


def over(path: str, secret: str | None = None) -> httpx2.AsyncClient:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    transport = httpx2.AsyncHTTPTransport(uds=path)
    return httpx2.AsyncClient(transport=transport, headers=headers)


@pytest.mark.parametrize("mode", ERAS)
async def test_a_token_says_who_calls_and_how_far_they_reach(
    served: tuple[Tally, str, dict[str, str]], mode: str
) -> None:
    tally, path, secrets = served
    private = tally.bind(ANN).remember("Ann is allergic to nuts.")
    answers = {}
    for name, secret in {"ann": None, **secrets}.items():
        async with over(path, secret) as http:
            transport = streamable_http_client("http://localhost/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                added = await client.call_tool("add", {"content": f"{name} was here."})
                found = await client.call_tool("search", {"query": "allergic to nuts"})
                read = await client.call_tool("explore", {"mode": "get", "id": private.id})
                answers[name] = (payload(added), payload(found), payload(read))

    scopes = {name: answer[0]["scope"] for name, answer in answers.items()}
    assert scopes == {"ann": "private:ann", "apollo": "project:apollo", "bob": "private:bob"}
    assert "allergic" in json.dumps(answers["ann"][1])
    for name in ("apollo", "bob"):
        assert "allergic" not in json.dumps(answers[name])
        assert answers[name][2]["error"]["code"] == "not_found"


async def test_without_a_good_token_or_from_another_page_nothing_is_answered(
    served: tuple[Tally, str, dict[str, str]],
) -> None:
    _, path, _ = served
    body = _request(1, "tools/list")
    async with over(path, "wrong") as http:
        wrong = await http.post("http://localhost/mcp", json=body)
    async with over(path) as http:
        host = await http.post("http://evil.example/mcp", json=body)
        page = await http.post(
            "http://localhost/mcp", json=body, headers={"Origin": "https://evil.example"}
        )
        large = await http.post("http://localhost/mcp", content=b"x" * (9 * 1024 * 1024))

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(9):
                yield b"x" * 1024 * 1024

        streamed = await http.post(
            "http://localhost/mcp",
            content=pieces(),
            headers={
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
            },
        )

    assert [answer.status_code for answer in (wrong, host, page, large)] == [401, 421, 403, 413]
    assert (streamed.status_code, streamed.json()["code"]) == (413, "too_large")
    assert "wrong" not in wrong.text


@pytest.mark.soak
def test_the_command_serves_over_a_socket_and_removes_it(place: Path) -> None:
    path = place.parent / "mcp.sock"
    started = subprocess.Popen(
        command(place, "--uds", str(path)), stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert started.stderr is not None
    assert b"mcp.sock" in started.stderr.readline()

    async def listed() -> int:
        async with over(str(path)) as http:
            transport = streamable_http_client("http://localhost/mcp", http_client=http)
            async with Client(transport) as client:
                return len((await client.list_tools()).tools)

    number = anyio.run(listed)
    mode = path.stat().st_mode & 0o777
    started.terminate()
    out, _ = started.communicate(timeout=60)

    assert (number, mode, out, started.returncode) == (4, 0o600, b"", 0)
    assert not path.exists()
