"""Commands that clients start: how they are written, and whether they start, tried beforehand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tallystick.errors import InvalidInput, MissingExtra
from tallystick_hooks.clients import ClientScope

_SECONDS = 60.0
"""Seconds that a command may take to start."""
_HAS_US = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('tallystick_cli'))"
_PROTOCOL = "2025-06-18"
"""A revision of the protocol with a handshake."""


def program(place: ClientScope) -> list[str]:
    """Return the words that start `tally`. For a project they are those of any machine that has it
    in the Python of its path; for a user those of this Python. Raises InvalidInput.
    """
    module = ["-m", "tallystick_cli"]
    if place == "user":
        return [sys.executable, *module]
    for name in ("python", "python3"):
        found = shutil.which(name)
        if found is not None and not subprocess.run([found, "-c", _HAS_US], check=False).returncode:
            return [name, *module]
    raise InvalidInput(
        "No Python on the path has tallystick, and a file of a project names no other, because it "
        "is for other machines too. Activate the environment, or use --scope user, which names "
        f"{sys.executable}."
    )


def place_for(where: str, place: ClientScope) -> str:
    """Return a path as it is written: for a user in full, for a project below its folder. Raises
    InvalidInput for one that no other machine has.
    """
    if "://" in where:
        return where
    path = Path(where).absolute()
    if place == "user":
        return str(path)
    if not path.is_relative_to(Path.cwd()):
        raise InvalidInput(
            f"{where} is not below this folder, so that a file of the project would name a place "
            "that other machines do not have. Use --scope user."
        )
    return path.relative_to(Path.cwd()).as_posix()


def check_server(line: Sequence[str]) -> int:
    """Start an MCP server by its command and shake hands; return the number of its tools. Raises
    MissingExtra, InvalidInput with what the command said.
    """
    if line[0] == sys.executable or shutil.which(line[0]) == sys.executable:
        _require_mcp()
    server = subprocess.Popen(
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "NO_COLOR": "1"},
    )
    watch = threading.Timer(_SECONDS, server.kill)
    watch.start()
    answers: dict[int, Any] = {}
    assert server.stdin is not None
    assert server.stdout is not None
    with suppress(OSError):  # it ended meanwhile: what it said tells why
        answers = _shake_hands(server.stdin, server.stdout)
    watch.cancel()
    tools = answers.get(2, {}).get("result", {}).get("tools")
    if tools is None:
        server.kill()
    said = _end(server)
    if tools is None:
        told = said[-1] if said else "nothing."
        raise InvalidInput(
            f"The server does not start, and nothing was written. {' '.join(line)} said: {told}"
        )
    return len(tools)


def _end(server: subprocess.Popen[str]) -> list[str]:
    """Let a server end by the end of its input; return what it said on standard error."""
    with suppress(OSError):
        return server.communicate(timeout=_SECONDS)[1].strip().splitlines()
    server.wait()
    return [] if server.stderr is None else server.stderr.read().strip().splitlines()


def check_command(line: Sequence[str]) -> None:
    """Run a command that ends by itself. Raises InvalidInput with what it said."""
    try:
        done = subprocess.run(line, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InvalidInput(f"{' '.join(line)} does not start: {error}.") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise InvalidInput(f"{' '.join(line)} does not start: {said[-1] if said else 'no word'}")


def _require_mcp() -> None:
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise MissingExtra("mcp", "mcp")


def _shake_hands(to: IO[str], answers: IO[str]) -> dict[int, Any]:
    """Return the answers of a server to hello and to the list of its tools, by their numbers."""
    hello = {
        "protocolVersion": _PROTOCOL,
        "capabilities": {},
        "clientInfo": {"name": "tally-install", "version": "1"},
    }
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list", "params": {}},
    ]
    for message in messages:
        to.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    to.flush()
    received: dict[int, Any] = {}
    for answer in _messages(answers):
        received[answer.get("id", 0)] = answer
        if 2 in received:
            break
    return received


def _messages(lines: IO[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        if isinstance(message, dict):
            yield message
