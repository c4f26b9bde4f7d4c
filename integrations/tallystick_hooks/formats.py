"""Formats of hooks: a neutral one, and the one of Claude Code.

Claude Code gives a hook JSON on standard input, with `hook_event_name`, `session_id` and what
belongs to the event, and reads JSON from standard output: `additionalContext` for the prompt,
`permissionDecision` before a tool. Exit code 2 blocks, with the reason on standard error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tallystick_hooks.events import EVENTS, Answer, Event, EventName, HookFormat, Words
from tallystick_hooks.quick import DECIDING

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
"""By the name in Claude Code, which tells of the end of a compaction by a session that starts."""

_LINES = 4_000
"""Lines of a transcript that are read, the newest."""
_TEXTS = ("text", "input_text", "output_text")
"""Parts of a message that are words, as the providers name them."""


class BadPayload(ValueError):
    """The input of a hook is not what its format says."""


def event_from(payload: Any, name: str | None = None, format: HookFormat = "neutral") -> Event:
    """Return the event of a payload. Raises BadPayload, which repeats nothing of it."""
    if not isinstance(payload, dict):
        raise BadPayload("The input of a hook is one JSON object.")
    event = _from_claude_code(payload, name) if format == "claude-code" else _neutral(payload, name)
    if event.name in (*DECIDING, "after-tool") and not event.tool:
        raise BadPayload(f"{event.name}: the name of the tool is missing.")
    return event


def answer_in(answer: Answer, event: Event, format: HookFormat = "neutral") -> dict[str, Any]:
    """Return an answer as the format has it; empty where there is nothing to say."""
    if format == "claude-code":
        return _to_claude_code(answer, event)
    fields = {
        "context": answer.context or None,
        "decision": answer.decision,
        "reason": answer.reason or None,
        "arguments": answer.arguments,
        "actor": answer.actor,
        "scope": answer.scope,
        "stored": answer.stored or None,
        "error": answer.error,
        "facts": answer.facts or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _neutral(payload: Mapping[str, Any], name: str | None) -> Event:
    event = _parse_event_name(name or payload.get("event"))
    words = payload.get("turns") or []
    if not isinstance(words, list) or not all(isinstance(each, dict) for each in words):
        raise BadPayload("`turns` is a list of objects with `speaker` and `text`.")
    candidates = payload.get("memories") or []
    if not isinstance(candidates, list) or not all(isinstance(each, dict) for each in candidates):
        raise BadPayload("`memories` is a list of objects with `content` and what remember takes.")
    if candidates and event not in ("before-compact", "session-end"):
        raise BadPayload("`memories` are taken before a compaction and at the end of a session.")
    return Event(
        name=event,
        session=_text(payload, "session", required=True) or "",
        agent=_text(payload, "agent") or "agent",
        prompt=_text(payload, "prompt"),
        tool=_text(payload, "tool"),
        arguments=payload.get("arguments"),
        call_id=_text(payload, "call_id"),
        result=payload.get("result"),
        error=_text(payload, "error"),
        words=tuple(_turn(each, place) for place, each in enumerate(words)),
        candidates=tuple(candidates),
        subagent=_text(payload, "subagent"),
        project=_text(payload, "project"),
    )


def _turn(turn: Mapping[str, Any], place: int) -> Words:
    """Return a turn; without a key its place among those told of and its text are the key, so that
    it does not matter whether an agent tells of all turns every time or of the new ones alone.
    """
    text = _text(turn, "text") or ""
    key = _text(turn, "key")
    if key is None:
        key = f"{place} {hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
    return Words(key, "agent" if turn.get("speaker") == "agent" else "user", text)


def _from_claude_code(payload: Mapping[str, Any], name: str | None) -> Event:
    original = _text(payload, "hook_event_name")
    event_name = CLAUDE_EVENTS.get(original or "")
    event = _parse_event_name(name or event_name)
    if event == "session-start" and payload.get("source") == "compact":
        event = "after-compact"
    keeps = event in ("before-compact", "turn-end", "session-end")
    error, kind = payload.get("error"), _text(payload, "agent_type")
    result = payload.get("last_assistant_message" if event == "subagent-end" else "tool_response")
    return Event(
        name=event,
        session=_text(payload, "session_id", required=True) or "",
        agent="claude-code" if kind is None else f"claude-code/{kind}",
        prompt=_text(payload, "prompt"),
        tool=_text(payload, "tool_name"),
        arguments=payload.get("tool_input"),
        call_id=_text(payload, "tool_use_id"),
        result=result,
        error=None if error is None else str(error),
        words=tuple(_transcript(_text(payload, "transcript_path"))) if keeps else (),
        subagent=_text(payload, "agent_id"),
        project=Path(_text(payload, "cwd") or "").name or None,
    )


def _transcript(path: str | None) -> Iterator[Words]:
    """Yield what was said by the user and the agent, from the transcript of Claude Code: JSON lines
    with a message each. Raises OSError.
    """
    if path is None or not Path(path).is_file():
        return
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        lines = file.readlines()[-_LINES:]
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the last line may be half written
        words = words_of(entry)
        if words is not None:
            yield words


def words_of(entry: Any) -> Words | None:
    """Return what the user or the agent said in an entry of a transcript of Claude Code; None for
    what neither said: calls of tools, the words of subagents, and the summary of a compaction.
    """
    if not isinstance(entry, dict):
        return None
    if any(entry.get(mark) for mark in ("isMeta", "isSidechain", "isCompactSummary")):
        return None
    message, key = entry.get("message"), entry.get("uuid")
    if entry.get("type") not in ("user", "assistant") or not isinstance(message, dict):
        return None
    text = message_text(message.get("content"))
    if not text or not isinstance(key, str):
        return None
    return Words(key, "user" if entry["type"] == "user" else "agent", text)


def message_text(content: Any) -> str:
    """Return the words of a message, without calls of tools and their results."""
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, list):
        return ""
    parts = [
        part["text"]
        for part in content
        if isinstance(part, dict)
        and part.get("type") in _TEXTS
        and isinstance(part.get("text"), str)
    ]
    return "\n".join(parts).strip()


def _to_claude_code(answer: Answer, event: Event) -> dict[str, Any]:
    names = {name: original for original, name in reversed([*CLAUDE_EVENTS.items()])}
    original = names.get(event.name, "SessionStart")
    if event.name == "before-tool":
        decision = answer.decision
        if decision is None and answer.arguments is None:
            return {}
        # Cleaned arguments are taken over with a decision alone: the person sees them.
        output = {
            "permissionDecision": decision or "ask",
            "permissionDecisionReason": answer.reason,
        }
        if answer.arguments is not None:
            output["updatedInput"] = answer.arguments
        return {"hookSpecificOutput": {"hookEventName": original, **output}}
    if event.name == "permission":
        return _permission(answer)
    if not answer.context:
        return {}
    return {"hookSpecificOutput": {"hookEventName": original, "additionalContext": answer.context}}


def _permission(answer: Answer) -> dict[str, Any]:
    """Return what rules say to a request for permission. What they would ask a person, or clean,
    is left to the person who is being asked.
    """
    if answer.decision == "deny":
        decision: dict[str, Any] = {"behavior": "deny", "message": answer.reason}
    elif answer.decision == "allow":
        decision = {"behavior": "allow"}
    else:
        return {}
    return {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": decision}}


def _parse_event_name(name: Any) -> EventName:
    for event in EVENTS:
        if name == event:
            return event
    raise BadPayload(f"There is no such event. Events are: {', '.join(EVENTS)}.")


def _text(payload: Mapping[str, Any], name: str, *, required: bool = False) -> str | None:
    value = payload.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str) or (required and not value.strip()):
        raise BadPayload(f"`{name}` has to be a text.")
    return value
