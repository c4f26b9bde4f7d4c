"""A first start with a past: what a person said to other products, and what these keep of it, comes
in with its dates and sources, once however often it is brought.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integrations.foreign_exports import (
    AT,
    FORMATS,
    HERON,
    NOON,
    archive,
    chatgpt,
    chatgpt_node,
    claude_code,
    claude_files,
    codex,
    export,
    graphiti,
    letta,
    lines,
    openmemory,
    openmemory_backup,
)
from tests.terminals import run_piped

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick_hooks.events import Event, Words
from tallystick_hooks.handling import answer_event
from tallystick_imports import ForeignFormat, files, import_memories
from tallystick_imports.foreign_memories import read

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_said_elsewhere_becomes_turns_with_their_time_and_source(
    open_sqlite: OpenTally, tmp_path: Path, format: ForeignFormat
) -> None:
    file = export(tmp_path / "export", format)
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
    conversation = chatgpt()
    file.write_text(json.dumps([conversation]))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "chatgpt", file, mode="apply")
        new = chatgpt_node("old2", "old", role="assistant", parts=["On one leg."])
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
        file = export(tmp_path / "export", "claude")
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
        file = export(tmp_path / "export", "letta")
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
    file.write_text(json.dumps(graphiti()))
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


def test_a_name_of_any_length_loses_no_fact_of_a_graph(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    nodes = [{"uuid": "n1", "name": "heron " * 60, "summary": "Grey."}]
    edges = [{"uuid": "e1", "fact": "It nests in oaks.", "source_node_uuid": "n1"}]
    file = tmp_path / "graph.json"
    file.write_text(json.dumps({"group_id": "g", "nodes": nodes, "edges": edges}))
    with open_sqlite() as tally:
        done = import_memories(tally.bind(ANNA), "graphiti", file, mode="apply")
        assert (done.created, done.skipped) == (2, ())


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
    backup = json.dumps(openmemory_backup())
    if kind == "database":
        file = openmemory(tmp_path / "openmemory.db")
    elif kind == "backup":
        packed = gzip.compress(b"{}")
        members: dict[str, str | bytes] = {"memories.json": backup, "memories.jsonl.gz": packed}
        file = archive(tmp_path / "memories_export_anna.zip", members)
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
    told = claude_code().splitlines()
    more = json.loads(told[1])
    more |= {"uuid": "u0", "message": {"role": "user", "content": "What is a heron?"}}
    file = tmp_path / "s1.jsonl"
    file.write_text("\n".join([told[0], json.dumps(more), *told[1:]]))
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
    root = export(tmp_path / "export", "claude-code")
    other = root / "-home-anna-zeus"
    other.mkdir()
    told = claude_code().replace("/home/anna/apollo", "C:\\\\work\\\\zeus").replace("s1", "s2")
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
    file.write_text(codex(is_old=True))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "codex", file, mode="apply")
        turns = anna.memories(conversation="s1")[::-1]
        assert [(turn.speaker, turn.content) for turn in turns] == HERON
        assert {turn.occurred_time for turn in turns} == {NOON}


def test_a_session_that_grew_brings_what_is_new(open_sqlite: OpenTally, tmp_path: Path) -> None:
    file = tmp_path / "rollout-s1.jsonl"
    file.write_text(codex())
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "codex", file, mode="apply")
        with file.open("a") as opened:
            payload = {"type": "user_message", "message": "Thank you."}
            opened.write(lines({"timestamp": AT, "type": "event_msg", "payload": payload}))
            opened.write('{"timestamp": "2026')  # a line that is being written
        done = import_memories(anna, "codex", file, mode="apply")
        assert (done.created, done.present) == (1, 2)
        assert [each.reason for each in done.skipped] == ["is no JSON"]


def test_a_secret_that_hooks_have_kept_without_it_does_not_come_in_again(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    """The hooks gave the words other places than the file has."""
    told = f"The key is sk-ant-api03-{'aB3dE5fG7h' * 9}AA"
    file = tmp_path / "s1.jsonl"
    file.write_text(claude_code().replace("In the old oak.", told))
    with open_sqlite(owner=ANNA) as tally:
        words = (Words("u0", "user", "Hello?"), Words("u2", "agent", told))
        event = Event(name="turn-end", session="s1", words=words)
        answer_event(tally, event, boundary=None, agent=None)
        anna = tally.bind(ANNA)
        first = import_memories(anna, "claude-code", file, mode="apply")
        assert (first.created, first.present) == (1, 1)
        again = import_memories(anna, "claude-code", file, mode="apply")
        assert (again.created, again.present) == (0, 2)
        assert len(anna.memories(conversation="s1")) == 3


def test_text_that_was_pasted_into_a_message_of_claude_comes_in(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    exported = claude_files()["conversations.json"]
    pasted = {"file_name": "log.txt", "extracted_content": "The nest is empty."}
    exported[0]["chat_messages"] += [
        {"uuid": "m3", "sender": "human", "text": "", "content": [], "attachments": [pasted]}
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps(exported))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done = import_memories(anna, "claude", file, mode="apply")
        assert done.kinds == {"turn": 2, "artifact": 1}
        [memory] = anna.memories(kinds=["artifact"])
        source = anna.source(memory.sources[0].source_id)
        assert (memory.content, source.title) == ("The nest is empty.", "log.txt")
        assert source.uri == "claude:c1:m3:attachment:1"
        assert import_memories(anna, "claude", file, mode="apply").created == 0


def test_a_secret_in_an_old_conversation_is_replaced(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    secret = "sk-ant-api03-" + "aB3dE5fG7h" * 9 + "AA"
    file = tmp_path / "s1.jsonl"
    file.write_text(claude_code().replace("In the old oak.", f"The key is {secret}"))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        import_memories(anna, "claude-code", file, mode="apply")
        again = import_memories(anna, "claude-code", file, mode="apply")
        assert (again.created, again.present) == (0, 2)
        assert not any(secret in turn.content for turn in anna.memories())


def _hostile(kind: str) -> Any:
    conversation = chatgpt()
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
    good = {**chatgpt(), "conversation_id": "c2", "id": "c2"}
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


ODD: tuple[Any, ...] = (
    *(None, 0, -1, 1e308, True, "", "x" * 300, "\ud800", "\x00", 2**80, float("nan")),
    *("2026-13-40", "9999-12-31T23:59:59Z", [], {}, [None], {"a": 1}, [[[]]]),
)
WHOLE: Mapping[ForeignFormat, Any] = {
    "chatgpt": [chatgpt()],
    "claude": [
        each for name, values in claude_files().items() if name != "users.json" for each in values
    ],
    "claude-code": [json.loads(line) for line in claude_code().splitlines()],
    "codex": [json.loads(line) for line in codex().splitlines()],
    "letta": letta(),
    "zep": {"thread_id": "t", "messages": [{"role": "user", "content": "x", "created_at": AT}]},
    "graphiti": graphiti(),
    "openmemory": openmemory_backup(),
}


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every member of a value, as what holds it and its key there."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(value, key) for key, _ in inner]
    members = [value[key] for _, key in found]
    return found + [
        place for each in members if isinstance(each, dict | list) for place in _places(each)
    ]


@pytest.mark.parametrize("format", WHOLE)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_change_of_an_export_does_more_than_leave_something_out(
    tmp_path: Path, format: ForeignFormat, data: st.DataObject
) -> None:
    changed = copy.deepcopy(WHOLE[format])
    for _ in range(data.draw(st.integers(1, 3))):
        places = _places(changed)
        if places:
            holder, key = places[data.draw(st.integers(0, len(places) - 1))]
            holder[key] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
    file = tmp_path / "export"
    is_log = format in ("claude-code", "codex")
    file.write_text(lines(*changed) if is_log else json.dumps(changed))
    with suppress(InvalidInput):
        read(format, file)


def test_an_owner_of_half_a_character_is_named_all_the_same(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    graph = graphiti()
    for each in (*graph["edges"], *graph["nodes"], *graph["episodes"]):
        each["group_id"] = "an\ud800na\x00"
    file = tmp_path / "graph.json"
    file.write_text(json.dumps(graph))
    with open_sqlite() as tally:
        done = import_memories(tally.bind(ANNA), "graphiti", file, mode="apply")
        assert (done.created, done.owners) == (4, {"an?na?": 4})


def test_a_conversation_that_was_cut_off_goes_on_after_what_is_stored(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    said = [
        {"uuid": f"m{n}", "sender": "human", "text": "ok" if n % 3 else f"Note {n}."}
        for n in range(450)
    ]
    file = tmp_path / "conversations.json"
    file.write_text(json.dumps([{"uuid": "c1", "name": "Notes", "chat_messages": said}]))

    def cut_off(done: int, total: int) -> None:
        assert (done, total) == (200, 450)
        raise KeyboardInterrupt

    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        with pytest.raises(KeyboardInterrupt):
            import_memories(anna, "claude", file, mode="apply", progress=cut_off)
        done = import_memories(anna, "claude", file, mode="apply")
        assert (done.created, done.present, done.found) == (250, 200, 450)
        turns = anna.memories(conversation="c1", limit=1_000)[::-1]
        assert [turn.content for turn in turns] == [each["text"] for each in said]


def test_an_archive_that_unfolds_without_end_is_refused(
    open_sqlite: OpenTally, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_SPARE", 2**20)
    bomb = archive(tmp_path / "bomb.zip", {"conversations.json": b" " * 2**24})
    empty = archive(tmp_path / "empty.zip", {"readme.txt": "nothing"})
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(export(tmp_path / "export", "chatgpt").read_bytes().replace(b"\x08", b"9"))
    # What is not read may be as large as it likes.
    beside: dict[str, str | bytes] = {
        "photo.bin": b" " * 2**24,
        "conversations.json": json.dumps([chatgpt()]),
    }
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        with pytest.raises(InvalidInput, match="unfolds to more"):
            import_memories(anna, "chatgpt", bomb)
        with pytest.raises(InvalidInput, match=r"holds no conversations\.json"):
            import_memories(anna, "chatgpt", empty)
        with pytest.raises(InvalidInput, match=r"damaged\.zip"):
            import_memories(anna, "chatgpt", damaged)
        whole = archive(tmp_path / "whole.zip", beside)
        assert import_memories(anna, "chatgpt", whole).read == 2


def test_links_in_a_folder_of_sessions_lead_nowhere(open_sqlite: OpenTally, tmp_path: Path) -> None:
    root = export(tmp_path / "export", "claude-code")
    elsewhere = tmp_path / "other.jsonl"
    elsewhere.write_text(claude_code().replace("s1", "s9"))
    (root / "link.jsonl").symlink_to(elsewhere)
    (root / "loop").symlink_to(root)
    with open_sqlite() as tally:
        assert import_memories(tally.bind(ANNA), "claude-code", root).read == 2


def test_the_command_takes_an_export_as_it_comes(tmp_path: Path) -> None:
    file = export(tmp_path / "export", "chatgpt")
    place = ("--tally", str(tmp_path / "tally"))
    with Tally.open(tmp_path / "tally", owner=ANNA, background=False):
        pass
    code, output, _ = run_piped("import-from", "chatgpt", str(file), *place)
    assert (code, "Nothing is written yet" in output) == (0, True)
    code, output, _ = run_piped("import-from", "chatgpt", str(file), "--apply", "--json", *place)
    assert (code, json.loads(output)["created"]) == (0, 2)
