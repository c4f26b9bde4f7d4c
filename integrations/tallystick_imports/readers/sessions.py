"""Logs of sessions that coding agents write: Claude Code and Codex. A file is a session, and a
folder is all of them; whose a session is, is the name of the folder that it worked in.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

from tallystick_hooks.formats import message_text, words_of
from tallystick_imports.entries import (
    TOO_DEEP,
    Entry,
    Read,
    Unreadable,
    entry_of,
    is_too_deep,
    mapping,
    moment,
    new_memory,
    speaker_of,
)
from tallystick_imports.files import documents, lines_of

_EVENTS = {"user_message": "user", "agent_message": "assistant"}
"""What was said in a session of Codex, by the type of an event."""


def read_claude_code(file: Path) -> Read:
    """Read sessions of Claude Code, as below `~/.claude/projects`."""
    for name, text in documents(file, "*.jsonl"):
        yield from _of_claude_code(name, text)


def read_codex(file: Path) -> Read:
    """Read sessions of Codex, as below `~/.codex/sessions`."""
    for name, text in documents(file, "rollout-*.jsonl"):
        yield from _of_codex(name, text)


def _of_claude_code(name: str, text: str) -> Read:
    project: str | None = None
    for place, value in _lines(name, text):
        if isinstance(value, Unreadable):
            yield value
            continue
        if project is None and value.get("cwd"):
            project = _project(value["cwd"])
        words = words_of(value)
        if words is None:
            continue
        session = str(value.get("sessionId") or Path(name).stem)
        yield entry_of(
            place,
            partial(
                _turn,
                place,
                project or "",
                ("claude-code", words.key, session),
                "user" if words.speaker == "user" else "assistant",
                words.text,
                value.get("timestamp"),
            ),
        )


def _of_codex(name: str, text: str) -> Read:
    values = list(_lines(name, text))
    session, project, started = Path(name).stem, "", None
    # What a person typed is told as an event; the messages to the model hold what was put before
    # it as well. Older logs have no events.
    told = {
        _EVENTS[kind]
        for _, value in values
        if isinstance(value, dict)
        and value.get("type") == "event_msg"
        and (kind := str(_payload(value).get("type"))) in _EVENTS
    }
    for place, value in values:
        if isinstance(value, Unreadable):
            yield value
            continue
        payload = _payload(value)
        if value.get("type") == "session_meta" or ("type" not in value and "id" in value):
            session = str(payload.get("id") or session)
            project, started = _project(payload.get("cwd")), payload.get("timestamp")
            continue
        said = _said(value, payload, told)
        if said is None:
            continue
        speaker, words = said
        at = value.get("timestamp") or started
        source = ("codex", place.rpartition(" ")[2], session)
        yield entry_of(place, partial(_turn, place, project, source, speaker, words, at))


def _said(value: dict[str, Any], payload: dict[str, Any], told: set[str]) -> tuple[str, str] | None:
    """Return who says what in a line of a log of Codex."""
    kind = payload.get("type")
    if value.get("type") == "event_msg":
        speaker = _EVENTS.get(str(kind))
        text = message_text(payload.get("message"))
    elif kind == "message" and payload.get("role") in ("user", "assistant"):
        speaker = speaker_of(payload["role"])
        text = "" if speaker in told else message_text(payload.get("content"))
    else:
        return None
    return (speaker, text) if speaker and text else None


def _payload(value: dict[str, Any]) -> dict[str, Any]:
    """Return what a line is about: older logs have no envelope around it."""
    return mapping(value["payload"]) if "payload" in value else value


def _turn(
    place: str, project: str, source: tuple[str, str, str], speaker: str, text: str, at: Any
) -> Entry:
    new = new_memory(
        content=text,
        kind="turn",
        speaker=speaker,
        conversation=source[2],
        position=int(place.rpartition(" ")[2]),
        occurred_at=moment(at),
        attributes={"project": project or None},
        source=source,
    )
    return Entry(place, project, new)


def _lines(name: str, text: str) -> Iterator[tuple[str, dict[str, Any] | Unreadable]]:
    for line, value in lines_of(text):
        place = f"{name} {line}"
        if isinstance(value, Unreadable):
            yield place, Unreadable(place, value.reason)
        elif not isinstance(value, dict):
            yield place, Unreadable(place, "is no entry of a session")
        elif is_too_deep(value):
            yield place, Unreadable(place, TOO_DEEP)
        else:
            yield place, value


def _project(cwd: Any) -> str:
    """Return the name of a folder, of whichever system its path is."""
    return PureWindowsPath(cwd).name if isinstance(cwd, str) else ""
