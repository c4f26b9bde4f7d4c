"""Clients whose configuration we know: where it is, and what an entry of ours looks like."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tallystick.errors import InvalidInput, SettingsError
from tallystick_hooks.client_files import (
    json_with,
    json_without,
    list_with,
    list_without,
    toml_with,
    toml_without,
)
from tallystick_hooks.events import EVENTS
from tallystick_hooks.formats import CLAUDE_EVENTS

ClientScope = Literal["project", "user"]
NAME = "tallystick"
_OUR_HOOK = re.compile(rf" hook (?:{'|'.join(EVENTS)}) --format claude-code(?![\w-])")
"""The part of the line of a hook that is the same wherever the program and the tally are."""


class _Client(NamedTuple):
    """How a client is configured."""

    project: str | None
    """The file of a project, below its folder; None where the client has none."""
    user: str
    """The file of a user, below the home."""
    key: str
    """The table of the servers."""
    extra: Mapping[str, Any] = {}
    """What else stands in an entry."""
    in_one: bool = False
    """True if program and arguments are one list."""


_CODE = "Library/Application Support" if sys.platform == "darwin" else ".config"
_CODEX, _CURSOR = ".codex/config.toml", ".cursor/mcp.json"
_GEMINI = ".gemini/settings.json"
CLIENTS: Mapping[str, _Client] = {
    "claude-code": _Client(".mcp.json", ".claude.json", "mcpServers"),
    "cursor": _Client(_CURSOR, _CURSOR, "mcpServers"),
    "vscode": _Client(
        ".vscode/mcp.json", f"{_CODE}/Code/User/mcp.json", "servers", extra={"type": "stdio"}
    ),
    "codex": _Client(_CODEX, _CODEX, "mcp_servers"),
    "zed": _Client(".zed/settings.json", ".config/zed/settings.json", "context_servers"),
    "gemini-cli": _Client(_GEMINI, _GEMINI, "mcpServers"),
    "opencode": _Client(
        "opencode.json",
        ".config/opencode/opencode.json",
        "mcp",
        extra={"type": "local", "enabled": True},
        in_one=True,
    ),
    "windsurf": _Client(None, ".codeium/windsurf/mcp_config.json", "mcpServers"),
    "copilot-cli": _Client(
        ".github/mcp.json",
        ".copilot/mcp-config.json",
        "mcpServers",
        extra={"type": "local", "tools": ["*"]},
    ),
}


@dataclass(frozen=True)
class Change:
    """A change of a client's file, not made yet."""

    file: Path
    before: str
    after: str
    is_restored: bool = False
    """True where `after` is the file as it was before the first change of ours."""

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty where nothing changes."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, str(self.file), str(self.file)))

    @property
    def backup(self) -> Path:
        """Where the file is kept as it is before the change: beside it, under a name that nothing
        else has.
        """
        return next(
            path
            for path in _backup_names(self.file)
            if not path.exists() or _text_of(path) == self.before
        )

    def write(self) -> None:
        """Write the file whole or not at all, after a copy of the file as it is: beside it, and
        then under its name. A file that has nothing but an entry of ours is removed with it.

        Raises SettingsError where somebody has changed the file meanwhile, and OSError; then the
        file is as it was.
        """
        if self.before == self.after:
            return
        # What a person made a link to stays where it is.
        file = self.file.resolve()
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
        elif _text_of(file) != self.before:
            raise SettingsError(f"{self.file} was changed meanwhile. Do it again.")
        elif not self.is_restored and not self.backup.exists():
            write_whole(self.backup, self.before, like=file)
        if self.is_restored or not _is_empty(self.after):
            write_whole(file, self.after, like=file)
        else:
            file.unlink(missing_ok=True)


def _backup_names(file: Path) -> Iterator[Path]:
    for number in count(1):
        end = "" if number == 1 else f"-{number}"
        yield file.with_name(f"{file.name}.before-tallystick{end}")


def _backups(file: Path) -> list[str]:
    """Return the copies of a file that were kept, the oldest first."""
    return [_text_of(path) for path in takewhile(Path.exists, _backup_names(file))]


def write_whole(file: Path, text: str, *, like: Path) -> None:
    """Write a text beside a file and then under its name, so that whatever happens there is the old
    one or the new one; readable for those for whom `like` is, or for its user alone.
    """
    handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as opened:
            opened.write(text.encode())
            opened.flush()
            os.fsync(opened.fileno())
        if like.exists():
            shutil.copymode(like, beside)
        os.replace(beside, file)
    except BaseException:
        os.unlink(beside)
        raise
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_empty(text: str) -> bool:
    if not text.strip():
        return True
    try:
        value = json.loads(text)
    except ValueError:
        return False
    while isinstance(value, dict) and len(value) == 1:
        [value] = value.values()
    return bool(value == {})


def change_server(
    client: str,
    scope: ClientScope,
    command: Sequence[str],
    *,
    remove: bool = False,
    folder: Path | None = None,
    home: Path | None = None,
) -> Change:
    """Return the change that puts the MCP server into a configuration, or out of it."""
    files = CLIENTS.get(client)
    if files is None:
        raise InvalidInput(f"There is no client {client!r}. Clients are: {', '.join(CLIENTS)}.")
    name = files.project if scope == "project" else files.user
    if name is None:
        raise InvalidInput(f"{client} reads no configuration of a project. Use --scope user.")
    file = _file(name, scope, folder, home)
    words = {"command": command[0], "args": list(command[1:])}
    entry = {**files.extra, **({"command": list(command)} if files.in_one else words)}

    def put_in(text: str) -> str:
        if file.suffix == ".toml":
            return toml_with(text, f"{files.key}.{NAME}", entry)
        return json_with(text, (files.key, NAME), entry)

    def take_out(text: str) -> str:
        if file.suffix == ".toml":
            return toml_without(text, f"{files.key}.{NAME}")
        return json_without(text, (files.key, NAME))

    return _change(file, put_in, take_out, remove)


def change_hooks(
    scope: ClientScope,
    command: Callable[[str], str],
    *,
    remove: bool = False,
    folder: Path | None = None,
    home: Path | None = None,
) -> Change:
    """Return the change that puts the hooks into the settings of Claude Code, or out of them.
    `command` writes the line of the shell for an event. Raises SettingsError.
    """
    file = _file(".claude/settings.json", scope, folder, home)

    def put_in(text: str) -> str:
        for original, event in CLAUDE_EVENTS.items():
            path = ("hooks", original)
            if text.strip():
                text = list_without(text, path, _without_ours)
            text = list_with(text, path, _hook(original, command(event)))
        return text

    def take_out(text: str) -> str:
        for original in CLAUDE_EVENTS:
            text = list_without(text, ("hooks", original), _without_ours)
        return text

    return _change(file, put_in, take_out, remove)


def _without_ours(group: Any) -> Any:
    """Return a group of hooks without ours; None where it has no other."""
    hooks = group.get("hooks") if isinstance(group, dict) else None
    if not isinstance(hooks, list):
        return group
    rest = [
        hook
        for hook in hooks
        if not (isinstance(hook, dict) and _OUR_HOOK.search(str(hook.get("command", ""))))
    ]
    if len(rest) == len(hooks):
        return group
    return {**group, "hooks": rest} if rest else None


def _hook(original: str, command: str) -> dict[str, Any]:
    hook = {"hooks": [{"type": "command", "command": command, "timeout": 30}]}
    return {"matcher": "*", **hook} if "Tool" in original else hook


def _change(
    file: Path, put_in: Callable[[str], str], take_out: Callable[[str], str], remove: bool
) -> Change:
    """Return a change of a file. What is taken out of a file in which nothing else was changed
    leaves it as it was before, byte for byte. Raises SettingsError.
    """
    before = _text_of(file) if file.exists() else ""
    try:
        if not remove:
            return Change(file, before, _with_its_lines(before, put_in))
        if not before.strip():
            return Change(file, before, before)
        after = _with_its_lines(before, take_out)
        if after != before:
            for earlier in _backups(file):
                if _is_without_ours(earlier, take_out) and after == _put_in_and_out(
                    earlier, put_in, take_out
                ):
                    return Change(file, before, earlier, is_restored=True)
        return Change(file, before, after)
    except RecursionError as error:
        raise SettingsError(f"{file} is nested too deeply. Edit it by hand.") from error


def _is_without_ours(text: str, take_out: Callable[[str], str]) -> bool:
    return not text.strip() or _with_its_lines(text, take_out) == text


def _put_in_and_out(text: str, put_in: Callable[[str], str], take_out: Callable[[str], str]) -> str:
    return _with_its_lines(_with_its_lines(text, put_in), take_out)


def _with_its_lines(text: str, change: Callable[[str], str]) -> str:
    """Return a text as a change leaves it, with the line ends that it has."""
    lines = text.count("\r\n")
    if not lines or lines != text.count("\n"):
        return change(text)
    return change(text.replace("\r\n", "\n")).replace("\n", "\r\n")


def _text_of(file: Path) -> str:
    """Return the text of a file, with its line ends. Raises SettingsError."""
    try:
        return file.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is no text in UTF-8. Mend it first.") from error


def _file(name: str, scope: ClientScope, folder: Path | None, home: Path | None) -> Path:
    return ((folder or Path.cwd()) if scope == "project" else (home or Path.home())) / name
