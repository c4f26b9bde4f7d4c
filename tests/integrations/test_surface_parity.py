"""One call, one effect: the same calls through Python, HTTP and the command line leave the same
journal, but for the surface's name, and are refused for the same reasons.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from inline_snapshot import external_file
from tests.integrations.frozen import frozen
from tests.terminals import invoke

from tallystick import Actor, Tally
from tallystick.errors import TallystickError
from tallystick.operations import OPERATIONS
from tallystick.storage.rows import journal
from tallystick.tally.services import services_of
from tallystick_server import RemoteTally, serve_in_background

OWNER = Actor(user="root", role="operator", projects={"apollo"})
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass
class Step:
    """One call: an operation with its arguments, and how the command line says it, if it does."""

    operation: str
    arguments: dict[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    """Texts in braces are those of earlier answers: `{heron.id}`."""
    keep: str = ""
    """The name under which later calls find the answer."""


WHY = {"reason": "a test"}
SAID = ("--reason", "a test")
STEPS = [
    Step(
        "remember",
        {"content": "The heron nests in March.", "tags": ["bird"]},
        ("remember", "The heron nests in March.", "--tag", "bird"),
        keep="heron",
    ),
    Step("remember", {"content": "The tide turns."}, ("remember", "The tide turns."), keep="tide"),
    Step("remember", {"content": "The tide turns."}, ("remember", "The tide turns.")),
    Step("remember", {"content": "Old news."}, ("remember", "Old news."), keep="old"),
    Step("remember", {"content": "A key.", "pinned": True}, ("remember", "A key.", "--pin"), "pin"),
    Step("recall", {"query": "When does the heron nest?"}, ("recall", "When does the heron nest?")),
    Step("recall", {"query": " "}, ("recall", " ")),
    Step("recall", {"query": "", "tags": ["bird"]}, ("recall", "", "--tag", "bird")),
    Step("memories", {"limit": 20}, ("memories", "--limit", "20")),
    Step("memories", {"limit": 20, "tags": ["bird"]}, ("memories", "--tag", "bird")),
    Step("inspect", {"memory_id": "{heron.id}"}, ("inspect", "{heron.id}")),
    Step("inspect", {"memory_id": "nothing-at-all"}, ("inspect", "nothing-at-all")),
    Step("explore", {"around": "{heron.id}"}, ("explore", "{heron.id}")),
    Step("wake", {"budget_tokens": 300}, ("wake", "--budget", "300")),
    Step(
        "pack",
        {"query": "tide", "budget_tokens": 300},
        ("pack", "tide", "--budget", "300"),
    ),
    Step(
        "modify",
        {"memory_id": "{heron.id}", **WHY, "changes": {"content": "It nests in April."}},
        ("modify", "{heron.id}", "--content", "It nests in April.", *SAID),
    ),
    Step(
        "modify",
        {"memory_id": "{heron.id}", **WHY, "changes": {"tags": ["late"]}, "if_version": 1},
        ("modify", "{heron.id}", "--tag", "late", "--if-version", "1", *SAID),
    ),
    Step("history", {"memory_id": "{heron.id}"}, ("history", "{heron.id}")),
    Step("forget", {"memory_id": "{old.id}", **WHY}, ("forget", "{old.id}", *SAID)),
    Step("forget", {"memory_id": "{pin.id}", **WHY}, ("forget", "{pin.id}", *SAID)),
    Step("recover", {"memory_id": "{old.id}", **WHY}, ("recover", "{old.id}", *SAID)),
    Step(
        "recover",
        {"memory_id": "{tide.id}", "reason": " "},
        ("recover", "{tide.id}", "--reason", " "),
    ),
    Step(
        "correct",
        {"memory_id": "{tide.id}", "correction": "mark_stale", **WHY},
        ("correct", "{tide.id}", "mark_stale", *SAID),
        keep="preview",
    ),
    Step(
        "correct",
        {
            "memory_id": "{tide.id}",
            "correction": "mark_stale",
            **WHY,
            "mode": "apply",
            "confirm_token": "{preview.confirm_token}",
        },
        (
            "correct",
            "{tide.id}",
            "mark_stale",
            *SAID,
            "--apply",
            "--token",
            "{preview.confirm_token}",
        ),
    ),
    Step(
        "correct",
        {
            "memory_id": "{old.id}",
            "correction": "hide",
            **WHY,
            "mode": "apply",
            "confirm_token": "1.x",
        },
        ("correct", "{old.id}", "hide", *SAID, "--apply", "--token", "1.x"),
    ),
    Step(
        "promote",
        {"memory_id": "{heron.id}", "into": "project:apollo", **WHY},
        ("promote", "{heron.id}", "project:apollo", *SAID),
        keep="crossing",
    ),
    Step(
        "promote",
        {
            "memory_id": "{heron.id}",
            "into": "project:apollo",
            **WHY,
            "mode": "apply",
            "confirm_token": "{crossing.confirm_token}",
        },
        (
            "promote",
            "{heron.id}",
            "project:apollo",
            *SAID,
            "--apply",
            "--token",
            "{crossing.confirm_token}",
        ),
    ),
    Step(
        "share",
        {"memory_id": "{old.id}", "into": "private:bob", **WHY},
        ("share", "{old.id}", "private:bob", *SAID),
    ),
    Step(
        "create_space",
        {"scope": "team:birds", "name": "Birds", **WHY},
        ("space", "team:birds", "--name", "Birds", *SAID),
    ),
    Step("spaces", {}, ("spaces",)),
    Step(
        "preview_member",
        {"scope": "team:birds", "member": {"principal_id": "bob"}},
    ),
    Step(
        "update_space",
        {"scope": "team:birds", **WHY, "changes": {"description": "Of birds."}},
        ("space", "team:birds", "--description", "Of birds.", *SAID),
    ),
    Step(
        "make_token",
        {"name": "laptop", "actor": {"user": "root", "projects": ["apollo"]}},
        ("token", "make", "laptop"),
        keep="token",
    ),
    Step("tokens", {}, ("token", "list")),
    Step(
        "revoke_token", {"token_id": "{token.id}", **WHY}, ("token", "revoke", "{token.id}", *SAID)
    ),
    Step("approvals", {}, ("approvals",)),
    Step("jobs", {"limit": 20}, ("jobs",)),
    Step("runs", {"limit": 20}, ("runs",)),
    Step("purge", {}, ("purge",)),
    Step("rebuild_index", {"reason": "r"}, ("rebuild-index", "--reason", "r")),
    Step("erase", {"memory_ids": ["{old.id}"], **WHY}, ("erase", "{old.id}", *SAID)),
    Step("freeze", WHY, ("freeze", *SAID)),
    Step("remember", {"content": "While frozen."}, ("remember", "While frozen.")),
    Step("thaw", WHY, ("thaw", *SAID)),
    Step("forget_matching", {"query": "April", **WHY}, ("forget", "April", "--matching", *SAID)),
    Step(
        "preview_access",
        {"actor": {"user": "bob"}, "scopes": ["private:root"]},
        ("preview-agent", "bob", "--scope", "private:root"),
    ),
    Step("remember_many", {"items": [{"content": "One."}, {"content": "Two."}]}),
    Step("modify_many", {"items": [{"memory_id": "{pin.id}", "reason": "a test", "tags": ["t"]}]}),
]

Answers = dict[str, Any]
Call = Callable[[Step, Answers], Any]


def filled(value: Any, answers: Mapping[str, Any]) -> Any:
    """Arguments with the answers of earlier calls in their places."""
    if isinstance(value, str):

        def found(match: re.Match[str]) -> str:
            answer = answers[match[1]]
            return str(answer[match[2]] if isinstance(answer, dict) else getattr(answer, match[2]))

        return re.sub(r"{(\w+)\.(\w+)}", found, value)
    if isinstance(value, dict):
        return {key: filled(each, answers) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(filled(each, answers) for each in value)
    return value


def by_python(tally: Tally) -> Call:
    bound = tally.bind(OWNER)

    def call(step: Step, answers: Answers) -> Any:
        return OPERATIONS[step.operation].call(bound, filled(step.arguments, answers))

    return call


def by_http(remote: RemoteTally) -> Call:
    def call(step: Step, answers: Answers) -> Any:
        operation = OPERATIONS[step.operation]
        arguments = filled(step.arguments, answers)
        changes = arguments.pop(operation.spread, {}) if operation.spread else {}
        part, _, name = operation.verb.rpartition(".")
        face = getattr(remote, part) if part else remote
        return getattr(face, name)(**arguments, **changes)

    return call


def by_command(where: Path, said: list[Any]) -> Call:
    def call(step: Step, answers: Answers) -> Any:
        arguments = [*filled(list(step.command), answers), "--tally", str(where), "--json"]
        result = invoke(arguments, standalone_mode=False)
        if result.exception is not None:
            said.append({"command": step.command, "refused": str(result.exception)})
            raise result.exception
        answer = json.loads(result.stdout)
        said.append({"command": step.command, "answer": answer})
        return answer

    return call


def outcomes(call: Call, steps: list[Step]) -> list[str]:
    """Whether each call was done, or the code and reason of its refusal."""
    answers: Answers = {}
    told: list[str] = []
    for step in steps:
        try:
            answer = call(step, answers)
        except TallystickError as error:
            told.append(f"{step.operation}: {error.code} {error.facts().get('reason', '')}")
        else:
            told.append(f"{step.operation}: done")
            if step.keep:
                answers[step.keep] = answer
    return told


def history(tally: Tally) -> list[str]:
    """The journal without what differs from run to run: ids by the order in which they come, no
    times, no digests, no names of surfaces.
    """
    names: dict[str, str] = {}

    def plain(text: str) -> str:
        return ID.sub(lambda match: names.setdefault(match[0], f"id{len(names)}"), text)

    with services_of(tally).store.database.read() as connection:
        entries = [
            (entry.stream, entry.event, entry.actor, entry.reason, entry.subject_id, entry.details)
            for entry in journal.all_entries(connection)
        ]
    moving = re.compile(r"(sha256|hmac-sha256):[0-9a-f]{64}|\b1[678]\d{14}\b")
    return [moving.sub("…", plain(json.dumps(entry, sort_keys=True))) for entry in entries]


@pytest.fixture
def over_http(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a server answered, whole: the method, the path, the status and the body."""
    said: list[Any] = []
    request = httpx2.Client.request

    def heard(client: httpx2.Client, method: str, url: Any, **options: Any) -> httpx2.Response:
        response = request(client, method, url, **options)
        call = f"{response.request.method} {response.request.url.raw_path.decode()}"
        said.append({"call": call, "status": response.status_code, "answer": response.json()})
        return response

    monkeypatch.setattr(httpx2.Client, "request", heard)
    return said


def test_python_http_and_the_command_line_do_the_same(tmp_path: Path, over_http: list[Any]) -> None:
    assert len(STEPS) >= 40
    both: dict[str, list[str]] = {}
    told: dict[str, list[str]] = {}
    before = 0
    for name in ("python", "http"):
        with Tally.open(tmp_path / name, owner=OWNER, background=False) as tally:
            if name == "python":
                told[name] = outcomes(by_python(tally), STEPS)
            else:
                secret = tally.bind(OWNER).tokens.make("t", token_class="session").secret
                before = len(history(tally))
                with (
                    serve_in_background(tally, port=0) as (address,),
                    RemoteTally.connect(address, token=secret) as remote,
                ):
                    told[name] = outcomes(by_http(remote), STEPS)
            both[name] = history(tally)[before:]

    assert told["http"] == told["python"]
    assert _renumbered(both["http"]) == _renumbered(both["python"])

    commands = [step for step in STEPS if step.command]
    Tally.open(tmp_path / "cli", owner=OWNER, background=False).close()
    by_command_line: list[Any] = []
    told["cli"] = outcomes(by_command(tmp_path / "cli", by_command_line), commands)
    with Tally.open(tmp_path / "alike", owner=OWNER, background=False) as tally:
        told["alike"] = outcomes(by_python(tally), commands)
        alike = history(tally)
    with Tally.open(tmp_path / "cli", owner=OWNER, background=False) as tally:
        by_cli = history(tally)

    assert told["cli"] == told["alike"]
    assert _renumbered(by_cli) == _renumbered(alike)

    # Whole answers: what changes in one of them is seen here.
    # `make test ARGS="tests/integrations/test_surface_parity.py --inline-snapshot=fix"`
    assert frozen(over_http) == external_file("../fixtures/answers/http.json")
    assert frozen(by_command_line) == external_file("../fixtures/answers/cli.json")


def _renumbered(lines: list[str]) -> list[str]:
    """Lines with their ids numbered anew: what came before them does not count."""
    names: dict[str, str] = {}
    return [
        re.sub(r"\bid\d+\b", lambda match: names.setdefault(match[0], f"n{len(names)}"), line)
        for line in lines
    ]
