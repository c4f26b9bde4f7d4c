"""A way in from other memories and a way out: previewed, done twice without harm, each owner apart,
and the same questions find the same memories afterwards.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.terminals import run_piped

from tallystick import Actor, Tally
from tallystick.errors import InvalidInput
from tallystick_imports import (
    ExportFormat,
    ForeignFormat,
    export_lines,
    import_memories,
)
from tallystick_langgraph import TallySaver, TallyStore, import_checkpoints

OpenTally = Callable[..., Tally]
ANNA = Actor(user="anna")
FACTS = ("The heron nests in the oak.", "Leo practises the cello.", "The office moved to Bern.")
QUESTIONS = ("Where does the heron nest?", "Which instrument does Leo practise?", "Where is it?")


def _mem0(users: tuple[str, ...] = ("anna",)) -> dict[str, Any]:
    """What `Memory.get_all` of mem0 answers."""
    return {
        "results": [
            {
                "id": f"{user}-{number}",
                "memory": fact,
                "hash": "9f1c",
                "metadata": {"category": "notes", "tags": ["birds"]},
                "created_at": "2026-01-05T10:00:00.000000-07:00",
                "updated_at": None,
                "user_id": user,
            }
            for user in users
            for number, fact in enumerate(FACTS)
        ]
    }


def _langmem() -> list[dict[str, Any]]:
    """Items of the store that LangMem writes to, as `Item.dict` gives them."""
    return [
        {
            "namespace": ["memories", "anna"],
            "key": f"k{number}",
            "value": {"kind": "Memory", "content": {"content": fact}},
            "created_at": "2026-01-05T10:00:00+00:00",
            "updated_at": "2026-01-05T10:00:00+00:00",
        }
        for number, fact in enumerate(FACTS)
    ]


def _chat_store() -> dict[str, Any]:
    """A SimpleChatStore of LlamaIndex, as it persists itself."""
    return {
        "store": {
            "anna": [
                {
                    "role": "user" if number % 2 == 0 else "assistant",
                    "additional_kwargs": {},
                    "blocks": [{"block_type": "text", "text": fact}],
                }
                for number, fact in enumerate(FACTS)
            ]
        },
        "class_name": "SimpleChatStore",
    }


def _written(file: Path, value: Any) -> Path:
    file.write_text(json.dumps(value))
    return file


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("mem0", _mem0()),
        ("langmem", _langmem()),
        ("llama-index", _chat_store()),
        ("jsonl", [{"content": fact, "user": "anna", "id": fact} for fact in FACTS]),
    ],
    ids=["mem0", "langmem", "llama-index", "jsonl"],
)
def test_the_same_questions_find_the_same_memories_afterwards(
    open_sqlite: OpenTally, tmp_path: Path, format: ForeignFormat, content: Any
) -> None:
    file = _written(tmp_path / "export.json", content)
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        preview = import_memories(anna, format, file)
        assert (preview.read, preview.created, preview.skipped) == (3, 0, ())
        assert anna.memories() == []

        done = import_memories(anna, format, file, mode="apply")
        assert (done.created, done.present, done.found) == (3, 0, 3)
        for question, fact in zip(QUESTIONS[:2], FACTS, strict=False):
            [first, *_] = anna.recall(question)
            assert first.content == fact
            [source] = first.memory.sources
            assert (anna.source(source.source_id).uri or "").startswith(format)

        again = import_memories(anna, format, file, mode="apply")
        assert (again.created, again.present, again.found) == (0, 3, 3)
        assert len(anna.memories()) == 3


def test_an_import_that_was_cut_off_goes_on_after_what_is_stored(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    memories = [{"id": f"m{n}", "memory": f"Note {n}.", "user_id": "anna"} for n in range(450)]
    file = _written(tmp_path / "export.json", memories)

    def cut_off(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        with pytest.raises(KeyboardInterrupt):
            import_memories(anna, "mem0", file, mode="apply", progress=cut_off)
        stored = len(anna.memories(limit=1_000))
        assert 0 < stored < 450
        done = import_memories(anna, "mem0", file, mode="apply")
        assert (done.created, done.present, done.found) == (450 - stored, stored, 450)
        assert len(anna.memories(limit=1_000)) == 450


def test_the_lines_that_go_out_are_what_the_other_product_takes(open_sqlite: OpenTally) -> None:
    from langgraph.store.memory import InMemoryStore
    from llama_index.core.base.llms.types import ChatMessage

    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        for fact in FACTS:
            anna.remember(fact, kind="fact")
        lines = {
            format: [json.loads(line) for line in export_lines(anna.memories(), format, owner="a")]
            for format in get_args(ExportFormat)
        }
    store = InMemoryStore()
    for line in lines["langgraph-store"]:
        store.put(tuple(line["namespace"]), line["key"], line["value"])
    assert sorted(item.value["content"] for item in store.search(("memories", "a"))) == sorted(
        FACTS
    )
    messages = [
        ChatMessage.model_validate({name: line[name] for name in ("role", "blocks")})
        for line in lines["llama-index"]
    ]
    assert sorted(message.content or "" for message in messages) == sorted(FACTS)
    assert all(
        line.keys() == {"messages", "user_id", "metadata", "infer"} for line in lines["mem0"]
    )


def test_a_store_of_langgraph_goes_on_in_ours(open_sqlite: OpenTally, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    # The table of langgraph-checkpoint-sqlite 3.
    with closing(sqlite3.connect(file)) as official:
        official.execute(
            "CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL, "
            "created_at TIMESTAMP, updated_at TIMESTAMP, expires_at TIMESTAMP, "
            "ttl_minutes REAL, PRIMARY KEY (prefix, key))"
        )
        values = [{"text": fact, "n": number} for number, fact in enumerate(FACTS)]
        official.executemany(
            "INSERT INTO store (prefix, key, value) VALUES ('notes.anna', ?, ?)",
            [(f"k{value['n']}", json.dumps(value)) for value in values],
        )
        official.commit()
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done = import_memories(anna, "langgraph-store", file, mode="apply")
        assert (done.created, done.found, done.owners) == (3, 3, {"notes/anna": 3})
        ours = TallyStore(tally, actor=ANNA).search(("notes",), limit=10)
        assert sorted((item.key, item.value["text"]) for item in ours) == [
            (f"k{number}", fact) for number, fact in enumerate(FACTS)
        ]
        assert {item.namespace for item in ours} == {("notes", "anna")}


def test_memories_of_several_people_come_in_only_for_those_who_are_named(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    file = _written(tmp_path / "export.json", _mem0(("anna", "bob")))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        assert import_memories(anna, "mem0", file).owners == {"anna": 3, "bob": 3}
        with pytest.raises(InvalidInput, match=r"2 owners: anna \(3\), bob \(3\)"):
            import_memories(anna, "mem0", file, mode="apply")
        with pytest.raises(InvalidInput, match="nothing of 'eve'"):
            import_memories(anna, "mem0", file, only=["eve"], mode="apply")
        assert anna.memories() == []
        done = import_memories(anna, "mem0", file, only=["anna"], mode="apply")
        assert done.created == 3
        assert all(
            (anna.source(memory.sources[0].source_id).uri or "").startswith("mem0:anna:")
            for memory in anna.memories()
        )


def test_a_schema_and_a_kind_of_somebody_elses_come_in_as_facts(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    def item(key: str, schema: str, **content: str) -> dict[str, Any]:
        value = {"kind": schema, "content": content}
        return {"namespace": ["memories", "anna"], "key": key, "value": value}

    items = [
        item("1", "UserProfile", name="Anna", drink="tea"),
        item("2", "Preference", content="Anna likes tea."),
        item("3", "Memory", content="Anna sails.", kind="hobby"),
    ]
    results = [{"id": "1", "memory": "Anna rows.", "metadata": {"kind": "hobby"}}]
    of_langmem, of_mem0 = tmp_path / "items.json", tmp_path / "mem0.json"
    of_langmem.write_text(json.dumps(items))
    of_mem0.write_text(json.dumps({"results": results}))
    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))
        preview = import_memories(anna, "langmem", of_langmem)
        done = import_memories(anna, "langmem", of_langmem, mode="apply")
        assert (done.created, done.skipped) == (preview.read, ()) == (3, ())
        import_memories(anna, "mem0", of_mem0, mode="apply")
        assert {(each.kind, each.content): each.attributes for each in anna.memories()} == {
            ("fact", '{"name": "Anna", "drink": "tea"}'): {
                "name": "Anna",
                "drink": "tea",
                "schema": "UserProfile",
            },
            ("preference", "Anna likes tea."): {},
            ("fact", "Anna sails."): {"kind": "hobby"},
            ("fact", "Anna rows."): {"kind": "hobby"},
        }


def test_a_preview_skips_what_an_import_would_skip(open_sqlite: OpenTally, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"content": "Tea.", "kind": "fact"}\n{"content": "Rum.", "kind": "hobby"}\n')
    with open_sqlite() as tally:
        anna = tally.bind(Actor(user="anna"))
        preview = import_memories(anna, "jsonl", file)
        done = import_memories(anna, "jsonl", file, mode="apply")
        assert (preview.read, preview.skipped) == (1, done.skipped)
        assert [each.place for each in done.skipped] == ["line 2"]


def test_lines_that_cannot_be_read_are_skipped_with_their_number_and_reason(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    file = tmp_path / "memories.jsonl"
    lines = [
        json.dumps({"content": FACTS[0]}),
        "{broken",
        json.dumps({"content": "  "}),
        json.dumps([1, 2]),
        json.dumps({"content": FACTS[1], "occurred_at": "never"}),
        json.dumps({"text": FACTS[2], "kind": "decision", "tags": ["office"], "id": "x1"}),
    ]
    file.write_text("\n".join(lines))
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done = import_memories(anna, "jsonl", file, mode="apply")
        assert (done.created, done.found, done.skipped_count) == (2, 2, 4)
        reasons = {each.place: each.reason for each in done.skipped}
        assert set(reasons) == {"line 2", "line 3", "line 4", "line 5"}
        assert reasons["line 2"] == "is no JSON"
        assert "no text" in reasons["line 3"]
        assert {memory.kind for memory in anna.memories()} == {"note", "decision"}


@pytest.mark.parametrize("format", get_args(ExportFormat))
def test_what_goes_out_comes_in_again(
    open_sqlite: OpenTally, tmp_path: Path, format: ExportFormat
) -> None:
    with open_sqlite() as tally:
        anna, bob = tally.bind(ANNA), tally.bind(Actor(user="bob"))
        # Separators of lines that JSON does not escape stand within a line of it.
        facts = [*FACTS, "A line\u2028that\u0085goes on\u2029here."]
        for fact in facts:
            anna.remember(fact, kind="fact", tags=["t"])
        lines = list(export_lines(anna.memories(), format, owner="anna"))
        file = tmp_path / "out.jsonl"
        file.write_text("\n".join(lines))
        done = import_memories(bob, format, file, mode="apply")
        assert (done.created, done.found, done.skipped) == (4, 4, ())
        stored = (
            [item.value["content"] for item in bob.items.find(("memories", "anna"))]
            if format == "langgraph-store"
            else [memory.content for memory in bob.memories()]
        )
        assert sorted(stored) == sorted(facts)
        for question in QUESTIONS[:2]:
            found = (
                [
                    item.value["content"]
                    for item in TallyStore(tally, actor=Actor(user="bob")).search(
                        ("memories",), query=question, limit=2
                    )
                ]
                if format == "langgraph-store"
                else [hit.content for hit in bob.recall(question, limit=2)]
            )
            assert found[0] == anna.recall(question, limit=2)[0].content


@pytest.mark.parametrize(
    "content", [b"", b"\x00\xff\xfe", b'"a text"', b"SQLite format 3\x00 and no more", b"{}"]
)
@pytest.mark.parametrize("format", get_args(ForeignFormat))
def test_a_file_of_another_form_is_refused(
    open_sqlite: OpenTally, tmp_path: Path, format: ForeignFormat, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with open_sqlite() as tally:
        anna = tally.bind(ANNA)
        done, refusal = None, ""
        try:
            done = import_memories(anna, format, file, mode="apply")
        except InvalidInput as error:
            refusal = str(error)
        assert done is not None or str(file) in refusal
        if done is not None:
            assert content in (b"{}", b'"a text"')
            assert (done.created, done.skipped_count) == (0, 1)
        assert anna.memories() == []


def test_the_commands_preview_import_and_export(tmp_path: Path) -> None:
    file = _written(tmp_path / "export.json", _mem0(("anna", "bob")))
    place = ("--tally", str(tmp_path / "tally"))
    with Tally.open(tmp_path / "tally", owner=ANNA, background=False):
        pass
    code, output, _ = run_piped("import-from", "mem0", str(file), *place)
    assert (code, "Nothing is written yet" in output, "--only" in output) == (0, True, True)
    code, _, errors = run_piped("import-from", "mem0", str(file), "--apply", *place)
    assert (code, "2 owners" in errors) == (2, True)
    code, output, _ = run_piped(
        "import-from", "mem0", str(file), "--only", "anna", "--apply", "--json", *place
    )
    assert (code, json.loads(output)["created"]) == (0, 3)
    out = tmp_path / "out.jsonl"
    code, output, _ = run_piped("export-to", "mem0", str(out), *place)
    assert (code, "3 memories" in output) == (0, True)
    assert out.stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["messages"] for line in out.read_text().splitlines()] == list(FACTS)
    code, _, errors = run_piped("export-to", "mem0", str(out), *place)
    assert (code, "there already" in errors) == (2, True)


DEEP = "[" * 100_000 + "]" * 100_000
ENDLESS = (
    "CREATE VIEW store AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT 'memories' AS prefix, i AS key, '{}' AS value FROM n"
)


def test_a_memory_nested_without_end_is_skipped_and_the_others_come(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    levels = "[" * 101 + "]" * 101
    lines = [
        json.dumps({"content": FACTS[0]}),
        f'{{"content": "Deep.", "more": {DEEP}}}',
        f'{{"content": "Not so deep.", "more": {levels}}}',
        json.dumps({"content": FACTS[1]}),
    ]
    file = tmp_path / "memories.jsonl"
    file.write_text("\n".join(lines))
    with open_sqlite() as tally:
        done = import_memories(tally.bind(ANNA), "jsonl", file, mode="apply")
        file.write_text(DEEP)
        only_deep = import_memories(tally.bind(ANNA), "mem0", file)

    assert (done.created, [each.place for each in done.skipped]) == (2, ["line 2", "line 3"])
    assert {each.reason for each in (*done.skipped, *only_deep.skipped)} == {
        "is nested deeper than 100 levels"
    }


def test_a_store_with_rows_nested_without_end_gives_the_others(
    open_sqlite: OpenTally, tmp_path: Path
) -> None:
    file = tmp_path / "store.sqlite"
    with closing(sqlite3.connect(file)) as made:
        made.execute("CREATE TABLE store (prefix TEXT, key TEXT, value TEXT)")
        rows = [("m", "a", f'{{"x": {DEEP}}}'), ("m", "b", '{"content": "The heron."}')]
        made.executemany("INSERT INTO store VALUES (?, ?, ?)", rows)
        made.commit()
    with open_sqlite() as tally:
        done = import_memories(tally.bind(ANNA), "langgraph-store", file, mode="apply")

    assert (done.created, [each.place for each in done.skipped]) == (1, ["m a"])


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder", "a view without end"])
def test_what_has_no_end_is_refused(open_sqlite: OpenTally, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "source"
    if kind == "a pipe":
        os.mkfifo(file)
    elif kind == "a device":
        file = Path("/dev/zero")
    elif kind == "a folder":
        file.mkdir()
    else:
        with closing(sqlite3.connect(file)) as made:
            made.execute(ENDLESS)
            made.execute(ENDLESS.replace("VIEW store", "VIEW checkpoints"))
            made.execute("CREATE TABLE writes (thread_id TEXT)")
    with open_sqlite() as tally:
        with pytest.raises(InvalidInput, match="is no"):
            import_memories(tally.bind(ANNA), "langgraph-store", file)
        with pytest.raises(InvalidInput):
            import_checkpoints(file, TallySaver(tally))
