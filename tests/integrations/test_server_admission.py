"""Admission: strangers who open connections, or send junk, keep nobody out and cost little."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick.settings import Settings
from tallystick.testing import HashEmbedder
from tallystick_server.connections import reserve_files
from tallystick_server.guard import Guard

from .served import ADA, Served, problem, served

OWNER = Actor(user="root", role="operator")
_SERVE = [sys.executable, "-c", "from tallystick_cli.app import main; main()", "serve"]


@contextmanager
def process(folder: Path, **settings: int) -> Iterator[tuple[int, str, str]]:
    """A server of a new tally: its process, its address and a token."""
    with Tally.open(folder, owner=OWNER, embedder=HashEmbedder(), background=False) as tally:
        secret = tally.bind(OWNER).tokens.make("test", actor=ADA).secret
    assert secret is not None
    variables = {f"TALLYSTICK_{name}".upper(): str(value) for name, value in settings.items()}
    command = [*_SERVE, "--tally", str(folder), "--port", "0"]
    with (
        (folder.parent / "errors").open("w") as errors,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **variables},
        ) as started,
    ):
        try:
            assert started.stdout is not None
            address = started.stdout.readline().removeprefix("Serving at ").strip()
            yield started.pid, address, secret
        finally:
            started.kill()


def opened(stack: ExitStack, address: str, sent: bytes = b"") -> socket.socket:
    """A connection on which these bytes were sent."""
    host, _, port = address.removeprefix("http://").partition(":")
    raw = stack.enter_context(socket.create_connection((host, int(port)), timeout=60))
    with suppress(BrokenPipeError, ConnectionResetError):  # it may be closed already
        raw.sendall(sent)
    return raw


def was_closed(raw: socket.socket) -> bool:
    """Whether the server closes a connection without an answer."""
    try:
        return raw.recv(1) == b""
    except ConnectionResetError:
        return True


def ticks_for(server: int, work: Callable[[], object]) -> int:
    """The processor time that a server takes while something is done."""

    def ticks() -> int:
        fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before = ticks()
    work()
    return ticks() - before


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processor time in /proc")
@pytest.mark.parametrize(
    ("idle", "halves", "junk", "most"),
    [
        pytest.param(300, 30, 10, 64, id="small", marks=pytest.mark.slow),
        pytest.param(2_000, 100, 50, 512, id="large", marks=pytest.mark.slow),
    ],
)
def test_a_good_client_is_answered_whatever_strangers_open_and_send(
    tmp_path: Path, idle: int, halves: int, junk: int, most: int
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, idle + halves + 500)), hard))
    head = b"POST /ui/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    form = b"Content-Type: application/x-www-form-urlencoded\r\n"
    bodies = (
        head + form + b"Content-Length: 65000\r\n\r\n" + b"token=" + b"&a=%ff" * 10_832,
        head + form + b"Content-Length: 8000000\r\n\r\n" + b"a" * 100_000,
        head.replace(b"/ui/sign-in", b"/v1/context/compile")
        + b"Content-Length: 8000000\r\n\r\n"
        + b"[" * 100_000,
    )
    with (
        process(tmp_path / "t", max_connections=most) as (server, address, secret),
        httpx2.Client(
            base_url=address, headers={"authorization": f"Bearer {secret}"}, timeout=60
        ) as good,
        ExitStack() as held,
    ):
        answers: list[int] = []

        def work() -> None:
            for number in range(60):
                kept = good.post("/v1/memories", json={"content": f"Heron {number}."})
                found = good.post("/v1/recall", json={"query": "heron"})
                health = good.get("/v1/health")
                answers.extend(answer.status_code for answer in (kept, found, health))

        def attack() -> None:
            for _ in range(idle):
                opened(held, address)
            for _ in range(halves):
                opened(held, address, head + b"X-Half: ")
            for number in range(junk):
                opened(held, address, bodies[number % len(bodies)])
            work()

        work()
        alone = ticks_for(server, work)
        attacked = ticks_for(server, attack)

        assert set(answers) == {200}
        assert len(os.listdir(f"/proc/{server}/fd")) < most + 256
        assert attacked < 3 * alone
        held.close()
        work()
        assert (tmp_path / "errors").read_text() == ""


def test_a_request_beyond_the_most_is_refused_but_for_health(tmp_path: Path) -> None:
    """Readers of events hold their connections, and only callers who were let in count."""
    with (
        served(tmp_path, settings=Settings(max_connections=4)) as there,
        ExitStack() as held,
    ):
        ada = there.tally.bind(ADA)
        run = ada.run("coder")
        secret = there.token()
        with run.step("other"):
            pass
        stream = (
            f"GET /v1/runs/{run.id}/events HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {secret}\r\n\r\n"
        ).encode()
        for _ in range(4):
            assert opened(held, there.tcp, stream).recv(15) == b"HTTP/1.1 200 OK"
        http = there.http(secret)
        refused = http.get("/v1/whoami")
        health = there.http(secret).get("/v1/health")
        stranger = there.http().get("/v1/whoami")
        held.close()
        run.end()

        assert (refused.status_code, problem(refused)["code"]) == (503, "busy")
        assert (health.status_code, stranger.status_code) == (200, 401)
        while http.get("/v1/whoami").status_code == 503:
            pass


@pytest.mark.parametrize(
    "sent", [b"", b"GET /v1/health HTTP/1.1\r\nHost: ", b"GET /v1/health HTTP/1.1\r\nX: " + b"x"]
)
def test_a_connection_without_a_request_ends(
    there: Served, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick_server.connections._HEAD_SECONDS", 0.1)
    with ExitStack() as held:
        raw = opened(held, there.tcp, sent)
        assert was_closed(raw)
        again = opened(held, there.tcp, b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert again.recv(12) == b"HTTP/1.1 401"


def test_headers_without_an_end_are_cut_off(there: Served) -> None:
    with ExitStack() as held:
        headers = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 1_000) for number in range(200))
        assert was_closed(opened(held, there.tcp, b"GET /v1/health HTTP/1.1\r\n" + headers))


def test_more_connections_than_the_system_has_files_for_are_refused() -> None:
    with pytest.raises(InvalidInput, match="max_connections"):
        reserve_files(2**40)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("served")) as there:
        yield there


def test_space_around_the_value_of_a_header_is_no_part_of_it(
    open_sqlite: Callable[..., Tally],
) -> None:
    """The HTTP library leaves space that follows; the protocol's own headers are compared."""
    seen: list[dict[bytes, bytes]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(dict(scope["headers"]))

    async def nothing(*_: Any) -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    headers = [(b"host", b"localhost"), (b"mcp-name", b"  search\t ")]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    with open_sqlite() as tally:
        anyio.run(Guard(application, tally, surface="mcp", local=ADA), scope, nothing, nothing)

    assert [each[b"mcp-name"] for each in seen] == [b"search"]
