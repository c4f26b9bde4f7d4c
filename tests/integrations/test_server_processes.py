"""`tally serve` as a process: reached by curl, killed while it writes, stopped by a signal."""

from __future__ import annotations

import json
import os
import shutil
import signal
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
        socket = where / "serve.sock"
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600

        def write(writer: int) -> None:
            with RemoteTally.connect(f"unix:{socket}", attempts=1) as remote:
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


_UNUSED = ("structlog", "rich", "httpx2", "jinja2", "alembic", "chromadb", "tiktoken", "mcp")


def test_a_server_does_not_load_what_it_may_never_use() -> None:
    code = "import sys, tallystick.tally, tallystick_server; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()

    assert [name for name in _UNUSED if name in loaded] == []
