"""Plugins that are programs, run by Node with the objects that OpenCode and OpenClaw publish: each
event goes to the command of the hooks, and what it answers comes back in the harness's form.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.terminals import run_piped

from tallystick import Tally
from tallystick.tally import BoundTally

from .harness_sessions import ANSWERED, SAID
from .test_harness_paths import calls, turns

_NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(_NODE is None, reason="needs Node")
RULES = """
[[rules]]
id = "no-force"
name = "Nothing is pushed by force"
effect = "deny"
applies_to = "tool_call"
conditions = { tool = ["force_push"] }

[[rules]]
id = "clean"
name = "No addresses in mails"
effect = "redact"
applies_to = "tool_call"
conditions = { tool = ["mail"] }
"""
_OPENCODE = """
import { Tallystick } from "FILE"
const messages = [
  { info: { id: "msg_1", role: "user", summary: { diffs: [] } },
    parts: [{ type: "text", text: SAID }, { type: "text", text: "<context>", synthetic: true }] },
  { info: { id: "msg_2", role: "assistant" }, parts: [{ type: "text", text: ANSWERED }] },
  { info: { id: "msg_3", role: "assistant", summary: true }, parts: [{ type: "text", text: "S" }] },
]
const messagesOf = async ({ path }) => ({ data: path.id === "s1" ? messages : [] })
const client = { session: { messages: messagesOf } }
const hooks = await Tallystick({ client, directory: "/home/ada/apollo" })
const sessionID = "s1"
const asked = async (id) => {
  const parts = [{ id: "prt_1", sessionID, messageID: id, type: "text", text: SAID }]
  await hooks["chat.message"]({ sessionID }, { message: { id, role: "user" }, parts })
  return parts.slice(1)
}
const before = async (tool, args) => {
  try {
    await hooks["tool.execute.before"]({ tool, sessionID, callID: tool }, { args })
    return args
  } catch (error) { return error.message }
}
const found = { first: await asked("msg_1"), second: await asked("msg_9") }
found.denied = await before("force_push", { branch: "main" })
found.cleaned = await before("mail", { text: "Write to ann@example.com" })
for (let told = 0; told < 2; told++) {
  const call = { tool: "bash", sessionID, callID: "c1", args: { command: "ls" } }
  await hooks["tool.execute.after"](call, { title: "", output: "a b", metadata: {} })
  const failed = { status: "error", input: {}, error: "No such file" }
  const part = { type: "tool", tool: "read", callID: "c2", sessionID, state: failed }
  await hooks.event({ event: { type: "message.part.updated", properties: { part } } })
  await hooks.event({ event: { type: "session.idle", properties: { sessionID } } })
}
await hooks["experimental.session.compacting"]({ sessionID }, { context: [] })
await hooks.event({ event: { type: "session.compacted", properties: { sessionID } } })
found.compacted = await asked("msg_10")
await hooks.event({ event: { type: "file.edited", properties: { file: "x" } } })
await hooks.dispose()
console.log(JSON.stringify(found))
"""
_OPENCLAW = """
import plugin from "FILE"
const handlers = {}
plugin.register({ on: (name, handler) => { handlers[name] = handler } })
const ctx = { sessionId: "s1", sessionKey: "agent:main", workspaceDir: "/home/ada/apollo" }
const now = Date.now() + 1000
const messages = [
  { role: "user", content: "From before the program began.", timestamp: 5 },
  { role: "user", content: SAID, timestamp: now },
  { role: "assistant", content: [{ type: "text", text: ANSWERED }], timestamp: now + 1 },
  { role: "toolResult", content: [{ type: "text", text: "a b" }], timestamp: now + 2 },
]
const asked = (id, at = ctx) => handlers.before_prompt_build(
  { prompt: "[c] " + SAID, currentUserMessage: SAID, currentUserMessageId: id, messages: [] }, at)
const before = (toolName, params) => handlers.before_tool_call(
  { toolName, params, toolCallId: toolName }, { ...ctx, toolName })
const found = { first: await asked("m1"), second: await asked("m9") }
found.denied = await before("force_push", { branch: "main" })
found.cleaned = await before("mail", { text: "Write to ann@example.com" })
const call = { toolName: "bash", params: { command: "ls" }, toolCallId: "c1", result: "a b" }
await handlers.after_tool_call(call, { ...ctx, toolName: "bash" })
await handlers.after_tool_call({ toolName: "read", params: {}, toolCallId: "c2", error: "No" }, ctx)
await handlers.agent_end({ messages, success: true }, ctx)
await handlers.before_compaction({ messageCount: 3, messages }, ctx)
const later = { ...ctx, sessionId: "s2" }
const compacted = { messageCount: 1, compactedCount: 2, previousSessionId: "s1" }
await handlers.after_compaction(compacted, later)
await handlers.agent_end({ messages, success: true }, later)
found.compacted = await asked("m10", later)
await handlers.session_end({ sessionId: "s2", messageCount: 3, reason: "idle" }, later)
console.log(JSON.stringify(found))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (tmp_path / "rules.toml").write_text(RULES)
    with Tally.open(tmp_path / ".tally", background=False) as tally:
        tally.bind().remember(ANSWERED, pinned=True, kind="constraint")
    return tmp_path


def plugin_of(place: Path, harness: str, *options: str) -> Path:
    """Install the plugin of a harness, and return its program."""
    code, _, error = run_piped("hook", "install", harness, "--scope", "user", *options)
    assert code == 0, error
    [program] = (
        file for file in (place / "home").rglob("*.js") if "tally hook install" in file.read_text()
    )
    return program


def run_by_node(program: Path, script: str) -> dict[str, Any]:
    text = script.replace("FILE", program.as_uri())
    text = text.replace("SAID", json.dumps(SAID)).replace("ANSWERED", json.dumps(ANSWERED))
    # OpenCode's runtime takes every file for a module; Node asks for its name.
    copy = program.with_suffix(".mjs")
    shutil.copy(program, copy)
    text = text.replace(program.as_uri(), copy.as_uri())
    ended = subprocess.run(
        [str(_NODE), "--input-type=module", "-e", text],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    copy.unlink()
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def texts_of_opencode(parts: list[dict[str, Any]] | None) -> list[str]:
    parts = parts or []
    assert all(part["type"] == "text" and part["synthetic"] for part in parts)
    assert all(part["id"].startswith("prt_") for part in parts)
    assert len({part["id"] for part in parts}) == len(parts)
    return [part["text"] for part in parts]


def texts_of_openclaw(answer: dict[str, str] | None) -> list[str]:
    return [] if answer is None else [answer["prependContext"]]


HARNESSES: dict[str, tuple[str, Callable[[Any], list[str]], Any]] = {
    "opencode": (_OPENCODE, texts_of_opencode, lambda denied: denied),
    "openclaw": (_OPENCLAW, texts_of_openclaw, lambda denied: denied["blockReason"]),
}


@pytest.mark.parametrize("harness", HARNESSES)
def test_a_session_of_a_plugin_is_kept_and_gets_what_is_remembered(
    place: Path, harness: str
) -> None:
    script, texts, reason = HARNESSES[harness]
    program = plugin_of(place, harness, "--rules", "rules.toml")

    found = run_by_node(program, script)

    assert any("<tallystick-context" in text and ANSWERED in text for text in texts(found["first"]))
    assert texts(found.get("second")) == [], "what it was shown is in its prompt"
    assert any(ANSWERED in text for text in texts(found["compacted"]))
    assert "no-force" in reason(found["denied"]) or "by force" in reason(found["denied"])
    cleaned = found["cleaned"].get("params", found["cleaned"])
    assert set(cleaned) == {"text"}
    assert "ann@example.com" not in cleaned["text"]
    with Tally.open(place / ".tally", background=False) as tally:
        bound = tally.bind()
        assert turns(bound) == {SAID: 1, ANSWERED: 1}
        assert sorted(map(str, calls(bound))) == ["bash", "read"]
        assert paths_of(bound) == {"user-plugin"}


def paths_of(bound: BoundTally) -> set[Any]:
    return {run.metadata.get("path") for run in bound.recordings.runs(limit=200)}


@pytest.mark.parametrize(("options", "refused"), [((), False), (("--rules", "rules.toml"), True)])
@pytest.mark.parametrize("harness", HARNESSES)
def test_a_program_that_is_missing_stops_a_tool_under_rules_and_nothing_else(
    place: Path, harness: str, options: tuple[str, ...], refused: bool
) -> None:
    """Hooks that are commands cannot do this: a client goes on where their program is missing."""
    program = plugin_of(place, harness, *options)
    program.write_text(program.read_text().replace(json.dumps(sys.executable), '"/gone/python"'))

    found = run_by_node(program, HARNESSES[harness][0])

    assert HARNESSES[harness][1](found.get("first")) == []
    if refused:
        assert "could not be checked" in json.dumps(found["cleaned"])
    else:
        assert found.get("denied") in (None, {"branch": "main"}), "it runs"


def test_a_plugin_of_a_project_names_no_machine(place: Path) -> None:
    """It runs in the folder that it lies in, wherever that is."""
    code, _, error = run_piped("hook", "install", "opencode")
    if code:
        pytest.skip(error)
    program = place / ".opencode" / "plugins" / "tallystick.js"
    assert str(place) not in program.read_text()
    moved = place / "elsewhere"
    moved.mkdir()
    for name in (".tally", ".opencode"):
        (place / name).rename(moved / name)

    found = run_by_node(moved / ".opencode" / "plugins" / "tallystick.js", _OPENCODE)

    assert any(ANSWERED in text for text in texts_of_opencode(found["first"]))
    assert not (place / ".tally").exists()
