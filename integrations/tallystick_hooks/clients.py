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
from dataclasses import dataclass, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from tallystick import __version__
from tallystick.errors import InvalidInput, SettingsError
from tallystick_hooks.client_files import (
    json_with,
    json_without,
    list_with,
    list_without,
    toml_with,
    toml_without,
)
from tallystick_hooks.events import EVENTS, HookFormat
from tallystick_hooks.harnesses import HARNESSES, Harness, HookFile

ClientScope = Literal["project", "user"]
NAME = "tallystick"
_FORMATS = "|".join(each for each in get_args(HookFormat) if each != "neutral")
_OUR_HOOK = re.compile(rf" hook (?:{'|'.join(EVENTS)}) --format (?:{_FORMATS})(?![\w-])")
"""The part of the line of a hook that is the same wherever the program and the tally are."""


_ABOUT = "Memory, rules and records of sessions. Written by `tally hook install`."


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
    folder: Path | None = None
    """The folder of a plugin of ours, which goes with its last file."""

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
        elif not self.is_restored and not self.is_ours and not self.backup.exists():
            write_whole(self.backup, self.before, like=file)
        if self.is_restored or not _is_empty(self.after):
            write_whole(file, self.after, like=file)
        else:
            file.unlink(missing_ok=True)
            self._remove_empty(file.parent)

    @property
    def is_ours(self) -> bool:
        """Whether the file as it is was written by us, whole."""
        return "`tally hook install`" in self.before

    def _remove_empty(self, place: Path) -> None:
        """Remove the folders of a plugin that nothing is in."""
        while self.folder is not None and place.is_relative_to(self.folder):
            try:
                place.rmdir()
            except OSError:
                return
            place = place.parent


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
    client: str = "claude-code",
    remove: bool = False,
    folder: Path | None = None,
    home: Path | None = None,
) -> Change:
    """Return the change that puts the hooks into the settings of a harness, or out of them.
    `command` writes the line of the shell for an event. Raises SettingsError, and InvalidInput for
    a harness without hooks that are commands.
    """
    hooks = harness_of(client).hooks
    if hooks is None:
        raise InvalidInput(f"{client} has no hooks that are commands. Use --form plugin.")
    file = _file(hooks.file, scope, folder, home)

    def put_in(text: str) -> str:
        for original, event in hooks.events.items():
            path = ("hooks", original)
            if text.strip():
                text = list_without(text, path, _without_ours)
            text = list_with(text, path, _hook(original, command(event), hooks))
        return text

    def take_out(text: str) -> str:
        for original in hooks.events:
            text = list_without(text, ("hooks", original), _without_ours)
        return text

    return _change(file, put_in, take_out, remove)


def change_plugin(
    scope: ClientScope,
    client: str,
    command: Callable[[str], str],
    start: Sequence[str],
    options: Sequence[str],
    *,
    closed: bool = False,
    remove: bool = False,
    folder: Path | None = None,
    home: Path | None = None,
) -> list[Change]:
    """Return the changes that write the plugin of a harness, or remove it. Where the plugin is a
    program, it starts `start`, an event and `options`; `closed` says that rules decide over tools,
    which do not run then where it fails. Raises SettingsError, and InvalidInput for a harness
    without one.
    """
    harness = harness_of(client)
    plugin = harness.plugin
    if plugin is None:
        raise InvalidInput(f"A plugin of {client} comes from a marketplace. Use --form hooks.")
    name = plugin.project if scope == "project" else plugin.user
    if name is None:
        raise InvalidInput(f"{client} has plugins of a user alone. Use --scope user.")
    place = _file(name, scope, folder, home)
    about = {"name": NAME, "version": __version__, "description": _ABOUT}
    texts: dict[Path, str] = {}
    changes: list[Change] = []
    if harness.hooks is not None:
        hooks = harness.hooks
        entries = {
            original: [_hook(original, command(event), hooks)]
            for original, event in plugin.events.items()
        }
        texts[place / "hooks" / "hooks.json"] = _json({"description": _ABOUT, "hooks": entries})
        manifest = {
            "claude-code": (".claude-plugin/plugin.json", {**about, "author": {"name": NAME}}),
            "gemini-cli": ("gemini-extension.json", about),
        }[client]
        texts[place / manifest[0]] = _json(manifest[1])
    else:
        settings = {
            "command": [*start, "hook"],
            "options": list(options),
            "agent": client,
            "closed": closed,
            # From the file of the plugin to the folder of the project.
            "up": "../" * len(Path(name).parts) if scope == "project" else "",
        }
        program = _program(str(plugin.file), settings)
        if client == "opencode":
            texts[place / f"{NAME}.js"] = program
        else:
            entry = {"id": NAME, "name": "Tallystick", "version": __version__}
            entry["description"] = _ABOUT
            schema = {"type": "object", "additionalProperties": False}
            on_start = {"activation": {"onStartup": True}, "configSchema": schema}
            package = {**about, "type": "module", "openclaw": {"extensions": ["./index.js"]}}
            texts[place / "openclaw.plugin.json"] = _json({**entry, **on_start})
            texts[place / "package.json"] = _json(package)
            texts[place / "index.js"] = program
            path = ("plugins", "entries", NAME)
            allowed = {"enabled": True, "hooks": {"allowConversationAccess": True}}
            changes.append(
                _change(
                    _file(".openclaw/openclaw.json", scope, folder, home),
                    lambda text: json_with(text, path, allowed),
                    lambda text: json_without(text, path),
                    remove,
                )
            )
    own_folder = None if client == "opencode" else place
    of_plugin = [_change_whole(file, text, remove, own_folder) for file, text in texts.items()]
    # What loads a plugin is written last, and goes first.
    return [*changes, *of_plugin] if remove else [*of_plugin, *changes]


def _change_whole(file: Path, text: str, remove: bool, folder: Path | None) -> Change:
    """Return the change that writes a file of ours, or removes it. One of somebody else stays where
    it is to be removed.
    """
    before = _text_of(file) if file.exists() else ""
    change = Change(file, before, "" if remove else text, folder=folder)
    return replace(change, after=before) if remove and not change.is_ours else change


def harness_of(client: str) -> Harness:
    """Return a harness by its name. Raises InvalidInput."""
    harness = HARNESSES.get(client)
    if harness is None:
        known = ", ".join(HARNESSES)
        raise InvalidInput(f"There is no harness {client!r}. Harnesses are: {known}.")
    return harness


def is_installed(changes: Sequence[Change]) -> bool:
    """Whether something of ours is there that changes would take out."""
    return any(each.diff for each in changes)


def written_at(changes: Sequence[Change]) -> int:
    """Return when the files that changes would take something out of were written last,
    microseconds UTC.
    """
    return max(each.file.stat().st_mtime_ns // 1_000 for each in changes if each.diff)


def _program(name: str, settings: Mapping[str, Any]) -> str:
    folder = Path(__file__).parent / "plugins"
    shared = (folder / "telling.mjs").read_text(encoding="utf-8")
    own = (folder / name).read_text(encoding="utf-8")
    return shared.replace("const SETTINGS = {}", f"const SETTINGS = {json.dumps(settings)}") + own


def _json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


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


def _hook(original: str, command: str, hooks: HookFile) -> dict[str, Any]:
    one = {"type": "command", "command": command, "timeout": hooks.timeout}
    if hooks.format == "gemini-cli":
        one = {"name": NAME, **one}
    return {"matcher": "*", "hooks": [one]} if "Tool" in original else {"hooks": [one]}


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
