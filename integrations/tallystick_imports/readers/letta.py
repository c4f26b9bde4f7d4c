"""Letta's agent file (`.af`): the blocks that an agent keeps in its context, and its messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tallystick_hooks.formats import message_text
from tallystick_imports.entries import (
    Entry,
    Read,
    Unreadable,
    entry_of,
    mapping,
    moment,
    new_memory,
    objects,
    read_each,
)
from tallystick_imports.files import documents, values_of

_ELSEWHERE = "is a file of a source: bring it in with `tally import`"


def read_letta(file: Path) -> Read:
    """Read an agent file. Blocks and messages belong to their agent, by its name."""
    for _, text in documents(file, "*.af", "*.json"):
        yield from read_each(values_of(file, text), _of_file)


def _of_file(place: str, value: dict[str, Any]) -> Iterator[Entry | Unreadable]:
    if "agents" not in value:
        # A file of the first release is one agent.
        if "core_memory" not in value and "messages" not in value:
            yield Unreadable(place, "is no agent file")
            return
        value = {"agents": [value], "blocks": []}
    blocks = {str(block.get("id")): block for block in objects(value.get("blocks"))}
    for number, agent in enumerate(objects(value["agents"]), 1):
        name = str(agent.get("name") or agent.get("id") or number)
        where = f"{place} {name}"
        kept = [blocks[each] for each in map(str, agent.get("block_ids") or ()) if each in blocks]
        own = [*objects(agent.get("memory_blocks")), *objects(agent.get("core_memory"))]
        for block in (*kept, *own):
            label = str(block.get("label") or "block")
            if str(block.get("value") or "").strip():
                read = partial(_of_block, f"{where} {label}", name, label, block)
                yield entry_of(f"{where} {label}", read)
        for position, message in enumerate(objects(agent.get("messages"))):
            for part, (speaker, text) in enumerate(_said(message)):
                spot = f"{where} message {position}"
                read = partial(_of_message, spot, name, 10 * position + part, speaker, message)
                yield entry_of(spot, partial(read, text))
    for each in objects(value.get("files")):
        if each.get("content"):
            yield Unreadable(f"{place} {str(each.get('file_name'))[:80]}", _ELSEWHERE)


def _of_block(place: str, agent: str, label: str, block: Mapping[str, Any]) -> Entry:
    new = new_memory(
        content=block["value"],
        kind="note",
        subject=label[:200],
        occurred_at=moment(block.get("updated_at") or block.get("created_at")),
        tags=(label[:64],),
        attributes={"description": block.get("description")},
        title=f"{agent}: {label}",
        source=("letta", block.get("id") or label, agent),
    )
    return Entry(place, agent, new)


def _of_message(
    place: str, agent: str, position: int, speaker: str, message: Mapping[str, Any], text: str
) -> Entry:
    new = new_memory(
        content=text,
        kind="turn",
        speaker=speaker,
        conversation=f"letta:{agent}"[:200],
        position=position,
        occurred_at=moment(message.get("created_at")),
        title=agent,
        source=("letta", message.get("id"), agent),
    )
    return Entry(place, agent, new)


def _said(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what was said in a message: by the user, in the envelope that Letta puts it into, or by
    the agent, which may speak by calling a tool.
    """
    role = message.get("role")
    text = message_text(message.get("content") or message.get("text"))
    if role == "user":
        words = _out_of_envelope(text)
        if words:
            yield "user", words
    elif role == "assistant":
        calls = [mapping(each.get("function")) for each in objects(message.get("tool_calls"))]
        spoken = [call for call in calls if call.get("name") == "send_message"]
        for call in spoken:
            with suppress(ValueError, TypeError, RecursionError):
                words = message_text(mapping(json.loads(call["arguments"])).get("message"))
                if words:
                    yield "assistant", words
        if text and not calls:
            # Beside a call the text is what the agent thought.
            yield "assistant", text


def _out_of_envelope(text: str) -> str:
    """Return the words of a user, without the envelope; empty for an event that no person made."""
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(envelope, dict) or "type" not in envelope:
        return text
    return message_text(envelope.get("message")) if envelope["type"] == "user_message" else ""
