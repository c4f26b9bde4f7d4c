"""The data export of ChatGPT: `conversations.json`, in the archive as it comes or by itself.

A conversation is a tree of messages, in which each edit and each second answer is a branch. What
counts is the branch that the conversation ends on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tallystick_imports.entries import (
    Entry,
    Read,
    Unreadable,
    entry_of,
    mapping,
    moment,
    new_memory,
    read_each,
)
from tallystick_imports.files import documents, values_of

_WORDS = ("text", "multimodal_text")
"""Types of content that somebody said; others are calls of tools, thoughts and instructions."""


def read_chatgpt(file: Path) -> Read:
    """Read the conversations of a data export of ChatGPT."""
    for _, text in documents(file, "conversations.json", "conversations-*.json"):
        yield from read_each(values_of(file, text), _of_conversation)


def _of_conversation(place: str, value: dict[str, Any]) -> Iterator[Entry | Unreadable]:
    nodes: Mapping[str, Any] = value["mapping"]
    key = str(value.get("conversation_id") or value["id"])
    for position, node_id in enumerate(_branch(value, nodes)):
        message = nodes[node_id].get("message")
        text = _text(message)
        if text:
            where = f"{place} message {position}"
            yield entry_of(where, partial(_turn, where, value, key, position, message, text))


def _turn(
    place: str,
    conversation: Mapping[str, Any],
    key: str,
    position: int,
    message: Mapping[str, Any],
    text: str,
) -> Entry:
    at = message.get("create_time") or conversation.get("create_time")
    new = new_memory(
        content=text,
        kind="turn",
        speaker=message["author"]["role"],
        conversation=key,
        position=position,
        occurred_at=moment(at),
        title=conversation.get("title"),
        source=("chatgpt", message.get("id"), key),
    )
    return Entry(place, "", new)


def _branch(conversation: Mapping[str, Any], nodes: Mapping[str, Any]) -> list[str]:
    """Return the ids of the messages that a conversation ends on, the first one first. Raises
    ValueError for a tree that leads in a circle.
    """
    last = conversation.get("current_node")
    if last not in nodes:
        leaves = [each for each, node in nodes.items() if not node.get("children")]
        last = max(leaves, key=lambda each: _time(nodes[each]), default=None)
    path: list[str] = []
    seen: set[str] = set()
    while last is not None and last in nodes:
        if last in seen:
            raise ValueError("its messages lead in a circle")
        seen.add(last)
        path.append(last)
        last = nodes[last].get("parent")
    return path[::-1]


def _time(node: Any) -> float:
    at = mapping(mapping(node).get("message")).get("create_time")
    return float(at) if isinstance(at, int | float) else 0.0


def _text(message: Any) -> str:
    """Return what a person or the model said in a message; empty for everything else."""
    content = mapping(mapping(message).get("content"))
    if (
        not isinstance(message, dict)
        or mapping(message.get("author")).get("role") not in ("user", "assistant")
        or message.get("recipient", "all") not in ("all", None)
        or mapping(message.get("metadata")).get("is_visually_hidden_from_conversation")
        or content.get("content_type") not in _WORDS
    ):
        return ""
    parts = content.get("parts")
    # What was spoken is a part with its transcript; pictures and files have no text.
    texts = [
        part.get("text") if isinstance(part, dict) else part
        for part in (parts if isinstance(parts, list) else ())
    ]
    return "\n".join(each for each in texts if isinstance(each, str) and each).strip()
