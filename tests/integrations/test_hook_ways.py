"""One event, one answer: a hook that asks the tally in its own process, one that is a process, and
one beside a server answer alike in both formats, and leave the same journal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import external_file
from tests.integrations.frozen import frozen

from tallystick import Actor, Tally
from tallystick.policy.rules import load_rules
from tallystick.testing.tally_contract import effects
from tallystick_hooks import EVENTS, HookFormat
from tallystick_hooks.formats import CLAUDE_EVENTS
from tallystick_hooks.handling import handle
from tallystick_hooks.quick import DECIDING
from tallystick_server import serve_in_background

RULES = """
[[rules]]
id = "no-force"
name = "Nothing is pushed by force"
effect = "deny"
applies_to = "tool_call"
conditions = { tool = ["force_push"] }

[[rules]]
id = "ask-to-pay"
name = "Payments are approved"
effect = "require_approval"
applies_to = "tool_call"
conditions = { tool = ["pay"] }
"""
SESSION: list[tuple[str, dict[str, Any]]] = [
    ("session-start", {}),
    ("prompt", {"prompt": "What is the staging server called?"}),
    ("prompt", {"prompt": "Write a haiku about rust."}),
    ("before-tool", {"tool": "read_file", "arguments": {"path": "x"}, "call_id": "c1"}),
    (
        "after-tool",
        {"tool": "read_file", "arguments": {"path": "x"}, "call_id": "c1", "result": "text"},
    ),
    ("before-tool", {"tool": "force_push", "arguments": {"branch": "main"}, "call_id": "c2"}),
    ("before-tool", {"tool": "pay", "arguments": {"amount": 5}, "call_id": "c3"}),
    ("permission", {"tool": "force_push", "arguments": {"branch": "main"}}),
    ("permission", {"tool": "read_file", "arguments": {"path": "x"}}),
    ("subagent-start", {"subagent": "a1"}),
    ("subagent-end", {"subagent": "a1", "result": "It is reviewed."}),
    ("after-tool", {"tool": "ls", "call_id": "c4", "error": "No such folder."}),
    ("turn-end", {"turns": [{"speaker": "user", "text": "We moved the office to Zurich."}]}),
    ("before-compact", {"turns": [{"speaker": "agent", "text": "The tests are green again."}]}),
    ("after-compact", {}),
    ("session-end", {"turns": [{"speaker": "user", "text": "Thank you. Deploy on Monday."}]}),
]
"""Every event of a session, as the neutral format has it."""

Way = Callable[[str, dict[str, Any], HookFormat], Any]


def in_claude_code(event: str, payload: dict[str, Any], transcript: Path) -> dict[str, Any]:
    """The same event as Claude Code tells it."""
    names: dict[str, str] = {
        name: original for original, name in reversed([*CLAUDE_EVENTS.items()])
    }
    told: dict[str, Any] = {
        "hook_event_name": names.get(event, "SessionStart"),
        "session_id": "s1",
        "transcript_path": str(transcript),
        "cwd": "/",
    }
    if event == "after-compact":
        told["source"] = "compact"
    known = {
        "prompt": "prompt",
        "tool": "tool_name",
        "arguments": "tool_input",
        "call_id": "tool_use_id",
        "result": "tool_response",
        "error": "error",
        "subagent": "agent_id",
    }
    if event == "subagent-end":
        known["result"] = "last_assistant_message"
    told |= {known[name]: value for name, value in payload.items() if name in known}
    if "turns" in payload:
        with transcript.open("a", encoding="utf-8") as file:
            for turn in payload["turns"]:
                kind = "user" if turn["speaker"] == "user" else "assistant"
                message = {"role": kind, "content": turn["text"]}
                line = {"type": kind, "uuid": f"{event}-1", "message": message}
                file.write(json.dumps(line) + "\n")
    return told


def by_python(tally: Tally) -> Way:
    """The tally is open in the process that asks."""

    def told(event: str, payload: dict[str, Any], format: HookFormat) -> Any:
        return handle(tally.bind(), event, payload, format)

    return told


def by_process(place: Path, rules: Path) -> Way:
    """Each event is a process, as agents start it."""

    def told(event: str, payload: dict[str, Any], format: HookFormat) -> Any:
        options = ["--rules", str(rules)] if event in DECIDING else []
        command = [sys.executable, "-m", "tallystick_hooks.command", event, *options]
        done = subprocess.run(
            [*command, "--tally", str(place), "--format", format],
            input=json.dumps(payload),
            capture_output=True,
            text=True,
            timeout=120,
        )
        answer = json.loads(done.stdout) if done.stdout.strip() else {}
        assert done.returncode == (2 if answer.get("decision") == "deny" else 0), done.stderr
        return answer

    return told


def open_tally(place: Path, rules: Path) -> Tally:
    return Tally.open(place, owner=Actor(user="ann"), background=False, rules=load_rules(rules))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["neutral", "claude-code"])
def test_every_way_to_answer_an_event_says_and_does_the_same(
    tmp_path: Path, format: HookFormat
) -> None:
    assert {event for event, _ in SESSION} == set(EVENTS)
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    said: dict[str, list[Any]] = {}
    done: dict[str, list[dict[str, Any]]] = {}
    # A process for each event takes its time; what it is told in makes no difference to it.
    ways = ("python", "server") if format == "neutral" else ("python", "process", "server")
    for name in ways:
        place, transcript = tmp_path / name, tmp_path / f"{name}.jsonl"
        with open_tally(place, rules) as tally:
            tally.bind().remember("The staging server is called heron.", pinned=True)
        with ExitStack() as stack:
            if name != "process":
                tally = stack.enter_context(open_tally(place, rules))
            if name == "server":
                socket = place / "serve.sock"
                stack.enter_context(serve_in_background(tally, uds=socket))
            way = by_python(tally) if name == "python" else by_process(place, rules)
            said[name] = []
            for event, payload in SESSION:
                neutral = {"session": "s1", **payload}
                told = (
                    neutral if format == "neutral" else in_claude_code(event, payload, transcript)
                )
                said[name].append({"event": event, "answer": way(event, told, format)})
        with open_tally(place, rules) as tally:
            done[name] = [
                # Which process has rules is told once by each that opens the tally.
                effect
                for effect in effects(tally)
                if effect["event"] != "policy.enforcer"
            ]

    for name in ways:
        assert frozen(said[name]) == frozen(said["python"])
        assert done[name] == done["python"]
    assert frozen(said["python"]) == external_file(f"../fixtures/answers/hooks-{format}.json")
