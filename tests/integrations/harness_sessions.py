"""Sessions of coding harnesses: payloads as the harnesses publish them, and their hooks run as they
run them, from the files that an installation wrote: all of an event at once, through a shell.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tallystick_hooks.harnesses import HARNESSES

SAID = "What is the staging server called?"
ANSWERED = "The staging server is called heron."
_CALL = {
    "tool_name": "Bash",
    "tool_input": {"command": "echo heron"},
    "tool_response": {"stdout": "heron"},
}


def transcript(folder: Path) -> Path:
    """Write what was said, as Claude Code keeps it."""
    file = folder / "transcript.jsonl"
    said = [("user", "u1", SAID), ("assistant", "a1", ANSWERED)]
    lines = [
        {"type": role, "uuid": key, "message": {"role": role, "content": text}}
        for role, key, text in said
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def session_of(harness: str, folder: Path, session: str = "s1") -> list[dict[str, Any]]:
    """Return the payloads of a session in which one prompt makes one call of a tool."""
    base = {"session_id": session, "cwd": str(folder), "transcript_path": None}
    if harness == "claude-code":
        base["transcript_path"] = str(transcript(folder))
    turn = {"turn_id": "t1"} if harness == "codex" else {}
    call = _CALL if harness == "gemini-cli" else {**_CALL, "tool_use_id": "call-1"}
    if harness == "gemini-cli":
        told: list[tuple[str, dict[str, Any]]] = [
            ("SessionStart", {"source": "startup"}),
            ("BeforeAgent", {"prompt": SAID}),
            ("BeforeTool", {name: call[name] for name in ("tool_name", "tool_input")}),
            ("AfterTool", call),
            ("AfterAgent", {"prompt": SAID, "prompt_response": ANSWERED}),
            ("PreCompress", {"trigger": "auto"}),
            ("SessionEnd", {"reason": "exit"}),
        ]
        return [
            {**base, **more, "hook_event_name": name, "timestamp": f"2026-11-28T10:00:{n:02}.000Z"}
            for n, (name, more) in enumerate(told)
        ]
    last: dict[str, Any] = {"last_assistant_message": ANSWERED, "stop_hook_active": False}
    told = [
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": SAID, **turn}),
        ("PreToolUse", {**call, **turn}),
        ("PostToolUse", {**call, **turn}),
        ("Stop", {**last, **turn}),
        ("PreCompact", {"trigger": "auto", **turn}),
        ("SessionEnd", {"reason": "other"}),
    ]
    return [{**base, **more, "hook_event_name": name} for name, more in told]


def commands(harness: str, *places: Path) -> Iterator[tuple[str, str]]:
    """Yield the commands that are installed for each event, from the settings and the plugins below
    folders.
    """
    known = HARNESSES[harness]
    assert known.hooks is not None
    files = [known.hooks.file]
    if known.plugin is not None:
        files.append(f"{known.plugin.user}/hooks/hooks.json")
    for place in places:
        for file in files:
            if not (place / file).exists():
                continue
            for event, groups in json.loads((place / file).read_text()).get("hooks", {}).items():
                for group in groups:
                    yield from ((event, hook["command"]) for hook in group["hooks"])


def tell(
    harness: str, payload: dict[str, Any], *places: Path, **environment: str
) -> list[tuple[int, dict[str, Any]]]:
    """Run every hook of an event at once; return their codes and answers."""
    name = payload["hook_event_name"]
    running = [
        subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=payload["cwd"],
            env={**os.environ, **environment},
        )
        for event, command in commands(harness, *places)
        if event == name
    ]
    for each in running:
        assert each.stdin is not None
        each.stdin.write(json.dumps(payload))
        each.stdin.close()
        each.stdin = None
    answers = []
    for each in running:
        out, err = each.communicate(timeout=120)
        assert "Traceback" not in err, err
        answers.append((each.returncode, json.loads(out) if out else {}))
    return answers
