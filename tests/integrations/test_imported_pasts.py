"""A first start with a past: what a person said to other products, and what these keep of it, comes
in with its dates and sources, once however often it is brought.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.terminals import run_piped

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick_hooks.events import Event, Words
from tallystick_hooks.handling import answer_event
from tallystick_imports import ForeignFormat, files, import_memories

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
AT = "2026-01-05T12:00:00Z"


def _lines(*values: Any) -> str:
    return "\n".join(json.dumps(value) for value in values) + "\n"


def _chatgpt_node(node: str, parent: str | None, *children: str, **message: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": message.pop("parts", [])}
    content |= message.pop("content", {})
    said = None
    if message:
        author = {"role": message.pop("role"), "name": None, "metadata": {}}
        said = {"id": node, "author": author, "create_time": NOON.timestamp(), "content": content}
        said |= {"status": "finished_successfully", "recipient": "all", "metadata": {}, **message}
    return {"id": node, "message": said, "parent": parent, "children": list(children)}


def _chatgpt() -> dict[str, Any]:
    """A conversation in `conversations.json`, with an edited question and a call of a tool."""
    nodes = [
        _chatgpt_node("root", None, "system"),
        _chatgpt_node("system", "root", "old", "q", role="system", parts=["You are helpful."]),
        _chatgpt_node("old", "system", role="user", parts=["Where do herons sleep?"]),
        _chatgpt_node("q", "system", "call", role="user", parts=["Where does the heron nest?"]),
        _chatgpt_node("call", "q", "tool", role="assistant", parts=["search()"], recipient="web"),
        _chatgpt_node("tool", "call", "a", role="tool", parts=["It nests in trees."]),
        _chatgpt_node(
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


def _claude_files() -> dict[str, Any]:
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


def _archive(file: Path, members: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file


def _claude_code() -> str:
    """A session below `~/.claude/projects`, with a tool, a subagent and a compaction."""
    common = {"sessionId": "s1", "cwd": "/home/anna/apollo", "timestamp": AT, "isSidechain": False}

    def line(kind: str, uuid: str, content: Any, **more: Any) -> dict[str, Any]:
        message = {"role": kind, "content": content}
        return {"type": kind, "uuid": uuid, "message": message, **common, **more}

    answer = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "In the old oak."}]
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "oak"}]
    return _lines(
        {"type": "summary", "summary": "Herons", "leafUuid": "u2"},
        line("user", "u1", "Where does the heron nest?"),
        line("assistant", "u2", answer),
        line("user", "u3", result),
        line("user", "u4", "Look it up.", isSidechain=True),
        line("user", "u5", "This session continues from …", isCompactSummary=True),
    )


def _codex(*, is_old: bool = False) -> str:
    """A session below `~/.codex/sessions`; an old one has no events, and no envelope."""

    def message(role: str, kind: str, text: str) -> dict[str, Any]:
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}

    asked = message("user", "input_text", "Where does the heron nest?")
    answered = message("assistant", "output_text", "In the old oak.")
    if is_old:
        return _lines({"id": "s1", "timestamp": AT, "instructions": None}, asked, answered)
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
    return _lines(
        *({"timestamp": AT, "type": kind, "payload": payload} for kind, payload in payloads)
    )


def _letta() -> dict[str, Any]:
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


def _graphiti() -> dict[str, Any]:
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


def _openmemory(file: Path) -> Path:
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


def _openmemory_backup() -> dict[str, Any]:
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


def _export(folder: Path, format: ForeignFormat) -> Path:
    """The export of a product as it comes."""
    folder.mkdir(exist_ok=True)
    if format == "chatgpt":
        members = {"conversations.json": json.dumps([_chatgpt()]), "chat.html": "<html>"}
        return _archive(folder / "export.zip", members)
    if format == "claude":
        texts = {name: json.dumps(value) for name, value in _claude_files().items()}
        return _archive(folder / "data.zip", texts)
    if format == "claude-code":
        place = folder / "projects" / "-home-anna-apollo" / "s1.jsonl"
    elif format == "codex":
        place = folder / "sessions" / "2026" / "01" / "05" / "rollout-2026-01-05T12-00-00-s1.jsonl"
    else:
        place = folder / "ranger.af"
        place.write_text(json.dumps(_letta()))
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(_claude_code() if format == "claude-code" else _codex())
    return folder / place.relative_to(folder).parts[0]


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_said_elsewhere_becomes_turns_with_their_time_and_source(
    open_sqlite: OpenTally, tmp_path: Path, format: ForeignFormat
) -> None:
    file = _export(tmp_path / "export", format)
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        preview = import_memories(anna, format, file)
        assert (preview.kinds["turn"], preview.created) == (2, 0)
        assert anna.memories() == []

        told: list[tuple[int, int]] = []
        done = import_memories(
            anna, format, file, mode="apply", progress=lambda *each: told.append(each)
        )
        assert (done.created, done.found) == (preview.read, preview.read)
        assert told == [(preview.read, preview.read)]
        turns = anna.memories(kinds=("turn",))[::-1]
        assert [(turn.speaker, turn.content) for turn in turns] == HERON
        assert {turn.occurred_time for turn in turns} == {NOON}
        assert len({turn.conversation for turn in turns}) == 1
        for turn in turns:
            source = anna.source(turn.sources[0].source_id)
            assert (source.source_type, (source.uri or "").split(":")[0]) == ("memory", format)
        assert anna.recall("Where does the heron nest?")

        again = import_memories(anna, format, file, mode="apply")
        assert (again.created, again.present, again.found) == (0, preview.read, preview.read)
        assert len(anna.memories()) == preview.read


def test_an_edited_question_leaves_its_branch_and_what_follows_comes_in(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    """The export of a later day, in which the conversation went on from another place."""
    file = tmp_path / "conversations.json"
    conversation = _chatgpt()
    file.write_text(json.dumps([conversation]))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "chatgpt", file, mode="apply")
        new = _chatgpt_node("old2", "old", role="assistant", parts=["On one leg."])
        conversation["mapping"]["old2"] = new
        conversation["current_node"] = "old2"
        file.write_text(json.dumps([conversation]))
        done = import_memories(anna, "chatgpt", file, mode="apply")

        assert (done.created, done.present, done.skipped) == (2, 0, ())
        assert {turn.content for turn in anna.memories()} == {
            *(text for _, text in HERON),
            "Where do herons sleep?",
            "On one leg.",
        }


def test_claude_gives_what_it_remembers_and_no_instruction_of_a_project(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        file = _export(tmp_path / "export", "claude")
        done = import_memories(anna, "claude", file, mode="apply")

        assert done.owners == {"anna@example.org": 5}
        others = {
            (memory.kind, memory.subject, memory.content)
            for memory in anna.memories()
            if memory.kind != "turn"
        }
        assert others == {
            ("summary", None, "Anna watches birds."),
            ("summary", None, "The hide is built of larch."),
            ("project", "Hide", "A hide at the lake."),
        }
        assert {each.place: each.reason for each in done.skipped} == {
            "entry 1 prompt_template": "is the instruction of a project, which no memory becomes",
            "entry 1 doc 1": "plan.md is a document of a project: bring it in with `tally import`",
        }


def test_an_agent_of_letta_brings_its_blocks_and_not_how_it_was_told_to_be(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        file = _export(tmp_path / "export", "letta")
        done = import_memories(anna, "letta", file, mode="apply")

        [block] = anna.memories(kinds=("note",))
        assert (block.subject, block.content) == ("human", "Anna watches birds.")
        assert done.owners == {"ranger": 3}
        assert "bring it in with `tally import`" in done.skipped[0].reason
        assert not any("Letta" in memory.content for memory in anna.memories())


@pytest.mark.parametrize("format", ["graphiti", "zep"])
def test_facts_of_a_graph_keep_when_they_held(
    open_sqlite: OpenTally, tmp_path: Path, format: ForeignFormat
) -> None:
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(_graphiti()))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done = import_memories(anna, format, file, mode="apply")
        again = import_memories(anna, format, file, mode="apply")

        assert (done.created, done.owners, done.skipped) == (4, {"anna": 4}, ())
        assert (again.created, again.present) == (0, 4)
        assert done.kinds == {"fact": 1, "note": 1, "summary": 1, "turn": 1}
        [fact] = anna.memories(kinds=("fact",))
        assert (fact.subject, fact.content, fact.occurred_time) == (
            "Leo",
            "Leo lived in Bern.",
            NOON,
        )
        assert fact.valid_until == int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()) * 1_000_000
        assert fact.attributes["entities"] == ["Leo", "Bern"]


def test_a_thread_of_zep_becomes_a_conversation(open_sqlite: OpenTally, tmp_path: Path) -> None:
    said = [
        {"uuid": f"m{n}", "role": role, "name": "x", "content": text, "created_at": AT}
        for n, (role, text) in enumerate([*HERON, ("system", "Be brief.")])
    ]
    file = tmp_path / "thread.json"
    file.write_text(json.dumps({"thread_id": "t1", "user_id": "anna", "messages": said}))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "zep", file, mode="apply")
        turns = anna.memories(conversation="t1")[::-1]
        assert [(turn.speaker, turn.content) for turn in turns] == HERON


@pytest.mark.parametrize("kind", ["database", "backup", "memories.json"])
def test_openmemory_gives_what_is_active_there(
    open_sqlite: OpenTally, tmp_path: Path, kind: str
) -> None:
    backup = json.dumps(_openmemory_backup())
    if kind == "database":
        file = _openmemory(tmp_path / "openmemory.db")
    elif kind == "backup":
        packed = gzip.compress(b"{}")
        members: dict[str, str | bytes] = {"memories.json": backup, "memories.jsonl.gz": packed}
        file = _archive(tmp_path / "memories_export_anna.zip", members)
    else:
        file = tmp_path / "memories.json"
        file.write_text(backup)
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done = import_memories(anna, "openmemory", file, mode="apply")

        assert (done.created, done.owners) == (1, {"anna": 1})
        assert [each.reason for each in done.skipped] == ["is deleted there"]
        [memory] = anna.memories()
        assert (memory.content, memory.tags) == ("Leo practises the cello.", ("music, strings",))
        assert memory.attributes == {"mood": "glad", "app": "cursor"}
        assert memory.occurred_time == NOON
        address = "openmemory:anna:11111111-1111-1111-1111-111111111111"
        assert anna.source(memory.sources[0].source_id).uri == address


def test_a_session_that_hooks_have_kept_does_not_come_in_twice(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    """The hooks came in after the first question, and kept what was said from then on."""
    lines = _claude_code().splitlines()
    more = json.loads(lines[1])
    more |= {"uuid": "u0", "message": {"role": "user", "content": "What is a heron?"}}
    file = tmp_path / "s1.jsonl"
    file.write_text("\n".join([lines[0], json.dumps(more), *lines[1:]]))
    with open_sqlite(owner=ANNA) as tally:
        words = tuple(
            Words(f"u{n}", "user" if speaker == "user" else "agent", text)
            for n, (speaker, text) in enumerate(HERON, 1)
        )
        event = Event(name="turn-end", session="s1", words=words)
        answer_event(tally, event, boundary=None, agent=None)
        anna = tally.bind(ANNA)
        assert len(anna.memories(conversation="s1")) == 2
        done = import_memories(anna, "claude-code", file, mode="apply")
        assert (done.created, done.present) == (1, 2)
        again = import_memories(anna, "claude-code", file, mode="apply")
        assert (again.created, again.present) == (0, 3)
        assert len(anna.memories(conversation="s1")) == 3


def test_sessions_of_several_projects_come_in_by_the_project_that_is_named(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    root = _export(tmp_path / "export", "claude-code")
    other = root / "-home-anna-zeus"
    other.mkdir()
    told = _claude_code().replace("/home/anna/apollo", "C:\\\\work\\\\zeus").replace("s1", "s2")
    (other / "s2.jsonl").write_text(told)
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        assert import_memories(anna, "claude-code", root).owners == {"apollo": 2, "zeus": 2}
        with pytest.raises(InvalidInput, match="2 owners"):
            import_memories(anna, "claude-code", root, mode="apply")
        import_memories(anna, "claude-code", root, mode="apply", only=["zeus"])
        assert {turn.conversation for turn in anna.memories()} == {"s2"}


def test_an_old_session_of_codex_has_no_events_and_is_read(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    file = tmp_path / "rollout.jsonl"
    file.write_text(_codex(is_old=True))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "codex", file, mode="apply")
        turns = anna.memories(conversation="s1")[::-1]
        assert [(turn.speaker, turn.content) for turn in turns] == HERON
        assert {turn.occurred_time for turn in turns} == {NOON}


def test_a_session_that_grew_brings_what_is_new(open_sqlite: OpenTally, tmp_path: Path) -> None:
    file = tmp_path / "rollout-s1.jsonl"
    file.write_text(_codex())
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "codex", file, mode="apply")
        with file.open("a") as opened:
            payload = {"type": "user_message", "message": "Thank you."}
            opened.write(_lines({"timestamp": AT, "type": "event_msg", "payload": payload}))
            opened.write('{"timestamp": "2026')  # a line that is being written
        done = import_memories(anna, "codex", file, mode="apply")
        assert (done.created, done.present) == (1, 2)
        assert [each.reason for each in done.skipped] == ["is no JSON"]


def test_a_secret_in_an_old_conversation_is_replaced(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    secret = "sk-ant-api03-" + "aB3dE5fG7h" * 9 + "AA"
    file = tmp_path / "s1.jsonl"
    file.write_text(_claude_code().replace("In the old oak.", f"The key is {secret}"))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "claude-code", file, mode="apply")
        again = import_memories(anna, "claude-code", file, mode="apply")
        assert (again.created, again.present) == (0, 2)
        assert not any(secret in turn.content for turn in anna.memories())


def _hostile(kind: str) -> Any:
    conversation = _chatgpt()
    nodes = conversation["mapping"]
    if kind == "a circle":
        nodes["q"]["parent"] = "a"
    elif kind == "no tree":
        conversation["mapping"] = [1, 2]
    elif kind == "no node":
        nodes["q"] = "text"
    elif kind == "no time":
        nodes["q"]["message"]["create_time"] = 1e300
    elif kind == "an unfit node":
        conversation["current_node"] = ["a"]
    elif kind == "deep":
        inner: Any = "x"
        for _ in range(200):
            inner = [inner]
        nodes["q"]["message"]["metadata"] = {"deep": inner}
    else:
        nodes["q"]["message"]["content"]["parts"] = {"parts": 1}
    return conversation


@pytest.mark.parametrize(
    "kind",
    ["a circle", "no tree", "no node", "no time", "an unfit node", "deep", "no parts"],
)
def test_a_conversation_that_is_none_is_skipped_and_the_others_come(
    open_sqlite: OpenTally, tmp_path: Path, kind: str
) -> None:
    good = {**_chatgpt(), "conversation_id": "c2", "id": "c2"}
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([_hostile(kind), good, 7]))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done = import_memories(anna, "chatgpt", file, mode="apply")
        assert len(anna.memories(conversation="c2")) == 2
        assert done.skipped_count == (1 if kind == "no parts" else 2)
        assert done.found == done.created == len(anna.memories())


@pytest.mark.parametrize("format", [*FORMATS, "zep", "graphiti", "openmemory"])
@pytest.mark.parametrize(
    "value",
    [
        [None, 1, "text", [], {}],
        {"agents": 3, "mapping": None, "chat_messages": 1, "memories": "x", "edges": [1, {}]},
        {"type": "user", "message": {"content": [{"type": "text", "text": 3}]}, "payload": []},
        [{"uuid": {}, "id": [], "chat_messages": [None, {"sender": "human", "text": {}}]}],
    ],
)
def test_no_value_of_another_form_stops_an_import(
    open_sqlite: OpenTally, tmp_path: Path, format: ForeignFormat, value: Any
) -> None:
    file = tmp_path / "export.json"
    file.write_text(json.dumps(value))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done, refusal = None, ""
        try:
            done = import_memories(anna, format, file, mode="apply")
        except InvalidInput as error:
            refusal = str(error)
        assert done is not None or str(file) in refusal
        assert done is None or (done.created, done.skipped_count > 0) == (0, True)
        assert anna.memories() == []


def test_an_archive_that_unfolds_without_end_is_refused(
    open_sqlite: OpenTally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SPARE", 2**20)
    bomb = _archive(tmp_path / "bomb.zip", {"conversations.json": b" " * 2**24})
    empty = _archive(tmp_path / "empty.zip", {"readme.txt": "nothing"})
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(_export(tmp_path / "export", "chatgpt").read_bytes().replace(b"\x08", b"9"))
    # What is not read may be as large as it likes.
    beside: dict[str, str | bytes] = {
        "photo.bin": b" " * 2**24,
        "conversations.json": json.dumps([_chatgpt()]),
    }
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        with pytest.raises(InvalidInput, match="unfolds to more"):
            import_memories(anna, "chatgpt", bomb)
        with pytest.raises(InvalidInput, match=r"holds no conversations\.json"):
            import_memories(anna, "chatgpt", empty)
        with pytest.raises(InvalidInput, match=r"damaged\.zip"):
            import_memories(anna, "chatgpt", damaged)
        whole = _archive(tmp_path / "whole.zip", beside)
        assert import_memories(anna, "chatgpt", whole).read == 2


def test_links_in_a_folder_of_sessions_lead_nowhere(open_sqlite: OpenTally, tmp_path: Path) -> None:
    root = _export(tmp_path / "export", "claude-code")
    elsewhere = tmp_path / "other.jsonl"
    elsewhere.write_text(_claude_code().replace("s1", "s9"))
    (root / "link.jsonl").symlink_to(elsewhere)
    (root / "loop").symlink_to(root)
    with open_sqlite() as tally:
        assert import_memories(tally.bind(ANNA), "claude-code", root).read == 2


def test_the_command_takes_an_export_as_it_comes(tmp_path: Path) -> None:
    file = _export(tmp_path / "export", "chatgpt")
    place = ("--tally", str(tmp_path / "tally"))
    with Tally.open(tmp_path / "tally", owner=ANNA, background=False):
        pass
    code, output, _ = run_piped("import-from", "chatgpt", str(file), *place)
    assert (code, "Nothing is written yet" in output) == (0, True)
    code, output, _ = run_piped("import-from", "chatgpt", str(file), "--apply", "--json", *place)
    assert (code, json.loads(output)["created"]) == (0, 2)
