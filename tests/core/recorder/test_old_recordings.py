"""A tally that earlier code made still verifies, plays, replays and goes on, on SQLite and
PostgreSQL.

tests/fixtures/releases/recording.py says what it recorded.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.fixtures.releases.places import RELEASES, Left, put

from tallystick import Actor, Tally
from tallystick.recorder import Recordings, verify_bundle
from tallystick.records import RunRecord

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
OTHER_KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCD"

pytestmark = pytest.mark.skipif(not RELEASES, reason="the fixtures are out of reach here")


ANNA = Actor(user="anna")


@dataclass(frozen=True)
class Old:
    """An old tally: where it is, and the code of today that opened it."""

    left: Left
    tally: Tally

    @property
    def run(self) -> RunRecord:
        """The run of its time."""
        return self.tally.bind(ANNA).recordings.runs()[-1]


def _sql(left: Left, statement: str) -> list[Any]:
    """What a statement gives, past the library: the first value of each row."""
    if isinstance(left.where, Path):
        with closing(sqlite3.connect(left.where / "tally.db")) as database, database:
            return [row[0] for row in database.execute(statement)]
    with psycopg.connect(left.where, options=f"-c search_path={left.schema}") as connection:
        result = connection.execute(statement.encode())
        return [] if result.description is None else [row[0] for row in result]


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Old]:
    """A copy of an old tally, opened by the code of today."""
    url = None if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    left = put(RELEASES[0], tmp_path_factory.mktemp("old"), url)
    with Tally.open(left.where, schema=left.schema, background=False) as tally:
        yield Old(left, tally)


@pytest.fixture
def tally(old: Old) -> Tally:
    """An old tally."""
    return old.tally


@pytest.fixture
def recorder(old: Old) -> Recordings:
    """What Anna recorded in it."""
    return old.tally.bind(ANNA).recordings


def test_the_digests_of_an_old_run_are_what_they_were(old: Old, recorder: Recordings) -> None:
    run = old.run
    assert (run.agent_name, run.goal, run.status, run.retention) == (
        "keeper",
        "feed the heron",
        "completed",
        "redacted_payloads",
    )
    foil = recorder.verify(run.id).foil
    assert (foil.count, foil.head) == (5, old.left.holds["heads"]["anna"][run.id])


def test_an_old_run_verifies_and_its_receipt_goes_out(
    old: Old, recorder: Recordings, tmp_path: Path
) -> None:
    answer = recorder.verify(old.run.id)
    assert (answer.ok, answer.problems, answer.gaps) == (True, (), {})
    assert (answer.receipts, answer.payloads_absent) == (3, 0)
    assert answer.payloads_checked >= 8

    bundle = tmp_path / "run.receipt"
    bundle.write_bytes(recorder.export_receipt(old.run.id))
    assert verify_bundle(bundle, foil=answer.foil).ok


def test_what_was_tampered_with_in_an_old_run_is_found(old: Old, recorder: Recordings) -> None:
    run_id = old.run.id
    [text] = _sql(old.left, "SELECT summary FROM step_entries WHERE kind = 'tool_call'")
    for summary, untouched in (('{"tool":"other"}', False), (text, True)):
        changed = (
            f"UPDATE step_entries SET summary = '{summary}' WHERE kind = 'tool_call' "
            f"RETURNING step_id"
        )
        assert len(_sql(old.left, changed)) == 1
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
        player = recorder.player(old.run.id)
        first: Any = player.model(asked(key))
        assert first["answer"] == {"content": "I look it up."}
        assert player.tool("look_up", {"arguments": {"bird": "heron"}}) == "fish"
        last: Any = player.model(asked(key, result))
        assert last["answer"] == {"content": "It eats fish."}
        report = player.finish()
        assert (report.fidelity, report.matches) == ("exact_redacted", True)


def test_an_old_step_is_made_again_and_compiled_anew(old: Old, recorder: Recordings) -> None:
    step = recorder.steps(old.run.id)[0]
    exact = recorder.preview_replay(
        step.id, call=lambda request: {"answer": {"content": "I look it up."}}
    )
    assert (exact.fidelity, exact.request_matches, exact.response_matches) == (
        "exact_redacted",
        True,
        True,
    )

    candidates = recorder.knew(step.id)
    assert {item.says for item in candidates} >= {"The heron eats three fish a day."}
    eaten = next(item for item in candidates if item.says == "The heron eats three fish a day.")
    changed = recorder.preview_replay(step.id, context_mutations={eaten.item_id: None})
    assert changed.diff is not None
    assert eaten.item_id in [change.item_id for change in changed.diff.removed]


def test_an_old_memory_is_recalled_and_leads_to_its_source(
    old: Old, tally: Tally, recorder: Recordings
) -> None:
    anna = tally.bind(ANNA)
    best = anna.recall("How many fish does the heron eat?")[0]
    assert best.memory.content == "The heron eats three fish a day."
    step = recorder.steps(old.run.id)[0]
    [origin] = recorder.trace(step.id, "three fish a day")
    assert (origin.memory_id, origin.raw) == (best.memory.id, "The heron eats three fish a day.")
    assert step.id in [use.step.id for use in recorder.uses(best.memory.id)]


def test_work_goes_on_in_an_old_tally(tally: Tally, recorder: Recordings) -> None:
    anna = tally.bind(ANNA)
    stored = anna.remember("The heron moved to the harbour.")
    assert anna.recall("Where is the heron?")[0].memory.id == stored.id
    with anna.run("keeper") as run, run.step("model_call") as step:
        step.record("request", {"prompt": "Where is it?"})
        step.record("response", {"answer": "At the harbour."})
    assert all(recorder.verify(one.id).ok for one in anna.recordings.runs())
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
