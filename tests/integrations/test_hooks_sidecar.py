"""A hook asks a server that is warm, and answers itself where there is none."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any, cast

import pytest

from tallystick.tally import Tally
from tallystick_hooks.command import run
from tallystick_hooks.quick import Unanswered, answer, ask


class _Server(UnixStreamServer):
    """Answers hooks over a socket, and notes what it was asked."""

    def __init__(self, path: str, status: int) -> None:
        super().__init__(path, _Handler)
        self.status = status
        self.asked: list[tuple[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    def address_string(self) -> str:
        return "socket"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        warm = cast(_Server, self.server)
        warm.asked.append((self.path, json.loads(body)))
        answer = json.dumps({"context": "from the server"}).encode()
        self.send_response(warm.status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Tally.open(tmp_path / "t", background=False) as tally:
        tally.bind().remember("We indent with tabs.", pinned=True, kind="constraint")
    return tmp_path / "t"


@pytest.fixture(params=[200])
def server(place: Path, request: pytest.FixtureRequest) -> Iterator[_Server]:
    with _Server(str(place / "serve.sock"), request.param) as warm:
        thread = threading.Thread(target=warm.serve_forever, args=(0.01,))
        thread.start()
        yield warm
        warm.shutdown()
        thread.join()


def start(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"session": "s1", "tool": "ls"}'))
    event, *rest = options
    code = run([event, "--tally", str(place), *rest])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_warm_server_answers_over_the_socket_of_the_tally(
    place: Path,
    server: _Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ("session-start", "--boundary", "project:apollo", "--agent", "coder")
    code, out, _ = start(place, monkeypatch, capsys, *options)

    assert (code, json.loads(out)) == (0, {"context": "from the server"})
    payload = {"session": "s1", "tool": "ls"}
    body = {"payload": payload, "format": "neutral", "scope": "project:apollo", "agent": "coder"}
    assert server.asked == [("/v1/hooks/session-start", body)]


def test_rules_of_a_file_are_checked_here(
    place: Path,
    server: _Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules = place.parent / "rules.toml"
    rules.write_text(
        '[[rules]]\nid = "no"\nname = "Nothing runs"\neffect = "deny"\napplies_to = "tool_call"\n'
    )

    code, out, _ = start(place, monkeypatch, capsys, "before-tool", "--rules", str(rules))

    assert (code, json.loads(out)["decision"]) == (2, "deny")
    assert server.asked == []


@pytest.mark.parametrize("server", [404], indirect=True)
def test_a_server_without_hooks_leaves_them_to_the_command(
    place: Path,
    server: _Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, out, _ = start(place, monkeypatch, capsys, "session-start")

    assert len(server.asked) == 1
    assert "We indent with tabs." in json.loads(out)["context"]


@pytest.mark.parametrize("server", [500], indirect=True)
def test_a_server_that_fails_leaves_the_agent_alone(
    place: Path,
    server: _Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = start(place, monkeypatch, capsys, "session-start")

    assert (code, out) == (0, "")
    assert "The server answered 500." in err


def test_a_socket_that_was_left_behind_is_no_server(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place / "serve.sock"))

    code, out, _ = start(place, monkeypatch, capsys, "session-start")

    assert code == 0
    assert "We indent with tabs." in json.loads(out)["context"]


_LIGHT = """
import sys
from tallystick_cli import main
sys.argv[0] = "tally"
try:
    main()
except SystemExit as ended:
    heavy = {"typer", "pydantic", "sqlalchemy", "argparse", "http.client", "dataclasses", "inspect"}
    print(ended.code, sorted(heavy & set(sys.modules)))
"""


def test_beside_a_warm_server_a_hook_imports_next_to_nothing(place: Path, server: _Server) -> None:
    command = [sys.executable, "-I", "-c", _LIGHT, "hook", "prompt", "-t", str(place)]
    ended = subprocess.run(
        [*command, "--format=claude-code", "--agent", "scribe"],
        input='{"prompt": "tabs?"}',
        capture_output=True,
        text=True,
        check=True,
    )

    assert ended.stdout.splitlines() == ['{"context": "from the server"}', "0 []"]
    [(path, asked)] = server.asked
    assert path == "/v1/hooks/prompt"
    expected = {"payload": {"prompt": "tabs?"}, "format": "claude-code", "agent": "scribe"}
    assert asked == expected


@pytest.mark.parametrize(
    "options",
    [("install",), ("prompt", "--help"), ("prompt", "--json"), ("prompt", "--tally"), ("--help",)],
)
def test_what_is_no_event_is_left_to_the_command_line(options: tuple[str, ...]) -> None:
    assert answer(options, run) is None


@pytest.mark.parametrize("response", [b"", b"HTTP/1.1 200 OK\r\n\r\n{}", b"\x00", b"HTTP/1.1 200"])
def test_an_answer_that_breaks_off_is_no_answer(tmp_path: Path, response: bytes) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        bound.bind(path)
        bound.listen()

        def serve_once() -> None:
            connection, _ = bound.accept()
            connection.recv(65_536)
            connection.sendall(response)
            connection.close()

        for event in ("prompt", "session-end"):
            # They may be answered twice: the tally itself does.
            thread = threading.Thread(target=serve_once)
            thread.start()
            assert ask(path, {}, event=event) is None
            thread.join()
        for event in ("after-tool", "before-tool"):
            thread = threading.Thread(target=serve_once)
            thread.start()
            with pytest.raises(Unanswered):
                ask(path, {}, event=event)
            thread.join()


TALLY = "from tallystick_cli import main; main()"


def hook(place: Path, event: str, text: str | None = None, **extra: str) -> tuple[int, str, str]:
    """Answer an event as a program of its own does; without text standard input is closed."""
    closed = "import os; os.close(0); " if text is None else ""
    ended = subprocess.run(
        [sys.executable, "-c", closed + TALLY, "hook", event, "-t", str(place)],
        input=text,
        capture_output=True,
        text=True,
        env={**os.environ, **extra},
        timeout=120,
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout, ended.stderr


DENY = """
[[rules]]
id = "no"
name = "Nichts löschen → ask"
effect = "deny"
applies_to = "tool_call"
"""
TOOL = '{"session": "s1", "tool": "ls"}'


@pytest.mark.slow
@pytest.mark.parametrize("server", [401, 500], indirect=True)
def test_where_a_server_has_rules_and_does_not_answer_no_tool_runs(
    place: Path, server: _Server
) -> None:
    assert hook(place, "before-tool", TOOL)[0] == 0, "it has none"
    (place / "serve.sock.rules").touch()

    code, _, err = hook(place, "before-tool", TOOL)

    assert (code, "the tool does not run" in err) == (2, True)
    assert hook(place, "after-tool", TOOL)[0] == 0


@pytest.mark.slow
def test_a_server_that_was_killed_leaves_its_rules_behind_and_one_that_ended_does_not(
    place: Path, tmp_path: Path
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(DENY, encoding="utf-8")
    command = [sys.executable, "-c", TALLY, "serve", "-t", str(place), "--json"]

    @contextmanager
    def serving(*options: str, ended_by: signal.Signals = signal.SIGTERM) -> Iterator[None]:
        with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield
            process.send_signal(ended_by)
            process.wait(timeout=60)

    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, 2)):
        with serving("--rules", str(rules), ended_by=number):
            assert hook(place, "before-tool", TOOL)[0] == 2, "it is denied"
        assert hook(place, "before-tool", TOOL)[0] == code
    with serving():
        assert hook(place, "before-tool", TOOL)[0] == 0, "its place is another server's by now"


@pytest.mark.slow
@pytest.mark.parametrize(
    "extra", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}]
)
def test_a_denial_is_told_whatever_the_terminal_can_show(
    place: Path, tmp_path: Path, extra: dict[str, str]
) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(DENY, encoding="utf-8")
    payload = json.dumps({"session": "s1", "tool": "löschen \ud83d", "arguments": {"a": "\ud83d"}})
    options = ("before-tool", "--tally", str(place), "--rules", str(rules))
    ended = subprocess.run(
        [sys.executable, "-m", "tallystick_hooks.command", *options],
        input=payload,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONCOERCECLOCALE": "0", **extra},
        timeout=120,
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_what_a_hook_could_not_answer_is_a_gap_of_a_run(place: Path, server: _Server) -> None:
    server.status = 500
    assert hook(place, "prompt", "no JSON")[0] == 0
    assert hook(place, "after-tool", TOOL)[0] == 0
    assert hook(place, "prompt", None)[0] == 0

    with Tally.open(place, background=False) as tally:
        runs = tally.bind().recordings.runs()
    assert [run.status for run in runs] == ["failed"] * 3
    assert [run.gaps for run in runs] == [1] * 3
