"""The short way of a hook: a warm server answers over its socket, and hardly anything is imported.

A hook is a process of its own, before every prompt and every tool call. What this module imports is
what Python has loaded anyway, and `json` and `socket`: a class of data or a client of HTTP would
double the time.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from itertools import pairwise

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_OPTIONS = {
    "--format": "format",
    "--tally": "tally",
    "-t": "tally",
    "--boundary": "boundary",
    "--agent": "agent",
    "--rules": "rules",
    "--socket": "socket",
    "--via": "via",
}
RULES_MARK = ".rules"
"""What the name of a file ends with that stands beside the socket of a server with rules over
tools, for as long as it runs. It stays where the server was killed.
"""
DECIDING = ("before-tool", "permission")
"""Events at which rules decide about a call of a tool."""
_SECONDS = 20.0
"""Seconds to wait for a server."""
_PIECE = 65_536
_REPEATABLE = (
    "session-start",
    "prompt",
    "subagent-start",
    "before-compact",
    "after-compact",
    "turn-end",
    "session-end",
)
"""Events that may be answered twice: they read, or keep what was said once for each place in its
session. A tool call would be recorded twice, and rules of the server are not known elsewhere.
"""


class Unanswered(Exception):
    """The event could not be answered; the message is for standard error."""


def answer(
    arguments: Sequence[str], otherwise: Callable[[Sequence[str], str | None, str | None], int]
) -> int | None:
    """Answer one event and return the exit code; None for arguments that are no event and its
    options, such as `install` and `--help`. Standard input is not read then.

    Where no server answers, `otherwise` does: it gets the arguments, what was read already, and
    why a server that is there did not answer.
    """
    chosen = _parse_arguments(arguments)
    if chosen is None:
        return None
    # A server has rules of its own: those of a file are checked here.
    text = None
    event, format = chosen["event"], chosen.get("format", "neutral")
    is_checked_here = "rules" in chosen and event in DECIDING
    place = chosen.get("tally") or os.environ.get("TALLYSTICK_TALLY", ".tally")
    path = chosen.get("socket") or os.path.join(place, "serve.sock")
    if not is_checked_here and os.path.exists(path):
        text = read_input()
        try:
            payload = json.loads(text)
            answered = ask(path, payload, **chosen)
        except (ValueError, RecursionError):
            answered = None  # no JSON, or deeper than it can be: the long way says so
        except Unanswered as error:
            # The long way notes it in the tally, where it can, and says what comes of it.
            return otherwise(arguments, text, str(error))
        if answered is not None:
            return finish(answered, format, event)
    return otherwise(arguments, text, None)


def is_closed(event: str, path: str, rules: object) -> bool:
    """Return True if a tool does not run where this event cannot be answered: rules are given, or
    are those of a server.
    """
    return event in DECIDING and (rules is not None or os.path.exists(path + RULES_MARK))


def code_of_misuse(arguments: Sequence[str]) -> int:
    """Return the exit code for options that are none, such as those which another release wrote: 2
    stops a client, so that it is for tools under rules alone.
    """
    words = [word for each in arguments for word in each.split("=", 1)]
    given = dict(pairwise(words))
    place = given.get("--tally", given.get("-t", os.environ.get("TALLYSTICK_TALLY", ".tally")))
    path = given.get("--socket", os.path.join(place, "serve.sock"))
    return 2 if arguments and is_closed(arguments[0], path, given.get("--rules")) else 1


def read_input() -> str:
    """Return standard input; nothing where it is closed or no text."""
    try:
        return sys.stdin.read()
    except (AttributeError, OSError, ValueError):
        return ""


def _parse_arguments(arguments: Sequence[str]) -> dict[str, str] | None:
    """Return the event and its options, by name; None for anything else."""
    if not arguments or arguments[0].startswith("-") or arguments[0] in ("install", "uninstall"):
        return None
    chosen = {"event": arguments[0]}
    rest = list(arguments[1:])
    while rest:
        option, is_joined, value = rest.pop(0).partition("=")
        if option not in _OPTIONS or not (is_joined or rest):
            return None
        chosen[_OPTIONS[option]] = value if is_joined else rest.pop(0)
    return chosen


def ask(
    path: str,
    payload: Any,
    *,
    event: str,
    format: str = "neutral",
    boundary: str | None = None,
    agent: str | None = None,
    via: str | None = None,
    **options: object,
) -> dict[str, Any] | None:
    """Return the answer of the server at a socket, or None where there is none, none that answers
    hooks, or one that broke off though another way may answer as well. Raises Unanswered,
    ValueError for a payload that is no JSON.
    """
    request = {"payload": payload, "format": format, "scope": boundary, "agent": agent, "via": via}
    body = json.dumps(
        {name: value for name, value in request.items() if value is not None}
    ).encode()
    # HTTP/1.0: the answer comes whole and ends with the connection.
    head = (
        f"POST /v1/hooks/{event} HTTP/1.0\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_SECONDS)
        connection.connect(path)
        connection.sendall(head.encode("ascii") + body)
        pieces = []
        while piece := connection.recv(_PIECE):
            pieces.append(piece)
        status, text = _split_response(b"".join(pieces))
    except ConnectionRefusedError:
        return None  # it is gone, and has left its socket behind
    except (OSError, EOFError) as error:
        if event in _REPEATABLE:
            return None
        raise Unanswered(f"The server did not answer ({type(error).__name__}).") from error
    finally:
        connection.close()
    if status == 404:
        return None  # it answers no hooks
    if status != 200:
        raise Unanswered(f"The server answered {status}{_reason(text)}")
    try:
        answered: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise Unanswered("The server did not answer as a server of hooks does.") from error
    return answered


def _reason(text: bytes) -> str:
    """Return the end of a sentence that has the reason of a refusal, where the server told one."""
    try:
        detail = json.loads(text)["detail"]
    except (ValueError, KeyError, TypeError):
        return "."
    return f": {detail}" if isinstance(detail, str) else "."


def _split_response(response: bytes) -> tuple[int, bytes]:
    """Return the status and the body of an answer. Raises EOFError for one that broke off."""
    head, _, body = response.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    words = first.split()
    length = None
    for line in lines:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = value.strip()
    if len(words) < 2 or not words[1].isdigit() or length != str(len(body)).encode():
        raise EOFError
    return int(words[1]), body


def finish(answered: dict[str, Any], format: str, event: str) -> int:
    """Write an answer and return the exit code: 2 where a tool does not run, also where nobody
    could be told so.
    """
    try:
        if answered:
            # Whatever the terminal can show: a character that it cannot would end the hook.
            sys.stdout.write(json.dumps(answered) + "\n")
            sys.stdout.flush()
    except (AttributeError, OSError, ValueError) as error:
        if sys.stderr is not None:
            print(f"tally hook {event}: {error}", file=sys.stderr)  # noqa: T201
        return 2 if event in DECIDING else 0
    return 2 if format == "neutral" and answered.get("decision") == "deny" else 0
