"""Exports of other products as they come: small ones, in the forms that their products write."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tallystick_imports import ForeignFormat

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
AT = "2026-01-05T12:00:00Z"


def lines(*values: Any) -> str:
    return "\n".join(json.dumps(value) for value in values) + "\n"


def chatgpt_node(node: str, parent: str | None, *children: str, **message: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": message.pop("parts", [])}
    content |= message.pop("content", {})
    said = None
    if message:
        author = {"role": message.pop("role"), "name": None, "metadata": {}}
        said = {"id": node, "author": author, "create_time": NOON.timestamp(), "content": content}
        said |= {"status": "finished_successfully", "recipient": "all", "metadata": {}, **message}
    return {"id": node, "message": said, "parent": parent, "children": list(children)}


def chatgpt() -> dict[str, Any]:
    """A conversation in `conversations.json`, with an edited question and a call of a tool."""
    nodes = [
        chatgpt_node("root", None, "system"),
        chatgpt_node("system", "root", "old", "q", role="system", parts=["You are helpful."]),
        chatgpt_node("old", "system", role="user", parts=["Where do herons sleep?"]),
        chatgpt_node("q", "system", "call", role="user", parts=["Where does the heron nest?"]),
        chatgpt_node("call", "q", "tool", role="assistant", parts=["search()"], recipient="web"),
        chatgpt_node("tool", "call", "a", role="tool", parts=["It nests in trees."]),
        chatgpt_node(
            "a",
            "tool",
            role="assistant",
            content={"content_type": "multimodal_text"},
            parts=[
                {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"},
                {"content_type": "audio_transcription", "text": "In the old oak."},
            ],
        ),
    ]
    return {
        "title": "Herons",
        "create_time": NOON.timestamp(),
        "update_time": NOON.timestamp(),
        "mapping": {node["id"]: node for node in nodes},
        "current_node": "a",
        "conversation_id": "c1",
        "id": "c1",
    }


def claude_files() -> dict[str, Any]:
    """The files in an archive of a data export of Claude."""
    account = {"uuid": "u1"}
    return {
        "conversations.json": [
            {
                "uuid": "c1",
                "name": "Herons",
                "created_at": AT,
                "updated_at": AT,
                "account": account,
                "chat_messages": [
                    {
                        "uuid": "m1",
                        "sender": "human",
                        "text": "Where does the heron nest?",
                        "content": [{"type": "text", "text": "Where does the heron nest?"}],
                        "created_at": AT,
                        "attachments": [],
                        "files": [],
                    },
                    {
                        "uuid": "m2",
                        "sender": "assistant",
                        "text": "This block is not supported.\n\nIn the old oak.",
                        "content": [
                            {"type": "tool_use", "name": "search", "input": {}},
                            {"type": "text", "text": "In the old oak."},
                        ],
                        "created_at": AT,
                    },
                ],
            }
        ],
        "memories.json": [
            {
                "conversations_memory": "Anna watches birds.",
                "project_memories": {"p1": "The hide is built of larch."},
                "account_uuid": "u1",
            }
        ],
        "projects.json": [
            {
                "uuid": "p1",
                "name": "Hide",
                "description": "A hide at the lake.",
                "prompt_template": "Always answer in rhymes.",
                "created_at": AT,
                "creator": account,
                "docs": [{"uuid": "d1", "filename": "plan.md", "content": "Larch."}],
            }
        ],
        "users.json": [{"uuid": "u1", "full_name": "Anna", "email_address": "anna@example.org"}],
    }


def archive(file: Path, members: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def claude_code() -> str:
    """A session below `~/.claude/projects`, with a tool, a subagent and a compaction."""
    common = {"sessionId": "s1", "cwd": "/home/anna/apollo", "timestamp": AT, "isSidechain": False}

    def line(kind: str, uuid: str, content: Any, **more: Any) -> dict[str, Any]:
        message = {"role": kind, "content": content}
        return {"type": kind, "uuid": uuid, "message": message, **common, **more}

    answer = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "In the old oak."}]
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "oak"}]
    return lines(
        {"type": "summary", "summary": "Herons", "leafUuid": "u2"},
        line("user", "u1", "Where does the heron nest?"),
        line("assistant", "u2", answer),
        line("user", "u3", result),
        line("user", "u4", "Look it up.", isSidechain=True),
        line("user", "u5", "This session continues from …", isCompactSummary=True),
    )


def codex(*, is_old: bool = False) -> str:
    """A session below `~/.codex/sessions`; an old one has no events, and no envelope."""

    def message(role: str, kind: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    asked = message("user", "input_text", "Where does the heron nest?")
    answered = message("assistant", "output_text", "In the old oak.")
    if is_old:
        return lines({"id": "s1", "timestamp": AT, "instructions": None}, asked, answered)
    meta = {"id": "s1", "timestamp": AT, "cwd": "/home/anna/apollo", "originator": "codex_cli_rs"}
    put_before = message("user", "input_text", "<environment_context>…</environment_context>")
    payloads = [
        ("session_meta", meta),
        ("response_item", put_before),
        ("response_item", asked),
        ("event_msg", {"type": "user_message", "message": "Where does the heron nest?"}),
        ("response_item", {"type": "function_call", "name": "shell", "arguments": "{}"}),
        ("event_msg", {"type": "agent_message", "message": "In the old oak."}),
        ("response_item", answered),
        ("event_msg", {"type": "token_count", "info": None}),
    ]
    return lines(
        *({"timestamp": AT, "type": kind, "payload": payload} for kind, payload in payloads)
    )


def letta() -> dict[str, Any]:
    """An agent file: an agent that speaks by a tool, with one block."""
    asked = {"type": "user_message", "message": "Where does the heron nest?", "time": "12:00"}
    call = {"name": "send_message", "arguments": json.dumps({"message": "In the old oak."})}

    def message(role: str, text: str, **more: Any) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {"id": f"m-{role}", "role": role, "content": content, "created_at": AT, **more}

    return {
        "agents": [
            {
                "id": "agent-0",
                "name": "ranger",
                "system": "You are Letta.",
                "block_ids": ["block-0"],
                "memory_blocks": [],
                "messages": [
                    message("system", "You are Letta."),
                    message("user", json.dumps({"type": "login", "time": "12:00"})),
                    message("user", json.dumps(asked)),
                    message(
                        "assistant",
                        "I know that one.",
                        tool_calls=[{"id": "t", "type": "function", "function": call}],
                    ),
                    message("tool", '{"status": "OK"}'),
                ],
            }
        ],
        "blocks": [
            {"id": "block-0", "label": "human", "value": "Anna watches birds.", "limit": 5000}
        ],
        "files": [{"id": "file-0", "file_name": "birds.md", "content": "…"}],
        "groups": [],
        "sources": [],
        "tools": [],
        "mcp_servers": [],
        "metadata": {},
    }


def graphiti() -> dict[str, Any]:
    """Nodes, edges and episodes of Graphiti, each as its model dumps itself."""
    common = {"group_id": "anna", "created_at": "2026-01-06T00:00:00Z"}
    return {
        "nodes": [
            {"uuid": "n1", "name": "Leo", "labels": ["Entity"], "summary": "A cellist.", **common},
            {"uuid": "n2", "name": "Bern", "labels": ["Entity"], "summary": "", **common},
        ],
        "edges": [
            {
                "uuid": "e1",
                "name": "LIVED_IN",
                "fact": "Leo lived in Bern.",
                "source_node_uuid": "n1",
                "target_node_uuid": "n2",
                "episodes": ["p1"],
                "valid_at": AT,
                "invalid_at": "2026-02-01T00:00:00Z",
                "expired_at": None,
                "attributes": {},
                **common,
            }
        ],
        "episodes": [
            {
                "uuid": "p1",
                "name": "chat",
                "source": "message",
                "source_description": "chat",
                "content": "anna: Leo lived in Bern until January.",
                "valid_at": AT,
                **common,
            },
            {
                "uuid": "p2",
                "name": "letter",
                "source": "text",
                "source_description": "a letter",
                "content": "Leo moved to Basel.",
                "valid_at": AT,
                **common,
            },
        ],
    }


def openmemory(file: Path) -> Path:
    """The tables of OpenMemory that hold memories, as its models make them."""
    with closing(sqlite3.connect(file)) as made:
        made.executescript(
            """
            CREATE TABLE users (id CHAR(32) PRIMARY KEY, user_id VARCHAR, name VARCHAR);
            CREATE TABLE apps (id CHAR(32) PRIMARY KEY, owner_id CHAR(32), name VARCHAR);
            CREATE TABLE categories (id CHAR(32) PRIMARY KEY, name VARCHAR);
            CREATE TABLE memory_categories (memory_id CHAR(32), category_id CHAR(32));
            CREATE TABLE memories (
                id CHAR(32) PRIMARY KEY, user_id CHAR(32), app_id CHAR(32), content VARCHAR,
                vector VARCHAR, metadata JSON, state VARCHAR(8), created_at DATETIME,
                updated_at DATETIME, archived_at DATETIME, deleted_at DATETIME
            );
            INSERT INTO users VALUES ('u1', 'anna', NULL);
            INSERT INTO apps VALUES ('a1', 'u1', 'cursor');
            INSERT INTO categories VALUES ('c1', 'music, strings');
            INSERT INTO memory_categories VALUES ('11111111111111111111111111111111', 'c1');
            INSERT INTO memories VALUES
                ('11111111111111111111111111111111', 'u1', 'a1', 'Leo practises the cello.', NULL,
                 '{"mood": "glad"}', 'active', '2026-01-05 12:00:00.000000', NULL, NULL, NULL),
                ('22222222222222222222222222222222', 'u1', 'a1', 'Leo plays the oboe.', NULL,
                 '{}', 'deleted', '2026-01-05 12:00:00.000000', NULL, NULL, NULL);
            """
        )
        made.commit()
    return file


def openmemory_backup() -> dict[str, Any]:
    """`memories.json` in the archive that the backup of OpenMemory writes."""
    memory = {"user_id": "u1", "app_id": "a1", "metadata": {"mood": "glad"}, "created_at": AT}
    return {
        "user": {"id": "u1", "user_id": "anna"},
        "apps": [{"id": "a1", "owner_id": "u1", "name": "cursor"}],
        "categories": [{"id": "c1", "name": "music, strings"}],
        "memories": [
            {
                "id": "11111111-1111-1111-1111-111111111111",
                "content": "Leo practises the cello.",
                "state": "active",
                "category_ids": ["c1"],
                **memory,
            },
            {
                "id": "22222222-2222-2222-2222-222222222222",
                "content": "Leo plays the oboe.",
                "state": "deleted",
                "category_ids": [],
                **memory,
            },
        ],
    }


HERON = [("user", "Where does the heron nest?"), ("assistant", "In the old oak.")]
FORMATS: tuple[ForeignFormat, ...] = ("chatgpt", "claude", "claude-code", "codex", "letta")


def export(folder: Path, format: ForeignFormat) -> Path:
    """The export of a product as it comes."""
    folder.mkdir(exist_ok=True)
    if format == "chatgpt":
        members = {"conversations.json": json.dumps([chatgpt()]), "chat.html": "<html>"}
        return archive(folder / "export.zip", members)
    if format == "claude":
        texts = {name: json.dumps(value) for name, value in claude_files().items()}
        return archive(folder / "data.zip", texts)
    if format == "claude-code":
        place = folder / "projects" / "-home-anna-apollo" / "s1.jsonl"
    elif format == "codex":
        place = folder / "sessions" / "2026" / "01" / "05" / "rollout-2026-01-05T12-00-00-s1.jsonl"
    else:
        place = folder / "ranger.af"
        place.write_text(json.dumps(letta()))
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(claude_code() if format == "claude-code" else codex())
    return folder / place.relative_to(folder).parts[0]
