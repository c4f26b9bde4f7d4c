"""Coding harnesses: which of their hooks catches each event of a session, in their own names.

The page docs/harnesses.md is made from these tables. This module loads nothing: a hook is a process
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tallystick_hooks.events import EventName, HookFormat


class HookFile(NamedTuple):
    """The file in which a harness reads hooks that are commands."""

    file: str
    """Below the folder of a project, and below the home."""
    format: HookFormat
    events: Mapping[str, EventName]
    """By the harness's name of an event."""
    timeout: int
    """The time limit of a hook of ours, in the harness's unit: 30 seconds."""
    root: str
    """The project's folder in the shell of a hook."""


class PluginFolder(NamedTuple):
    """The folder from which a harness loads a plugin of ours by itself."""

    project: str | None
    """Below the folder of a project; None where only a user has plugins."""
    user: str
    events: Mapping[str, EventName]
    """By the harness's name of an event."""
    file: str | None = None
    """The program of the plugin, where it is one; else its hooks are those of the settings."""


class Harness(NamedTuple):
    """A coding harness."""

    title: str
    release: str
    """The release whose payloads and programs this was checked against."""
    checked: str
    """How it was checked."""
    hooks: HookFile | None = None
    plugin: PluginFolder | None = None
    servers: str | None = None
    """Its name in `tally mcp install`; None where it is given the server by hand."""
    notes: Mapping[EventName, str] = {}
    """What becomes of an event beyond what the others do with it, or why there is none."""
    deprecated: tuple[str, ...] = ()
    """What the harness has deprecated, a sentence each."""


CLAUDE_EVENTS: Mapping[str, EventName] = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "prompt",
    "PreToolUse": "before-tool",
    "PermissionRequest": "permission",
    "PostToolUse": "after-tool",
    "PostToolUseFailure": "after-tool",
    "SubagentStart": "subagent-start",
    "SubagentStop": "subagent-end",
    "PreCompact": "before-compact",
    "Stop": "turn-end",
    "SessionEnd": "session-end",
}
"""Claude Code tells of the end of a compaction by a session that starts, as Codex does."""
_CODEX_EVENTS: Mapping[str, EventName] = {
    name: event for name, event in CLAUDE_EVENTS.items() if name != "PostToolUseFailure"
}
_GEMINI_EVENTS: Mapping[str, EventName] = {
    "SessionStart": "session-start",
    "BeforeAgent": "prompt",
    "BeforeTool": "before-tool",
    "AfterTool": "after-tool",
    "PreCompress": "before-compact",
    "AfterAgent": "turn-end",
    "SessionEnd": "session-end",
}
_OPENCODE_EVENTS: Mapping[str, EventName] = {
    "chat.message": "prompt",
    "tool.execute.before": "before-tool",
    "tool.execute.after": "after-tool",
    "message.part.updated": "after-tool",
    "experimental.session.compacting": "before-compact",
    "session.compacted": "after-compact",
    "session.idle": "turn-end",
    "session.deleted": "session-end",
    "dispose": "session-end",
}
_OPENCLAW_EVENTS: Mapping[str, EventName] = {
    "before_prompt_build": "prompt",
    "before_tool_call": "before-tool",
    "after_tool_call": "after-tool",
    "before_compaction": "before-compact",
    "after_compaction": "after-compact",
    "agent_end": "turn-end",
    "session_end": "session-end",
}
_NO_EVENT = "no event"
_OWN_SESSION = "a session of its own"
_WITH_FIRST_PROMPT = "with the first prompt: no event of a session that starts takes context"
_WITH_NEXT_PROMPT = "its context comes with the next prompt"

_RUN_HERE = "its program, in a session with a scripted model"

HARNESSES: Mapping[str, Harness] = {
    "claude-code": Harness(
        "Claude Code",
        "2.1.332",
        _RUN_HERE,
        hooks=HookFile(
            ".claude/settings.json", "claude-code", CLAUDE_EVENTS, 30, '"$CLAUDE_PROJECT_DIR"'
        ),
        plugin=PluginFolder(
            ".claude/skills/tallystick", ".claude/skills/tallystick", CLAUDE_EVENTS
        ),
        servers="claude-code",
        notes={"after-compact": "`SessionStart` whose `source` is `compact`"},
    ),
    "codex": Harness(
        "Codex",
        "0.171.0",
        _RUN_HERE,
        hooks=HookFile(
            ".codex/hooks.json",
            "codex",
            _CODEX_EVENTS,
            30,
            '"$(git rev-parse --show-toplevel 2>/dev/null || pwd)"',
        ),
        servers="codex",
        notes={
            "prompt": "the prompt is kept here: `Stop` has the answer alone",
            "before-tool": "denies, or allows with cleaned arguments: no question is taken",
            "after-tool": "a call that failed comes as a result",
            "before-compact": "the words of each turn are kept already",
            "after-compact": "`SessionStart` whose `source` is `compact`",
        },
        deprecated=(
            "The feature `codex_hooks` is called `hooks` now and is on by itself.",
            "The feature `plugin_hooks` was removed.",
            "A plugin comes from a marketplace that a person adds, so `tally hook install` writes "
            "hooks alone.",
        ),
    ),
    "gemini-cli": Harness(
        "Gemini CLI",
        "0.61.0",
        _RUN_HERE,
        hooks=HookFile(
            ".gemini/settings.json", "gemini-cli", _GEMINI_EVENTS, 30_000, '"$GEMINI_PROJECT_DIR"'
        ),
        plugin=PluginFolder(None, ".gemini/extensions/tallystick", _GEMINI_EVENTS),
        servers="gemini-cli",
        notes={
            "permission": "`Notification` tells of it and takes no decision",
            "before-compact": "the words of each turn are kept already",
            "after-compact": _NO_EVENT,
            "subagent-start": _NO_EVENT,
            "subagent-end": _NO_EVENT,
        },
        deprecated=("`hooks.enabled` and `hooks.disabled` moved to `hooksConfig`.",),
    ),
    "opencode": Harness(
        "OpenCode",
        "1.18.34",
        _RUN_HERE,
        plugin=PluginFolder(
            ".opencode/plugins",
            ".config/opencode/plugins",
            _OPENCODE_EVENTS,
            "opencode.mjs",
        ),
        servers="opencode",
        notes={
            "session-start": _WITH_FIRST_PROMPT,
            "permission": "the rules have answered before the tool",
            "after-compact": _WITH_NEXT_PROMPT,
            "subagent-start": _OWN_SESSION,
            "subagent-end": _OWN_SESSION,
        },
        deprecated=(
            "The folder `.opencode/plugin` is called `.opencode/plugins` now.",
            "The events of a compaction and of what is told to it are experimental.",
        ),
    ),
    "openclaw": Harness(
        "OpenClaw",
        "2026.9.6",
        "its program loads the plugin; no session was run, so that the payloads are those of its "
        "published types",
        plugin=PluginFolder(
            None, ".openclaw/extensions/tallystick", _OPENCLAW_EVENTS, "openclaw.mjs"
        ),
        notes={
            "session-start": _WITH_FIRST_PROMPT,
            "permission": "the rules have answered before the tool",
            "after-compact": _WITH_NEXT_PROMPT,
            "subagent-start": _OWN_SESSION,
            "subagent-end": _OWN_SESSION,
        },
        deprecated=(
            "Internal hooks (`HOOK.md`) see commands and no tools, so there are none of ours.",
            "`timeoutBehavior` of an approval is ignored: what nobody answers is denied.",
            "Plugins that read conversations need `hooks.allowConversationAccess`.",
        ),
    ),
}
"""By the name that `tally hook install` takes."""
