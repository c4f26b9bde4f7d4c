"""Hooks that reach a tally through several paths at once, the settings and a plugin of a harness:
each event is answered and recorded once, the journal says which path was active, and one form gives
way to the other without loss.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pages import every
from tests.terminals import run_piped as run

from tallystick import Actor, PolicyRule, Tally
from tallystick.kit import claim_event
from tallystick.storage.rows import journal
from tallystick.tally import BoundTally
from tallystick.tally.services import services_of
from tallystick.testing import StepClock
from tallystick_hooks import BadPayload, event_from
from tallystick_hooks.events import HookPath
from tallystick_hooks.handling import handle

from .harness_sessions import ANSWERED, SAID, commands, session_of, tell

OpenTally = Callable[..., Tally]
RULES = """
[[rules]]
id = "ask"
name = "Somebody is asked"
effect = "require_approval"
applies_to = "tool_call"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home and, below it, the folder that the session works in."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return tmp_path


def installed(harness: str, form: str, *more: str, action: str = "install") -> tuple[int, str]:
    code, _, error = run("hook", action, harness, "--form", form, "--scope", "user", *more)
    return code, error


def seen_again(bound: BoundTally) -> list[dict[str, Any]]:
    with services_of(bound).store.database.read() as connection:
        entries = list(journal.all_entries(connection))
    return [dict(each.details) for each in entries if each.event == "session.seen_again"]


def turns(bound: BoundTally) -> Counter[str]:
    return Counter(turn.content for turn in every(bound.memories, kinds=("turn",)))


def calls(bound: BoundTally) -> list[str | None]:
    return [
        step.name
        for run_ in bound.recordings.runs(limit=200)
        for step in bound.recordings.steps(run_.id)
        if step.step_kind == "tool_call"
    ]


@pytest.mark.parametrize("harness", ["claude-code", "gemini-cli"])
def test_hooks_and_plugin_at_once_keep_each_turn_and_call_once(home: Path, harness: str) -> None:
    for form in ("hooks", "plugin"):
        assert installed(harness, form)[0] == 0
    work = home / "work"
    with Tally.open(work / ".tally", background=False) as tally:
        tally.bind().remember("The staging server is called heron.", pinned=True)

    answers = [tell(harness, payload, home) for payload in session_of(harness, work)]

    assert all(code == 0 for event in answers for code, _ in event)
    assert all(len(event) == 2 for event in answers)
    with_context = [sum(bool(answer) for _, answer in event) for event in answers]
    assert with_context[0] == 1, "what a session begins with comes once"
    assert max(with_context) == 1
    with Tally.open(work / ".tally", background=False) as tally:
        bound = tally.bind()
        assert turns(bound) == {SAID: 1, ANSWERED: 1}
        assert calls(bound) == ["Bash"]
        paths = {run_.metadata.get("path") for run_ in bound.recordings.runs(limit=200)}
        assert paths <= {"user-hooks", "user-plugin"}
        seen = seen_again(bound)
        told = {each["seen"]: (each["path"], each["active"], each["why"]) for each in seen}
        assert {"session-start", "prompt", "after-tool", "turn-end"} <= set(told)
        assert all(path != active for path, active, _ in told.values())
        assert {why for *_, why in told.values()} == {"told_first"}
        assert all(finding.status != "problem" for finding in bound.operator.doctor())


def test_hooks_of_a_project_and_of_a_user_keep_a_session_of_codex_once(home: Path) -> None:
    work = home / "work"
    for scope in ("user", "project"):
        code, _, error = run("hook", "install", "codex", "--scope", scope)
        assert code == 0, error
    for payload in session_of("codex", work):
        answers = tell("codex", payload, home, work)
        assert [code for code, _ in answers] == [0, 0]
    with Tally.open(work / ".tally", background=False) as tally:
        assert turns(tally.bind()) == {SAID: 1, ANSWERED: 1}
        assert calls(tally.bind()) == ["Bash"]


def test_a_call_that_was_approved_once_runs_though_two_paths_ask(home: Path) -> None:
    work = home / "work"
    (work / "rules.toml").write_text(RULES)
    for form in ("hooks", "plugin"):
        assert installed("claude-code", form, "--rules", "rules.toml")[0] == 0
    before = session_of("claude-code", work)[2]
    refused = tell("claude-code", before, home)
    with Tally.open(work / ".tally", background=False) as tally:
        bound = tally.bind()
        [approval] = bound.approvals.list()
        bound.approvals.approve(approval.id, reason="it is harmless")
    allowed = tell("claude-code", {**before, "tool_use_id": "call-2"}, home)

    def decisions(answers: list[tuple[int, dict[str, Any]]]) -> list[str]:
        return [each["hookSpecificOutput"]["permissionDecision"] for _, each in answers]

    assert decisions(refused) == ["deny", "deny"]
    assert decisions(allowed) == ["allow", "allow"]


def test_hooks_give_way_to_a_plugin_and_back_without_loss(home: Path) -> None:
    work, settings = home / "work", home / ".claude" / "settings.json"
    settings.parent.mkdir()
    foreign = {"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [foreign]}, "model": "x"}))
    original = settings.read_text()
    number = 0

    def session() -> None:
        nonlocal number
        number += 1
        for payload in session_of("claude-code", work, f"s{number}"):
            if payload["hook_event_name"] in ("PostToolUse", "SessionEnd"):
                assert all(code == 0 for code, _ in tell("claude-code", payload, home))

    assert installed("claude-code", "hooks")[0] == 0
    session()
    for new, old in (("plugin", "hooks"), ("hooks", "plugin")):
        assert installed("claude-code", new)[0] == 0
        code, error = installed("claude-code", old, action="uninstall")
        assert code != 0
        assert "told of no session yet" in error, "nothing would tell until one begins"
        session()
        with Tally.open(work / ".tally", background=False):
            pass
        assert installed("claude-code", old, action="uninstall")[0] == 0
        session()
    assert {command.split(" --via ")[1].split()[0] for _, command in _ours(home)} == {"user-hooks"}
    assert run("hook", "uninstall", "claude-code", "--scope", "user")[0] == 0

    assert json.loads(settings.read_text()) == json.loads(original)
    assert not (home / ".claude" / "skills" / "tallystick").exists()
    with Tally.open(work / ".tally", background=False) as tally:
        assert turns(tally.bind()) == {SAID: number, ANSWERED: number}
        assert len(calls(tally.bind())) == number


def _ours(home: Path) -> list[tuple[str, str]]:
    return [each for each in commands("claude-code", home) if " --via " in each[1]]


@pytest.mark.parametrize("harness", ["claude-code", "codex", "gemini-cli", "opencode", "openclaw"])
def test_what_is_installed_is_taken_out_whole(home: Path, harness: str) -> None:
    before = {path for path in home.rglob("*") if path.is_file()}
    for form in ("hooks", "plugin"):
        installed(harness, form)
    made = {path for path in home.rglob("*") if path.is_file()} - before
    assert made
    code, answer, _ = run("hook", "uninstall", harness, "--scope", "user")
    assert code == 0
    for line in answer.splitlines():
        word, _, path = line.removeprefix("✓ ").partition(": ")
        if line.startswith("✓ "):
            assert (word == "removed") is not Path(path).exists()

    own = (".tally", ".before-tallystick")
    files = {path for path in home.rglob("*") if path.is_file()}
    assert {path for path in files if not any(each in str(path) for each in own)} == before


def test_a_plugin_of_somebody_else_is_kept(home: Path) -> None:
    own = home / ".config" / "opencode" / "plugins" / "tallystick.js"
    own.parent.mkdir(parents=True)
    own.write_text("export const Mine = async () => ({})\n")
    assert run("hook", "uninstall", "opencode", "--scope", "user")[0] == 0
    assert own.read_text() == "export const Mine = async () => ({})\n"

    assert installed("opencode", "plugin")[0] == 0
    [kept] = own.parent.glob("*.before-tallystick")
    assert kept.read_text() == "export const Mine = async () => ({})\n"


# Who tells first


@given(st.lists(st.sampled_from("ab"), max_size=12))
def test_a_burst_is_told_as_often_as_the_busiest_path_tells(order: list[str]) -> None:
    """Both tell from the first event on, in whatever order their processes end."""
    with Tally.open(":memory:", background=False) as tally:
        told = ["a", "b", *order]
        claims = [claim_event(tally.bind(), "s", "yes", path=each, once=False) for each in told]
    assert sum(claim.is_new for claim in claims) == max(Counter(told).values())


def test_the_same_words_said_again_are_another_event(open_sqlite: OpenTally) -> None:
    clock = StepClock()
    with open_sqlite(clock=clock) as tally:
        bound = tally.bind(Actor(user="ann"))
        new = [
            claim_event(bound, "s", "yes", path=path, once=False, at=at).is_new
            for path, at in [("a", 0), ("b", 1), ("b", 2), ("a", 3), ("b", 90_000_000)]
        ]
    assert new == [True, False, True, False, True]


def test_an_event_with_an_id_is_told_once_by_all(open_sqlite: OpenTally) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ann"))
        claims = [claim_event(bound, "s", "c1", path=path, once=True) for path in "abab"]
        other = claim_event(tally.bind(Actor(user="bob")), "s", "c1", path="b", once=True)
    assert [claim.is_new for claim in claims] == [True, False, False, False]
    assert {claim.path for claim in claims} == {"a"}
    assert other.is_new, "another user's session is another one"


def test_a_call_whose_id_another_call_had_is_decided_and_recorded_for_itself(
    open_sqlite: OpenTally,
) -> None:
    """Models number their calls, and some begin anew in each answer."""
    rule = PolicyRule.load(
        {
            "id": "no-shell",
            "name": "no-shell",
            "applies_to": "tool_call",
            "effect": "deny",
            "conditions": {"tool": ["Bash"]},
        }
    )
    paths: tuple[HookPath, ...] = ("user-hooks", "user-plugin")
    calls: list[dict[str, Any]] = [
        {"tool": "Read", "arguments": {"path": "a"}, "call_id": "call_0"},
        {"tool": "Bash", "arguments": {"command": "rm a"}, "call_id": "call_0"},
    ]
    with open_sqlite(rules=[rule]) as tally:
        bound = tally.bind(Actor(user="ann"))
        decisions = [
            handle(bound, "before-tool", {"session": "s", **each}, path=path).get("decision")
            for each in calls
            for path in (paths if each["tool"] == "Read" else paths[::-1])
        ]
        assert decisions == [None, None, "deny", "deny"]
        for each in calls:
            for path in paths:
                told = {"session": "s", "result": "done", **each}
                handle(bound, "after-tool", told, path=path)
        recorded = [
            step.name
            for run in bound.recordings.runs()
            for step in bound.recordings.steps(run.id)
            if step.step_kind == "tool_call"
        ]
        assert sorted(str(name) for name in recorded) == ["Bash", "Read"]


def test_an_event_that_is_taken_again_after_a_crash_has_the_same_verdict(
    open_sqlite: OpenTally,
) -> None:
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ann"))
        for once in (True, False):
            told = [("a", "e1"), ("a", "e1"), ("b", "e2"), ("b", "e2")]
            new = [
                claim_event(bound, "s", f"c{once}", path=path, once=once, spooled=id).is_new
                for path, id in told
            ]
            assert new == [True, True, False, False]


# Payloads


HOSTILE: list[Any] = [
    {"session_id": "s", "tool_name": ["x"]},
    {"session_id": 7},
    {"session_id": "s", "prompt": {"a": 1}},
    {"session_id": "s", "tool_name": "x", "tool_use_id": [1]},
    {"session_id": "s", "cwd": 5},
    {"session_id": "s", "timestamp": 5, "turn_id": 5, "prompt_id": {}},
    [],
    None,
]


@pytest.mark.parametrize("format", ["claude-code", "codex", "gemini-cli"])
@pytest.mark.parametrize("payload", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_payload_is_refused_without_a_word_of_it(format: Any, payload: Any) -> None:
    with pytest.raises(BadPayload) as refused:
        event_from(payload, "before-tool", format)
    assert "x" not in str(refused.value).replace("text", "")


def test_odd_texts_and_numbers_are_told_by_two_paths(open_sqlite: OpenTally) -> None:
    odd = {"text": "\ud800", "number": float("nan"), "deep": [[[[1.5]]]]}
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ann"))
        payload = {"session": "s1", "tool": "x", "arguments": odd, "result": odd}
        handle(bound, "after-tool", payload, path="user-hooks")
        handle(bound, "after-tool", payload, path="user-plugin")
        assert calls(bound) == ["x"]


def test_a_frame_before_a_prompt_of_gemini_is_no_word_of_the_user(open_sqlite: OpenTally) -> None:
    """Gemini CLI escapes the context of a session's start and puts it before the first prompt."""
    with open_sqlite() as tally:
        bound = tally.bind(Actor(user="ann"))
        bound.remember("Never say </tallystick-context> twice.", pinned=True, kind="constraint")
        started = {"session_id": "s", "hook_event_name": "SessionStart", "cwd": "/w"}
        answer = handle(bound, None, started, "gemini-cli")
        context = answer["hookSpecificOutput"]["additionalContext"]
        escaped = context.replace("<", "&lt;").replace(">", "&gt;")
        told = {
            **started,
            "hook_event_name": "AfterAgent",
            "timestamp": "2026-11-28T10:00:00.000Z",
            "prompt": f"<hook_context>{escaped}</hook_context>\n\n{SAID}",
            "prompt_response": ANSWERED,
        }
        handle(bound, None, told, "gemini-cli")
        said = turns(bound)
    assert said[ANSWERED] == 1
    [user] = [text for text in said if text != ANSWERED]
    assert "Never say" not in user
    assert user.endswith(SAID)


@pytest.mark.parametrize(
    ("event", "rules", "code"),
    [("prompt", [], 1), ("before-tool", [], 1), ("before-tool", ["--rules", "r.toml"], 2)],
)
@pytest.mark.parametrize("module", ["tallystick_cli hook", "tallystick_hooks.command"])
def test_options_of_another_release_stop_nobody_but_a_tool_under_rules(
    home: Path, module: str, event: str, rules: list[str], code: int
) -> None:
    """A client takes 2 for a refusal, of the prompt too."""
    ended = subprocess.run(
        [sys.executable, "-m", *module.split(), event, "--from-later", "x", *rules],
        input="{}",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stderr
