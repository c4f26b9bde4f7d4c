"""Clients whose configuration we know: where it is, and what an entry of ours looks like."""

from __future__ import annotations

import difflib
import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tallystick.errors import InvalidInput, SettingsError
from tallystick_cli.client_files import (
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

    project: str
    """The file of a project, below its folder."""
    user: str
    """The file of a user, below the home."""
    key: str
    """The table of the servers."""
    answers: Literal["structured", "text"] = "text"
    """What the client shows its model of an answer."""
    extra: Mapping[str, str] = {}


_CODE = "Library/Application Support" if sys.platform == "darwin" else ".config"
_CODEX, _CURSOR = ".codex/config.toml", ".cursor/mcp.json"
CLIENTS: Mapping[str, _Client] = {
    "claude-code": _Client(".mcp.json", ".claude.json", "mcpServers", "structured"),
    "cursor": _Client(_CURSOR, _CURSOR, "mcpServers"),
    "vscode": _Client(
        ".vscode/mcp.json", f"{_CODE}/Code/User/mcp.json", "servers", extra={"type": "stdio"}
    ),
    "codex": _Client(_CODEX, _CODEX, "mcp_servers", "structured"),
    "zed": _Client(".zed/settings.json", ".config/zed/settings.json", "context_servers"),
}


@dataclass(frozen=True)
class Change:
    """A change of a client's file, not made yet."""

    file: Path
    before: str
    after: str

    @property
    def diff(self) -> str:
        """The change as a unified diff; empty where nothing changes."""
        before, after = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, str(self.file), str(self.file)))

    @property
    def backup(self) -> Path:
        """Where the file is kept as it was before the first change."""
        return self.file.with_name(f"{self.file.name}.before-tallystick")

    def write(self) -> None:
        """Write the file, after a copy of what a person had written. A file that has nothing but
        an entry of ours is removed with it.
        """
        if self.before == self.after:
            return
        if not self.file.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
        elif not self.backup.exists() and not _has_ours(self.before):
            shutil.copy2(self.file, self.backup)
        if _is_empty(self.after) and not self.backup.exists():
            self.file.unlink(missing_ok=True)
        else:
            self.file.write_text(self.after, encoding="utf-8")


def _has_ours(text: str) -> bool:
    return NAME in text or _OUR_HOOK.search(text) is not None


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
    known = CLIENTS.get(client)
    if known is None:
        raise InvalidInput(f"There is no client {client!r}. Clients are: {', '.join(CLIENTS)}.")
    file = _file(known.project if scope == "project" else known.user, scope, folder, home)
    options = ["--answers", "text"] if known.answers == "text" else []
    entry = {**known.extra, "command": command[0], "args": [*command[1:], *options]}

    def changed(text: str) -> str:
        if file.suffix == ".toml":
            table = f"{known.key}.{NAME}"
            return toml_without(text, table) if remove else toml_with(text, table, entry)
        path = (known.key, NAME)
        return json_without(text, path) if remove else json_with(text, path, entry)

    return _change(file, changed, remove)


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

    def changed(text: str) -> str:
        for original, event in CLAUDE_EVENTS.items():
            path = ("hooks", original)
            if text.strip():
                text = list_without(text, path, _without_ours)
            if not remove:
                text = list_with(text, path, _hook(original, command(event)))
        return text

    return _change(file, changed, remove)


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


def _change(file: Path, changed: Callable[[str], str], remove: bool) -> Change:
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is no text in UTF-8. Mend it first.") from error
    if remove and not before.strip():
        return Change(file, before, before)
    return Change(file, before, changed(before))


def _file(name: str, scope: ClientScope, folder: Path | None, home: Path | None) -> Path:
    return ((folder or Path.cwd()) if scope == "project" else (home or Path.home())) / name
