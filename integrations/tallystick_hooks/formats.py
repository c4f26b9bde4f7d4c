"""Formats of hooks: a neutral one, and those of harnesses that give a hook JSON and read JSON.

Claude Code gives a hook `hook_event_name`, `session_id` and what belongs to the event, and reads
`additionalContext` for the prompt and `permissionDecision` before a tool. Exit code 2 blocks, with
the reason on standard error. Codex and Gemini CLI do as Claude Code does, but where it is said.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tallystick_hooks.events import (
    EVENTS,
    Answer,
    Event,
    EventName,
    HookFormat,
    HookPath,
    Words,
)
from tallystick_hooks.harnesses import CLAUDE_EVENTS, HARNESSES
from tallystick_hooks.quick import DECIDING

__all__ = ["CLAUDE_EVENTS", "BadPayload", "answer_in", "event_from", "message_text", "words_of"]

_EVENTS_OF: Mapping[HookFormat, Mapping[str, EventName]] = {
    each.hooks.format: each.hooks.events for each in HARNESSES.values() if each.hooks is not None
}
_HOOK_CONTEXT = re.compile("<hook_context>([^<]*)</hook_context>")
_FRAME_OPEN, _FRAME_CLOSE = "<tallystick-context", "</tallystick-context>"
_LINES = 4_000
"""Lines of a transcript that are read, the newest."""
_SAID_BY_NOBODY = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")
"""Marks of entries that neither the user nor the agent said."""
_TEXTS = ("text", "input_text", "output_text")
"""Parts of a message that are words, as the providers name them."""


class BadPayload(ValueError):
    """The input of a hook is not what its format says."""


def event_from(
    payload: Any,
    name: str | None = None,
    format: HookFormat = "neutral",
    path: HookPath | None = None,
) -> Event:
    """Return the event of a payload that was told by a path. Raises BadPayload, which repeats
    nothing of it.
    """
    if not isinstance(payload, dict):
        raise BadPayload("The input of a hook is one JSON object.")
    if format == "neutral":
        event = _neutral(payload, name, path)
    else:
        event = _of_harness(payload, name, format, path)
    if event.name in (*DECIDING, "after-tool") and not event.tool:
        raise BadPayload(f"{event.name}: the name of the tool is missing.")
    return event


def answer_in(answer: Answer, event: Event, format: HookFormat = "neutral") -> dict[str, Any]:
    """Return an answer as the format has it; empty where there is nothing to say."""
    if format != "neutral":
        return _to_harness(answer, event, format)
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


def _neutral(payload: Mapping[str, Any], name: str | None, path: HookPath | None) -> Event:
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
        event_id=_text(payload, "event_id"),
        path=path,
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
        key = f"{place} {_digest(text)}"
    return Words(key, "agent" if turn.get("speaker") == "agent" else "user", text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _of_harness(
    payload: Mapping[str, Any], name: str | None, format: HookFormat, path: HookPath | None
) -> Event:
    original = _text(payload, "hook_event_name")
    event = _parse_event_name(name or _EVENTS_OF[format].get(original or ""))
    if event == "session-start" and payload.get("source") == "compact":
        event = "after-compact"
    kind, prompt = _text(payload, "agent_type"), _text(payload, "prompt")
    error, words, event_id = payload.get("error"), _words(payload, event), None
    response = payload.get("tool_response")
    if event == "prompt":
        event_id = _text(payload, "prompt_id")
    if format == "codex":
        words, event_id = _words_of_codex(payload, event), _text(payload, "turn_id")
    elif format == "gemini-cli":
        event_id = _text(payload, "timestamp")
        prompt = None if prompt is None else _without_hook_marks(prompt)
        words = _words_of_gemini(payload, event, prompt)
        error = response.get("error") if isinstance(response, dict) else None
        error = error.get("message", error) if isinstance(error, dict) else error
    result = payload.get("last_assistant_message") if event == "subagent-end" else response
    return Event(
        name=event,
        session=_text(payload, "session_id", required=True) or "",
        agent=format if kind is None else f"{format}/{kind}",
        prompt=prompt,
        tool=_text(payload, "tool_name"),
        arguments=payload.get("tool_input"),
        call_id=_text(payload, "tool_use_id"),
        event_id=event_id,
        path=path,
        result=result,
        error=None if error is None else str(error),
        words=words,
        subagent=_text(payload, "agent_id"),
        project=Path(_text(payload, "cwd") or "").name or None,
    )


def _words(payload: Mapping[str, Any], event: EventName) -> tuple[Words, ...]:
    if event not in ("before-compact", "turn-end", "session-end"):
        return ()
    return tuple(_transcript(_text(payload, "transcript_path")))


def _words_of_codex(payload: Mapping[str, Any], event: EventName) -> tuple[Words, ...]:
    """Return what was said by the user or the agent: each event has the words of one of them."""
    fields = {"prompt": ("user", "prompt"), "turn-end": ("agent", "last_assistant_message")}
    if event not in fields:
        return ()
    speaker, field = fields[event]
    return _said(_text(payload, "turn_id"), **{speaker: _text(payload, field)})


def _words_of_gemini(
    payload: Mapping[str, Any], event: EventName, prompt: str | None
) -> tuple[Words, ...]:
    if event != "turn-end":
        return ()
    # An answer that a hook sent back comes with the prompt that was told of before.
    user = None if payload.get("stop_hook_active") is True else prompt
    agent = _text(payload, "prompt_response")
    return _said(_text(payload, "timestamp"), user=user, agent=agent)


def _said(
    turn: str | None, *, user: str | None = None, agent: str | None = None
) -> tuple[Words, ...]:
    """Return the words of a turn under keys that every hook gives them."""
    said = (("user", user), ("agent", agent))
    return tuple(
        Words(f"{turn} {speaker} {_digest(text)}", "agent" if speaker == "agent" else "user", text)
        for speaker, text in said
        if text is not None and text.strip()
    )


def _without_hook_marks(prompt: str) -> str:
    """Return a prompt of Gemini CLI in which a frame of ours is as we made it: the context that
    hooks gave at the start of a session may stand before a prompt, with its marks escaped.
    """

    def restore(match: re.Match[str]) -> str:
        text = match[1].replace("&gt;", ">")
        opening, closing = (mark.replace("<", "&lt;") for mark in (_FRAME_OPEN, _FRAME_CLOSE))
        before, is_opened, rest = text.partition(opening)
        body, is_closed, after = rest.rpartition(closing)
        if not is_opened or not is_closed or before.strip():
            return match[0]
        return f"{_FRAME_OPEN}{body}{_FRAME_CLOSE}{after}"

    return _HOOK_CONTEXT.sub(restore, prompt)


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
    what neither said: calls of tools, the words of subagents, the summary of a compaction, and
    errors of a provider in the place of an answer.
    """
    if not isinstance(entry, dict) or any(entry.get(mark) for mark in _SAID_BY_NOBODY):
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


def _to_harness(answer: Answer, event: Event, format: HookFormat) -> dict[str, Any]:
    names = {name: original for original, name in reversed([*_EVENTS_OF[format].items()])}
    original = names.get(event.name, "SessionStart")
    if event.name == "before-tool":
        return _decision(answer, original, format)
    if event.name == "permission":
        return _permission(answer)
    if not answer.context:
        return {}
    return {"hookSpecificOutput": {"hookEventName": original, "additionalContext": answer.context}}


def _decision(answer: Answer, original: str, format: HookFormat) -> dict[str, Any]:
    """Return what rules say before a tool, in the words of a harness."""
    decision = answer.decision
    if decision is None and answer.arguments is None:
        return {}
    # Cleaned arguments are taken over with a decision alone: the person sees them.
    decision = decision or "ask"
    if format == "gemini-cli":
        cleaned = None if answer.arguments is None else {"tool_input": answer.arguments}
        told: dict[str, Any] = {"decision": decision, "reason": answer.reason}
        return told if cleaned is None else {**told, "hookSpecificOutput": cleaned}
    output = {"permissionDecision": decision, "permissionDecisionReason": answer.reason}
    if format == "codex" and decision != "deny":
        if answer.arguments is None:
            # It takes no question, and an allowance with other arguments alone: its settings ask.
            return {}
        output["permissionDecision"] = "allow"
    if answer.arguments is not None:
        output["updatedInput"] = answer.arguments
    return {"hookSpecificOutput": {"hookEventName": original, **output}}


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
