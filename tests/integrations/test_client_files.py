"""The configuration of clients: one entry in, one out, and everything else as it was."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.terminals import run_piped

from tallystick.errors import InvalidInput, SettingsError
from tallystick_hooks.client_files import json_with, json_without, list_with, list_without
from tallystick_hooks.clients import CLIENTS, change_hooks, change_server

COMMAND = ["tally", "mcp", "--stdio", "--tally", ".tally"]
COMMENTED = """\
// What we agreed on.
{
    "theme": "dark", /* or light */
    "servers": {
        // The other one.
        "other": {"command": "npx", "args": ["-y", "other"]},
    },
    "mcpServers": {"other": {"command": "x"}},
    "context_servers": {},
}
"""
TOML = """\
# Ours.
model = "gpt-5"

[mcp_servers.other]
command = "npx" # the other one

[profiles.x]
model = "y"
"""


def before(client: str) -> str:
    return TOML if client == "codex" else COMMENTED


def parsed(text: str, file: Path) -> Any:
    if file.suffix == ".toml":
        return tomllib.loads(text)
    lines = [line.split("//")[0] for line in text.splitlines()]
    plain = "\n".join(lines).replace("/* or light */", "")
    return json.loads(plain.replace(",\n    }", "\n    }").replace(",\n}", "\n}"))


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_is_put_in_and_taken_out_and_the_rest_stays(
    client: str, scope: Any, tmp_path: Path
) -> None:
    places: dict[str, Any] = {"folder": tmp_path / "project", "home": tmp_path / "home"}
    if client == "windsurf" and scope == "project":
        with pytest.raises(InvalidInput, match="--scope user"):
            change_server(client, scope, COMMAND, **places)
        return
    fresh = change_server(client, scope, COMMAND, **places)
    fresh.file.parent.mkdir(parents=True)
    fresh.file.write_text(before(client))

    change = change_server(client, scope, COMMAND, **places)
    change.write()
    installed = fresh.file.read_text()
    again = change_server(client, scope, COMMAND, **places)
    change_server(client, scope, COMMAND, remove=True, **places).write()

    entry = parsed(installed, fresh.file)[CLIENTS[client].key]["tallystick"]
    words = [entry["command"], *entry["args"]] if "args" in entry else entry["command"]
    assert words == COMMAND
    assert change.backup.read_text() == before(client)
    assert again.diff == ""
    assert [line for line in installed.splitlines() if "tally" not in line] != []
    assert parsed(fresh.file.read_text(), fresh.file) == parsed(before(client), fresh.file)
    for comment in ("// The other one.", "// What we agreed on.", "/* or light */"):
        assert (comment in fresh.file.read_text()) == (client != "codex")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_file_of_our_own_goes_with_the_entry(client: str, tmp_path: Path) -> None:
    change = change_server(client, "user", COMMAND, home=tmp_path)
    change.write()
    assert parsed(change.file.read_text(), change.file)
    change_server(client, "user", COMMAND, remove=True, home=tmp_path).write()

    assert not change.file.exists()
    assert change_server(client, "user", COMMAND, remove=True, home=tmp_path).diff == ""


def test_hooks_stand_beside_those_of_others(tmp_path: Path) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    other = {"matcher": "Bash", "hooks": [{"type": "command", "command": "./check.sh"}]}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [other]}, "model": "x"}, indent=2))
    original = settings.read_text()

    def command(event: str) -> str:
        return f"tally hook {event} --format claude-code"

    change_hooks("project", command, folder=tmp_path).write()
    installed = json.loads(settings.read_text())
    assert change_hooks("project", command, folder=tmp_path).diff == ""
    change_hooks("project", command, remove=True, folder=tmp_path).write()

    assert installed["model"] == "x"
    assert installed["hooks"]["PreToolUse"] == [
        other,
        {
            "matcher": "*",
            "hooks": [
                {
                    "type": "command",
                    "command": "tally hook before-tool --format claude-code",
                    "timeout": 30,
                }
            ],
        },
    ]
    assert {"SessionStart", "UserPromptSubmit", "PreCompact", "SessionEnd"} <= set(
        installed["hooks"]
    )
    assert json.loads(settings.read_text()) == json.loads(original)


def test_hooks_of_others_and_what_a_person_added_to_ours_stay(tmp_path: Path) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    foreign = {"type": "command", "command": "./lint.sh --format claude-code"}
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [foreign]}]}}, indent=2))
    original = settings.read_text()

    def command(event: str, more: str = "") -> str:
        return f"/opt/bin/tally hook {event} --format claude-code{more} --tally .tally"

    change_hooks("project", command, folder=tmp_path).write()
    backup = settings.with_name("settings.json.before-tallystick")
    assert backup.read_text() == original
    backup.unlink()
    installed = json.loads(settings.read_text())
    added = {"type": "command", "command": "./mine.sh"}
    installed["hooks"]["PreToolUse"][1]["hooks"].append(added)
    settings.write_text(json.dumps(installed, indent=2))

    change_hooks(
        "project", lambda event: command(event, " --rules r.toml"), folder=tmp_path
    ).write()
    assert json.loads(backup.read_text()) == installed
    change_hooks("project", command, remove=True, folder=tmp_path).write()

    left = json.loads(settings.read_text())["hooks"]
    assert left == {"PreToolUse": [{"hooks": [foreign]}, {"matcher": "*", "hooks": [added]}]}


OWN_FILES = {
    "indented": '{\n    "model": "x",\n    "hooks": {}\n}\n',
    "in one line": '{"model":"x","mcpServers":{}}',
    "with line ends of Windows": '{\r\n  "model": "x"\r\n}\r\n',
    "with comments": '// mine\n{ "model": "x", /* so */ }\n',
    "empty": "",
    "an empty object": "{ }\n",
}


def hook(event: str) -> str:
    return f"tally hook {event} --format claude-code"


@pytest.mark.parametrize("text", OWN_FILES.values(), ids=OWN_FILES)
@pytest.mark.parametrize("times", [1, 3])
def test_what_was_put_in_is_taken_out_byte_for_byte(text: str, times: int, tmp_path: Path) -> None:
    settings, servers = tmp_path / ".claude" / "settings.json", tmp_path / ".mcp.json"
    settings.parent.mkdir()
    for file in (settings, servers):
        file.write_bytes(text.encode())
        file.chmod(0o640)
    for number in range(times):
        change_hooks("project", lambda event: f"/{number}/{hook(event)}", folder=tmp_path).write()  # noqa: B023
        change_server("claude-code", "project", [f"/{number}/tally"], folder=tmp_path).write()
    assert settings.read_bytes() != text.encode() != servers.read_bytes()
    change_hooks("project", hook, remove=True, folder=tmp_path).write()
    change_server("claude-code", "project", COMMAND, remove=True, folder=tmp_path).write()

    for file in (settings, servers):
        assert file.read_bytes() == text.encode()
        assert file.stat().st_mode & 0o777 == 0o640
        kept = [path.read_bytes() for path in file.parent.glob(f"{file.name}.before-*")]
        assert len(kept) == len(set(kept)) == times
        assert text.encode() in kept
        assert [
            path for path in file.parent.iterdir() if path.name.startswith(f".{file.name}.")
        ] == []


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_loses_nothing(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"note": "of tallystick", "model": "x"}')

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(f"os.{function}", fail)
    with pytest.raises(OSError, match="No space"):
        change_hooks("project", hook, folder=tmp_path).write()
    monkeypatch.undo()
    assert settings.read_text() == '{"note": "of tallystick", "model": "x"}'
    assert [path.name for path in settings.parent.iterdir()] == ["settings.json"]

    change_hooks("project", hook, folder=tmp_path).write()
    [backup] = settings.parent.glob("*.before-tallystick")
    assert backup.read_text() == '{"note": "of tallystick", "model": "x"}'


def test_a_link_stays_one_and_a_file_that_changed_meanwhile_is_left(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles.json", tmp_path / ".mcp.json"
    real.write_text("{}")
    link.symlink_to(real)
    late = change_server("claude-code", "project", COMMAND, folder=tmp_path)
    change_server("claude-code", "project", COMMAND, folder=tmp_path).write()

    assert link.is_symlink()
    assert "tallystick" in real.read_text()
    with pytest.raises(SettingsError, match="changed meanwhile"):
        late.write()


def test_a_file_nested_without_end_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(SettingsError, match="nested too deeply"):
        change_server("claude-code", "project", COMMAND, folder=tmp_path)


def test_a_file_that_is_no_text_is_left_alone(tmp_path: Path) -> None:
    settings = tmp_path / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(SettingsError, match="UTF-8"):
        change_hooks("project", str, folder=tmp_path)
    assert settings.read_bytes() == b'{"a": "\xff"}'


@pytest.mark.parametrize("text", ["[]", '{"a": }', '{"a": 1} x', '{"mcpServers": 5}', "{"])
def test_a_file_that_cannot_be_edited_is_left_alone(text: str, tmp_path: Path) -> None:
    file = tmp_path / ".mcp.json"
    file.write_text(text)

    with pytest.raises(SettingsError):
        change_server("claude-code", "project", COMMAND, folder=tmp_path)
    assert file.read_text() == text
    with pytest.raises(InvalidInput, match="There is no client"):
        change_server("emacs", "project", COMMAND, folder=tmp_path)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=8,
)
_FILES = st.dictionaries(st.text(max_size=4), _VALUES, max_size=4)


@given(_FILES, st.sampled_from([None, 2, "\t"]))
def test_any_file_takes_an_entry_and_gives_it_back(value: dict[str, Any], indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    path = ("our servers", "tallystick")
    entry = {"command": "tally", "args": ["mcp"]}

    with_entry = json_with(text, path, entry)
    assert json.loads(with_entry) == {**value, "our servers": {"tallystick": entry}}
    assert json.loads(json_with(with_entry, path, 5))["our servers"] == {"tallystick": 5}
    assert json.loads(json_without(with_entry, path)) == {**value, "our servers": {}}

    hooked = list_with(list_with(text, ("our hooks", "x"), ["a"]), ("our hooks", "x"), ["b", "c"])
    assert json.loads(hooked) == {**value, "our hooks": {"x": [["a"], ["b", "c"]]}}
    for taken, left in ((["b", "c"], [["a"]]), (["c"], [["a"], ["b"]]), ([], [["a"], ["b", "c"]])):

        def rest(item: Any, taken: list[str] = taken) -> Any:
            return [each for each in item if each not in taken] or None

        without = json.loads(list_without(hooked, ("our hooks", "x"), rest))
        assert without == {**value, "our hooks": {"x": left}}


def _put_on_path(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Put this Python on the path, as an environment that is active does."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(python.parent), prepend=":")


def test_a_server_is_started_before_it_is_written_and_the_tally_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _put_on_path(monkeypatch, tmp_path)
    code, _, errors = run_piped("mcp", "install", "claude-code")

    assert code == 0, errors
    assert f"A new tally: {tmp_path}/.tally" in errors
    assert "✓ the server starts, with 4 tools" in errors
    written = (tmp_path / ".mcp.json").read_text()
    entry = json.loads(written)["mcpServers"]["tallystick"]
    assert [entry["command"], *entry["args"][:3]] == ["python", "-m", "tallystick_cli", "mcp"]
    assert str(tmp_path) not in written


def test_a_server_that_does_not_start_is_not_written_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rules = tmp_path / "rules.toml"
    rules.write_text("")
    _put_on_path(monkeypatch, tmp_path)
    python = tmp_path / "bin" / "python"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *stdio*) echo "no extra of ours" >&2; exit 1;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    code, output, errors = run_piped("mcp", "install", "cursor")
    assert (code, output) == (2, "")
    assert "nothing was written" in errors
    assert "said: no extra of ours" in errors
    assert not (tmp_path / ".cursor").exists()

    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert "No Python on the path has tallystick" in run_piped("mcp", "install", "cursor")[2]
    code, _, errors = run_piped("mcp", "install", "cursor", "--tally", str(tmp_path.parent / "x"))
    assert "is not below this folder" in errors


def test_the_line_of_a_hook_finds_the_tally_wherever_the_agent_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell reads it as Claude Code runs it, with spaces in every place."""
    project = tmp_path / "a project"
    project.mkdir()
    (project / "our rules.toml").write_text("")
    monkeypatch.chdir(project)
    _put_on_path(monkeypatch, tmp_path)
    code, output, errors = run_piped(
        "hook", "install", "--tally", "my tally", "--rules", "our rules.toml", "--json"
    )
    assert code == 0, errors
    assert f"A new tally: {project}/my tally" in errors
    assert "✓ the hooks start" in errors
    assert json.loads(output)["written"]
    settings = json.loads((project / ".claude" / "settings.json").read_text())
    [group] = settings["hooks"]["PreToolUse"]
    line = group["hooks"][0]["command"]
    words = subprocess.run(
        ["sh", "-c", f'printf "%s\\n" {line.partition(" hook ")[2]}'],
        env={"CLAUDE_PROJECT_DIR": str(project), "PATH": "/usr/bin:/bin"},
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    assert words[0] == "before-tool"
    assert words[words.index("--tally") + 1] == f"{project}/my tally"
    assert words[words.index("--rules") + 1] == f"{project}/our rules.toml"
