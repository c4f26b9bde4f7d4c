"""Databases of LangGraph's own savers are copied whole; a receipt leads to the state and back."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from tests.terminals import run_piped

from tallystick import Actor, Tally
from tallystick.errors import CorruptTally, InvalidInput
from tallystick.tally.services import services_of
from tallystick_langchain import TallyCallbackHandler
from tallystick_langgraph import TallySaver, import_checkpoints

SERDE = JsonPlusSerializer(allowed_msgpack_modules=None)


def _config(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def _counted(state: MessagesState) -> dict[str, Any]:
    return {"messages": [("ai", f"answer {len(state['messages'])}")]}


def _graph(saver: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("answer", _counted)
    graph.add_node("ask", lambda state: {"messages": [("user", interrupt("more?"))]})
    graph.add_edge(START, "answer")
    graph.add_edge("answer", "ask")
    graph.add_edge("ask", END)
    return graph.compile(checkpointer=saver)


def _filled() -> InMemorySaver:
    """Two threads, one of them paused in the middle."""
    saver = InMemorySaver(serde=SERDE)
    for thread in ("one", "two"):
        for turn in range(4):
            _graph(saver).invoke({"messages": [("user", f"{thread} {turn}")]}, _config(thread))
            if (thread, turn) != ("two", 3):
                _graph(saver).invoke(Command(resume=f"reply {turn}"), _config(thread))
    return saver


def _writes(saver: InMemorySaver) -> Iterator[tuple[Any, ...]]:
    for (thread, namespace, id), writes in saver.writes.items():
        for (task, position), (_, channel, (kind, value), path) in writes.items():
            yield thread, namespace, id, task, path, position, channel, kind, value


def _place(checkpoint: Any) -> tuple[Any, str | None]:
    """Where a checkpoint stands, and the id of its parent."""
    parent = (
        checkpoint.parent_config["configurable"]["checkpoint_id"]
        if checkpoint.parent_config
        else None
    )
    return checkpoint.config["configurable"], parent


def _sqlite_file(path: Path, saver: InMemorySaver) -> Path:
    """What a SqliteSaver of release 3.1 would hold."""
    connection = sqlite3.connect(path)
    connection.execute(
        "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, "
        "parent_checkpoint_id TEXT, "
        "type TEXT, checkpoint BLOB, metadata BLOB, PRIMARY KEY (thread_id, checkpoint_ns, "
        "checkpoint_id))"
    )
    connection.execute(
        "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id "
        "TEXT, "
        "task_path TEXT NOT NULL DEFAULT '', idx INTEGER, channel TEXT, type TEXT, value BLOB, "
        "PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx))"
    )
    for checkpoint in saver.list(None):
        place, parent = _place(checkpoint)
        connection.execute(
            "INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                place["thread_id"],
                place["checkpoint_ns"],
                place["checkpoint_id"],
                parent,
                *SERDE.dumps_typed(checkpoint.checkpoint),
                json.dumps(checkpoint.metadata).encode(),
            ),
        )
    connection.executemany("INSERT INTO writes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _writes(saver))
    connection.commit()
    connection.close()
    return path


def _postgres_database(url: str, saver: InMemorySaver) -> None:
    """What a PostgresSaver of release 3.2 would hold: plain values inline, the others as blobs by
    version.
    """
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, "
            "parent_checkpoint_id TEXT, type TEXT, checkpoint JSONB, metadata JSONB)"
        )
        connection.execute(
            "CREATE TABLE checkpoint_blobs (thread_id TEXT, checkpoint_ns TEXT, channel TEXT, "
            "version TEXT, type TEXT, "
            "blob BYTEA, PRIMARY KEY (thread_id, checkpoint_ns, channel, version))"
        )
        connection.execute(
            "CREATE TABLE checkpoint_writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id "
            "TEXT, task_id TEXT, "
            "task_path TEXT NOT NULL DEFAULT '', idx INTEGER, channel TEXT, type TEXT, blob BYTEA)"
        )
        for checkpoint in saver.list(None):
            place, parent = _place(checkpoint)
            values = checkpoint.checkpoint["channel_values"]
            inline = {
                name: value
                for name, value in values.items()
                if isinstance(value, str | int) or value is None
            }
            for name, value in values.items():
                if name not in inline:
                    connection.execute(
                        "INSERT INTO checkpoint_blobs VALUES (%s, %s, %s, %s, %s, %s) ON "
                        "CONFLICT DO NOTHING",
                        (
                            place["thread_id"],
                            place["checkpoint_ns"],
                            name,
                            str(checkpoint.checkpoint["channel_versions"][name]),
                            *SERDE.dumps_typed(value),
                        ),
                    )
            connection.execute(
                "INSERT INTO checkpoints VALUES (%s, %s, %s, %s, NULL, %s, %s)",
                (
                    place["thread_id"],
                    place["checkpoint_ns"],
                    place["checkpoint_id"],
                    parent,
                    json.dumps({**checkpoint.checkpoint, "channel_values": inline}),
                    json.dumps(checkpoint.metadata),
                ),
            )
        for row in _writes(saver):
            connection.execute(
                "INSERT INTO checkpoint_writes VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)", row
            )


def _same(saver: TallySaver, source: InMemorySaver) -> None:
    for checkpoint in source.list(None):
        copied = saver.get_tuple(checkpoint.config)
        assert copied is not None
        assert (copied.checkpoint, copied.metadata, copied.parent_config) == (
            checkpoint.checkpoint,
            checkpoint.metadata,
            checkpoint.parent_config,
        )
        assert sorted(map(repr, copied.pending_writes or [])) == sorted(
            map(repr, checkpoint.pending_writes or [])
        )


def test_a_sqlite_savers_file_is_copied_and_goes_on(tmp_path: Path) -> None:
    source = _filled()
    file = _sqlite_file(tmp_path / "old.sqlite", source)
    with TallySaver.from_conn_string(str(tmp_path / "tally")) as saver:
        imported = import_checkpoints(file, saver)
        _same(saver, source)
        again = import_checkpoints(file, saver)
        result = _graph(saver).invoke(Command(resume="last"), _config("two"))

    assert (imported.threads, imported.checkpoints) == (2, len(list(source.list(None))))
    assert again == imported
    assert imported.writes == len(list(_writes(source)))
    assert any(row[5] == WRITES_IDX_MAP["__interrupt__"] for row in _writes(source))
    assert result["messages"][-1].content == "last"


@pytest.mark.postgres
def test_a_postgres_savers_database_is_copied_and_goes_on(
    tmp_path: Path, postgres_url: str
) -> None:
    import uuid

    import psycopg
    from psycopg.conninfo import make_conninfo

    name = f"old_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    url = make_conninfo(postgres_url, dbname=name)
    source = _filled()
    _postgres_database(url, source)
    with TallySaver.from_conn_string(str(tmp_path / "tally")) as saver:
        place = postgres_url.replace("/postgres?", f"/{name}?")
        imported = import_checkpoints(place, saver)
        _same(saver, source)
        result = _graph(saver).invoke(Command(resume="last"), _config("two"))

    assert imported.checkpoints == len(list(source.list(None)))
    assert result["messages"][-1].content == "last"


def test_a_source_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, only words")
    sqlite3.connect(tmp_path / "other").execute("CREATE TABLE other (x)").connection.close()
    with TallySaver.from_conn_string(str(tmp_path / "tally")) as saver:
        for name in ("missing", "text", "other"):
            with pytest.raises(InvalidInput, match=name):
                import_checkpoints(tmp_path / name, saver)


def test_what_does_not_read_back_as_its_source_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = _sqlite_file(tmp_path / "old.sqlite", _filled())
    with TallySaver.from_conn_string(str(tmp_path / "tally")) as saver:
        monkeypatch.setattr(TallySaver, "_channel_values", lambda self, stored: {"messages": []})
        with pytest.raises(CorruptTally, match=r"differs from its source in channel"):
            import_checkpoints(file, saver)


async def test_a_saver_of_its_own_tally_opens_and_closes(tmp_path: Path) -> None:
    async with TallySaver.from_conn_string(
        str(tmp_path / "tally"), actor=Actor(user="local")
    ) as saver:
        saver.setup()
        await _graph(saver).ainvoke({"messages": [("user", "hi")]}, _config("t"))
    with TallySaver.from_conn_string(str(tmp_path / "tally")) as saver:
        copied = saver.get_tuple(_config("t"))

    assert copied is not None
    assert len(copied.checkpoint["channel_values"]["messages"]) == 2


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tally_command(tmp_path: Path) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*arguments, "--tally", str(tmp_path / "tally")]
        code, output, errors = run_piped(*command)
        return subprocess.CompletedProcess(command, code, output, errors)

    return run


def test_the_command_imports_lists_and_verifies(tmp_path: Path, tally_command: Run) -> None:
    file = _sqlite_file(tmp_path / "old.sqlite", _filled())
    imported = tally_command("import-checkpoints", str(file))
    verified = tally_command("verify-threads")
    listed = json.loads(tally_command("state", "one", "--limit", "3", "--json").stdout)
    refused = tally_command("import-checkpoints", str(tmp_path / "missing"))

    assert "2 threads" in imported.stdout, imported
    assert (verified.returncode, "2 threads match" in verified.stdout) == (0, True)
    assert [checkpoint["metadata"]["step"] for checkpoint in listed] == [14, 13, 12]
    assert (refused.returncode, "no file" in refused.stderr) == (2, True)


def test_damage_fails_the_verification_of_threads(tmp_path: Path, tally_command: Run) -> None:
    with Tally.open(tmp_path / "tally", background=False) as tally:
        _graph(TallySaver(tally)).invoke({"messages": [("user", "hi " * 100)]}, _config("t"))
        services_of(tally).store.database.write(
            lambda tx: tx.exec_driver_sql(
                "DELETE FROM thread_states WHERE id = (SELECT max(id) FROM thread_states)"
            ),
            name="damage",
        )
        problems = [problem.problem for problem in tally.bind().threads.verify("t")]
    verified = tally_command("verify-threads", "t")

    assert any("do not add up" in problem for problem in problems)
    assert verified.returncode == 1
    assert "do not add up" in " ".join(verified.stdout.split())


def test_a_receipt_leads_to_the_state_and_back(tmp_path: Path, tally_command: Run) -> None:
    """With no code of the user's: the callback's task is the task that wrote."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [FakeListChatModel(responses=["hello"]).invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    with Tally.open(tmp_path / "tally", background=False) as tally:
        handler = TallyCallbackHandler(tally)
        compiled = graph.compile(checkpointer=TallySaver(tally))
        config: RunnableConfig = {**_config("t"), "callbacks": [handler]}
        compiled.invoke({"messages": [HumanMessage("hi")]}, config)
        [run] = tally.bind().recordings.runs()
        [call] = [step for step in tally.recordings.steps(run.id) if step.step_kind == "model_call"]
        [checkpoint] = [
            candidate
            for candidate in TallySaver(tally).list(_config("t"))
            if candidate.metadata.get("step") == 0
        ]
    id = checkpoint.checkpoint["id"]
    shown = json.loads(tally_command("show", call.id, "--json").stdout)
    back = json.loads(tally_command("state", "t", id, "--json").stdout)

    assert shown["state"] == [f"t {id}"]
    assert [write["steps"] for write in back[0]["writes"]] == [[call.id]]
    assert f"tally state t {id}" in " ".join(tally_command("show", call.id).stdout.split())
    assert call.id[-8:] in tally_command("state", "t", id).stdout
