"""A tally of every schema version still opens, verifies, plays, replays and goes on, on SQLite and
PostgreSQL.

Each was made by the code of its time: tests/fixtures/recordings/make.py says how. None is missing:
there never was a version 0005. Version 0012 is the newest, and its tallies were made before its
release. What is kept of those on PostgreSQL are the rows; they go into tables that the migrations
up to their version make.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from tests.archives import unpacked
from tests.fixtures.recordings import rows

from tallystick import Actor, Tally
from tallystick.checkpoints import Leaf, NewCheckpoint
from tallystick.recorder import Recordings, verify_bundle
from tallystick.records import RunRecord
from tallystick.storage import migrate

FIXTURES = Path(__file__).parents[2] / "fixtures" / "recordings"
ARCHIVES = sorted(FIXTURES.glob("schema-*.tar.xz"))
ROWS = sorted(FIXTURES.glob("schema-*.rows.xz"))
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
OTHER_KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCD"

pytestmark = pytest.mark.skipif(not ARCHIVES, reason="the fixtures are out of reach here")


ANNA = Actor(user="anna")


@dataclass(frozen=True)
class Old:
    """An old tally: the version it had, where it stands, and the code of today that opened it."""

    version: str
    where: str | Path
    schema: str
    tally: Tally

    @property
    def run(self) -> RunRecord:
        """The run of its time."""
        return self.tally.bind(ANNA).runs()[-1]


def _sql(where: str | Path, schema: str, statement: str) -> list[Any]:
    """What a statement gives, past the library: the first value of each row."""
    if isinstance(where, Path):
        with closing(sqlite3.connect(where / "tally.db")) as database, database:
            return [row[0] for row in database.execute(statement)]
    with psycopg.connect(where, options=f"-c search_path={schema}") as connection:
        result = connection.execute(statement.encode())
        return [] if result.description is None else [row[0] for row in result]


def _loaded(archive: Path, url: str, schema: str) -> str:
    """The rows in tables as the migrations made them then."""
    engine = create_engine(
        url.replace("postgresql://", "postgresql+psycopg://"),
        connect_args={"options": f"-c search_path={schema}"},
    )
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
        migrate.upgrade(connection, archive.name[7:11])
    engine.dispose()
    rows.load(url, schema, rows.read(archive))
    return url


@pytest.fixture(
    scope="module",
    params=[*ARCHIVES, *(pytest.param(path, marks=pytest.mark.postgres) for path in ROWS)],
    ids=lambda path: path.name.removesuffix(".tar.xz").replace(".rows.xz", "-postgres"),
)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Old]:
    """A copy of an old tally, opened by the code of today."""
    archive, schema = request.param, f"t{uuid.uuid4().hex}"
    where: str | Path
    if archive in ARCHIVES:
        where = unpacked(archive, tmp_path_factory.mktemp("old") / "tally")
    else:
        where = _loaded(archive, request.getfixturevalue("postgres_url"), schema)
    [version] = _sql(where, schema, "SELECT version_num FROM alembic_version")
    assert version == archive.name[7:11]
    with Tally.open(where, schema=schema, background=False) as tally:
        yield Old(version, where, schema, tally)


@pytest.fixture
def tally(old: Old) -> Tally:
    """An old tally."""
    return old.tally


@pytest.fixture
def recorder(old: Old) -> Recordings:
    """What Anna recorded in it."""
    return old.tally.bind(ANNA).recordings


def test_every_schema_version_is_kept() -> None:
    versions = Path(migrate.__file__).parent / "migrations" / "versions"
    schema_versions = {path.name[:4] for path in versions.glob("0*.py")}
    assert max(schema_versions) == migrate.HEAD
    for folder in (ARCHIVES, ROWS):
        assert {path.name[7:11] for path in folder} == schema_versions
        assert max(path.stat().st_size for path in folder) < 40_000


def test_an_old_tally_opens_and_is_brought_to_the_schema_of_today(old: Old) -> None:
    assert _sql(old.where, old.schema, "SELECT version_num FROM alembic_version") == [migrate.HEAD]
    assert old.tally.owner == (ANNA if isinstance(old.where, Path) else None)
    run = old.run
    assert (run.agent_name, run.user_goal, run.status, run.retention) == (
        "keeper",
        "feed the heron",
        "completed",
        "redacted_payloads",
    )


def test_an_old_run_verifies_and_its_receipt_goes_out(
    old: Old, recorder: Recordings, tmp_path: Path
) -> None:
    answer = recorder.verify(old.run.run_id)
    assert (answer.ok, answer.problems, answer.gaps) == (True, (), {})
    assert (answer.receipts, answer.payloads_absent) == (3, 0)
    assert answer.payloads_checked >= 8

    bundle = tmp_path / "run.receipt"
    bundle.write_bytes(recorder.export_receipt(old.run.run_id))
    assert verify_bundle(bundle, foil=answer.foil).ok


def test_what_was_tampered_with_in_an_old_run_is_found(old: Old, recorder: Recordings) -> None:
    run_id = old.run.run_id
    [text] = _sql(
        old.where, old.schema, "SELECT summary FROM step_entries WHERE kind = 'tool_call'"
    )
    for summary, untouched in (('{"tool":"other"}', False), (text, True)):
        changed = (
            f"UPDATE step_entries SET summary = '{summary}' WHERE kind = 'tool_call' "
            f"RETURNING step_id"
        )
        assert len(_sql(old.where, old.schema, changed)) == 1
        assert recorder.verify(run_id).ok is untouched


def test_an_old_run_plays_as_a_tape(old: Old, recorder: Recordings) -> None:
    def asked(key: str, *more: dict[str, str]) -> dict[str, Any]:
        messages = [
            {"role": "system", "content": f"You help Anna. The key is {key}."},
            {"role": "user", "content": "What does my heron eat?"},
        ]
        return {"model": "scripted", "messages": [*messages, *more]}

    result = {"role": "tool", "content": "fish", "tool_call_id": "call_1"}
    for key in (KEY, OTHER_KEY):
        player = recorder.player(old.run.run_id)
        first: Any = player.model(asked(key))
        assert first["answer"] == {"content": "I look it up."}
        assert player.tool("look_up", {"arguments": {"bird": "heron"}}) == "fish"
        last: Any = player.model(asked(key, result))
        assert last["answer"] == {"content": "It eats fish."}
        report = player.finish()
        assert (report.fidelity, report.matches) == ("exact_redacted", True)


def test_an_old_step_is_made_again_and_compiled_anew(old: Old, recorder: Recordings) -> None:
    step = recorder.steps(old.run.run_id)[0]
    exact = recorder.replay(
        step.step_id, call=lambda request: {"answer": {"content": "I look it up."}}
    )
    assert (exact.fidelity, exact.request_matches, exact.response_matches) == (
        "exact_redacted",
        True,
        True,
    )

    candidates = recorder.knew(step.step_id)
    assert {item.says for item in candidates} >= {"The heron eats three fish a day."}
    eaten = next(item for item in candidates if item.says == "The heron eats three fish a day.")
    changed = recorder.replay(step.step_id, context_mutations={eaten.item_id: None})
    assert changed.diff is not None
    assert eaten.item_id in [change.item_id for change in changed.diff.removed]


def test_an_old_memory_is_recalled_and_leads_to_its_source(
    old: Old, tally: Tally, recorder: Recordings
) -> None:
    anna = tally.bind(ANNA)
    best = anna.recall("How many fish does the heron eat?")[0]
    assert best.memory.content == "The heron eats three fish a day."
    step = recorder.steps(old.run.run_id)[0]
    [origin] = recorder.trace(step.step_id, "three fish a day")
    assert (origin.memory_id, origin.raw) == (best.memory.id, "The heron eats three fish a day.")
    assert step.step_id in [use.step.step_id for use in recorder.uses(best.memory.id)]


def test_work_goes_on_in_an_old_tally(tally: Tally, recorder: Recordings) -> None:
    anna = tally.bind(ANNA)
    stored = anna.remember("The heron moved to the harbour.")
    assert anna.recall("Where is the heron?")[0].memory.id == stored.id
    with anna.run("keeper") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "Where is it?"})
        step.record("response", {"answer": "At the harbour."})
    assert [recorder.verify(one.run_id).ok for one in anna.runs()] == [True, True]
    findings = tally.bind(Actor(user="anna", role="operator")).operator.doctor()
    assert [finding.text for finding in findings if finding.status == "problem"] == []


def test_an_old_thread_of_checkpoints_is_read_and_goes_on(tally: Tally) -> None:
    pytest.importorskip("langgraph")
    from langgraph.graph import START, MessagesState, StateGraph

    from tallystick_langgraph import TallySaver

    graph: Any = StateGraph(MessagesState)
    graph.add_node(
        "answer", lambda state: {"messages": [("ai", f"answer {len(state['messages'])}")]}
    )
    graph.add_edge(START, "answer")
    chat = graph.compile(checkpointer=TallySaver(tally.bind(ANNA)))
    config = {"configurable": {"thread_id": "birds"}}

    texts = ["one", "answer 1", "two", "answer 3"]
    assert [message.content for message in chat.get_state(config).values["messages"]] == texts
    histories = [len(state.values.get("messages", ())) for state in chat.get_state_history(config)]
    assert histories == [4, 3, 2, 2, 1, 0]
    after = chat.invoke({"messages": [("user", "three")]}, config)
    assert [message.content for message in after["messages"]] == [*texts, "three", "answer 5"]


def test_names_in_an_old_chain_stay_and_are_named_while_the_rest_is_erased(
    old: Old, recorder: Recordings
) -> None:
    bound, root = old.tally.bind(ANNA), old.tally.bind(Actor(user="root", role="operator"))
    run_id, is_early = old.run.run_id, old.version < "0012"
    before = recorder.verify(run_id)
    assert (len(before.in_chain) > 0, "runs.user_goal" in before.not_covered) == (
        is_early,
        is_early,
    )

    root.operator.erase_recorded(run_id, reason="asked for", mode="apply")

    answer = recorder.verify(run_id)
    assert (answer.problems, answer.in_chain) == ((), before.in_chain)
    assert len(answer.texts_erased) == (0 if is_early else 4)
    record = bound.recordings.run(run_id)
    assert (record.user_goal, record.agent_name) == (None, "keeper" if is_early else "")
    memory = bound.remember("The keeper of the heron is Ada.").id
    preview = root.operator.erase(memory, fragments=["keeper"], reason="asked for")
    assert (f"run:{run_id}#0" in preview.in_chain) == is_early


def test_an_old_thread_keeps_its_journal_and_a_new_one_is_named_by_its_number(old: Old) -> None:
    bound = old.tally.bind(ANNA)
    for thread in ("birds", "fish"):
        for writer in (bound, bound.on("langgraph")):
            checkpoint = NewCheckpoint(
                id=old.tally.new_id(),
                namespace="",
                parent_id=None,
                metadata={},
                body=Leaf("json", b"{}"),
                values={},
            )
            writer.threads.put(thread, checkpoint)
    assert bound.threads.verify() == []
    streams = {
        str(stream)
        for stream in _sql(
            old.where, old.schema, "SELECT stream FROM journal WHERE event = 'checkpoint.put'"
        )
    }
    early = "thread:private:anna/birds"
    assert (early in streams) == (old.version < "0012")
    assert not any("fish" in stream for stream in streams)
    assert sum(stream.removeprefix("thread:").isdigit() for stream in streams) >= 1
