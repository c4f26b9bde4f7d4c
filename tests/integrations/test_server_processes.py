"""`tally serve` as a process: reached by curl, killed while it writes, stopped by a signal."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallystick import Actor, Tally
from tallystick.errors import TallystickError
from tallystick.tally.services import services_of
from tallystick.testing import HashEmbedder
from tallystick_server import RemoteTally

OWNER = Actor(user="ada", role="operator")
_SERVE = [sys.executable, "-c", "from tallystick_cli.app import main; main()", "serve"]


@contextmanager
def process(where: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A server of the tally, once it listens."""
    started = subprocess.Popen(
        [*_SERVE, "--tally", str(where), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert started.stdout is not None
        assert "Serving at" in started.stdout.readline()
        yield started
    finally:
        started.kill()
        started.wait()
        assert started.stdout is not None
        started.stdout.close()


@pytest.fixture
def where(tmp_path: Path) -> Path:
    with Tally.open(tmp_path / "t", owner=OWNER, embedder=HashEmbedder(), background=False):
        pass
    return tmp_path / "t"


@pytest.mark.slow
def test_what_was_answered_is_stored_when_the_server_is_killed(where: Path) -> None:
    answered: dict[str, str] = {}
    with process(where) as server:
        path = where / "serve.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        def write(writer: int) -> None:
            with RemoteTally.connect(f"unix:{path}", attempts=1) as remote:
                for number in range(500):
                    text = f"Writer {writer} saw heron {number}."
                    try:
                        answered[remote.remember(text).id] = text
                    except TallystickError:
                        return

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while len(answered) < 40:
            time.sleep(0.01)
        os.kill(server.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()

    with Tally.open(where, background=False) as tally:
        mine = tally.bind(OWNER)
        for memory_id, text in answered.items():
            assert mine.get(memory_id).content == text
        assert all(finding.status != "problem" for finding in mine.operator.doctor())
    # The socket that it left behind is no obstacle.
    with process(where), RemoteTally.connect(f"unix:{where / 'serve.sock'}") as remote:
        assert remote.recall("heron").hits


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_alone_is_a_client(where: Path) -> None:
    def curl(*arguments: str) -> dict[str, object]:
        command = ["curl", "-s", "--unix-socket", str(where / "serve.sock"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    with process(where) as server:
        body = ["-H", "content-type: application/json", "-d"]
        stored = curl("http://localhost/v1/memories", *body, '{"content": "The kiln is hot."}')
        found = curl("http://localhost/v1/recall", *body, '{"query": "kiln"}')
        refused = curl("http://localhost/v1/memories/nothing")
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0

    assert stored["actor"] == {"user": "ada", "role": "operator"}
    assert "The kiln is hot." in json.dumps(found)
    assert refused["code"] == "not_found"
    assert not (where / "serve.sock").exists()


@pytest.mark.slow
def test_streams_of_events_end_as_they_should_where_their_server_is_stopped(
    where: Path, tmp_path: Path
) -> None:
    """Each reader gets the end of its answer, and goes on by the last id."""
    ends: list[bytes] = []

    def read(run_id: str, connected: threading.Semaphore) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(where / "serve.sock"))
            head = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(head.encode())
            told = connection.recv(65_536)
            connected.release()
            while piece := connection.recv(65_536):
                told += piece
            ends.append(told[-5:])

    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [*_SERVE, "--tally", str(where)], stdout=subprocess.PIPE, stderr=log, text=True
        ) as server,
    ):
        assert server.stdout is not None
        assert "Serving at" in server.stdout.readline()
        connected = threading.Semaphore(0)
        with Tally.open(where, background=False) as tally:
            run = tally.bind(OWNER).run("agent")
            run.step("other", name="goes on")
            services_of(tally).store.database.flush()
            readers = [threading.Thread(target=read, args=(run.id, connected)) for _ in range(5)]
            for reader in readers:
                reader.start()
            for _ in readers:
                connected.acquire()
            server.send_signal(signal.SIGTERM)
            assert server.wait(timeout=60) == 0
            for reader in readers:
                reader.join()
    assert ends == [b"0\r\n\r\n"] * 5
    assert "Traceback" not in (tmp_path / "log").read_text()


_UNUSED = (
    *("structlog", "rich", "httpx2", "jinja2", "alembic", "chromadb", "tiktoken", "mcp", "numpy"),
    *("tokenizers", "safetensors", "dateparser", "regex", "sqlalchemy.dialects.postgresql"),
    *("tallystick_cli.everyday", "tallystick_cli.views"),
)


@pytest.mark.slow
def test_a_server_that_nobody_asked_anything_has_not_loaded_what_it_may_never_use(
    where: Path,
) -> None:
    """It runs for days: what it loads, it keeps. The other commands, what they print with, the
    database that it is not on, the embedder and the index wait until they are needed.
    """
    code = (
        "import sys\nfrom tallystick_cli.app import main\n"
        "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--tally", str(where), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        assert server.stdout.readline() == "{\n"
        time.sleep(1)
        server.send_signal(signal.SIGTERM)
        loaded = server.stderr.read().split()

    assert "tallystick_server.serving" in loaded
    assert [name for name in _UNUSED if name in loaded] == []
