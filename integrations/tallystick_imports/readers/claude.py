"""The data export of Claude: conversations, what it remembers, and projects, in the archive as it
comes or each by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    speaker_of,
)
from tallystick_imports.files import documents, values_of

_NAMES = ("users.json", "conversations.json", "memories.json", "projects.json")
_ELSEWHERE = "is a document of a project: bring it in with `tally import`"
_INSTRUCTION = "is the instruction of a project, which no memory becomes"


def read_claude(file: Path) -> Read:
    """Read a data export of Claude. Whose something is, is the e-mail address of the account where
    the export has it, else its id.
    """
    people: dict[str, str] = {}
    for name, text in documents(file, *_NAMES):
        values = values_of(file, text)
        if name.rpartition("/")[2] == "users.json":
            people |= {
                str(user.get("uuid")): str(user.get("email_address") or user.get("uuid"))
                for user in objects([value for _, value in values])
            }
        else:
            yield from read_each(values, partial(_of_value, people))


def _of_value(
    people: Mapping[str, str], place: str, value: dict[str, Any]
) -> Iterator[Entry | Unreadable]:
    account = value.get("account_uuid") or mapping(
        value.get("account") or value.get("creator")
    ).get("uuid")
    owner = people.get(str(account), str(account or ""))
    if "chat_messages" in value:
        yield from _of_conversation(owner, place, value)
    elif "conversations_memory" in value or "project_memories" in value:
        yield from _of_memory(owner, place, value)
    elif "prompt_template" in value or "docs" in value:
        yield from _of_project(owner, place, value)
    else:
        yield Unreadable(place, "is no conversation, no memory and no project")


def _of_conversation(owner: str, place: str, value: dict[str, Any]) -> Iterator[Entry | Unreadable]:
    key = str(value["uuid"])
    for position, message in enumerate(value["chat_messages"]):
        where = f"{place} message {position}"
        if not isinstance(message, dict):
            yield Unreadable(where, "is no message")
            continue
        # The blocks are what was said; the text tells of calls of tools too.
        text = message_text(message.get("content")) or message_text(message.get("text"))
        if text and message.get("sender") in ("human", "assistant"):
            turn = partial(_turn, owner, where, value, key, position, message, text)
            yield entry_of(where, turn)
        for number, attached in enumerate(objects(message.get("attachments")), 1):
            # What is pasted, or read out of a file, stands nowhere but here.
            if str(attached.get("extracted_content") or "").strip():
                spot = f"{where} attachment {number}"
                read = partial(_attachment, owner, spot, key, message, number, attached)
                yield entry_of(spot, read)


def _turn(
    owner: str,
    place: str,
    conversation: Mapping[str, Any],
    key: str,
    position: int,
    message: Mapping[str, Any],
    text: str,
) -> Entry:
    new = new_memory(
        content=text,
        kind="turn",
        speaker=speaker_of(message["sender"]),
        conversation=key,
        position=position,
        occurred_at=moment(message.get("created_at") or conversation.get("created_at")),
        title=conversation.get("name"),
        source=("claude", message.get("uuid"), key),
    )
    return Entry(place, owner, new)


def _attachment(
    owner: str,
    place: str,
    conversation: str,
    message: Mapping[str, Any],
    number: int,
    attached: Mapping[str, Any],
) -> Entry:
    new = new_memory(
        content=attached["extracted_content"],
        kind="artifact",
        occurred_at=moment(attached.get("created_at") or message.get("created_at")),
        title=attached.get("file_name"),
        source=("claude", f"{message.get('uuid')}:attachment:{number}", conversation),
    )
    return Entry(place, owner, new)


def _of_memory(owner: str, place: str, value: dict[str, Any]) -> Iterator[Entry | Unreadable]:
    texts = {"": value.get("conversations_memory"), **mapping(value.get("project_memories"))}
    for project, text in texts.items():
        if not text:
            continue
        where = f"{place} project {project}" if project else place
        source = ("claude", f"memory:{project}" if project else "memory", owner)
        yield entry_of(where, partial(_summary, owner, where, text, source))


def _summary(owner: str, place: str, text: Any, source: tuple[str, str, str]) -> Entry:
    new = new_memory(content=text, kind="summary", occurred_at=None, source=source)
    return Entry(place, owner, new)


def _of_project(owner: str, place: str, value: dict[str, Any]) -> Iterator[Entry | Unreadable]:
    name = str(value.get("name") or "")
    about = value.get("description")
    if isinstance(about, str) and about.strip():
        new = new_memory(
            content=about,
            kind="project",
            subject=name[:200] or None,
            occurred_at=moment(value.get("updated_at") or value.get("created_at")),
            title=name,
            source=("claude", value.get("uuid"), owner),
        )
        yield Entry(place, owner, new)
    if value.get("prompt_template"):
        yield Unreadable(f"{place} prompt_template", _INSTRUCTION)
    for number, document in enumerate(objects(value.get("docs")), 1):
        yield Unreadable(
            f"{place} doc {number}", f"{str(document.get('filename') or '')[:80]} {_ELSEWHERE}"
        )
